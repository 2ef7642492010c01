"""The data of a run's page, as typed and versioned classes. `agentrl report RUN --json` prints these data.

Each class answers one question of the page. Shares lie between 0 and 1; an unknown number is null, which is not 0.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel

from agentrl.report.credit_schema import CreditData, Numbers

RUN_SCHEMA = 3


class StepLink(NamedTuple):
    """A step that the page can open: index into `RunData.parts`, and the step's row in the graph of that part."""

    part: int
    row: int


class OptionData(BaseModel, frozen=True):
    """A key of the recipe with its value. `default` is null if the key has no default, or no defaults are known."""

    key: str
    value: Any
    default: Any


class AboutData(BaseModel, frozen=True):
    """What is this?

    Attributes:
        facts: (label, text) of each fact, such as ("held-out tasks", "200 of alfworld-gen, panel 5824b8317430").
        recipe: the keys that differ from the defaults; all keys if `defaults` is false.
        defaults: True if the defaults are known. False if a part of the recipe cannot be loaded here, such as an
            environment whose file is missing.
        versions: the versions of Python and of the packages, as the run stored them.
        command: the command that trains a run with the same recipe.
        seconds: CPU seconds by phase, over all lines of timings.
    """

    facts: Sequence[tuple[str, str]]
    recipe: Sequence[OptionData]
    defaults: bool
    versions: Mapping[str, str]
    command: str
    seconds: Mapping[str, float]


class EvaluationPoint(BaseModel, frozen=True):
    """One evaluation on held-out tasks.

    Attributes:
        name: such as `clone`, `iteration 40` or `end`.
        mode: sampled or greedy.
        iteration: number of iterations of training before the evaluation; 0 for `start` and `clone`.
        success, low, high: success rate and its 95% interval (Wilson).
        episodes: scored episodes.
        panel: hash of the task keys; evaluations with the same hash played the same tasks.
        tokens: number of tokens sampled in training before the evaluation.
        cpu_s: CPU seconds of the run up to and including this evaluation; null if the timings are incomplete.
        reward, steps: mean score and mean number of steps of an episode; null if the run has not stored them.
        per_type: type of task -> [episodes, success rate, low, high].
    """

    name: str
    mode: str
    iteration: int
    success: float
    low: float
    high: float
    episodes: int
    panel: str
    tokens: int
    cpu_s: float | None
    reward: float | None
    steps: float | None
    per_type: Mapping[str, tuple[int, float, float, float]]


class CurveData(BaseModel, frozen=True):
    """Does it learn?

    Attributes:
        name: name of the run.
        iteration: the shown iterations; the next four columns have one entry for each of them.
        success, reward: success rate and mean reward of the batch, on training tasks.
        tokens: number of tokens sampled in training up to and including the iteration.
        cpu_s: CPU seconds of the run up to and including the iteration.
        evaluations: the evaluations on held-out tasks, in the order of the run.
        verdicts: one sentence per mode: success before and after training, and whether chance can explain the
            difference, or why the two evaluations cannot be compared.
    """

    name: str
    iteration: Sequence[int]
    success: Numbers
    reward: Numbers
    tokens: Sequence[int]
    cpu_s: Numbers
    evaluations: Sequence[EvaluationPoint]
    verdicts: Sequence[str]


class FindingData(BaseModel, frozen=True):
    """A health rule that is broken; see `agentrl.evaluate.Finding`."""

    rule: str
    severity: str
    text: str
    stage: str
    iteration: int
    subject: str = ""


class HealthData(BaseModel, frozen=True):
    """Is it healthy?

    Attributes:
        findings: the broken rules.
        rules: number of rules that were checked.
        looked_at: rule -> the condition under which the rule is broken, with its threshold, in words.
        series: metric -> one number per iteration of `CurveData.iteration`.
        mass: turn -> the share of the credit that lies on this turn, where positive and negative advantages count
            without their signs; turn 16 stands for all turns from 16 on. One number per shown iteration; null in
            iterations that did not measure it.
    """

    findings: Sequence[FindingData]
    rules: int
    looked_at: Mapping[str, str]
    series: Mapping[str, Numbers]
    mass: Mapping[str, Numbers]


class EndingCell(BaseModel, frozen=True):
    """The number of episodes with one ending and one type of task.

    `examples` are the last steps of episodes without success.
    """

    ending: str
    kind: str
    episodes: int
    succeeded: int
    examples: Sequence[StepLink]


class LastStep(BaseModel, frozen=True):
    """A state and an action that were the last step of failed episodes; `episodes` is the number of these episodes."""

    state: str
    action: str
    episodes: int
    examples: Sequence[StepLink]


class LastKind(BaseModel, frozen=True):
    """A situation, as `agentrl report --diagnose` names it, in which failed episodes took their last step."""

    situation: str
    episodes: int
    examples: Sequence[StepLink]


class LoopState(BaseModel, frozen=True):
    """A state that at least one episode left three times or more."""

    state: str
    episodes: int
    failed: int
    examples: Sequence[StepLink]


class InvalidAnswer(BaseModel, frozen=True):
    """An answer that was not valid: not in the right format, or with an action that is not allowed."""

    text: str
    status: str
    answers: int
    examples: Sequence[StepLink]


