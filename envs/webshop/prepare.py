"""`agentrl envs webshop prepare`: builds a store from the raw files in shards; a later call reuses the shards."""

import base64
import json
import os
import shutil
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agentrl.cli import Parser
from agentrl.envs.webshop import catalogue as stock, goals, json_stream, nouns, products, store
from agentrl.envs.webshop.analysis import terms
from agentrl.envs.webshop.merge import merge
from agentrl.envs.webshop.nouns import Extractor
from agentrl.envs.webshop.products import Product, Source
from agentrl.envs.webshop.published import HELP
from agentrl.files import read_json, write_atomically

SHARD = 20_000  # rows of the products file
ARRAYS = ("rows_of", "documents", "counts")  # of a shard


def _ints() -> "array[int]":
    return array("i")


@dataclass(kw_only=True)
class Shard:
    """What is stored of some rows until all shards are merged. D is the number of products of the shard.

    Attributes:
        start, end: bytes of the products file that the shard covers. rows: rows that it covers, products or not.
        asins, queries, categories: [D].
        low, high: [D] ends of the price range; high is None where there is one price.
        wishful: [D] whether the product has human instructions.
        variants: [D] number of synthetic goals; asked: [D] their attributes.
        lengths: [D] number of index terms. words: distinct term -> its number in the shard; rows_of (such a number),
            documents, counts: one entry per posting.
        sizes: [D] bytes of each encoded product.
    """

    start: int
    end: int = 0
    rows: int = 0
    asins: list[str] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    categories: list[str] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float | None] = field(default_factory=list)
    wishful: list[bool] = field(default_factory=list)
    variants: list[int] = field(default_factory=list)
    asked: list[tuple[str, ...]] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    words: dict[str, int] = field(default_factory=dict)
    rows_of: "array[int]" = field(default_factory=_ints)
    documents: "array[int]" = field(default_factory=_ints)
    counts: "array[int]" = field(default_factory=_ints)
    sizes: list[int] = field(default_factory=list)

    def add(self, product: Product) -> bytes:
        """Take one product in; returns the encoded product."""
        document = len(self.asins)
        self.asins.append(product.asin)
        self.queries.append(product.query)
        self.categories.append(product.category)
        self.low.append(product.prices[0])
        self.high.append(product.prices[1] if len(product.prices) > 1 else None)
        self.wishful.append(bool(product.wishes))
        self.variants.append(goals.variants(product))
        self.asked.append(product.instruction_attributes)
        found = terms(products.indexed_text(product))
        self.lengths.append(len(found))
        for word, count in Counter(found).items():
            self.rows_of.append(self.words.setdefault(word, len(self.words)))
            self.documents.append(document)
            self.counts.append(count)
        encoded = store.encode(product)
        self.sizes.append(len(encoded))
        return encoded


class _Packed(Mapping[str, Any]):
    """A JSON object of many small entries, kept as bytes: a tenth of the memory of Python objects."""

    def __init__(self, path: Path) -> None:
        self._entries = {e.key: json.dumps(e.value).encode() for e in json_stream.entries(path)}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __getitem__(self, key: str) -> Any:
        return json.loads(self._entries[key])


def main(argv: Sequence[str]) -> int:
    """Carry out the command. Bad arguments or data raise ValueError, and no unfinished store is left."""
    parser = Parser("agentrl envs webshop prepare", f"Build the store that all workers share.\n\n{HELP}")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="folder of the original's files")
    parser.add_argument("--out", type=Path, help=f"folder of the store; default: {store.FOLDER}/ beside the files")
    parser.add_argument("--num-products", type=int, help="number of rows of the products file to read")
    parser.add_argument("--tagger", choices=("auto", "spacy", "built-in"), default="auto", help="of title nouns")
    parser.add_argument("--skip-faulty", action="store_true", help="leave faulty products out, as strict=false does")
    given = parser.parse_args(list(argv))
    taggers: dict[str, Callable[[], Extractor]] = {
        "auto": nouns.default,
        "spacy": nouns.spacy,
        "built-in": nouns.built_in,
    }
    extract = taggers[given.tagger]()
    out = given.out or given.data / store.FOLDER
    prepare(given.data, out, extract, given.num_products, strict=not given.skip_faulty)
    print(f"prepared {out}")
    return 0


