"""Checks that run.staleness, run.ahead, rollout.provision, rollout.leftover and [cluster] fit together."""

from collections.abc import Iterable

from agentrl.config import Entry
from agentrl.env import EnvironmentFile, place_of
from agentrl.rollout import RolloutMethod
from agentrl.settings.sections import Tables


def provision_of(rollout: Entry[RolloutMethod]) -> float:
    """`rollout.provision`; 1 for a rollout method that does not have this option."""
    return float(getattr(rollout.config, "provision", 1.0))


def keeps_leftover(rollout: Entry[RolloutMethod]) -> bool:
    """Do groups that did not finish in a batch continue in the next batch?"""
    return provision_of(rollout) > 1 and getattr(rollout.config, "leftover", "cancel") == "keep"


def check(tables: Tables, rollout: Entry[RolloutMethod], environments: Iterable[Entry[EnvironmentFile]]) -> None:
    """Raises ValueError if the options that the module's docstring names do not fit together, or not other sections."""
    run, provision = tables.run, provision_of(rollout)
    if getattr(rollout.config, "leftover", "cancel") == "keep" and provision == 1:
        raise ValueError(
            "rollout.leftover = 'keep' has no effect with rollout.provision = 1, which waits for every group: raise "
            "rollout.provision, such as to 1.5"
        )
    if keeps_leftover(rollout) and run.staleness <= run.lead:
        raise ValueError(
            f"rollout.leftover = 'keep' makes groups older by one or more updates, and run.staleness = {run.staleness} "
            f"allows only the age of the {run.lead} batches that are played ahead: raise run.staleness to "
            f"{run.lead + 1} or more, or lower run.ahead"
        )
    if provision > 1 and (tables.batch.tokens or tables.batch.actions):
        raise ValueError(
            f"rollout.provision = {provision:g} begins more groups than a batch takes, and batch.tokens or "
            "batch.actions limits how much is played: leave out rollout.provision, or leave out the budgets"
        )
    if provision > 1 and tables.cluster.address and tables.cluster.workers:
        raise ValueError(
            f"rollout.provision = {provision:g} needs groups that this process plays, and with cluster.address the "
            "workers of the cluster play them: leave out rollout.provision, or set cluster.workers=0"
        )
    _check_stages(tables, provision)
    _check_cluster(tables, provision)
    for env in environments if provision > 1 and run.deterministic else ():
        place = place_of(env, tables.pool.kind)
        if place != "inline":
            raise ValueError(
                f"rollout.provision = {provision:g} takes the groups that finish first, and with environments in "
                f"{place} ({env.name}) their order depends on timing: set run.deterministic=false, or pool.kind=inline"
            )


def _check_stages(tables: Tables, provision: float) -> None:
    """Raises ValueError if a section cannot be combined with `run.staleness` or `rollout.provision`.

    Such a section needs complete batches, or batches that are played after the previous update.
    """
    ahead = f"run.staleness = {tables.run.staleness}" if tables.run.staleness else ""
    first = f"rollout.provision = {provision:g}" if provision > 1 else ""
    for name, used, by in (
        ("guide", tables.guide, ahead or first),
        ("replay", tables.replay, ahead),
        ("score", tables.score, first),
        ("scoring.second", tables.scoring.second, ahead),
    ):
        if used and by:
            raise ValueError(
                f"{by} cannot be combined with [{name}], which needs complete batches, one after the other: leave out "
                "one of the two"
            )
    if ahead and tables.learner.processes > 1:
        raise ValueError(
            f"with {ahead}, updates run in a second thread, and with learner.processes = "
            f"{tables.learner.processes} they must run in the main thread: set one of the two to its default"
        )


def _check_cluster(tables: Tables, provision: float) -> None:
    """Raises ValueError if [cluster] has no effect, or does not fit the engine or `rollout.provision`."""
    cluster, engine = tables.cluster, tables.engine.get("name", "hf")
    if not cluster.address:
        return
    if cluster.workers and engine == "vllm":
        raise ValueError(
            f"cluster.workers = {cluster.workers} processes play with engines in processes of Ray, and with "
            "engine.name = 'vllm' this process can ask the servers for all episodes: set cluster.workers=0"
        )
    if cluster.engines and tables.engine.get("urls"):
        raise ValueError(
            f"cluster.engines = {cluster.engines} starts vLLM servers, and engine.urls names servers that run already: "
            "replace engine.urls by engine.python, or set cluster.engines=0"
        )
    if not cluster.workers and not cluster.engines and tables.learner.processes == 1:
        raise ValueError(
            f"cluster.address = {cluster.address!r} has no effect with cluster.workers = 0, cluster.engines = 0 and "
            "learner.processes = 1: raise one of them, or leave cluster.address empty"
        )
    if cluster.engines and provision > 1 and tables.run.deterministic:
        raise ValueError(
            f"rollout.provision = {provision:g} takes the groups that finish first, and with cluster.engines = "
            f"{cluster.engines} their order depends on timing: set run.deterministic=false, or cluster.engines=0"
        )


def note(tables: Tables) -> str:
    """A note if `update.importance` does not correct for stale rollouts; else empty."""
    if tables.run.staleness and tables.update.old_logprob == "engine":
        return (
            "run.staleness is above 0 and update.old_logprob is engine: the loss compares the policy with the stale "
            "policy that sampled, and update.importance has no effect; with update.old_logprob=trainer, "
            "update.importance corrects for the staleness of the rollouts"
        )
    return ""
