"""Signals for each search of a chain: new information, repeated documents, and key terms.

Formula: `gain = 1/n sum over i of max(c_i - m_i, 0)`; the other signals are defined below.

Source: StepSearch, arXiv:2505.15107, section 3.3. With gold documents d_1 ... d_n and the documents r_j of search t:

    c_i = max over j of cos(d_i, r_j)             of tf-idf vectors
    gain = 1/n sum over i of max(c_i - m_i, 0)     m_i is the largest c_i of the searches before t, 0 at first
    redundancy = share of the r_j that were returned before, by this search or an earlier one
    keys = 1/M sum over key terms k_i of max over queries q of F1(q, k_i)

Some details come from the released code (verl/utils/reward_score/qa_step.py and submodule.py): texts are compared in
lower case, without punctuation and articles; tf-idf counts words of two letters or more; its idf is
log((2 + n) / (1 + df)) + 1, over the n gold documents and the document that is compared with them. In the paper the
reward of a search step is gain - redundancy, and the final reward contains keys with a weight, which is 0.618 in the
released code. The reward transform `weighted_sum` builds this reward with the option `weights = { search_gain = 1.0,
search_redundancy = -1.0, search_keys = 0.618, env_reward = 1.0 }`.

Departures: the released code assigns each query only to the key that it fits best, and a later query overwrites the
value of an earlier query even if the earlier value was better. Here each key takes its best query, as in the paper's
formula. Where the released data have several wordings of one key, each wording is a key of its own here. A search in
the last turn of a chain, whose results the agent never saw, has neither gain nor redundancy.
"""

import json
import math
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pydantic import Field

from agentrl.chat import first_tagged, tagged
from agentrl.scoring import Chain, JudgeClient, ScoreFault, ScoreOptions, Signals
from agentrl.tool import Call, action as tool_action

PAPER = "arXiv:2505.15107"
HEADS = ("Doc ", "# ")  # how a document begins in the forms of `agentrl.tool.write_passages`
NOTHING = "# nothing found"


class Config(ScoreOptions, frozen=True):
    """Options.

    Attributes:
        documents: the entry of the task's `params` with the texts of the gold documents.
        keys: the entry of the task's `params` with the key terms, a list of texts; empty leaves out the signal
            that reads them.
        search_tools: names of the tools that search, in tool environments.
        prefix: beginning of the signals' names, such as search_ in search_gain.
    """

    documents: str = Field("documents", min_length=1)
    keys: str = "keys"
    search_tools: tuple[str, ...] = ("search",)
    prefix: str = "search_"


class Search(NamedTuple):
    """One search of a chain: its turn, its query, and the documents `found`, None if the agent never saw them."""

    turn: int
    query: str
    found: tuple[str, ...] | None


def signals(config: Config) -> Sequence[str]:
    """Gain and redundancy of each search, and how well the queries hit the key terms."""
    return [config.prefix + name for name in ("gain", "redundancy", *(["keys"] if config.keys else []))]


class SearchSteps:
    """Scores the searches of chains; it calls no model."""

    def __init__(self, config: Config) -> None:
        self.config = config

    async def score(self, chains: Sequence[Chain], client: JudgeClient) -> Sequence[Signals]:
        """See `Scorer`."""
        return [self._one(chain) for chain in chains]

    def _one(self, chain: Chain) -> Signals:
        config, prefix = self.config, self.config.prefix
        made = searches(chain, config.search_tools)
        gains, repeats = steps(_texts(chain, config.documents), [one.found for one in made])
        found: dict[str, float | Sequence[float]] = {}
        for name, values in (("gain", gains), ("redundancy", repeats)):
            per_turn = [math.nan] * len(chain.turns)
            for one, value in zip(made, values, strict=True):
                per_turn[one.turn] = value
            found[prefix + name] = per_turn
        if config.keys:
            found[f"{prefix}keys"] = key_score([one.query for one in made], _texts(chain, config.keys))
        return found


def make(config: Config) -> SearchSteps:
    """See `agentrl.scoring.entry`."""
    return SearchSteps(config)


