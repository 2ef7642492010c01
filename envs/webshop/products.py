"""Products as pages, search index and reward use them, built from the original's rows."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

NO_PRICE = 100.0
LONGEST_ASIN = 10
_NOT_PRICE = re.compile(r"[^\d.]")


class Wish(NamedTuple):
    """One human-written instruction for a product."""

    instruction: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """One product.

    Attributes:
        query: the search that found the product on the original site, in lower case. It names the product's kind.
        category: the shop's department.
        product_category: path of categories, separated by guillemets.
        options: group -> values, both lower case.
        prices: one price, or the ends of a range (dollars).
        listed: whether the product has an entry in the attribute file, which synthetic goals need.
        instruction: text of the product's synthetic goals; None if there is none.
        instruction_attributes: attributes that the synthetic goals ask for.
        wishes: human instructions.
        level: difficulty of a generated product's goal, empty for real data.
        nouns: the title's nouns if they are stored with the product, else None.
    """

    asin: str
    title: str
    description: str
    bullets: tuple[str, ...]
    category: str
    query: str
    product_category: str
    options: Mapping[str, tuple[str, ...]]
    attributes: tuple[str, ...]
    prices: tuple[float, ...]
    image: str
    listed: bool = False
    instruction: str | None = None
    instruction_attributes: tuple[str, ...] = ()
    wishes: tuple[Wish, ...] = ()
    level: str = ""
    nouns: tuple[str, ...] | None = None

    @property
    def price_tag(self) -> str:
        """The price as pages show it."""
        return " to ".join(f"${price}" for price in self.prices)


class Source(NamedTuple):
    """The two attribute files, in which `build` looks products up by ASIN."""

    attributes: Mapping[str, Mapping[str, Any]]
    wishes: Mapping[str, Sequence[Mapping[str, Any]]]


def prices(pricing: str | None) -> tuple[float, ...]:
    """Dollar amounts of a pricing text, at most two; ValueError if it holds none."""
    if not pricing:
        return (NO_PRICE,)
    try:
        found = [float(Decimal(_NOT_PRICE.sub("", piece))) for piece in pricing.split("$")[1:]]
    except InvalidOperation:
        found = []
    if not found:
        raise ValueError(f"pricing {pricing!r} holds no dollar amount")
    return tuple(found[:2])


def options(groups: Mapping[str, Sequence[Mapping[str, Any]] | None] | str | None) -> dict[str, tuple[str, ...]]:
    """Option groups in file order; of two groups with one name the last wins, in the place of the first."""
    found: dict[str, tuple[str, ...]] = {}
    if isinstance(groups, Mapping):
        for name, values in groups.items():
            if values is not None:
                found[name.lower()] = tuple(v["value"].strip().replace("/", " | ").lower() for v in values)
    return found


def build(row: Mapping[str, Any], source: Source) -> Product:
    """A product from a row of the products file; ValueError says what the row lacks."""
    asin = row["asin"]
    try:
        entry = source.attributes.get(asin)
        return Product(
            asin=asin,
            title=_text(row, "name"),
            description=_text(row, "full_description"),
            bullets=_bullets(row["small_description"]),
            category=_text(row, "category"),
            query=_text(row, "query").lower().strip(),
            product_category=_text(row, "product_category"),
            options=options(row["customization_options"]),
            attributes=tuple((entry or {}).get("attributes", ("DUMMY_ATTR",))),
            prices=prices(row.get("pricing")),
            image=_first_image(row),
            listed=entry is not None,
            instruction=(entry or {}).get("instruction"),
            instruction_attributes=tuple((entry or {}).get("instruction_attributes") or ()),
            wishes=tuple(_wish(wish) for wish in source.wishes.get(asin, ())),
        )
    except KeyError as error:
        raise ValueError(f"product {asin} has no field {error}") from None
    except (TypeError, AttributeError) as error:
        raise ValueError(f"product {asin} has a field of the wrong type: {error}") from None
    except ValueError as error:
        raise ValueError(f"product {asin}: {error}") from None


def _text(row: Mapping[str, Any], field: str) -> str:
    value = row[field]
    if not isinstance(value, str):
        raise ValueError(f"{field} is {type(value).__name__}, not text")
    return value


def _bullets(given: object) -> tuple[str, ...]:
    found = tuple(given) if isinstance(given, list) else (given,)
    for point in found:
        if not isinstance(point, str):
            raise ValueError(f"small_description holds {type(point).__name__}, not text")
    return found


def _first_image(row: Mapping[str, Any]) -> str:
    images = row["images"]
    if not images:
        raise ValueError("it has no images")
    return str(images[0])


def _wish(wish: Mapping[str, Any]) -> Wish:
    return Wish(wish["instruction"], tuple(wish["instruction_attributes"]), tuple(wish["instruction_options"]))


def sellable(rows: Iterable[Mapping[str, Any]], seen: set[str]) -> Iterator[Mapping[str, Any]]:
    """Rows of products on sale: the first of each ASIN, without "nan" and over-long ASINs. Adds the ASINs to `seen`."""
    for row in rows:
        asin = row.get("asin") if isinstance(row, Mapping) else None
        if not isinstance(asin, str):
            raise ValueError(f"a row of the products file has no asin: {str(row)[:80]}")
        if asin != "nan" and len(asin) <= LONGEST_ASIN and asin not in seen:
            seen.add(asin)
            yield row


def indexed_text(product: Product) -> str:
    """The text of a product that the search engine indexes."""
    groups = ", and ".join(f"{name}: {', '.join(values)}" for name, values in product.options.items())
    first = product.bullets[0] if product.bullets else ""
    return " ".join((product.title, product.description, first, groups)).lower()
