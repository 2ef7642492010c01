"""Finds texts that are nearly the same, by MinHash with banding and then by an exact comparison.

Source: Broder, "On the resemblance and containment of documents" (1997); banding as in Leskovec, Rajaraman, Ullman,
"Mining of Massive Datasets", section 3.4. The resemblance of two texts is the Jaccard similarity of their sets of
three-word pieces. With 32 bands of 4 hashes, a pair of resemblance 0.8 is found with a probability of
1 - (1 - 0.8^4)^32 > 0.9999. If more than NEIGHBOURS texts share a bucket, the probability is smaller.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np

WORDS, BANDS, PER_BAND = 3, 32, 4  # words per piece, bands, hashes per band
PRIME = np.uint64(2**31 - 1)
# In each bucket, a text is compared with at most this many texts before it. The texts of a larger bucket usually share
# only a template.
NEIGHBOURS = 50
TOKEN = re.compile(r"\w+")
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


def near_pairs(texts: Sequence[str], least: float) -> dict[tuple[int, int], float]:
    """(i, j), i < j -> resemblance, for the pairs of texts with a resemblance of `least` or more.

    Two texts that contain different numbers are never a pair: they are different problems, even if all other words are
    equal.
    """
    pieces = [_pieces(text) for text in texts]
    numbers = [sorted(NUMBER.findall(text)) for text in texts]
    found: dict[tuple[int, int], float] = {}
    seen: set[tuple[int, int]] = set()
    slope, shift = _functions()
    for pair in _candidates([_signature(one, slope, shift) for one in pieces]):
        if pair in seen:
            continue
        seen.add(pair)
        a, b = (pieces[i] for i in pair)
        shared = len(a & b)
        resemblance = shared / (len(a) + len(b) - shared)
        if resemblance >= least and numbers[pair[0]] == numbers[pair[1]]:
            found[pair] = resemblance
    return dict(sorted(found.items()))


def _pieces(text: str) -> frozenset[int]:
    """Hashes below 2^31 of a text's three-word pieces; a text of fewer words is one piece."""
    words = TOKEN.findall(text.casefold())
    parts = [" ".join(words[i : i + WORDS]) for i in range(max(1, len(words) - WORDS + 1))]
    digests = (hashlib.blake2b(part.encode("utf-8", "replace"), digest_size=8).digest() for part in parts)
    return frozenset(int.from_bytes(digest) % int(PRIME) for digest in digests)


def _signature(pieces: frozenset[int], slope: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """[BANDS * PER_BAND] uint64, for each hash function the smallest hash of the pieces."""
    values = np.fromiter(pieces, np.uint64, len(pieces))  # [P]
    least: np.ndarray = ((slope[:, None] * values + shift[:, None]) % PRIME).min(1)
    return least


def _functions() -> tuple[np.ndarray, np.ndarray]:
    """(slopes, shifts), each [BANDS * PER_BAND] uint64 below 2^31, so that no product overflows 64 bits."""
    rng = np.random.default_rng(20250711)
    return (
        rng.integers(1, 2**31 - 1, BANDS * PER_BAND).astype(np.uint64),
        rng.integers(0, 2**31 - 1, BANDS * PER_BAND).astype(np.uint64),
    )


def _candidates(signatures: Sequence[np.ndarray]) -> Iterator[tuple[int, int]]:
    """Pairs (i, j), i < j, of texts that agree in all hashes of a band; at most NEIGHBOURS pairs per j and band.

    A pair occurs once per band in which its texts agree.
    """
    buckets = (_buckets(signatures, band) for band in range(BANDS))
    for members in chain.from_iterable(buckets):
        for place, j in enumerate(members):
            yield from ((i, j) for i in members[max(0, place - NEIGHBOURS) : place])


def _buckets(signatures: Sequence[np.ndarray], band: int) -> list[list[int]]:
    found: dict[bytes, list[int]] = defaultdict(list)
    for i, signature in enumerate(signatures):
        found[signature[band * PER_BAND : (band + 1) * PER_BAND].tobytes()].append(i)
    return [members for members in found.values() if len(members) > 1]