def steps(gold: Sequence[str], results: Sequence[Sequence[str] | None]) -> tuple[list[float], list[float]]:
    """(gain of each search, redundancy of each search); both are NaN for a search whose results are None.

    Args:
        gold: texts of the gold documents.
        results: the documents that each search returned, or None.
    """
    best, seen = [0.0] * len(gold), set[str]()
    gains: list[float] = []
    repeats: list[float] = []
    for found in results:
        if found is None:
            gains.append(math.nan)
            repeats.append(math.nan)
            continue
        near = [similarities(text, gold) for text in found]  # per document, to each gold document
        now = [max((one[i] for one in near), default=0.0) for i in range(len(gold))]
        gains.append(sum(max(c - m, 0.0) for c, m in zip(now, best, strict=True)) / max(1, len(gold)))
        repeats.append(sum(text in seen or text in found[:i] for i, text in enumerate(found)) / max(1, len(found)))
        best = [max(c, m) for c, m in zip(now, best, strict=True)]
        seen |= {*found}
    return gains, repeats


def key_score(queries: Sequence[str], keys: Sequence[str]) -> float:
    """Mean over the key terms of the highest F1 (of words) that one of the queries reaches."""
    best = [max((_f1(query, key) for query in queries), default=0.0) for key in keys]
    return sum(best) / len(best) if best else 0.0


def searches(chain: Chain, tools: Sequence[str]) -> list[Search]:
    """The searches of a chain; the results of a turn's search stand in the observation of the next turn."""
    found: list[Search] = []
    for turn, (here, following) in enumerate(zip(chain.turns, [*chain.turns[1:], None], strict=True)):
        query = _query(here.action, tools)
        if query is not None:
            found.append(Search(turn, query, None if following is None else documents(following.observation)))
    return found


def _query(action: str, tools: Sequence[str]) -> str | None:
    """What an action searches for; None if it does not search. Several queries of one turn are joined."""
    tag = first_tagged(action, ["search", "answer"])
    if tag is not None:
        return tag.content.strip() if tag.tag == "search" else None
    calls = [i for i in tool_action.read(action).items if isinstance(i, Call) and i.name in tools]
    said = [value for call in calls for value in call.arguments.values() if isinstance(value, str)]
    return " ".join(said) if calls else None


def documents(observation: str) -> tuple[str, ...]:
    """The documents in a search result, without their numbers; see `agentrl.tool.write_passages` for the forms."""
    block = next(tagged(observation, "information"), None)
    text = observation if block is None else block.content
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        read = None
    if isinstance(read, Mapping) and isinstance(read.get("result"), str):
        text = read["result"]
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    if not any(line.startswith(HEADS) for line in lines):
        return tuple(lines)
    found: list[list[str]] = []
    for line in lines:
        if line.startswith(HEADS):
            found.append([])
        if found and line != NOTHING:
            found[-1].append(_without_number(line))
    return tuple("\n".join(parts) for parts in found if parts)


def _without_number(line: str) -> str:
    """`Doc 3(Title: t) text` without `Doc 3`: the same document has another number in another result."""
    return line.removeprefix("Doc ").lstrip("0123456789").lstrip(": ") if line.startswith("Doc ") else line


def _texts(chain: Chain, entry: str) -> list[str]:
    if entry not in chain.task.params:
        known = ", ".join(sorted(chain.task.params)) or "none"
        raise ValueError(
            f"score search_steps: the task {chain.task.key} has no entry {entry!r} (its entries: {known}): set "
            "score.documents and score.keys, or keys='' for tasks without key terms"
        )
    texts = chain.task.params[entry]
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise ScoreFault(f"the entry {entry!r} of {chain.task.key} is no list of texts")
    return list(texts)


def similarities(text: str, gold: Sequence[str]) -> list[float]:
    """The cosine of a document's tf-idf vector with that of each gold document; the idf is over all of these texts."""
    counts = [Counter(word for word in _words(one) if len(word) > 1) for one in (text, *gold)]
    df = Counter(word for own in counts for word in own)
    idf = {word: math.log((1 + len(counts)) / (1 + count)) + 1 for word, count in df.items()}
    first, *others = ({word: count * idf[word] for word, count in own.items()} for own in counts)
    return [_cosine(first, other) for other in others]


def _words(text: str) -> list[str]:
    """The words of a text in lower case, without punctuation and articles."""
    plain = "".join(c for c in text.lower() if c not in string.punctuation)
    return [word for word in plain.split() if word not in ("a", "an", "the")]


def _cosine(a: Mapping[str, float], b: Mapping[str, float]) -> float:
    lengths = math.sqrt(sum(x * x for x in a.values()) * sum(x * x for x in b.values()))
    return sum(x * b[word] for word, x in a.items() if word in b) / lengths if lengths else 0.0


def _f1(query: str, key: str) -> float:
    given, wanted = Counter(_words(query)), Counter(_words(key))
    common = (given & wanted).total()
    return 2 * common / (given.total() + wanted.total()) if common else 0.0
