"""The part of an iteration after its rollouts: annotation, credit, update, then storing and logging.

Both training loops use this module: `training.reinforce`, which plays and updates alternately, and
`overlap.reinforce_ahead`, which plays batches ahead of the updates.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from agentrl.credit import Credit, assign, reward_metrics, rewards_after_annotation, with_imitation
from agentrl.graph import StepGraph
from agentrl.rollout import Collected, fault_counts, fresh_part, overlong_counts
from agentrl.run.metrics import Stopwatch
from agentrl.run.progress import Bar, in_words
from agentrl.run.run import Run
from agentrl.run.spending import asked
from agentrl.trainer import charge_kl


class Played(NamedTuple):
    """A batch of rollouts.

    Attributes:
        iteration: number of the iteration that the batch is played for.
        batch: the rollouts.
        spent: share of the run's budget that was used up before this batch.
        watch: seconds of each phase of the iteration.
    """

    iteration: int
    batch: Collected
    spent: float
    watch: Stopwatch


class Learned(NamedTuple):
    """A batch after its update: the annotated graph, its credit, and the metrics of annotation, credit and update."""

    played: Played
    graph: StepGraph
    credit: Credit
    metrics: Mapping[str, Any]


def learn(run: Run, played: Played) -> Learned:
    """Annotate a batch, compute its credit and update the policies.

    If rollouts are played ahead of the updates, a second thread calls this function, while rollouts use a copy of the
    weights. If the sampler is a `Follower`, it gets the annotated graph of the newly played steps. If the guide gives a
    lesson, the policies imitate the demonstrations of the lesson after the update.
    """
    settings, watch = run.settings, played.watch
    with watch.phase("annotate"):
        annotated = run.policies.annotate(played.batch.graph)
        if run.teacher is not None:
            annotated = annotated._replace(graph=run.teacher.read(annotated.graph, played.batch.taught))
        annotated = annotated._replace(graph=rewards_after_annotation(annotated.graph, settings.reward))
        run.rollouts.batches.annotated(fresh_part(annotated.graph))
    with watch.phase("credit"):
        after = settings.credit.hooks.standardises(settings.credit.config)
        graph, charged = charge_kl(annotated, settings.tables.update, after=after)
        charged |= reward_metrics(fresh_part(annotated.graph))
        credit = assign(settings.credit, graph)
    with watch.phase("update"):
        trained = with_imitation(credit, graph) if settings.imitates else credit
        learned = run.policies.improve(graph, trained, played.iteration, played.spent)
        learned |= lesson(run, played.iteration)
    if settings.tables.run.staleness:
        charged |= age_metrics(graph, played.iteration)
    return Learned(played, graph, credit, {**charged, **credit.metrics, **learned})


def lesson(run: Run, iteration: int) -> dict[str, float]:
    """Imitate the demonstrations that the guide has collected, if a lesson is due.

    Returns:
        Metrics whose names begin with `lesson_`; empty if no lesson is due.
    """
    graph = run.rollouts.batches.lesson()
    if graph is None:
        return {}
    shown = {"episodes": float(graph.first.sum())}
    return {f"lesson_{name}": value for name, value in {**shown, **run.policies.imitate(graph, iteration)}.items()}


def age_metrics(graph: StepGraph, version: int) -> dict[str, float]:
    """Mean and maximum staleness of the steps: `version` minus the version of the oldest weights that sampled the step.

    `version` is the version of the weights before the update with this graph.
    """
    oldest = version - graph.version_oldest  # [N]
    return {"staleness_mean": float(oldest.mean()), "staleness_max": float(oldest.max())} if len(graph) else {}


def settle(run: Run, learned: Learned, bar: Bar) -> None:
    """Store and log an iteration, then run the evaluation and write the checkpoint if they are due.

    Raises:
        ValueError: the verdicts of the held-out judge differ too much from those of the judge that the reward reads.
    """
    iteration, batch, _, watch = learned.played
    run.store(iteration, learned.graph, learned.credit, batch.records)
    faults = fault_counts(batch.records)
    failed = {"faults": faults} if faults else {}
    overlong = overlong_counts([*batch.records, *batch.left_out])
    failed |= {"overlong_prompts": overlong} if overlong else {}
    run.tell_left_out(overlong)
    for note in run.rollouts.batches.unreported(batch.graph):
        run.progress.say(note)
    unknown = run.rollouts.unknown(batch.graph)
    prompts = asked(run.settings, batch.graph, batch.metrics["generated_tokens"])
    run.log("train", iteration, {**batch.metrics, **prompts, **learned.metrics, **failed}, watch, unknown)
    alone = "success" in batch.metrics  # this metric is missing if a guide helped every chain
    bar.step(in_words(batch.metrics["success"], batch.metrics["reward"]) if alone else "all chains had help")
    run.finish(iteration)
    run.stop_if_judges_disagree()
