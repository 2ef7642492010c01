"""A prepared catalogue: files mapped into memory, so that all workers share one copy and need not load it.

`prepare` writes the files, and `store.json` last, so a folder that has `store.json` is complete.

| file | content |
| --- | --- |
| store.json | format, counts, tagger, fingerprints of the raw files, the lists of queries and categories |
| products.bin, products.npy | one JSON list per product, and [P+1] where each begins |
| asins.npy, asin_numbers.npy | ASINs in ascending order and the product of each |
| terms.bin, terms.npy | index terms in ascending order, and [V+1] where each begins |
| offsets.npy, documents.npy, saturation.npy, order.npy | see `bm25.Postings` |
| low.npy, high.npy, wishful.npy, variants.npy, weight.npy | see `goals.GoalColumns` |
| query_ids.npy, category_ids.npy | [P] index into the lists of store.json |
"""

import hashlib
import json
import mmap
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from agentrl.envs.webshop import catalogue as stock
from agentrl.envs.webshop.bm25 import Postings
from agentrl.envs.webshop.goals import GoalColumns
from agentrl.envs.webshop.products import Product, Wish

FORMAT = 1
FOLDER = "prepared"  # beside the raw files
MANIFEST = "store.json"
GOAL_COLUMNS = ("low", "high", "wishful", "variants", "weight")
_EDGE = 1 << 16  # bytes of a raw file's start and end that its fingerprint reads


def fingerprint(path: Path) -> str:
    """The fingerprint of a raw file: its size, and a digest of its beginning and its end."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(_EDGE)
        file.seek(max(0, size - _EDGE))
        return f"{size}-{hashlib.sha256(head + file.read()).hexdigest()[:16]}"


def fingerprints(folder: Path) -> dict[str, str]:
    """The fingerprints of the three raw files; ValueError if a file is missing."""
    stems = (stock.PRODUCTS, stock.ATTRIBUTES, stock.WISHES)
    return {stem: fingerprint(stock.raw_file(folder, stem)) for stem in stems}


def encode(product: Product) -> bytes:
    """A product as one JSON list, in the order of `decode`."""
    wishes = [list(wish) for wish in product.wishes]
    fields = [
        product.asin, product.title, product.description, product.bullets, product.category, product.query,
        product.product_category, product.options, product.attributes, product.prices, product.image, product.listed,
        product.instruction, product.instruction_attributes, wishes, product.nouns,
    ]  # fmt: skip
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def decode(data: bytes) -> Product:
    """The product that `encode` encoded."""
    (
        asin, title, description, bullets, category, query, path, options, attributes, prices, image, listed,
        instruction, asked, wishes, nouns,
    ) = json.loads(data.decode("utf-8", "surrogatepass"))  # fmt: skip
    return Product(
        asin=asin,
        title=title,
        description=description,
        bullets=tuple(bullets),
        category=category,
        query=query,
        product_category=path,
        options={name: tuple(values) for name, values in options.items()},
        attributes=tuple(attributes),
        prices=tuple(prices),
        image=image,
        listed=listed,
        instruction=instruction,
        instruction_attributes=tuple(asked),
        wishes=tuple(Wish(words, tuple(names), tuple(values)) for words, names, values in wishes),
        nouns=None if nouns is None else tuple(nouns),
    )


def find(folder: Path, num_products: int | None) -> Path | None:
    """The complete store with these products: the folder itself, or the one prepared beside the raw files in it.

    None if no such store exists.

    Raises:
        ValueError: the folder is a store of other products, the raw files changed after their store was made, or a
            store is damaged or has another format.
    """
    if (folder / MANIFEST).is_file():
        if not _holds(_manifest(folder), num_products):
            raise ValueError(f"{folder} was not prepared for num_products={num_products}: give the raw files' folder")
        return folder
    prepared = folder / FOLDER
    if not (prepared / MANIFEST).is_file():
        return None
    manifest = _manifest(prepared)
    if manifest["sources"] != fingerprints(folder):
        raise ValueError(f"the files in {folder} have changed since {prepared} was made: prepare again or remove it")
    return prepared if _holds(manifest, num_products) else None


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{folder / MANIFEST} is damaged ({error}): prepare the store again") from None
    if manifest.get("format") != FORMAT:
        found = manifest.get("format")
        raise ValueError(f"{folder} has store format {found}, this version reads {FORMAT}: prepare it again")
    return manifest


def _holds(manifest: Mapping[str, Any], num_products: int | None) -> bool:
    """Does the store hold exactly the first `num_products` rows?"""
    complete, rows = manifest["num_products"] is None, manifest["rows"]
    return complete if num_products is None else rows == num_products or (complete and rows <= num_products)


class _Terms(Mapping[str, int]):
    """Term -> row, by bisection in a mapped list."""

    def __init__(self, blob: np.ndarray, ends: np.ndarray) -> None:
        self._blob, self._ends = blob, ends

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __iter__(self) -> Iterator[str]:
        return (self._bytes(i).decode("utf-8", "surrogatepass") for i in range(len(self)))

    def _bytes(self, i: int) -> bytes:
        return self._blob[int(self._ends[i]) : int(self._ends[i + 1])].tobytes()

    def __getitem__(self, term: str) -> int:
        key = term.encode("utf-8", "surrogatepass")
        at = bisect_left(range(len(self)), key, key=self._bytes)
        if at == len(self) or self._bytes(at) != key:
            raise KeyError(term)
        return at


class _Asins:
    """ASIN -> number, by bisection."""

    def __init__(self, asins: np.ndarray, numbers: np.ndarray) -> None:
        self._asins, self._numbers = asins, numbers

    def get(self, asin: str, /) -> int | None:
        """The product's number; None if it is not on sale."""
        key = asin.encode("utf-8", "surrogatepass")
        at = int(np.searchsorted(self._asins, np.bytes_(key))) if len(key) <= self._asins.dtype.itemsize else 0
        return int(self._numbers[at]) if at < len(self._asins) and bytes(self._asins[at]) == key else None


