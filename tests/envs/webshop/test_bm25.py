"""Ranking: a case by hand, a slow evaluation, ties, lossy lengths."""

import math
import random
from collections import Counter

import numpy as np
import pytest

from agentrl.envs.webshop import bm25
from agentrl.envs.webshop.analysis import terms


def small_float_length(length):
    """Lucene's SmallFloat: encode to a byte and back, bit by bit."""
    if length < 24:
        return length
    rest, shift = length - 24, 0
    while rest >= 16:
        rest >>= 1
        shift += 1
    return 24 + (rest << shift)


def test_lossy_lengths():
    assert [bm25.short_length(n) for n in (0, 23, 39, 40, 41, 42, 56, 59, 60, 100)] == [
        0, 23, 39, 40, 40, 42, 56, 56, 60, 96,
    ]  # fmt: skip
    assert all(bm25.short_length(n) == small_float_length(n) for n in range(5000))


def test_one_term_by_hand():
    # N = 2, df = 1: idf = ln(1 + 1.5/1.5) = ln 2; lengths 3 and 1, mean 2, tf = 2 in the first
    # norm = 0.9 (0.6 + 0.4 * 3/2) = 1.08; score = ln 2 * 2 / (2 + 1.08) = 0.4501
    postings = bm25.build(["rug rug red", "tea"], ["A", "B"])
    assert bm25.search(postings, "rug", 10) == [(0, round(math.log(2) * 2 / 3.08, 4))]
    assert bm25.search(postings, "the of", 10) == []
    assert bm25.search(postings, "unknown", 10) == []


def test_a_repeated_query_word_counts_twice():
    postings = bm25.build(["rug blue", "tea blue", "tea tea"], ["A", "B", "C"])
    once, twice = (dict(bm25.search(postings, query, 3)) for query in ("tea rug", "tea tea rug"))
    assert once[0] == twice[0]
    assert twice[1] == pytest.approx(2 * once[1], abs=2e-4)


def slow(texts, ids, query, k):
    """The formula in double precision with plain loops."""
    bags = [Counter(terms(text)) for text in texts]
    lengths = [sum(bag.values()) for bag in bags]
    filled = [n for n in lengths if n]
    mean = sum(filled) / len(filled)
    score = {}
    for document, bag in enumerate(bags):
        total = 0.0
        for word, count in Counter(terms(query)).items():
            having = sum(word in other for other in bags)
            if bag[word]:
                idf = math.log(1 + (len(filled) - having + 0.5) / (having + 0.5))
                norm = 0.9 * (0.6 + 0.4 * small_float_length(lengths[document]) / mean)
                total += count * idf * bag[word] / (bag[word] + norm)
        if total:
            score[document] = total
    return sorted(score.items(), key=lambda pair: (-round(pair[1], 9), ids[pair[0]]))[:k]


@pytest.mark.parametrize("seed", range(15))
def test_equals_the_slow_formula(seed):
    rng = random.Random(seed)
    vocabulary = ["red", "rug", "kids", "soft", "tea", "lamp", "shoe", "coat", "wool", "desk", "the"]
    texts = [" ".join(rng.choices(vocabulary, k=rng.choice([0, 3, 30, 90]))) for _ in range(60)]
    ids = [f"B{rng.randrange(10**6):06}{i:02}" for i in range(60)]
    postings = bm25.build(texts, ids)
    for _ in range(10):
        query = " ".join(rng.choices(vocabulary, k=rng.randint(1, 6)))
        found, want = bm25.search(postings, query, 20), slow(texts, ids, query, 20)
        np.testing.assert_allclose([hit.score for hit in found], [score for _, score in want], atol=6e-5)
        distinct = len({round(score, 5) for _, score in want}) == len(want)
        assert not distinct or [hit.document for hit in found] == [document for document, _ in want]


def test_ties_go_by_id_also_at_the_cut():
    ids = ["B3", "B1", "B2", "A9", "B0"]
    postings = bm25.build(["rug"] * 5 + [], ids)
    assert [ids[hit.document] for hit in bm25.search(postings, "rug", 3)] == ["A9", "B0", "B1"]


@pytest.mark.parametrize("k", [1, 2, 5, 9])
def test_a_shorter_list_is_the_start_of_a_longer_one(k):
    rng = random.Random(k)
    texts = [" ".join(rng.choices(["red", "rug", "tea"], k=4)) for _ in range(40)]
    postings = bm25.build(texts, [f"{i:03}" for i in range(40)])
    assert bm25.search(postings, "red tea", k) == bm25.search(postings, "red tea", 40)[:k]
