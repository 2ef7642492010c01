"""The words of an instruction, and search queries made from these words."""

import re
from functools import lru_cache

from agentrl.envs.webshop.nouns import built_in_nouns

_PRICE_CLAUSE = re.compile(r",? and price lower than [\d.]+ dollars$")
_OPENING = re.compile(r"^(i am looking for|i need|find me|i want to buy|i want|looking for)( an?| some)? ", re.I)


def instruction_words(instruction: str) -> str:
    """An instruction without its price clause and its opening words, lower case, only words."""
    bare = _OPENING.sub("", _PRICE_CLAUSE.sub("", instruction)).lower()
    return " ".join(re.findall(r"[\w'-]+", bare))


@lru_cache(maxsize=4096)
def suggested_queries(instruction: str, most: int) -> tuple[str, ...]:
    """At most `most` different queries from the instruction's own words: all of them, its nouns, its first and last
    words. A model that chooses among listed actions chooses one of these queries; other models may write any query."""
    words = instruction_words(instruction).split(" ")
    nouns = [word for word in built_in_nouns(" ".join(words)) if word in words]
    candidates = (" ".join(words), " ".join(words[:3]), " ".join(nouns), " ".join(words[-3:]), " ".join(words[:6]))
    return tuple(query for query in dict.fromkeys(candidates) if query)[:most]
