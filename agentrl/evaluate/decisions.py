"""Decisions of stored rollouts by situation: how many, how certain, whether they differ, and how episodes end."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from agentrl.graph import PLAYED, StepGraph, keys, revisits, token_rows
from agentrl.tool import action as tool_action
from agentrl.types import Observation

Situation = Callable[[Observation, str], str]  # (observation, action) -> the name of the situation and what was done
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, kw_only=True)
class SituationRow:
    """The decisions that rollouts made in one situation.

    Attributes:
        situation: its name: what an environment's `situation` says, or the kind of action.
        iteration: of the rollouts; the last one if the rollouts of several iterations are counted together.
        decisions: number of steps.
        entropy: nats per step, mean: of the column `entropy` if the rollouts have it, else the mean of minus the
            log-probability of each answer, whose expectation is the entropy. NaN if no log-probabilities are stored.
        episodes, won: number of episodes with such a step, and of those that succeeded.
        others, others_won: number of the agent's episodes without such a step, and of those that succeeded.
        groups: number of groups that can tell: such a step was made in a state in which the group's copies decided at
            least twice.
        varied: number of these groups in which, in such a state, another situation's decision was made too: the copies
            had the same choice and did not all choose the same.
        chosen, chosen_won: in the states where the copies differed, number of these decisions, and of those whose
            episode succeeded.
        instead, instead_won: in the same states, number of the other decisions, and of those whose episode succeeded.
        revisits: number of steps that led to a state in which the episode had been before, or left the state unchanged.
    """

    situation: str
    iteration: int
    decisions: int
    entropy: float
    episodes: int
    won: int
    others: int
    others_won: int
    groups: int
    varied: int
    chosen: int
    chosen_won: int
    instead: int
    instead_won: int
    revisits: int


def kind_of_action(action: str) -> str:
    """The names of the tools that an action calls, "answer" for a final answer, else the action's first word."""
    if action.lstrip().startswith("{"):
        turn = tool_action.read(action)
        if turn.items:
            return "+".join(sorted({getattr(item, "name", "malformed call") for item in turn.items}))
        if turn.answer != action.strip():  # else it is text that happens to begin with a brace
            return "answer"
    word = _WORD.search(action)
    return word[0].lower() if word else "(no word)"


def situation_rows(graph: StepGraph, iteration: int, situation: Situation | None = None) -> list[SituationRow]:
    """The decisions of one stored graph by situation, the most frequent first.

    Counted are carried-out steps of episodes that no environment error ended. With several agents, a situation's name
    begins with the agent's.

    Args:
        graph: with the names of its actions, as runs store it.
        situation: the environment's hook; None: the kind of action.
    """
    rows = np.flatnonzero((graph.kind == PLAYED) & ~graph.failed())  # [R]
    if not len(rows):
        return []
    names = situation_names(graph, rows, situation)
    words, label = np.unique(np.array(names, object).astype(str), return_inverse=True)  # [L], [R]
    choice = keys(graph.group, graph.agent, graph.state)[rows]  # [R] equal where copies decided in the same state
    told = np.bincount(choice)[choice] >= 2  # [R]
    pairs = np.unique(np.stack([choice, label]), axis=1)[0]  # one entry per choice and situation
    differs = np.bincount(pairs)[choice] >= 2  # [R]
    entropy, back = _entropy(graph)[rows], revisits(graph.state, graph.next_state, graph.parent)[rows]  # [R]
    episode, group, agent = graph.episode[rows], graph.group[rows], graph.agent[rows]  # [R]
    first = np.unique(episode, return_index=True)[1]  # [E]
    succeeded = graph.succeeded[rows]  # [R]
    won = dict(zip(episode[first].tolist(), succeeded[first].tolist(), strict=True))
    by_agent = {a: set(episode[agent == a].tolist()) for a in np.unique(agent).tolist()}
    found = []
    for number, name in enumerate(words.tolist()):
        at = label == number  # [R]
        inside = set(episode[at].tolist())
        outside = by_agent[int(agent[at][0])] - inside
        instead = np.isin(choice, choice[at & differs]) & ~at  # [R]
        found.append(
            SituationRow(
                situation=name,
                iteration=iteration,
                decisions=int(at.sum()),
                entropy=float(entropy[at].mean()),
                episodes=len(inside),
                won=sum(won[e] for e in inside),
                others=len(outside),
                others_won=sum(won[e] for e in outside),
                groups=len(np.unique(group[at & told])),
                varied=len(np.unique(group[at & differs])),
                chosen=int((at & differs).sum()),
                chosen_won=int((at & differs & succeeded).sum()),
                instead=int(instead.sum()),
                instead_won=int((instead & succeeded).sum()),
                revisits=int(back[at].sum()),
            )
        )
    return sorted(found, key=lambda row: (-row.decisions, row.situation))


def pooled(rows: Iterable[SituationRow]) -> list[SituationRow]:
    """One row per situation for rows of several iterations, the most frequent first.

    An iteration without a situation counts its episodes as episodes without such a step.
    """
    by_name: dict[str, list[SituationRow]] = defaultdict(list)
    episodes: dict[int, tuple[int, int]] = {}  # iteration -> most episodes of a situation with its others, and the won
    for row in rows:
        by_name[row.situation].append(row)
        whole = (row.episodes + row.others, row.won + row.others_won)
        episodes[row.iteration] = max(episodes.get(row.iteration, (0, 0)), whole)
    found = [_pool(name, same, episodes) for name, same in by_name.items()]
    return sorted(found, key=lambda row: (-row.decisions, row.situation))


def _pool(name: str, same: Sequence[SituationRow], episodes: dict[int, tuple[int, int]]) -> SituationRow:
    absent = [counts for iteration, counts in episodes.items() if iteration not in {row.iteration for row in same}]
    added = {field.name: sum(getattr(row, field.name) for row in same) for field in fields(SituationRow)[2:]}
    added["others"] += sum(count for count, _ in absent)
    added["others_won"] += sum(won for _, won in absent)
    added["entropy"] = sum(row.entropy * row.decisions for row in same) / added["decisions"]
    return SituationRow(situation=name, iteration=max(row.iteration for row in same), **added)


def situation_names(graph: StepGraph, rows: np.ndarray, situation: Situation | None = None) -> list[str]:
    """The situation's name of each of the rows [R] of a stored graph; see `situation_rows`."""
    actions, states = graph.names["action"], graph.names["state"]
    texts = graph.texts.get("observation", [""] * len(graph))
    several = len(np.unique(graph.agent[rows])) > 1
    root = np.arange(len(graph))  # [N] the row that begins each row's path
    for row in np.flatnonzero(graph.parent >= 0).tolist():
        root[row] = root[graph.parent[row]]
    found = []
    for row in rows.tolist():
        action = actions[int(graph.action[row])]
        if situation is None:
            name = kind_of_action(action)
        else:
            state, task = states[int(graph.state[row])], texts[int(root[row])]
            name = situation(Observation(text=texts[row], state_key=state, task=task), action)
        found.append(f"{graph.names['agent'][int(graph.agent[row])]}: {name}" if several else name)
    return found


def _entropy(graph: StepGraph) -> np.ndarray:
    """[N] float64, nats; see `SituationRow.entropy`."""
    if graph.has("entropy"):
        return np.asarray(graph.columns["entropy"], float)
    if graph.tokens is None:
        return np.full(len(graph), np.nan)
    surprise = np.where(graph.tokens.sampled, -graph.tokens.logprobs, 0.0)  # [S]
    return np.bincount(token_rows(graph.tokens), surprise, len(graph))
