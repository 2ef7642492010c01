"""Options of the environment, and the presets of published protocols."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from pydantic import BaseModel, Field, model_validator

Preset = Literal["none", "original", "verl_agent", "gem"]

PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "none": {},
        "original": {"goals": "human", "max_steps": 100, "reward": "score", "prompt": "plain"},
        "verl_agent": {
            "goals": "synthetic",
            "num_products": 1000,
            "max_steps": 15,
            "reward": "success",
            "success_reward": 10.0,
            "prompt": "verl_agent",
            "state_key": "text",
        },
        "gem": {"max_steps": 15, "reward": "score", "prompt": "gem", "end_on_invalid": True},
    }
)


class Config(BaseModel, frozen=True, extra="forbid"):
    """Options of WebShop.

    Attributes:
        preset: a published protocol; options that the recipe gives replace those of the preset.
        data: folder of the original's files or of a prepared store; empty for the generated catalogue `webshop-gen`.
        num_products: rows of the products file to use (None: all), or the size of the generated catalogue.
        catalogue_seed: seed of the generated catalogue.
        goals: human or synthetic instructions.
        split: train, eval and test share neither products nor instructions; all takes every goal.
        levels: difficulties of generated goals to keep; empty keeps all.
        limit_goals: number of goals to keep, drawn by weight as the original does; -1 keeps all.
        price_seed, goal_seed, session_seed: seeds of prices and price limits, of the goals' order, and of random
            searches.
        observation: form of the pages (brief: a short form for small models). show_attributes: offer the attribute
            page.
        state_key: what counts as the same state: page and selected options, or the text itself.
        listed_queries: search actions listed on the index page, made from the instruction's words.
        prompt: form of the prompt: the published forms, `instruct` (language models, in few words; `instruct_listed`
            with the actions), or `compact` (small models).
        reward: the score, or `success_reward` for a full score and 0 otherwise.
        success_reward: see `reward`.
        max_steps: steps until an episode is truncated; None for no limit. end_on_invalid: an action without effect ends
            the episode.
        nouns: JSON file, title -> nouns, instead of a tagger. tagger: auto takes stored lists, then spaCy, then the
            built-in list.
        search: native (the engine of this package), or pyserini on the Lucene index in the folder `index`.
        index: see `search`.
        strict: refuse or fail where the original crashes; false answers sensibly and leaves faulty products out.
    """

    preset: Preset = "none"
    data: str = ""
    num_products: int | None = Field(None, ge=1)
    catalogue_seed: int = 0
    goals: Literal["human", "synthetic"] = "human"
    split: Literal["train", "eval", "test", "all"] = "train"
    levels: tuple[Literal["easy", "medium", "hard"], ...] = ()
    limit_goals: int = Field(-1, ge=-1)
    price_seed: int = 0
    goal_seed: int = 233
    session_seed: int = 0
    observation: Literal["text", "text_rich", "html", "url", "brief"] = "text"
    show_attributes: bool = False
    state_key: Literal["page", "text"] = "page"
    listed_queries: int = Field(4, ge=0)
    prompt: Literal["plain", "compact", "instruct", "instruct_listed", "verl_agent", "gem"] = "plain"
    reward: Literal["score", "success"] = "score"
    success_reward: float = 10.0
    max_steps: int | None = Field(15, ge=1)
    end_on_invalid: bool = False
    nouns: str = ""
    tagger: Literal["auto", "spacy", "built-in"] = "auto"
    search: Literal["native", "pyserini"] = "native"
    index: str = ""
    strict: bool = True

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, given: Any) -> Any:
        """Options of the preset, below those given."""
        if not isinstance(given, Mapping):
            return given
        return {**PRESETS.get(str(given.get("preset", "none")), {}), **given}
