"""What a recipe cannot have beside `learner.name = "tinker"`, in one table.

A training service computes the log-probs of given tokens and takes their gradient; it samples at temperature 1 from the
whole distribution. It has no value head, returns no entropies, and its adapters never leave it. `Settings` calls
`check_settings`, so `agentrl train`, `agentrl train --dry-run` and `agentrl doctor` refuse the same recipes with the
same sentence, before anything is loaded or played. What rollouts cannot ask of the service is refused by its engine
(`agentrl.engines.tinker`), and what a server turns out not to offer when the run begins.
"""

from collections.abc import Iterator

from agentrl.engines.tinker import check_key, service_address
from agentrl.secret import hidden_url
from agentrl.settings import RefusedPair, Settings, check_pairs, fillers, recipe_parts as has

VALUES = ("value", "next_value", "token_value", "value_high")  # columns that a critic fills


def check_settings(settings: Settings) -> None:
    """Raises ValueError if the recipe has something that a training service cannot do; the sentence says what it can.

    Options of [learner] that are about this machine, such as `learner.processes`, are refused by the section itself.
    """
    check_pairs(settings, REFUSED)


def check_here(settings: Settings) -> None:
    """Raises ValueError if the environment has no key for the service; a service on this machine needs none."""
    url = service_address(settings.tables.learner.url)
    check_key(url, hidden_url(url) or "the hosted training service (learner.url is empty)")


def service(settings: Settings) -> str:
    """A training service."""
    return f"learner.name={settings.tables.learner.name}" if settings.tables.learner.remote else ""


def value_credit(settings: Settings) -> str:
    """A credit method that needs values which neither the rollouts nor a filler give."""
    if not settings.tables.run.iterations:
        return ""
    filled = {*settings.rollout.hooks.fills}
    for filler in fillers(settings.credit, settings.context, settings.env).values():
        filled |= {*filler.fills}
    missing = [name for name in VALUES if name in _read(settings) and name not in filled]
    return f"credit.name={settings.credit.name}, which reads the column {missing[0]!r}," if missing else ""


def _read(settings: Settings) -> Iterator[str]:
    """Yields the columns that the credit method and its layers read."""
    for method, _ in settings.credit.hooks.layers(settings.credit.config):
        yield from method.needs
        yield from method.reads


def value_bootstrap(settings: Settings) -> str:
    """A credit method that reads the value of the state after a truncated episode."""
    layers = settings.credit.hooks.layers(settings.credit.config)
    asked = any(getattr(config, "bootstrap", "none") == "value" for _, config in layers)
    return "credit.bootstrap='value'" if asked and settings.tables.run.iterations else ""


def entropy_bonus(settings: Settings) -> str:
    """An entropy bonus in the loss."""
    coef = settings.tables.update.entropy_coef
    return f"update.entropy_coef = {coef:g}" if coef else ""


def entropy_regularizer(settings: Settings) -> str:
    """A regularizer that reads the tokens' entropies."""
    named = [entry.name for entry in settings.regularizers if entry.hooks.entropy]
    return f"update.regularizers with name={named[0]}" if named else ""


def entropy_reward(settings: Settings) -> str:
    """A reward that reads the tokens' entropies."""
    named = [entry.name for entry in settings.reward if "token_entropy" in entry.hooks.needs]
    return f"reward.name={named[0]}" if named else ""


def other_optimiser(settings: Settings) -> str:
    """An optimiser other than AdamW, of training or of the warm-up."""
    for name, plan in settings.policies.items():
        where = "" if len(settings.policies) == 1 else f" (policy {name})"
        if plan.optim.name != "adamw":
            return f"optim.name={plan.optim.name}{where}"
        if plan.clone_optim.name != "adamw" and settings.tables.warmup.updates:
            return f"warmup.optim.name={plan.clone_optim.name}{where}"
    return ""


def new_model(settings: Settings) -> str:
    """A model that is made from scratch."""
    made = any(plan.model.new is not None for plan in settings.policies.values())
    return "[model.new]" if made else ""


def own_adapters(settings: Settings) -> str:
    """Adapters of this machine."""
    made = any(plan.model.lora is not None for plan in settings.policies.values())
    return "[model.lora]" if made else ""


def one_base(settings: Settings) -> str:
    """One base model of the service for policies that name several models."""
    paths = list(dict.fromkeys(plan.model.path for plan in settings.policies.values()))
    given = settings.tables.learner.model
    return f"learner.model = {given!r} and policies of {len(paths)} models" if given and len(paths) > 1 else ""


def other_engine(settings: Settings) -> str:
    """An engine that does not sample at the service."""
    return "" if settings.engine.name == "tinker" else f"engine.name={settings.engine.name}"


def cluster(settings: Settings) -> str:
    """A Ray cluster."""
    address = settings.tables.cluster.address
    return f"cluster.address = {address!r}" if address else ""


REFUSED = tuple(
    RefusedPair(service, *row)
    for row in (
        # Which weights the service trains.
        (
            new_model,
            "a training service trains adapters of a base model that it has",
            "set model.path to the base model's tokenizer (a folder, or a name on the hub), and learner.model to the "
            "base model's name at the service if it differs",
        ),
        (
            own_adapters,
            "the service makes the adapters",
            "leave [model.lora] out; learner.rank is their rank, and learner.train_attn, train_mlp and train_unembed "
            "choose their layers",
        ),
        (
            one_base,
            "one option cannot name several base models",
            "leave learner.model out; each policy's model.path then also names its base model at the service",
        ),
        # What the service does not compute.
        (
            has.critic,
            "a training service has no value head",
            "set critic.model=none, and choose a credit method that reads no values, such as gigpo",
        ),
        (
            value_credit,
            "a training service has no value head",
            "choose a credit method that reads no values, such as gigpo, or rollout.name=vine, which plays probes for "
            "the values of vine_ppo",
        ),
        (
            value_bootstrap,
            "a training service has no value head",
            "set credit.bootstrap='none'",
        ),
        *(
            (side, "a training service returns the log-probs of given tokens and no entropies", advice)
            for side, advice in (
                (entropy_bonus, "set update.entropy_coef=0"),
                (entropy_regularizer, "leave this regularizer out; those that read only log-probs work"),
                (entropy_reward, "leave this reward out"),
            )
        ),
        (other_optimiser, "the optimiser of a training service is AdamW", "set this option to adamw"),
        # How rollouts are sampled.
        (
            other_engine,
            "the trained weights never leave the service, so the service must sample, too",
            "set engine.name=tinker and run.deterministic=false",
        ),
        (
            has.hot_sampler,
            "its chains have temperatures of their own, and the log-probs of a training service are at temperature 1",
            "choose another sampler, such as uniform",
        ),
        (
            cluster,
            "the service has the engines and the learners, and this process plays all episodes",
            "leave cluster.address empty",
        ),
    )
)
