"""Merges shards into the files of a store.

Postings are counted first and then written to their places, so that nothing larger than one shard is in memory twice.

Letters: P products, V terms, N postings.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agentrl.envs.webshop import bm25, store

if TYPE_CHECKING:
    from agentrl.envs.webshop.prepare import Shard

Load = Callable[[Path], "Shard"]


def merge(folder: Path, shards: Sequence[Path], recipe: Mapping[str, Any], load: Load) -> None:
    """Write every file of the store, the manifest last."""
    lengths, names = _write_products(folder, shards, load)
    vocabulary = _write_terms(folder, shards, load)
    _write_postings(folder, shards, load, vocabulary, lengths)
    _write_weights(folder, shards, load)
    manifest = {**recipe, **names, "products": len(lengths), "fielded": int(np.count_nonzero(lengths))}
    (folder / store.MANIFEST).write_text(json.dumps(manifest), "utf-8")


def _write_products(folder: Path, shards: Sequence[Path], load: Load) -> tuple[np.ndarray, dict[str, Any]]:
    """Write products, ASINs, labels and goal columns; returns [P] index terms per product, and manifest entries."""
    asins: list[str] = []
    columns: dict[str, list[Any]] = {name: [] for name in ("low", "high", "wishful", "variants", "lengths", "sizes")}
    labels: dict[str, dict[str, int]] = {"query": {}, "category": {}}
    ids: dict[str, list[int]] = {"query": [], "category": []}
    rows = 0
    with (folder / "products.bin").open("wb") as blob:
        for path in shards:
            shard = load(path)
            blob.write(path.with_suffix(".bin").read_bytes())
            rows += shard.rows
            asins += shard.asins
            for name, values in columns.items():
                values += getattr(shard, name)
            for name, values in (("query", shard.queries), ("category", shard.categories)):
                ids[name] += [labels[name].setdefault(value, len(labels[name])) for value in values]
    high = [math.nan if price is None else price for price in columns["high"]]
    _save(folder, "products", np.concatenate([[0], np.cumsum(columns["sizes"])]))  # [P+1]
    _save(folder, "low", np.array(columns["low"]))  # [P]
    _save(folder, "high", np.array(high, np.float64))  # [P]
    _save(folder, "wishful", np.flatnonzero(columns["wishful"]))  # [H]
    _save(folder, "variants", np.array(columns["variants"], np.int64))  # [P]
    for name, values in ids.items():
        _save(folder, f"{name}_ids", np.array(values, np.int32))  # [P]
    order = bm25.ranks(asins)  # [P]
    by_asin = np.argsort(order)  # [P]
    encoded = np.array([asin.encode("utf-8", "surrogatepass") for asin in asins])  # [P] bytes
    _save(folder, "order", order)
    _save(folder, "asins", encoded[by_asin])
    _save(folder, "asin_numbers", by_asin.astype(np.int32))
    names = {f"{name}_names": list(found) for name, found in labels.items()}
    return np.array(columns["lengths"], np.int64), {**names, "rows": rows}


def _write_terms(folder: Path, shards: Sequence[Path], load: Load) -> dict[str, int]:
    """The vocabulary in ascending order; term -> row."""
    every: set[str] = set()
    for path in shards:
        every.update(load(path).words)
    ordered = sorted(word.encode("utf-8", "surrogatepass") for word in every)
    (folder / "terms.bin").write_bytes(b"".join(ordered) or b"\0")
    _save(folder, "terms", np.cumsum([0, *map(len, ordered)]))  # [V+1]
    return {word.decode("utf-8", "surrogatepass"): row for row, word in enumerate(ordered)}


def _postings(shards: Iterable[Path], load: Load, vocabulary: Mapping[str, int]) -> Any:
    """Each shard's (rows, documents, counts), documents numbered over all shards."""
    first = 0
    for path in shards:
        shard = load(path)
        row_of = np.array([vocabulary[word] for word in shard.words], np.int64)  # [own terms]
        rows = row_of[np.array(shard.rows_of, np.int64)]  # [own postings]
        yield rows, np.array(shard.documents, np.int64) + first, np.array(shard.counts, np.float32)
        first += len(shard.asins)


def _write_postings(
    folder: Path, shards: Sequence[Path], load: Load, vocabulary: Mapping[str, int], lengths: np.ndarray
) -> None:
    having = np.zeros(len(vocabulary), np.int64)  # [V]
    for rows, _, _ in _postings(shards, load, vocabulary):
        having += np.bincount(rows, minlength=len(vocabulary))
    offsets = np.concatenate([[0], np.cumsum(having)])  # [V+1]
    inverse = bm25.inverse_norms(lengths, lengths.sum() / max(np.count_nonzero(lengths), 1))  # [P]
    shape = (int(offsets[-1]),)
    documents = np.lib.format.open_memmap(folder / "documents.npy", "w+", np.int32, shape)  # [N]
    saturation = np.lib.format.open_memmap(folder / "saturation.npy", "w+", np.float32, shape)  # [N]
    place = offsets[:-1].copy()  # [V] where each term's next posting goes
    for rows, document, count in _postings(shards, load, vocabulary):
        by_row = np.argsort(rows, kind="stable")  # [own postings], documents stay ascending within a row
        own, starts, many = np.unique(rows[by_row], return_index=True, return_counts=True)
        at = np.arange(len(rows)) + np.repeat(place[own] - starts, many)  # [own postings]
        documents[at] = document[by_row]
        saturation[at] = np.float32(1) + count[by_row] * inverse[document[by_row]]
        place[own] += many
    documents.flush()
    saturation.flush()
    _save(folder, "offsets", offsets)


def _write_weights(folder: Path, shards: Sequence[Path], load: Load) -> None:
    """[P] sampling weight of each product's synthetic goals, as `goals.ColumnCollector` has it."""
    uses: Counter[str] = Counter()
    for path in shards:
        shard = load(path)
        for variants, asked in zip(shard.variants, shard.asked, strict=True):
            for attribute in asked if variants > 0 else ():
                uses[attribute] += variants
    weight = []
    for path in shards:
        shard = load(path)
        for variants, asked in zip(shard.variants, shard.asked, strict=True):
            weight.append(sum(1.0 / uses[a] for a in asked) / len(asked) if variants > 0 else 0.0)
    _save(folder, "weight", np.array(weight, np.float64))


def _save(folder: Path, name: str, values: np.ndarray) -> None:
    np.save(folder / f"{name}.npy", values)
