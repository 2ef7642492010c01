"""What the credit page shows, as data: one typed, versioned form.

The page reads nothing else, and `agentrl credit ... --html OUT --json` prints it. Arrays lie in columns: one entry per
shown step. NaN becomes null, which is not 0: no credit was given.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel

SCHEMA = 3
Numbers = Sequence[float | None]


class TokenData(NamedTuple):
    """A sampled token: its text, its log-probability in nats, and what it was chosen from.

    `allowed` is an index into `CreditData.allowed`, -1 if every token was allowed.
    """

    text: str
    logprob: float
    allowed: int


class AllowedSet(BaseModel, frozen=True):
    """Tokens that an answer could go on with: how many, and the words of the first of them."""

    size: int
    words: Sequence[str]


class MethodData(BaseModel, frozen=True):
    """One method on the shown steps.

    Attributes:
        name: the method.
        options: its options, defaults included.
        advantage: one number per step, null where the method gives no credit.
        weight: paths through a step times how often each is used.
        parts: named numbers per step, such as `episode_advantage`.
        ids: names of the parts that number groups, such as `step_group`: steps with an equal number were compared.
        meanings: option or part -> what it means.
        why: one text per step, the arithmetic of its credit in words; empty for a method that has no such words.
    """

    name: str
    options: Mapping[str, Any]
    advantage: Numbers
    weight: Numbers
    parts: Mapping[str, Numbers]
    ids: Sequence[str]
    meanings: Mapping[str, str] = {}
    why: Sequence[str] = ()


class EpisodeData(BaseModel, frozen=True):
    """One agent's chain of steps, in the order of the page.

    Attributes:
        name, agent: words of the graph, or numbers where none are stored.
        group: index into `groups`.
        score: sum of the rewards on its path, or the stored score.
        succeeded: did it succeed?
        ending: how it ended, such as `done` or `turn_limit`; empty if the graph does not say.
        failed: it ended by an environment error, so that no statistic counts it.
        kind: `played`, `candidate`, `probe` or `demo`.
        lane: how many calls lie between it and the main agent.
        steps: its steps, ascending.
    """

    name: str
    agent: str
    group: int
    score: float | None
    succeeded: bool
    ending: str
    failed: bool
    kind: str
    lane: int
    steps: Sequence[int]


class EdgeData(BaseModel, frozen=True):
    """An action between two states, by all steps of a group that took it."""

    source: int
    target: int
    action: int
    steps: Sequence[int]


class TreeNode(BaseModel, frozen=True):
    """What was done after one history: steps whose episodes had seen and done the same until then, and now too.

    Attributes:
        parent: index into `GroupData.tree` of the step before, or of the step that called this agent; -1 at a root.
        called: `parent` is a caller.
        steps: the steps.
        value: mean score of its continuations, step by step; null if none was played to its end.
    """

    parent: int
    called: bool
    steps: Sequence[int]
    value: float | None


class GroupData(BaseModel, frozen=True):
    """The copies of one task.

    Attributes:
        name: the task.
        episodes: indices into `episodes`, best score first; the episodes of called agents stand after their caller's.
        states: the states that its played steps and candidates leave or reach, by first visit.
        visits: how many steps leave each of `states`.
        score: mean score of the episodes that leave it, null for a state that nothing leaves.
        first: the column (see `StepsData.column`) of the first visit of each of `states`.
        edges: what leads from state to state.
        tree: the same steps by their histories, parents before children.
    """

    name: str
    episodes: Sequence[int]
    states: Sequence[int]
    visits: Sequence[int]
    score: Numbers
    first: Sequence[int]
    edges: Sequence[EdgeData]
    tree: Sequence[TreeNode]


class StepsData(BaseModel, frozen=True):
    """Columns of the shown steps.

    Attributes:
        row: the step's row in the graph.
        turn: its number in the episode.
        column: where it stands on the time line: steps before it on its path, a called agent's from its caller on.
        parent, caller: shown steps, -1 for none.
        state, next_state, action: indices into `states` and `actions`.
        observation, answer: indices into `texts`, -1 where the graph stores no text.
        status: such as `ok` or `parse_error`.
        values: further columns by name (value, old_value, mc_value, signals and so on), null for NaN.
        tokens: for each step its sampled tokens.
    """

    row: Sequence[int]
    turn: Sequence[int]
    column: Sequence[int]
    parent: Sequence[int]
    caller: Sequence[int]
    state: Sequence[int]
    next_state: Sequence[int]
    action: Sequence[int]
    observation: Sequence[int]
    answer: Sequence[int]
    reward: Numbers
    valid: Sequence[bool]
    status: Sequence[str]
    kind: Sequence[str]
    values: Mapping[str, Numbers]
    tokens: Sequence[Sequence[TokenData]]


class CreditData(BaseModel, frozen=True):
    """Everything on the page; `schema_version` counts changes of this form.

    Version 3 has `meanings` and `why` of methods. Version 2 lists the members of allowed sets (`allowed`, to which
    tokens point), and has `tree`, `ids` and, in `agreement`, how far apart two methods are at a step (`apart`).
    """

    schema_version: int = SCHEMA
    title: str
    subtitle: str
    shown: str
    methods: Sequence[MethodData]
    groups: Sequence[GroupData]
    episodes: Sequence[EpisodeData]
    steps: StepsData
    states: Sequence[str]
    actions: Sequence[str]
    texts: Sequence[str]
    allowed: Sequence[AllowedSet]
    agreement: Sequence[Mapping[str, Any]]
