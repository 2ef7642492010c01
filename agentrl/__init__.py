"""agentrl: multi-turn agentic RL on step graphs.

`import agentrl` loads neither torch nor transformers. Import a subpackage by its full name, such as `agentrl.graph`.
"""

__version__ = "0.1.0"
