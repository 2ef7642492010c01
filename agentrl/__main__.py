"""Makes `python -m agentrl` the same command as `agentrl`."""

import sys

from agentrl.cli import main

sys.exit(main())
