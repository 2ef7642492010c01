"""Finds the mistakes that make a task.

A program with such a mistake ends in time, returns a wrong value for at least one visible call (one of the first three)
and for at least one other call. The correct program must pass all of its calls.

`agentrl envs code_repair verify` tries every mistake in the sandbox and writes `verified.json`, from which tasks are
made. A test tries a sample of them again.
"""

import json
from collections.abc import Iterator
from importlib.resources import files

from agentrl.envs.code_repair import judge
from agentrl.envs.code_repair.mutate import apply, mutations
from agentrl.envs.code_repair.programs import VISIBLE, Program, programs
from agentrl.tool import CodeRunner, open_runner

TIMEOUT_S = 2.0


def verified() -> dict[str, list[int]]:
    """Program name -> the numbers of its mistakes that make a task, as places in the list `mutations` of its source."""
    text = files("agentrl.envs.code_repair").joinpath("verified.json").read_text("utf-8")
    found: dict[str, list[int]] = json.loads(text)
    return found


def outcomes(runner: CodeRunner, program: Program, source: str) -> list[bool]:
    """Whether each call of a program returns the right value with this source; empty if the run fails or hangs."""
    calls = [(program.name, call.expression, call.expected) for call in program.calls]
    pairs = [[module, expression] for module, expression, _ in calls]
    session = runner.session({f"{program.name}.py": source}, stateful=False)
    try:
        result = session.run(f"PAIRS = {pairs!r}\n{judge.EVALUATE}", TIMEOUT_S)
    finally:
        session.close()
    values = judge._last_list(result.stdout)
    return [value == call.expected for value, call in zip(values, program.calls, strict=False)]


def tasks_of(runner: CodeRunner, program: Program) -> Iterator[int]:
    """The numbers of the mistakes that make a task."""
    right = outcomes(runner, program, program.source)
    if len(right) < len(program.calls) or not all(right):
        raise ValueError(f"{program.name} itself fails or hangs: mend its source or the values of its calls")
    for number, mutation in enumerate(mutations(program.source)):
        passed = outcomes(runner, program, apply(program.source, mutation))
        if len(passed) == len(program.calls) and not all(passed[:VISIBLE]) and not all(passed[VISIBLE:]):
            yield number


def verify(argv: object = ()) -> int:
    """Write `verified.json` into the folder of this package."""
    runner = open_runner({"name": "python_sandbox", "echo": False})
    found = {name: list(tasks_of(runner, program)) for name, program in programs().items()}
    path = files("agentrl.envs.code_repair").joinpath("verified.json")
    with open(str(path), "w", encoding="utf-8") as file:
        json.dump(found, file, indent=None)
        file.write("\n")
    print(f"{sum(map(len, found.values()))} mistakes in {len(found)} programs make a task")
    return 0
