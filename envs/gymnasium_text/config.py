"""The options of a Gymnasium environment in words."""

from typing import Any, Literal

from pydantic import BaseModel, Field

HELD_OUT = 1 << 30  # first seed of the test split


class Config(BaseModel, frozen=True, extra="forbid"):
    """Options of a Gymnasium environment in words.

    Attributes:
        id: the name that gymnasium.make takes.
        options: its arguments, such as env.options.is_slippery=false.
        action_names: names of the actions of a Discrete space, in order; empty: the environment's own, else numbers.
        task: the instruction; None is the beginning of the environment's documentation.
        count: tasks per split; the two splits have different seeds.
        split: train and test have different seeds.
        max_steps: replaces the environment's own limit.
        picture: show the text rendering with each observation, if the environment has one.
    """

    id: str = "FrozenLake-v1"
    options: dict[str, Any] = Field(default_factory=dict)
    action_names: tuple[str, ...] = ()
    task: str | None = None
    count: int = Field(1000, ge=1, le=HELD_OUT)
    split: Literal["train", "test"] = "train"
    max_steps: int | None = Field(None, ge=1)
    picture: bool = True
