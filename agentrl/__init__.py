"""agentrl: multi-turn agentic RL on step graphs.

`import agentrl` loads neither torch nor transformers. Import a subpackage by its full name, such as `agentrl.graph`.
`import agentrl` also registers our Gymnasium ids (`agentrl/ALFWorld-v0`, ...): at once if Gymnasium is already
imported, else as soon as Gymnasium is imported.
"""

from agentrl._gymnasium import announce

__version__ = "0.2.0"

announce()
