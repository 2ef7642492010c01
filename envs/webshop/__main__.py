"""`python -m agentrl.envs.webshop play|search|reward|prepare ...`."""

import sys

from agentrl.envs.webshop.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
