"""The training loop: tasks -> rollouts -> step graph -> credit -> packed update -> new weights."""

from agentrl.run.iteration import Played, learn, settle
from agentrl.run.metrics import Stopwatch
from agentrl.run.overlap import reinforce_ahead
from agentrl.run.progress import Progress
from agentrl.run.run import Run, open_run
from agentrl.settings import Settings


def train(settings: Settings, *, resume: bool = False, progress: Progress | None = None) -> Run:
    """Clone, then train, evaluating on held-out tasks before, between and after; everything lands in the run folder.

    Raises:
        ValueError: the configuration or the run folder does not allow it.
        TooManyFaults: the environment failed too often.
    """
    with progress or Progress() as shown:
        run = open_run(settings, resume=resume, progress=shown)
        try:
            if run.state.stage == "warmup":
                run.evaluate("start")
                warm_up(run)
            reinforce_ahead(run) if settings.tables.run.lead else reinforce(run)
            run.evaluate("end")
            run.conclude()
            run.save()
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
        watch = Stopwatch()
        with watch.phase("rollout"):
            graph = run.rollouts.demonstrations(step)
        with watch.phase("update"):
            metrics = run.policies.imitate(graph, step)
        run.log("clone", step, metrics, watch, run.rollouts.unknown(graph))
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


def reinforce(run: Run) -> None:
    """One update per batch of rollouts."""
    bar = run.progress.bar("training", run.settings.tables.run.iterations, run.state.step)
    for iteration in run.iterations():
        watch, spent = Stopwatch(), run.spent
        with watch.phase("rollout"):
            batch = run.rollouts.batch(iteration, pauses=run.pauses_after(iteration))
        run.state.count(batch.metrics)
        learned = learn(run, Played(iteration, batch, spent, watch))
        run.sync(iteration + 1)
        settle(run, learned, bar)
    run.rollouts.stop_playing()
    bar.close()