class _Stored(Sequence[Product]):
    """Products that are decoded when they are asked for; the last 4096 are cached."""

    def __init__(self, folder: Path) -> None:
        self._starts = _array(folder, "products")
        with (folder / "products.bin").open("rb") as file:
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._read = lru_cache(4096)(self._decode)

    def __len__(self) -> int:
        return len(self._starts) - 1

    def _decode(self, number: int) -> Product:
        return decode(self._bytes[int(self._starts[number]) : int(self._starts[number + 1])])

    def __getitem__(self, number: int) -> Product:  # type: ignore[override]
        if not 0 <= number < len(self):
            raise IndexError(number)
        return self._read(int(number))


def _array(folder: Path, name: str) -> np.ndarray:
    try:
        found: np.ndarray = np.load(folder / f"{name}.npy", mmap_mode="r")
    except (OSError, ValueError) as error:
        raise ValueError(f"{folder}/{name}.npy is missing or damaged ({error}): prepare the store again") from None
    return found


class StoredCatalogue:
    """A catalogue of mapped files; see `Catalogue`."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._manifest = folder, _manifest(folder)
        self.name = "webshop"
        self.tagger: str = self._manifest["tagger"]
        self.products: Sequence[Product] = _Stored(folder)
        self.numbers = _Asins(_array(folder, "asins"), _array(folder, "asin_numbers"))

    @cached_property
    def columns(self) -> GoalColumns:
        """The columns from which goals are drawn."""
        return GoalColumns(**{name: _array(self._folder, name) for name in GOAL_COLUMNS})

    @cached_property
    def postings(self) -> Postings:
        """The search index."""
        blob = np.memmap(self._folder / "terms.bin", np.uint8, "r")
        return Postings(
            vocabulary=_Terms(blob, _array(self._folder, "terms")),
            offsets=_array(self._folder, "offsets"),
            documents=_array(self._folder, "documents"),
            saturation=_array(self._folder, "saturation"),
            order=_array(self._folder, "order"),
            fielded=self._manifest["fielded"],
        )

    def with_query(self, query: str) -> Sequence[int]:
        """Products of one kind, in catalogue order."""
        return self._labelled("query", query)

    def with_category(self, category: str) -> Sequence[int]:
        """Products of one department, in catalogue order."""
        return self._labelled("category", category)

    def _labelled(self, field: str, value: str) -> Sequence[int]:
        names: list[str] = self._manifest[f"{field}_names"]
        if value not in names:
            return ()
        own: list[int] = np.flatnonzero(_array(self._folder, f"{field}_ids") == names.index(value)).tolist()
        return own

    def with_attribute(self, attribute: str) -> Sequence[int]:
        """Products with an attribute, in catalogue order."""
        # Limit: reads every product. In the original this search crashes; only strict=false allows it.
        return [i for i in range(len(self.products)) if attribute in self.products[i].attributes]
