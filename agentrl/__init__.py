"""agentrl: multi-turn agentic RL on step graphs.

`import agentrl` loads neither torch nor transformers. Import a subpackage by its full name, such as `agentrl.graph`.
`import agentrl.gym` registers our Gymnasium ids (`agentrl/ALFWorld-v0`, ...).
"""

__version__ = "0.2.0"
