"""agentrl: multi-turn agentic RL on step graphs.

`import agentrl` loads neither torch nor transformers; the parts are imported by their own names.
"""

__version__ = "0.1.0"
