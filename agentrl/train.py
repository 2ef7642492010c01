"""The training loop: tasks -> rollouts -> step graph -> credit -> packed update -> new weights."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from os import environ
from pathlib import Path
from typing import Any

from agentrl.run import (
    MakePolicies,
    MakeTrackers,
    Played,
    Policies,
    Progress,
    Rollouts,
    Run,
    learn,
    open_run,
    read_metrics,
    settle,
)
from agentrl.settings import Settings
from agentrl.train_ahead import reinforce_ahead


def train(settings: Settings, *, resume: bool = False, progress: Progress | None = None) -> Run:
    """Clone the experts if the recipe has a warm-up, then train. All results are written to the run's folder.

    Held-out tasks are evaluated at the beginning, after the warm-up, every `eval.every` iterations, and at the end.

    With `learner.processes` above 1 and `cluster.address`, this function starts the other processes as actors of the
    cluster. Without a cluster, the command `agentrl train` or torchrun must have started all processes; only rank 0
    calls this function, and the other ranks call `agentrl.cluster.follow_torchrun`.

    Raises:
        ValueError: the configuration or the run's folder does not allow the training, `learner.processes` is above 1
            and nothing has started the other processes, or an actor of the learner has ended.
        TooManyFaults: the share of chains that faults ended is above `limits.fault_share`.
    """
    with progress or Progress() as shown, group_of(settings) as group, ExitStack() as at_end:
        run = open_run(
            settings,
            resume=resume,
            progress=shown,
            make_policies=policies_of(settings, group, at_end),
            make_rollouts=rollouts_of(settings),
            make_trackers=trackers_of(settings),
        )
        try:
            tell_costs(run)
            if run.state.stage == "warmup":
                run.evaluate("start")
                warm_up(run)
            if run.state.step < settings.tables.run.iterations:
                shown.begins(f"training: iterations {run.state.step} to {settings.tables.run.iterations - 1}")
            reinforce_ahead(run, tell_costs) if settings.tables.run.lead else reinforce(run)
            run.evaluate("end")
            run.conclude()
            run.save()
            run.policies.close()
        finally:
            run.close()
    return run


def tell_costs(run: Run) -> None:
    """Print the estimate of what the run costs, if a training service computes its updates."""
    if not run.settings.tables.learner.remote:
        return
    from agentrl.tinker import cost_lines

    chat = run.rollouts.inference.chats[run.rollouts.main.policy]
    for line in cost_lines(run.settings, chat, read_metrics(run.folder.metrics).rows, run.state.dollars):
        run.progress.say(line)


def warm_up(run: Run) -> None:
    """Clone the experts: each update of the warm-up uses newly played expert episodes."""
    tables = run.settings.tables
    steps, every = tables.warmup.updates, tables.run.checkpoint_every
    if run.state.step == 0:  # at a later step, the optimisers continue with their state from the checkpoint
        run.policies.restart("warmup")
    if run.state.step < steps:
        run.progress.begins(
            f"cloning: {steps - run.state.step} updates, each on {tables.warmup.episodes} episodes of "
            f"{tables.warmup.expert}"
        )
    bar = run.progress.bar("cloning", steps, run.state.step)
    for step in range(run.state.step, steps):
        watch = run.stopwatch("cloning", step, steps, tables.warmup.episodes)
        with watch.phase("rollout"):
            graph, noticed = run.rollouts.demonstrations(step, bar.episodes(tables.warmup.episodes))
        with watch.phase("update"):
            metrics = run.policies.imitate(graph, step)
        run.tell_left_out(noticed.get("overlong_prompts", {}))
        stored = ("won_share", "cloned_share", "overlong_prompts", "overlong_prompt_share")
        metrics |= {name: noticed.pop(name) for name in stored if name in noticed}
        run.log("clone", step, metrics, watch, {**noticed, "updates_left": steps - step - 1})
        run.state.step = step + 1
        bar.step(" ".join(f"{name} {value:.3f}" for name, value in metrics.items() if name.endswith("loss")))
        if every and run.state.step % every == 0 and run.state.step < steps:
            run.save()
    bar.close()
    run.policies.restart("train")  # before `sync`: a training service goes on with another model of the same weights
    run.sync(0)
    if steps:
        run.evaluate("clone")
    run.state.stage, run.state.step = "train", 0
    run.save()


def reinforce(run: Run) -> None:
    """Play a batch of rollouts and update on it, in turn, until the last iteration."""
    settings = run.settings
    bar = run.progress.bar("training", settings.tables.run.iterations, run.state.step)
    for iteration in run.iterations():
        watch = run.stopwatch("training", iteration, settings.tables.run.iterations, settings.episodes)
        spent = run.spent
        with watch.phase("rollout"):
            episodes, pauses = bar.episodes(_due(settings)), run.pauses_after(iteration)
            batch = run.rollouts.batch(iteration, episodes, pauses=pauses)
        run.rollouts.inference.free_caches()
        run.state.count(batch.metrics)
        learned = learn(run, Played(iteration, batch, spent, watch))
        run.sync(iteration + 1)
        settle(run, learned, bar)
        if iteration == 0:  # its counts replace the assumptions
            tell_costs(run)
    run.rollouts.stop_playing()
    bar.close()


def _due(settings: Settings) -> int:
    """The number of episodes of an iteration; 0 if it is not known before the rollouts."""
    batch = settings.tables.batch
    open_end = settings.rollout.name != "chain" or settings.sampler.hooks.keep or batch.tokens or batch.actions
    return 0 if open_end else batch.tasks * batch.copies


def group_of(settings: Settings) -> AbstractContextManager[Any]:
    """The processes of a run's learners: processes of torchrun, actors of [cluster], or None for this process alone.

    Raises:
        ValueError: the run cannot have these processes on this machine, or nothing has started them.
    """
    tables = settings.tables
    if not tables.learner.divided and "RANK" not in environ:
        return nullcontext()
    from agentrl.cluster import LearnerGroup, RankPlace

    if not tables.cluster.address or tables.learner.processes == 1 or RankPlace.found() is not None:
        return LearnerGroup(settings)
    from agentrl.cluster import RayLearnerGroup  # imports Ray, which is optional

    return RayLearnerGroup(settings)


def policies_of(settings: Settings, group: Any, at_end: ExitStack) -> MakePolicies:
    """What makes a run's policies: in this process, shared by the processes of a group, or at a training service.

    Args:
        settings: settings of the run.
        group: the processes of the run's learners; see `group_of`.
        at_end: frees what the policies have at a training service, also after a failure, because a model that nobody
            trains any more would take the place of the model with which the run goes on.
    """
    if settings.tables.learner.remote:
        from agentrl.tinker import ServicePolicies

        def served(*arguments: Any) -> Policies:
            policies = ServicePolicies(*arguments)
            at_end.callback(policies.close)
            return policies

        return served
    if group is None or not group.config.divided:
        return Policies
    from agentrl.cluster import LeadingPolicies

    return partial(LeadingPolicies, group=group)


def rollouts_of(settings: Settings) -> Callable[[Settings], Rollouts]:
    """What makes the rollouts of a run: `Rollouts` in this process, or on the workers and engines of [cluster]."""
    cluster = settings.tables.cluster
    if not cluster.address or not (cluster.workers or cluster.engines):
        return Rollouts
    from agentrl.cluster import RayRollouts  # imports Ray, which is optional

    return RayRollouts


def trackers_of(settings: Settings) -> MakeTrackers | None:
    """What makes the trackers of a run; None if the recipe names no tracker.

    Raises:
        ValueError: a package that a tracker needs is missing.
    """
    if not settings.trackers:
        return None
    from agentrl.trackers import Tracked, Trackers, check_packages, tracked_id

    check_packages(settings.trackers)
    name = settings.tables.run.name

    def made(folder: Path, config: Mapping[str, Any], say: Callable[[str], None]) -> Trackers:
        known, resumed = tracked_id(folder, name)
        run = Tracked(id=known, name=name, folder=folder, config=config, resumed=resumed)
        return Trackers(settings.trackers, run, say)

    return made
