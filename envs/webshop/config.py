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
        num_products: number of rows of the products file to use (None: all), or number of products of the generated
            catalogue (None: 1000).
        catalogue_seed: seed of the generated catalogue.
        goals: `human`: one goal per instruction written for a product (in the generated catalogue, written by its
            generator); `synthetic`: one goal per combination of a product's option values.
        split: train, eval, test or all. Train, eval and test share neither products nor instructions, and synthetic
            goals have no eval; all takes every goal.
        levels: difficulties of generated goals to keep; empty keeps all.
        limit_goals: number of goals to keep, drawn by weight as the original does; -1 keeps all.
        price_seed: seed of the sampled prices and of the price limits of goals.
        goal_seed: seed of the order of the goals and of the goals that `limit_goals` keeps.
        session_seed: seed of random searches (`search[<r>]`).
        observation: form of the pages: one of the original's forms, or `brief`, a short form for small models.
        show_attributes: if true, an item's page has a button to the page of its attributes.
        state_key: what identifies a state. `page`: the page and the selected options; `text`: the text of the
            observation.
        listed_queries: largest number of searches among the listed actions of the index page. The searches are made of
            the instruction's words.
        prompt: `plain` (page and actions), `verl_agent` or `gem` (the structure of published prompts), `instruct` (few
            words, for language models), `instruct_listed` (the same with the listed actions), or `compact` (for small
            models).
        reward: `score`: a purchase is paid its score in [0, 1]; `success`: a purchase is paid the option
            `success_reward` if its score is 1, and 0 otherwise.
        success_reward: reward of a purchase with a score of 1 if the option `reward` is `success`.
        max_steps: steps until an episode is truncated; None for no limit.
        end_on_invalid: if true, an action that is not accepted ends the episode.
        nouns: JSON file that maps titles to their nouns, to be used instead of a tagger; empty: none.
        tagger: what finds the nouns of titles, which the score compares. `spacy`: the original's tagger; `built-in`: a
            list of words; `auto`: the nouns stored with the products, else spaCy if it is installed, else the list.
        search: the search engine. `native`: that of this package; `pyserini`: Lucene, on an index of the original.
        index: folder of the Lucene index of `pyserini`.
        strict: if true, a search on which the original crashes is refused, and a faulty product is an error. If false,
            such a search gets a sensible answer, and faulty products are left out.
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
