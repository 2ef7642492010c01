"""Tries the expert that a run needs, for the warm-up or for the words of a new model, on one task.

`agentrl train`, `agentrl train --dry-run` and `agentrl doctor` call this check, so they agree.
"""

from collections.abc import Sequence
from contextlib import closing

from agentrl.env import deadline, plays_at_random
from agentrl.run.known_rows import RESET_S
from agentrl.settings import Settings
from agentrl.types import EnvFault, Task
from agentrl.user_code import described, placed


def check_player(settings: Settings, tasks: Sequence[Task]) -> None:
    """Let the expert of the main agent take its first move in the first task.

    An environment that does not begin the task, or that takes more than RESET_S seconds, is not checked here: the
    rollouts report its fault.

    Raises:
        ValueError: the expert refuses its name, the options of the environment or the task, or raises an exception.
    """
    main = next(iter(settings.agents.values()))
    needed = settings.tables.warmup.updates or settings.tables.model.new is not None
    make = main.env.hooks.expert
    if not needed or make is None or plays_at_random(main.env.hooks, main.expert):
        return
    what = f"warmup.expert = {main.expert!r} cannot play this environment"
    try:
        with deadline(RESET_S), closing(main.env.hooks.make(main.env.config)) as env:
            try:
                first = env.reset(tasks[0])
            except Exception:  # noqa: BLE001  an environment may raise anything
                return
            try:
                expert = make(env, main.expert, 0)
                expert.reset(tasks[0])
                expert.act(first)
            except (ValueError, OSError) as error:
                raise ValueError(f"{what}: {placed(error)}") from error
            except EnvFault:
                raise
            except Exception as error:
                raise ValueError(f"{what}: {described(error)}") from error
    except EnvFault:  # the deadline
        return
