"""The requests and answers of servers that speak the Search-R1 protocol or a related one.

| dialect | asks | answers |
| --- | --- | --- |
| search_r1 | `queries`, `topk`, `return_scores` | a list of `{"document": {...}, "score": x}` for each query |
| skyrl | one `query` per request (SkyRL, verl-agent) | the same, for one query |
| gem | the same in msgpack (axon-rl/gem), also as `query` | a list of lists, or a flat list |
| rerank | `queries`, `topk_retrieval`, `topk_rerank` | documents as plain texts |
| serp | `queries` alone (Google and SERP proxies) | documents without scores, in any number |

`return_scores` is always true: the reference server fails on false. Every shape of answer is read in every dialect.
"""

import hashlib
import json
from typing import Any, Literal, NamedTuple

from agentrl.chat import shorten
from agentrl.tool import Passage
from agentrl.tools.search import msgpack
from agentrl.tools.search.corpus import contents, whole

Dialect = Literal["search_r1", "skyrl", "gem", "rerank", "serp"]
SINGLE: tuple[Dialect, ...] = ("skyrl", "gem")  # one query per request
RERANKED = 10  # passages that the first stage returns per passage that the rerank dialect keeps


class Body(NamedTuple):
    """A request's bytes and what they are."""

    content: bytes
    kind: str


class Garbled(ValueError):
    """An answer whose form does not fit the request."""


def ask(dialect: Dialect, queries: list[str], k: int) -> Body:
    """The request for some queries (one, in the dialects of `SINGLE`)."""
    match dialect:
        case "skyrl":
            told: dict[str, Any] = {"query": queries[0], "topk": k, "return_scores": True}
        case "gem":
            told = {"queries": queries, "query": queries[0], "topk": k, "return_scores": True}
            return Body(msgpack.pack(told), "application/msgpack")
        case "rerank":
            told = {"queries": queries, "topk_retrieval": k * RERANKED, "topk_rerank": k, "return_scores": True}
        case "serp":
            told = {"queries": queries}
        case _:
            told = {"queries": queries, "topk": k, "return_scores": True}
    return Body(json.dumps(told).encode(), "application/json")


def read(dialect: Dialect, body: bytes, count: int, k: int) -> list[list[Passage]]:
    """The passages of an answer to `count` queries, at most `k` each; Garbled if it has another form."""
    try:
        told = msgpack.unpack(body) if dialect == "gem" else json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Garbled(f"its answer is not {'msgpack' if dialect == 'gem' else 'JSON'}: {error}") from None
    result = told.get("result") if isinstance(told, dict) else None
    if not isinstance(result, list):
        raise Garbled(f"its answer has no list `result`: {shorten(repr(told), 80)}")
    flat = bool(result) and not any(isinstance(one, list) for one in result)
    if count == 1 and (flat or (dialect in SINGLE and not result)):
        result = [result]
    if len(result) != count or not all(isinstance(one, list) for one in result):
        raise Garbled(f"its answer has {len(result)} lists of passages for {count} queries")
    return [[_passage(item) for item in one][:k] for one in result]


def _passage(item: object) -> Passage:
    document, score = item, None
    if isinstance(item, dict) and "document" in item:
        document, score = item["document"], item.get("score")
    words = whole(document) if isinstance(document, str) else contents(document)
    if words is None:
        raise Garbled(f"its answer holds something that is no passage: {shorten(repr(item), 80)}")
    named = document.get("id") if isinstance(document, dict) else None
    own = hashlib.sha1(words.encode()).hexdigest()[:12] if named is None else whole(str(named))
    return Passage(own, words, float(score) if isinstance(score, int | float) else None)
