"""The situation in which a decision was made, for `agentrl report --diagnose`."""

from agentrl.envs.sql.prompts import in_words
from agentrl.types import Observation


def situation(observation: Observation, action: str) -> str:
    """What was known, and what the agent did: "schema known: query"."""
    facts = dict(line.partition(" ")[::2] for line in observation.state_key.splitlines() if " " in line)
    queries = facts.get("queries", "").split()
    if queries and queries[0] != "0":
        known = "query run" if queries[0] == "1" else "queries run"
    elif facts.get("schemas"):
        known = "schema known" if len(facts["schemas"].split()) == 1 else "schemas known"
    else:
        known = "tables known" if facts.get("tables") == "listed" else "nothing known"
    return f"{known}: {in_words(action).partition(' ')[0]}"
