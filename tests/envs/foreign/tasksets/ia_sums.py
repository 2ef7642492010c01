"""Sums with a tool, for the tests of inspect_ai."""

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes, match, model_graded_qa
from inspect_ai.solver import generate, system_message, use_tools
from inspect_ai.tool import tool


@tool
def add():
    async def execute(x: int, y: int) -> int:
        """Add two numbers.

        Args:
            x: the first.
            y: the second.
        """
        return x + y

    return execute


@task
def plain(count: int = 10):
    samples = [Sample(id=f"s{i}", input=f"{i} + 1 =", target=str(i + 1)) for i in range(count)]
    return Task(dataset=samples, solver=[system_message("Say the sum."), generate()], scorer=[match(), includes()])


@task
def tools():
    samples = [Sample(id=f"t{i}", input=f"What is {i} + 40?", target=str(i + 40)) for i in range(10)]
    return Task(dataset=samples, solver=[use_tools(add()), generate()], scorer=match())


@task
def graded():
    return Task(dataset=[Sample(id="g", input="Say yes.", target="yes")], solver=generate(), scorer=model_graded_qa())


@task
def boxed():
    return Task(dataset=[Sample(id="b", input="Say yes.", target="yes")], scorer=match(), sandbox="docker")
