"""The training loop: tasks -> rollouts -> step graph -> credit -> packed update -> new weights."""

from agentrl.credit import assign, reward_metrics, rewards_after_annotation
from agentrl.rollout import fault_counts, fresh_part
from agentrl.run.learner_group import LearnerGroup
from agentrl.run.progress import Progress, in_words
from agentrl.run.run import Run, open_run
from agentrl.settings import Settings
from agentrl.trainer import charge_kl


def train(settings: Settings, *, resume: bool = False, progress: Progress | None = None) -> Run:
    """Clone, then train, evaluating on held-out tasks before, between and after; everything lands in the run folder.

    With `learner.processes` above 1 the other processes are started, watched and ended here. Under torchrun this is
    for rank 0; the others call `agentrl.run.follow_torchrun`, as `agentrl train` does.

    Raises:
        ValueError: the configuration or the run folder does not allow it, or another process of the learner has ended.
        TooManyFaults: the environment failed too often.
    """
    with progress or Progress() as shown, LearnerGroup(settings) as group:
        run = open_run(settings, resume=resume, progress=shown, group=group)
        try:
            if run.state.stage == "warmup":
                run.evaluate("start")
                warm_up(run)
            reinforce(run)
            run.evaluate("end")
            run.conclude()
            run.save()
            run.policies.close()
        finally:
            run.close()
    return run


def warm_up(run: Run) -> None:
    """Behaviour cloning on fresh expert episodes."""
    tables = run.settings.tables
    steps, every = tables.warmup.updates, tables.run.checkpoint_every
    if run.state.step == 0:  # else the optimisers go on from the checkpoint
        run.policies.restart("warmup")
    bar = run.progress.bar("cloning", steps, run.state.step)
    for step in range(run.state.step, steps):
        watch = run.stopwatch("cloning", step, steps, tables.warmup.episodes)
        with watch.phase("rollout"):
            graph, noticed = run.rollouts.demonstrations(step, bar.episodes(tables.warmup.episodes))
        with watch.phase("update"):
            metrics = run.policies.imitate(graph, step)
        metrics |= {name: noticed.pop(name) for name in ("won_share", "cloned_share") if name in noticed}
        run.log("clone", step, metrics, watch, noticed)
        run.state.step = step + 1
        bar.step(" ".join(f"{name} {value:.3f}" for name, value in metrics.items() if name.endswith("loss")))
        if every and run.state.step % every == 0 and run.state.step < steps:
            run.save()
    bar.close()
    run.sync(0)
    if steps:
        run.evaluate("clone")
    run.state.stage, run.state.step = "train", 0
    run.policies.restart("train")
    run.save()


def lesson(run: Run, iteration: int) -> dict[str, float]:
    """Imitate the demonstrations that the guide has collected, if a lesson is due; its metrics begin with `lesson_`."""
    graph = run.rollouts.lesson()
    if graph is None:
        return {}
    shown = {"episodes": float(graph.first.sum())}
    return {f"lesson_{name}": value for name, value in {**shown, **run.policies.imitate(graph, iteration)}.items()}


def reinforce(run: Run) -> None:
    """One update per batch of rollouts."""
    settings = run.settings
    bar = run.progress.bar("training", settings.tables.run.iterations, run.state.step)
    for iteration in run.iterations():
        watch = run.stopwatch("training", iteration, settings.tables.run.iterations, settings.episodes)
        spent = run.spent
        with watch.phase("rollout"):
            batch = run.rollouts.batch(iteration, bar.episodes(_due(settings)))
        run.state.count(batch.metrics)
        with watch.phase("annotate"):
            annotated = run.policies.annotate(batch.graph)
            annotated = annotated._replace(graph=rewards_after_annotation(annotated.graph, settings.reward))
            run.rollouts.annotated(fresh_part(annotated.graph))
        with watch.phase("credit"):
            graph, charged = charge_kl(annotated, settings.tables.update)
            charged |= reward_metrics(fresh_part(annotated.graph))
            credit = assign(settings.credit, graph)
        with watch.phase("update"):
            learned = run.policies.improve(graph, credit, iteration, spent)
            learned |= lesson(run, iteration)
        run.sync(iteration + 1)
        run.store(iteration, graph, credit)
        faults = fault_counts(batch.records)
        unknown = run.rollouts.unknown(batch.graph)
        failed = {"faults": faults} if faults else {}
        run.log("train", iteration, {**batch.metrics, **charged, **credit.metrics, **learned, **failed}, watch, unknown)
        alone = "success" in batch.metrics  # not if a guide helped every chain
        bar.step(in_words(batch.metrics["success"], batch.metrics["reward"]) if alone else "all chains had help")
        run.finish(iteration)
        run.stop_if_judges_disagree()
    bar.close()


def _due(settings: Settings) -> int:
    """Episodes of an iteration; 0 if it is decided while they are played."""
    batch = settings.tables.batch
    open_end = settings.rollout.name != "chain" or settings.sampler.hooks.keep or batch.tokens or batch.calls
    return 0 if open_end else batch.tasks * batch.copies
