"""The generated catalogue `webshop-gen`: a realistic shop from a seed, so that nothing has to be downloaded to start.

Pages, search and reward are WebShop's. The goods and the goals are agentrl's own, so results are reported as
`webshop-gen` and never compared with results on the real data. Goals have three levels:

    easy    names the brand and one attribute, no option
    medium  two attributes that stand in the title, one option
    hard    no brand, attributes from title and features, every option group
"""

import random
import string
from collections.abc import Sequence
from typing import NamedTuple

from agentrl.envs.webshop.assortment import ADJECTIVES, BRANDS, FILLER, GROUP_NAMES, KINDS, VALUES, Kind
from agentrl.envs.webshop.catalogue import MemoryCatalogue
from agentrl.envs.webshop.nouns import BUILT_IN, built_in_nouns
from agentrl.envs.webshop.products import Product, Wish

NAME = "webshop-gen"
LEVELS = ("easy", "medium", "hard")
_CODE = string.ascii_uppercase + string.digits
_OPENINGS = (
    "i am looking for {article} {thing}",
    "i need {article} {thing}",
    "find me {article} {thing}",
    "i want to buy {article} {thing}",
)


class Draft(NamedTuple):
    """What is drawn for a product before its words are put together."""

    kind: Kind
    brand: str
    type: str
    attributes: tuple[str, ...]  # the first two stand in the title
    options: dict[str, tuple[str, ...]]
    level: str


def catalogue(size: int, seed: int) -> MemoryCatalogue:
    """The shop of a seed. A larger shop of the same seed begins with the same products."""
    return MemoryCatalogue(NAME, [product(number, seed) for number in range(size)], tagger=BUILT_IN)


def product(number: int, seed: int) -> Product:
    """Product `number` of the shop of a seed; products are independent of one another."""
    rng = random.Random(f"{NAME}/{seed}/{number}")
    draft = _draft(rng, LEVELS[number % len(LEVELS)])
    title = _title(draft, rng)
    asked = draft.attributes[:2] if draft.level != "hard" else tuple(sorted(rng.sample(draft.attributes, 2)))
    return Product(
        asin=_asin(number, rng),
        title=title,
        description=f"{title}. {' '.join(rng.sample(FILLER, 3))}",
        bullets=tuple(f"{a.upper()} - {rng.choice(FILLER)}" for a in draft.attributes),
        category=draft.kind.department,
        query=draft.kind.query,
        product_category=f"{draft.kind.path} \u203a {draft.type.title()}",
        options=draft.options,
        attributes=draft.attributes,
        prices=_prices(draft.kind, rng),
        image="https://webshop-gen.invalid/none.jpg",
        listed=True,
        instruction=f"Find me {', '.join(asked)} {draft.kind.query}",
        instruction_attributes=asked,
        wishes=(_wish(draft, asked, rng),),
        level=draft.level,
        nouns=built_in_nouns(title),
    )


def _asin(number: int, rng: random.Random) -> str:
    """G, five random letters or digits, and the number in four: unique for up to 1,679,616 products."""
    digits = ""
    for _ in range(4):
        number, digit = divmod(number, len(_CODE))
        digits += _CODE[digit]
    assert number == 0, "the generated shop has more products than its codes"
    return "G" + "".join(rng.choices(_CODE, k=5)) + digits


def _draft(rng: random.Random, level: str) -> Draft:
    kind = rng.choice(KINDS)
    options = {}
    for group in kind.groups:
        values = VALUES[group]
        kept = sorted(rng.sample(range(len(values)), rng.randint(2, min(5, len(values)))))
        options[GROUP_NAMES.get(group, group)] = tuple(values[i] for i in kept)
    return Draft(
        kind=kind,
        brand=rng.choice(BRANDS),
        type=rng.choice(kind.types),
        attributes=tuple(rng.sample(kind.attributes, rng.randint(3, 4))),
        options=options,
        level=level,
    )


def _title(draft: Draft, rng: random.Random) -> str:
    named = ", ".join(attribute.title() for attribute in draft.attributes[:2])
    return f"{draft.brand} {rng.choice(ADJECTIVES)} {draft.type.title()}, {named}"


def _prices(kind: Kind, rng: random.Random) -> tuple[float, ...]:
    price = round(kind.low * (kind.high / kind.low) ** rng.random(), 2)
    return (price,) if rng.random() < 0.8 else (price, round(price * rng.uniform(1.05, 1.4), 2))


def _wish(draft: Draft, asked: Sequence[str], rng: random.Random) -> Wish:
    """The instruction for a product, of the product's level."""
    easy = draft.level == "easy"
    thing = f"{draft.brand.lower()} {draft.type}" if easy else draft.type
    attributes = tuple(asked[:1] if easy else asked)
    groups = [] if easy else sorted(draft.options)
    if draft.level == "medium":
        groups = groups[:1]
    chosen = {group: rng.choice(draft.options[group]) for group in groups}
    article = "" if draft.type.endswith("s") else ("an" if thing[0] in "aeiou" else "a")
    opening = rng.choice(_OPENINGS).format(article=article, thing=thing).replace("  ", " ")
    wanted = " and ".join(f"{group} {value}" for group, value in chosen.items())
    text = f"{opening} that is {' and '.join(attributes)}" + (f", with {wanted}" if wanted else "")
    return Wish(text, attributes, tuple(chosen.values()))
