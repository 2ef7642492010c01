"""The training loop: tasks -> rollouts -> step graph -> credit -> packed update -> new weights."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from agentrl.credit import Credit, assign, reward_metrics
from agentrl.graph import StepGraph, write_graph
from agentrl.run.metrics import Stopwatch
from agentrl.run.progress import Progress
from agentrl.run.run import Run
from agentrl.settings import Settings
from agentrl.trainer import Annotated, Learner, annotate, charge_kl, clone, trunk_gradient, update


def train(settings: Settings, *, resume: bool = False, progress: Progress | None = None) -> Run:
    """Clone, then train, evaluating on held-out tasks before, between and after; everything lands in the run folder.

    Raises:
        ValueError: the configuration or the run folder does not allow it.
        TooManyFaults: the environment failed too often.
    """
    with progress or Progress() as shown:
        run = Run(settings, resume=resume, progress=shown)
        try:
            if run.state.stage == "warmup":
                evaluate(run, "start")
                warm_up(run)
            reinforce(run)
            evaluate(run, "end")
            run.save()
        finally:
            run.close()
    return run


def warm_up(run: Run) -> None:
    """Behaviour cloning on fresh expert episodes."""
    steps, every = run.tables.warmup.updates, run.tables.run.checkpoint_every
    if run.state.step == 0:  # else the optimisers go on from the checkpoint
        for name, learner in run.learners.items():
            learner.restart(run.settings.policies[name].clone_optim, steps)
    bar = run.progress.bar("cloning", steps, run.state.step)
    for step in range(run.state.step, steps):
        watch = Stopwatch()
        with watch.phase("rollout"):
            graph = run.demonstrations(step)
        with watch.phase("update"):
            metrics = imitate(run, graph, step)
        run.log("clone", step, metrics, watch)
        run.state.step = step + 1
        bar.step(" ".join(f"{name} {value:.3f}" for name, value in metrics.items() if name.endswith("loss")))
        if every and run.state.step % every == 0 and run.state.step < steps:
            run.save()
    bar.close()
    run.sync(0)
    if steps:
        evaluate(run, "clone")
    run.state.stage, run.state.step = "train", 0
    for name, learner in run.learners.items():
        learner.restart(run.settings.policies[name].optim, run.tables.run.iterations)
    run.save()


def imitate(run: Run, graph: StepGraph, step: int) -> dict[str, float]:
    """One batch of cloning for every policy, frozen agents' included: it is how they come by what they can do."""
    metrics: dict[str, float] = {}
    for name, learner in run.learners.items():
        mine = run.mine(graph, name, trained=False)
        own = graph if mine is None else graph.with_columns(weight=graph.weight * mine)
        learned = clone(learner, own, run.tables.update, minibatches=run.tables.warmup.minibatches, seed=step)
        metrics |= named(run, name, learned)
    return metrics


def named(run: Run, policy: str, metrics: Mapping[str, float]) -> dict[str, float]:
    """A policy's metrics, under its name where there are several."""
    return {key if len(run.learners) == 1 else f"{policy}/{key}": value for key, value in metrics.items()}


def reinforce(run: Run) -> None:
    """One update a batch of rollouts."""
    tables = run.tables
    bar = run.progress.bar("training", tables.run.iterations, run.state.step)
    for iteration in range(run.state.step, tables.run.iterations):
        if run.spent >= 1:
            run.progress.say(f"the budget of the run is spent after {iteration} iterations")
            break
        for learner in run.learners.values():
            learner.spent = run.spent
        watch = Stopwatch()
        with watch.phase("rollout"):
            graph, metrics = run.rollouts(iteration)
        with watch.phase("annotate"):
            annotated = annotate_all(run, graph)
        with watch.phase("credit"):
            graph, gap = charge_kl(annotated, tables.update)
            gap |= reward_metrics(annotated.graph)
            credit = assign(run.settings.credit.module, graph, run.settings.credit.config)
        with watch.phase("update"):
            learned = improve(run, graph, credit, iteration)
        run.sync(iteration + 1)
        if tables.run.graphs_every and iteration % tables.run.graphs_every == 0:
            given = np.where(credit.assigned, credit.advantage, np.nan)  # [N]
            told = graph.with_columns(advantage=given, credit_weight=credit.weight)  # how often each step was trained
            write_graph(told, run.folder.graph_path(iteration))
        run.log("train", iteration, {**metrics, **gap, **credit.metrics, **learned}, watch)
        run.state.step = iteration + 1
        bar.step(f"success {metrics['success']:.2f}")
        if tables.eval.every and run.state.step % tables.eval.every == 0 and run.state.step < tables.run.iterations:
            evaluate(run, f"iteration {run.state.step}", tables.eval.during)
        if tables.run.checkpoint_every and run.state.step % tables.run.checkpoint_every == 0:
            run.save()
    bar.close()


def annotate_all(run: Run, graph: StepGraph) -> Annotated:
    """What every policy has to say of its own steps."""
    config, temperature = run.tables.update, run.tables.sampling.temperature
    metrics: dict[str, float] = {}
    for name, learner in run.learners.items():
        more = run.annotators() if learner is run.learner else ()
        mine = run.mine(graph, name, trained=False)
        graph, found = annotate(graph, learner, config, temperature, more, mine)
        metrics |= named(run, name, found)
    return Annotated(graph, metrics)


def improve(run: Run, graph: StepGraph, credit: Credit, iteration: int) -> dict[str, float]:
    """The update of every policy from the same graph, each from its own agents' steps."""
    metrics: dict[str, float] = {}
    for name, learner in run.learners.items():
        mine = run.mine(graph, name)
        if mine is None or mine.any():
            own = credit if mine is None else replace(credit, assigned=credit.assigned & mine)
            metrics |= named(run, name, improve_one(run, learner, graph, own, iteration))
    return metrics


def improve_one(run: Run, learner: Learner, graph: StepGraph, credit: Credit, iteration: int) -> dict[str, float]:
    """The critic's update, if there is one, then, after its warm-up, the policy's."""
    tables = run.tables
    limits = {"max_tokens": tables.update.max_tokens, "seed": iteration}
    metrics = learner.critic.fit(graph, credit, unit=tables.update.unit, **limits) if learner.critic else {}
    if learner.critic and iteration < tables.critic.warmup:
        return metrics
    learned = update(
        learner,
        graph,
        credit,
        tables.update,
        run.settings.loss.module,
        run.settings.loss.config,
        temperature=tables.sampling.temperature,
        seed=iteration,
        beside=trunk_gradient(learner.critic, graph, credit, tables.update.max_tokens),
    )
    return {**metrics, **learned}


def evaluate(run: Run, name: str, tasks: int | None = None) -> None:
    """Held-out success under this name, once."""
    if name in run.state.evaluated:
        return
    for mode in run.tables.eval.modes:
        watch = Stopwatch()
        with watch.phase("evaluate"):
            report = run.evaluation(mode, run.eval_tasks[:tasks])
        summary = report.summary()
        low, high = summary["interval"]
        seconds = summary.pop("seconds")
        run.log("eval", run.state.step, {"name": name, "mode": mode, **summary}, watch)
        run.folder.write_report(f"{name}-{mode}", {**summary, "seconds": seconds}, report.outcomes)
        run.progress.say(
            f"{name}: {mode} success {summary['success_rate']:.1%} [{low:.1%}, {high:.1%}] "
            f"on {summary['episodes']} held-out {summary['benchmark']} tasks (panel {summary['panel']})"
        )
    run.state.evaluated.append(name)
