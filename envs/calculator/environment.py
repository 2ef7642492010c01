"""The environment: a model calls its tools as in every tool environment, or chooses among listed actions."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentrl import tool_env
from agentrl.env import Parsed, Prompt, RowQuestion, action_line, spoken
from agentrl.envs.calculator import notebook
from agentrl.envs.calculator.problem import NEXT, Calculator, Config
from agentrl.envs.calculator.stories import PARTS, ROOM, Part, write
from agentrl.tool import action as tool_action
from agentrl.tool_env import Listed, RowTasks, environment, naming_column, read_rows
from agentrl.types import Observation, Status

CACHED_ACTIONS, CACHED_CHARS = 200_000, 200  # a longer action was written by a model and seldom recurs

hooks = environment(Calculator, rows=[], config=Config, snapshots=True, module=__name__)
make = hooks.make  # bound in this module, where unpickling looks for it


class Problems(Listed):
    """The environment. With the prompts compact and instruct, every observation lists the actions that may be taken."""

    def __init__(self, config: Config) -> None:
        self.config = config
        chosen = notebook.hooks if config.show == "lines" else hooks
        super().__init__(chosen.make(config), lists=config.prompt != "chat")  # type: ignore[arg-type]


class Compact(tool_env.Compact):
    """Few words: `calc 12 * 7`, `next` and `answer 84`."""

    def answer(self, action: str) -> str:
        """The action in words."""
        return (_kept_words if len(action) <= CACHED_CHARS else _in_words)(action)

    def parse(self, text: str, observation: Observation) -> Parsed:
        """Any expression and any answer may be given in these words."""
        text = spoken(text)
        verb, _, rest = text.partition(" ")
        if verb == "answer" and rest:
            return Parsed(tool_action.answer(rest), True, Status.OK)
        if text == "next":
            return Parsed(NEXT, True, Status.OK, 1)
        if verb == "calc" and rest:
            return Parsed(tool_action.call("calculator", expression=rest), True, Status.OK, 1)
        return Parsed(text, False, Status.PARSE_ERROR)


class Instruct(Compact):
    """`Compact` for language models: a system message says what may be written.

    Args:
        lines: the story is told line by line.
    """

    rewords = False

    def __init__(self, lines: bool = False) -> None:
        more = ", `next` to read the next line of the problem," if lines else ""
        self.system = (
            "You solve a problem with a calculator. Reply with one line only: `calc A + B` to work out one operation "
            f"(+ - *){more} or `answer N` when you know the final number."
        )

    def parse(self, text: str, observation: Observation) -> Parsed:
        """The first line."""
        return super().parse(action_line(text), observation)


def _in_words(action: str) -> str:
    turn = tool_action.read(action)
    if turn.answer is not None:
        return f"answer {turn.answer}"
    if action == NEXT:
        return "next"
    return f"calc {getattr(turn.items[0], 'arguments', {}).get('expression', '')}"


_kept_words = functools.lru_cache(maxsize=CACHED_ACTIONS)(_in_words)


def prompt(config: Config) -> Prompt:
    """The prompt: how the environment speaks to a model."""
    if config.prompt != "chat":
        return Compact() if config.prompt == "compact" else Instruct(config.show == "lines")
    return (notebook.hooks if config.show == "lines" else hooks).prompt(config)


def tasks(config: Config) -> RowTasks:
    """Generated problems, or those of a file.

    Raises:
        ValueError: a row of a file lacks story or target, or one of them is empty; min_events is above events; or split
            is valid and rows names a file.
    """
    if config.min_events > config.events:
        raise ValueError(
            f"min_events = {config.min_events} is more than events = {config.events}: lower it or raise events"
        )
    if not config.rows:
        return RowTasks(_Generated(config), "calculator", "all", config.test_share)
    if config.split == "valid":
        raise ValueError("split = 'valid' is a part of generated problems: rows have train and test")
    rows = read_rows(config.rows)
    for i, row in enumerate(rows):
        read_row(config, row, f"row {i} of {config.rows}")
    name, column = Path(config.rows).stem, naming_column(rows[0])
    rows = [{**row, "key": f"{name}/{row.get('key', row.get('id', i))}"} for i, row in enumerate(rows)]
    return RowTasks(rows, "calculator", config.split, config.test_share, column)


def read_row(config: Config, row: Mapping[str, Any], where: str) -> RowQuestion:
    """Story and answer of a row of a file; ValueError names a column that the row lacks or leaves empty."""
    absent = [column for column in ("story", "target") if column not in row]
    if absent:
        raise ValueError(f"{where} has no column {absent[0]!r}: it has {', '.join(row)}")
    for column in ("story", "target"):
        if row[column] is None or not str(row[column]).strip():
            raise ValueError(f"{where} has nothing in column {column!r}: fill it in, or remove the row")
    return RowQuestion(str(row["story"]), (str(row["target"]),))


class _Generated(Sequence[Mapping[str, Any]]):
    """Generated problems, ordered by part, number of events and seed; a problem is written when it is read."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._parts: tuple[Part, ...] = PARTS if config.split == "all" else (config.split,)
        self._events = range(config.min_events or config.events, config.events + 1)

    def __len__(self) -> int:
        return len(self._parts) * len(self._events) * self._config.count

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        if not -len(self) <= i < len(self):
            raise IndexError(i)
        rest, number = divmod(i % len(self), self._config.count)
        part, events = self._parts[rest // len(self._events)], self._events[rest % len(self._events)]
        config = self._config
        room = min(ROOM * config.largest, 10**config.display - 1 if config.display else ROOM * config.largest)
        return row(part, config.seed + number, events, config.largest, config.noise, room, config.brief)


@functools.lru_cache(maxsize=50_000)
def row(part: Part, seed: int, events: int, largest: int, noise: int, room: int, brief: bool) -> dict[str, Any]:
    """The columns of one generated problem."""
    story = write(part, seed, events, largest, noise, room, brief)
    return {
        "key": f"{part}/{events}-{largest}-{noise}-{room}{'-brief' * brief}/{seed}",
        "seed": seed,
        "story": story.text,
        "target": story.answer,
        "has": story.has,
        "events": [list(event) for event in story.events],
        "at": list(story.at),
    }
