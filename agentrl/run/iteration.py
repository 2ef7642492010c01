"""What happens to a batch of rollouts: annotation, credit, update; then what is stored and logged of it.

Both training loops use it: the one that plays and updates in turn, and the one that plays ahead.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from agentrl.credit import Credit, assign, reward_metrics, rewards_after_annotation, with_imitation
from agentrl.graph import StepGraph
from agentrl.rollout import Collected, fault_counts, fresh_part
from agentrl.run.metrics import Stopwatch
from agentrl.run.progress import Bar, in_words
from agentrl.run.run import Run
from agentrl.trainer import charge_kl


class Played(NamedTuple):
    """A batch of rollouts.

    Attributes:
        iteration: the update that it is for.
        batch: the rollouts.
        spent: share of the run's budget that was used up before it.
        watch: times of its phases.
    """

    iteration: int
    batch: Collected
    spent: float
    watch: Stopwatch


class Learned(NamedTuple):
    """A batch after its update: the graph with its columns, its credit, and metrics of all that was done to it."""

    played: Played
    graph: StepGraph
    credit: Credit
    metrics: Mapping[str, Any]


def learn(run: Run, played: Played) -> Learned:
    """The update from a batch. It touches the policies alone, so rollouts may go on meanwhile with other weights."""
    settings, watch = run.settings, played.watch
    with watch.phase("annotate"):
        annotated = run.policies.annotate(played.batch.graph)
        if run.teacher is not None:
            annotated = annotated._replace(graph=run.teacher.read(annotated.graph, played.batch.taught))
        annotated = annotated._replace(graph=rewards_after_annotation(annotated.graph, settings.reward))
        run.rollouts.annotated(fresh_part(annotated.graph))
    with watch.phase("credit"):
        graph, charged = charge_kl(annotated, settings.tables.update)
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
    """Imitate the demonstrations that the guide has collected, if a lesson is due; its metrics begin with `lesson_`."""
    graph = run.rollouts.lesson()
    if graph is None:
        return {}
    shown = {"episodes": float(graph.first.sum())}
    return {f"lesson_{name}": value for name, value in {**shown, **run.policies.imitate(graph, iteration)}.items()}


def age_metrics(graph: StepGraph, version: int) -> dict[str, float]:
    """How many updates older than `version`, the version that a graph trains, the weights of its steps were."""
    oldest = version - graph.version_oldest  # [N]
    return {"staleness_mean": float(oldest.mean()), "staleness_max": float(oldest.max())} if len(graph) else {}


def settle(run: Run, learned: Learned, bar: Bar) -> None:
    """Store and log an iteration, then the evaluation and the checkpoint that are due."""
    iteration, batch, _, watch = learned.played
    run.store(iteration, learned.graph, learned.credit, batch.records)
    faults = fault_counts(batch.records)
    failed = {"faults": faults} if faults else {}
    unknown = run.rollouts.unknown(batch.graph)
    run.log("train", iteration, {**batch.metrics, **learned.metrics, **failed}, watch, unknown)
    alone = "success" in batch.metrics  # not if a guide helped every chain
    bar.step(in_words(batch.metrics["success"], batch.metrics["reward"]) if alone else "all chains had help")
    run.finish(iteration)
    run.stop_if_judges_disagree()