def prepare(
    data: Path,
    out: Path,
    extract: Extractor,
    num_products: int | None = None,
    *,
    strict: bool = True,
    shard: int = SHARD,
) -> None:
    """Build the store `out` from the raw files in `data`.

    The store is built in `out` + ".partial" and renamed when it is complete. If the process is killed and started again
    with the same arguments, it continues after the last whole shard. If the data is bad, the folder is removed.

    Raises:
        ValueError: the data is missing or faulty, or `out` exists already.
    """
    if out.exists():
        raise ValueError(f"{out} exists already: remove it to prepare again")
    recipe = {
        "format": store.FORMAT,
        "sources": store.fingerprints(data),
        "num_products": num_products,
        "tagger": extract.name,
        "strict": strict,
        "shard": shard,
    }
    partial = out.with_name(f"{out.name}.partial")
    _begin(partial, recipe)
    try:
        shards = _build_shards(data, partial, extract, num_products, strict=strict, shard=shard)
        merge(partial, shards, recipe, load_shard)
    except ValueError:
        shutil.rmtree(partial)
        raise
    for leftover in partial.glob("shard-*"):
        leftover.unlink()
    (partial / "recipe.json").unlink()
    os.replace(partial, out)


def _begin(partial: Path, recipe: Mapping[str, Any]) -> None:
    """Make the working folder, or keep a working folder with the same recipe."""
    note = partial / "recipe.json"
    if note.is_file() and note.read_text("utf-8") == json.dumps(recipe):
        return
    if partial.exists():
        shutil.rmtree(partial)
    partial.mkdir(parents=True)
    note.write_text(json.dumps(recipe), "utf-8")


def _build_shards(
    data: Path, partial: Path, extract: Extractor, num_products: int | None, *, strict: bool, shard: int
) -> list[Path]:
    """Build the shards that are missing; returns the files of all shards."""
    path = stock.raw_file(data, stock.PRODUCTS)
    done = sorted(partial.glob("shard-*.json"))
    seen: set[str] = set()
    start = rows = 0
    for file in done:
        earlier = load_shard(file)
        seen.update(earlier.asins)
        start, rows = earlier.end, rows + earlier.rows
    source = Source(_Packed(stock.raw_file(data, stock.ATTRIBUTES)), _Packed(stock.raw_file(data, stock.WISHES)))
    bar = _Bar(path.stat().st_size)
    while num_products is None or rows < num_products:
        limit = shard if num_products is None else min(shard, num_products - rows)
        made, blob = _shard(path, start, limit, source, seen, extract, strict=strict)
        if not made.rows:
            break
        name = partial / f"shard-{len(done):05d}"
        name.with_suffix(".bin").write_bytes(blob)
        write_atomically(name.with_suffix(".json"), dump_shard(made))
        done.append(name.with_suffix(".json"))
        start, rows = made.end, rows + made.rows
        bar.show(start, rows)
    bar.close()
    if not seen:
        raise ValueError(f"{path} holds no product")
    return done


def _shard(
    path: Path, start: int, limit: int, source: Source, seen: set[str], extract: Extractor, *, strict: bool
) -> tuple[Shard, bytes]:
    """The next `limit` rows as a shard and its encoded products."""
    made = Shard(start=start, end=start)

    def rows() -> Iterator[Mapping[str, Any]]:
        for entry in json_stream.entries(path, start):
            made.rows, made.end = made.rows + 1, entry.end
            yield entry.value
            if made.rows == limit:
                return

    built = stock.build_all(rows(), source, strict=strict, seen=seen)
    blob = b"".join(made.add(replace(product, nouns=tuple(extract(product.title)))) for product in built)
    return made, blob


def dump_shard(shard: Shard) -> bytes:
    """A shard as JSON, its arrays in base64. No pickle: the folder may have been copied from somebody else."""
    arrays = {name: base64.b64encode(getattr(shard, name).tobytes()).decode() for name in ARRAYS}
    return json.dumps({**vars(shard), **arrays}).encode()


def load_shard(path: Path) -> Shard:
    """A shard written by this process or an earlier one."""
    fields = read_json(path, "shard")
    for name in ARRAYS:
        numbers = _ints()
        numbers.frombytes(base64.b64decode(fields[name]))
        fields[name] = numbers
    return Shard(**fields)


class _Bar:
    """A progress bar on a terminal; without a terminal no output."""

    def __init__(self, total: int) -> None:
        self._bar: Any = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress

            self._bar = Progress(console=Console(stderr=True))
            self._bar.start()
            self._task = self._bar.add_task("reading products", total=total)

    def show(self, done: int, rows: int) -> None:
        """Bytes read, rows read."""
        if self._bar:
            self._bar.update(self._task, completed=done, description=f"{rows:,} rows")

    def close(self) -> None:
        """Stop drawing the bar."""
        if self._bar:
            self._bar.stop()
