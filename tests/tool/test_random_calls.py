"""Chance as a player of tools: what it draws, a tool takes."""

from typing import Annotated, Literal

import numpy as np
import pytest
from pydantic import Field

from agentrl.tool import action as tool_action, random_action, tool_spec
from agentrl.types import Observation

TYPES = {
    "below": Annotated[int, Field(le=-5)],
    "inside": Annotated[int, Field(gt=0, lt=4)],
    "threes": Annotated[int, Field(ge=1, multiple_of=3)],
    "share": Annotated[float, Field(gt=0, lt=1)],
    "narrow": Annotated[float, Field(gt=0.001, lt=0.002)],
    "halves": Annotated[float, Field(ge=-1, le=1, multiple_of=0.5)],
    "long": Annotated[str, Field(min_length=20)],
    "short": Annotated[str, Field(max_length=2)],
    "few": Annotated[list[int], Field(max_length=1)],
    "many": Annotated[list[bool], Field(min_length=5)],
    "one of": Literal["a", "b"],
    "either": int | str | None,
    "deep": dict[str, list[list[list[list[float]]]]],
}


@pytest.mark.parametrize("kind", TYPES)
def test_every_draw_is_taken_by_the_tool(kind):
    def tool(x):
        return ""

    tool.__annotations__ = {"x": TYPES[kind], "return": str}
    spec = tool_spec(tool)
    seen = Observation(text="some words to draw from", tools=(spec.schema,))
    drawn = []
    for seed in range(100):
        turn = tool_action.read(random_action(seen, np.random.default_rng(seed)), [spec.schema])
        drawn += [spec.check(call.arguments)["x"] for call in turn.items]
    assert len(drawn) > 50
    if kind not in ("narrow", "few", "deep"):
        assert len({str(one) for one in drawn}) > 1


def test_the_ends_of_a_range_are_drawn_and_no_number_beyond():
    def tool(x: Annotated[int, Field(gt=0, lt=4)]) -> str:
        return ""

    seen = Observation(text="", tools=(tool_spec(tool).schema,))
    turns = [tool_action.read(random_action(seen, np.random.default_rng(seed))) for seed in range(200)]
    assert {call.arguments["x"] for turn in turns for call in turn.items} == {1, 2, 3}
