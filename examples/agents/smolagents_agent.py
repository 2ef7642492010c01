"""An agent written with smolagents, unchanged: it does not know that it is trained.

    agentrl train agent.toml agents.main.command="PYTHON agents/smolagents_agent.py" model.path=DIR

in the folder `examples`. PYTHON: a Python with `pip install 'smolagents[openai]'`; it needs no agentrl.
OPENAI_BASE_URL and OPENAI_API_KEY lead to the model in training, AGENTRL_TASK is the task. What it prints is its
answer.
"""

import os
import sys

from smolagents import OpenAIServerModel, ToolCallingAgent, tool
from smolagents.monitoring import LogLevel


@tool
def add(a: int, b: int) -> int:
    """The sum of two whole numbers.

    Args:
        a: a number.
        b: a number.
    """
    return a + b


@tool
def multiply(a: int, b: int) -> int:
    """The product of two whole numbers.

    Args:
        a: a number.
        b: a number.
    """
    return a * b


def main() -> None:
    """smolagents' own loop of model and tools."""
    where = {"api_base": os.environ["OPENAI_BASE_URL"], "api_key": os.environ["OPENAI_API_KEY"]}
    agent = ToolCallingAgent(
        tools=[add, multiply],
        model=OpenAIServerModel("any", **where),
        max_steps=4,
        verbosity_level=LogLevel.OFF,
        instructions="Give the number alone as the final answer.",
    )
    print(agent.run(os.environ["AGENTRL_TASK"]), file=sys.stdout)


if __name__ == "__main__":
    main()
