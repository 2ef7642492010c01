"""agentrl: multi-turn agentic RL on step graphs.

`import agentrl` loads neither torch nor transformers; import each package by its own name. It registers our Gymnasium
ids (`agentrl/ALFWorld-v0`, ...), whichever of agentrl and Gymnasium is imported first.
"""

from agentrl._gymnasium import announce

__version__ = "0.1.0"

announce()
