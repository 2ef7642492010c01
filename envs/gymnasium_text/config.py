"""The options of a Gymnasium environment in words."""

from typing import Any, Literal

from pydantic import BaseModel, Field

HELD_OUT = 1 << 30  # first seed of the test split


class Config(BaseModel, frozen=True, extra="forbid"):
    """Options of a Gymnasium environment in words.

    Attributes:
        id: the name that gymnasium.make takes.
        options: further arguments of gymnasium.make, such as env.options.is_slippery=false.
        action_names: names of the actions of a Discrete space, in order; empty: the environment's own names, or the
            numbers of the actions if it has none.
        task: the instruction; None: the first paragraph, not counting headings, of the docstring of the environment's
            class.
        count: number of tasks of the split, one per seed.
        split: train and test have different seeds.
        max_steps: number of carried-out actions after which an episode is truncated; None: the environment's own limit.
        invalid_reward: reward of a turn whose text is no action of the action space; Gymnasium itself knows no such
            turn. With 0, a policy that never plays would be paid better in an environment whose steps cost something.
        picture: show the text rendering with each observation, if the environment has one.
    """

    id: str = "FrozenLake-v1"
    options: dict[str, Any] = Field(default_factory=dict)
    action_names: tuple[str, ...] = ()
    task: str | None = None
    count: int = Field(1000, ge=1, le=HELD_OUT)
    split: Literal["train", "test"] = "train"
    max_steps: int | None = Field(None, ge=1)
    invalid_reward: float = Field(-1.0, le=0, allow_inf_nan=False)
    picture: bool = True
