"""An agent written with the OpenAI Agents SDK, unchanged: it does not know that it is trained.

    agentrl train agent.toml agents.main.command="PYTHON agents/openai_agents_agent.py" model.path=DIR

in the folder `examples`. PYTHON: a Python with `pip install openai-agents`; it needs no agentrl.
OPENAI_BASE_URL and OPENAI_API_KEY lead to the model in training, AGENTRL_TASK is the task. What it prints is its
answer.
"""

import os

from agents import Agent, Runner, function_tool, set_tracing_disabled


@function_tool
def add(a: int, b: int) -> int:
    """The sum of two whole numbers."""
    return a + b


@function_tool
def multiply(a: int, b: int) -> int:
    """The product of two whole numbers."""
    return a * b


def main() -> None:
    """Two agents: one plans, and may hand the task over to one that calculates."""
    set_tracing_disabled(True)
    calculates = Agent(
        name="Calculates",
        handoff_description="Works out sums and products.",
        instructions="Use the tools. Give the number alone as your last answer.",
        tools=[add, multiply],
        model="any",
    )
    plans = Agent(
        name="Plans",
        instructions="Answer with the number alone, or hand the task over.",
        handoffs=[calculates],
        model="any",
    )
    print(Runner.run_sync(plans, os.environ["AGENTRL_TASK"], max_turns=6).final_output)


if __name__ == "__main__":
    main()
