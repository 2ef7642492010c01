"""The shared data of all sessions of one configuration: stock, pages, goals, prices, nouns. Opened once per process."""

import random
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from agentrl.envs.webshop import catalogue as stock, generate, nouns, search, store
from agentrl.envs.webshop.catalogue import Catalogue
from agentrl.envs.webshop.config import Config
from agentrl.envs.webshop.goals import Goal, Goals, HumanGoals, SyntheticGoals, sample_prices, shuffled
from agentrl.envs.webshop.nouns import Extractor
from agentrl.envs.webshop.pages import Scorer, Shop
from agentrl.envs.webshop.products import Product
from agentrl.envs.webshop.reward import Bought, Unscorable, Wanted, score
from agentrl.envs.webshop.search import Refused, Search

DEFAULT_SIZE = 1000  # products of the generated catalogue
_PER_SESSION = (
    "preset", "split", "levels", "session_seed", "observation", "state_key", "listed_queries", "prompt", "reward",
    "success_reward", "max_steps", "end_on_invalid",
)  # fmt: skip


class Market:
    """A catalogue with its goals and prices under one configuration.

    Attributes:
        catalogue: the stock.
        shop: its pages.
        price: [P] float64 sampled prices, dollars.
        goals: the goals in final order.
        skipped: number of human instructions left out because they name no attribute.
        goal: number of a goal -> (the goal, its scorer), cached.
    """

    def __init__(self, config: Config) -> None:
        if config.tagger == "spacy" and not config.nouns:
            nouns.need_spacy()
        self.catalogue = open_catalogue(config.data, config.num_products, config.catalogue_seed, config.strict)
        ranker = None
        if config.search == "pyserini":
            ranker = search.pyserini_ranker(config.index, self.catalogue)
        engine = Search(self.catalogue, strict=config.strict, ranker=ranker)
        self.shop = Shop(self.catalogue, engine, show_attributes=config.show_attributes)
        rng = random.Random(config.price_seed)
        columns = self.catalogue.columns
        self.price = sample_prices(columns, rng)
        self.skipped = 0
        if config.goals == "human":
            human = HumanGoals(columns, self.catalogue.products, self.price, rng)
            book: HumanGoals | SyntheticGoals = human
            self.skipped = human.skipped
        else:
            book = SyntheticGoals(columns, self.price, rng, strict=config.strict)
        self.goals: Goals = shuffled(config.goals, book, self.catalogue.products, config.goal_seed, config.limit_goals)
        self._config = config
        self.goal = lru_cache(maxsize=4096)(self._goal)
        self._extract: Extractor | None = None

    def _goal(self, number: int) -> tuple[Goal, Scorer]:
        """A goal and the function that scores purchases for it; `goal` caches the last 4096."""
        goal = self.goals[number]
        return goal, self.scorer(goal)

    def nouns(self, product: Product) -> Sequence[str]:
        """Nouns of a product's title, from whichever source `tagger` names."""
        if self._stored and product.nouns is not None:
            return product.nouns
        if self._extract is None:
            self._extract = self._extractor()
        return self._extract(product.title)

    @property
    def _stored(self) -> bool:
        return bool(self.catalogue.tagger) and self._config.tagger == "auto" and not self._config.nouns

    def _extractor(self) -> Extractor:
        if self._config.nouns:
            return nouns.from_file(Path(self._config.nouns))
        if self._config.tagger == "spacy":
            return nouns.spacy()
        return nouns.built_in() if self._config.tagger == "built-in" else nouns.default()

    @property
    def tagger(self) -> str:
        """Where the nouns of titles come from, for reports."""
        if self._stored:
            return self.catalogue.tagger
        if self._config.nouns:
            return f"lists of {Path(self._config.nouns).name}"
        names = {"spacy": f"spaCy {nouns.MODEL}", "built-in": nouns.BUILT_IN}
        return names.get(self._config.tagger) or nouns.default_name()

    def scorer(self, goal: Goal) -> Scorer:
        """The function that scores a purchase for one goal."""
        asked = self.catalogue.products[goal.product]
        wanted = Wanted(
            attributes=goal.attributes,
            options=goal.options,
            price_upper=goal.price_upper,
            query=asked.query,
            product_category=asked.product_category,
        )

        def scored(product: Product, options: Mapping[str, str]) -> tuple[float, Mapping[str, Any]]:
            price = float(self.price[self.catalogue.numbers.get(product.asin)])
            pair = lambda: (self.nouns(product), self.nouns(asked))  # noqa: E731
            try:
                return score(bought_from(product), wanted, price, options, pair)
            except Unscorable as error:
                raise Refused(str(error)) from None

        return scored


def bought_from(product: Product) -> Bought:
    """What the score compares of a product that was bought."""
    return Bought(
        title=product.title,
        description=product.description,
        bullets=product.bullets,
        attributes=product.attributes,
        query=product.query,
        product_category=product.product_category,
    )


@lru_cache(maxsize=4)
def open_catalogue(data: str, num_products: int | None, seed: int, strict: bool) -> Catalogue:
    """The catalogue of a folder, raw or prepared, or the generated one; ValueError if the folder holds neither."""
    if not data:
        return generate.catalogue(num_products or DEFAULT_SIZE, seed)
    folder = Path(data)
    prepared = store.find(folder, num_products)
    if prepared:
        return store.StoredCatalogue(prepared)
    return stock.read(folder, num_products, strict=strict)


@lru_cache(maxsize=4)
def _open(config: Config) -> Market:
    return Market(config)


def open_market(config: Config) -> Market:
    """The market of a configuration; configurations that differ only in options of sessions share one market."""
    defaults = {name: Config.model_fields[name].default for name in _PER_SESSION}
    return _open(config.model_copy(update=defaults))
