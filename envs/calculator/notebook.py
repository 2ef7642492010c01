"""The tool environment whose story is read line by line; `environment` tells it as a whole."""

from agentrl.envs.calculator.problem import Config, Notebook
from agentrl.tool_env import environment

hooks = environment(Notebook, rows=[], config=Config, snapshots=True, module=__name__, name="calculator")
make = hooks.make  # bound in this module, where unpickling looks for it
