"""The tool environment in which the agent reads the story line by line; in `environment` it reads the whole story."""

from agentrl.envs.calculator.problem import Config, Notebook
from agentrl.tool_env import environment

hooks = environment(Notebook, rows=[], config=Config, snapshots=True, module=__name__, name="calculator")
make = hooks.make  # bound in this module, where unpickling looks for it