class FailureData(BaseModel, frozen=True):
    """What goes wrong, in one set of episodes.

    Attributes:
        source: which episodes, in words.
        episodes, failed: number of scored episodes, and number of those without success. `cells` also count the
            episodes that were lost to a fault, which are not scored.
        cells: numbers of episodes by ending and type of task.
        last: most frequent last steps of failed episodes; null if only the outcomes of the episodes are stored.
        last_kinds: the last steps of failed episodes, counted by situation.
        looping: [failed episodes with a loop, failed, succeeded with a loop, succeeded]; null under the same condition
            as `last`.
        loops: the states that episodes left three times or more; the state with the most such episodes comes first.
        back_and_forth: like `looping`, for episodes that repeat an action in a state, or go to another state and back
            at once.
        invalid: the most frequent invalid answers, counted by text and status.
        answers: number of all answers, valid and invalid.
    """

    source: str
    episodes: int
    failed: int
    cells: Sequence[EndingCell]
    last: Sequence[LastStep] | None
    last_kinds: Sequence[LastKind]
    looping: tuple[int, int, int, int] | None
    loops: Sequence[LoopState]
    invalid: Sequence[InvalidAnswer]
    answers: int
    back_and_forth: tuple[int, int, int, int] | None = None


class SituationData(BaseModel, frozen=True):
    """Decisions by situation over the last stored iterations; see `agentrl.evaluate.SituationRow`."""

    situation: str
    decisions: int
    episodes: int
    won: int
    others: int
    others_won: int
    entropy: float | None
    groups: int
    varied: int
    chosen: int
    chosen_won: int
    instead: int
    instead_won: int
    revisits: int


class PartData(BaseModel, frozen=True):
    """Steps that the page can open: groups of one stored iteration with their credit, or held-out episodes.

    Attributes:
        title: such as `iteration 79` or `held-out, end, sampled`.
        kind: `training` or `evaluation`.
        reasons: for each group of `data`, why it is shown.
        story: a short text on the steps with most and with least credit; empty for an evaluation.
        singled_out: rows of the steps that the story names: the step with most credit, then the step with least; empty
            if the story names none.
        methods: method of `data` -> what it is, in a sentence.
        seconds: for each step of `data`, wall-clock seconds of [answer, environment]; empty if the run stored none.
        data: the steps.
    """

    title: str
    kind: str
    reasons: Sequence[str]
    story: str
    singled_out: Sequence[int]
    methods: Mapping[str, str]
    seconds: Sequence[tuple[float | None, float | None]]
    data: CreditData


class PlayedStep(NamedTuple):
    """A step of an episode that the page shows beside an episode of another run."""

    state: str
    action: str
    reward: float


class PairData(BaseModel, frozen=True):
    """One task that two runs played.

    Attributes:
        task: key of the task.
        kind: type of the task.
        won: `A` or `B`, the run that succeeded.
        a, b: steps of the episode of A, and of that of B; empty if the steps of the evaluation are not stored.
        a_ending, b_ending: how each of the two episodes ended.
        diverged: index of the first step whose state or action differs; null if the episodes are equal, or if the steps
            of one of them are not stored.
    """

    task: str
    kind: str
    won: str
    a: Sequence[PlayedStep]
    b: Sequence[PlayedStep]
    a_ending: str
    b_ending: str
    diverged: int | None


class AgainstMode(BaseModel, frozen=True):
    """A paired comparison of the last evaluations of one mode; see `agentrl.evaluate.compare`.

    Attributes:
        a, b: names of the evaluations.
        per_type: type -> [tasks, success of A, success of B].
        pairs: some of the tasks that only one of the two runs solved.
    """

    mode: str
    a: str
    b: str
    tasks: int
    success_a: float
    success_b: float
    difference: float
    interval: tuple[float, float]
    only_a: int
    only_b: int
    p_value: float
    per_type: Mapping[str, tuple[int, float, float]]
    pairs: Sequence[PairData]


class AgainstData(BaseModel, frozen=True):
    """Is A better than B? A is the run of the page.

    Attributes:
        name: name of B.
        verdicts: one sentence per mode, or a sentence that says why there is no comparison; then sentences on reasons,
            other than the policies, why the success rates may differ.
        modes: the comparisons, one per mode.
        recipe: (key, value of A, value of B) for each key that differs.
        curve: learning curve of B.
    """

    name: str
    verdicts: Sequence[str]
    modes: Sequence[AgainstMode]
    recipe: Sequence[tuple[str, Any, Any]]
    curve: CurveData


class RunData(BaseModel, frozen=True):
    """Everything on the page of a run; `schema_version` counts the changes of this class.

    Version 3 added `looked_at`, `back_and_forth`, `situations_rest` and `situations_from`, and holds `CreditData` of
    version 3. Version 2 added `panel`, `singled_out` and `situation_words`, and holds `CreditData` of version 2.

    Attributes:
        name: name of the run.
        in_short: the main results in a few sentences.
        situations_rest: (number of rarer situations that are left out, number of their decisions).
        situations_from: the iterations over which situations are counted, in words; empty if none is stored.
        situation_words: the environment's explanation of its names of situations; empty if it has no such names.
        left_out: sentences on the data that the page does not show.
    """

    schema_version: int = RUN_SCHEMA
    name: str
    in_short: Sequence[str]
    about: AboutData
    curve: CurveData
    health: HealthData
    failures: Sequence[FailureData]
    situations: Sequence[SituationData]
    situations_rest: tuple[int, int]
    situations_from: str
    situation_words: str
    parts: Sequence[PartData]
    against: AgainstData | None
    left_out: Sequence[str]
