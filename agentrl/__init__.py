"""agentrl: multi-turn agentic RL on step graphs.

`import agentrl` loads neither torch nor transformers; import each package by its own name. `import agentrl` also
registers our Gymnasium ids (`agentrl/ALFWorld-v0`, ...), in either order of importing agentrl and Gymnasium.
"""

from agentrl._gymnasium import announce

__version__ = "0.1.0"

announce()
