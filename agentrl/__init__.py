"""agentrl: multi-turn agentic RL on step graphs.

`import agentrl` loads neither torch nor transformers; the parts are imported by their own names. It sees to it that
Gymnasium knows our ids (`agentrl/ALFWorld-v0`, ...), whichever of the two is imported first.
"""

from agentrl._gymnasium import announce

__version__ = "0.1.0"

announce()
