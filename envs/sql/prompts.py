"""The prompts in words: `tables`, `schema NAME`, `query SQL` and `answer SQL`."""

import re

from agentrl import tool_env
from agentrl.env import Parsed, spoken
from agentrl.envs._worded import OneLine, cached, unread, written
from agentrl.envs.sql.database import ANSWER, LIST, QUERY, SCHEMA
from agentrl.tool import Call, action as tool_action
from agentrl.types import Observation, Status

VERBS = {LIST: "tables", SCHEMA: "schema", QUERY: "query", ANSWER: "answer"}
ARGUMENTS = {SCHEMA: "table", QUERY: "sql", ANSWER: "sql"}


class Instruct(OneLine):
    """One line per turn, for language models: a system message says what may be written."""

    system = (
        "You answer questions about a SQLite database. Reply with one line only: `tables` to list its tables, "
        "`schema NAME` to see the columns of a table, `query SELECT ...` to run a query, or `answer SELECT ...` to "
        "give the query whose result answers the question, which ends the task."
    )

    def first(self, observation: Observation) -> str:
        """The question."""
        return f"Question: {observation.text}"

    def answer(self, action: str) -> str:
        """The action in words."""
        return in_words(action)

    def parse(self, text: str, observation: Observation) -> Parsed:
        """The call in the first line; a `>`, `Action:` or backticks that models write around it are left out."""
        line = spoken(text).partition("\n")[0].lstrip(">-* ")
        if line.startswith("`") and line.endswith("`"):
            line = line.strip("`")
        word, _, rest = line.partition(" ")
        name = next((name for name, verb in VERBS.items() if verb == word.lower().removesuffix(":")), "")
        rest = rest.strip()
        if not name or bool(rest) != (name in ARGUMENTS):
            return unread(f"write tables, schema NAME, query SELECT ... or answer SELECT ..., not {line!r:.100}")
        arguments = {ARGUMENTS[name]: rest} if rest else {}
        return Parsed(tool_action.call(name, **arguments), True, Status.OK, 1)


class Compact(tool_env.Compact):
    """Few words, for small models: SQL without its signs, and names as words. An answer chooses the listed action with
    the same words."""

    def answer(self, action: str) -> str:
        """The action in few words."""
        return _brief(action)


def in_words(action: str) -> str:
    """`query SELECT ...`; several calls in one turn are joined by semicolons."""
    return written(action, "answer", _call)


def _call(item: Call) -> str:
    told = " ".join(" ".join(str(value).split()) for value in item.arguments.values())
    return f"{VERBS.get(item.name, item.name)} {told}".strip()


def brief(action: str) -> str:
    """`query SELECT max age FROM club member WHERE city Rome`: `in_words` without signs other than comparisons."""
    return " ".join(re.sub(r"[_'().,=*]", " ", in_words(action)).split())


_brief = cached(brief)
