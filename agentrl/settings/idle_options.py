"""Notes on options that have no effect, because another option turns off what they are about.

They are notes and not mistakes: whoever compares a recipe with and without a critic turns the critic off by one option.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentrl.settings.recipe import Settings


def idle_notes(settings: "Settings") -> Iterator[str]:
    """One note per option that turns off other options which the recipe sets."""
    tables = settings.tables
    if tables.critic.model == "none":
        yield _note(settings, "critic", set(), "critic.model=none", "set critic.model, such as to head")
    if tables.learner.remote:
        service = f"learner.name={tables.learner.name}"
        yield _note(settings, "model", {"dtype", "device"}, service, "set learner.name=local")
        yield _note(settings, "update", {"max_tokens"}, service, "set learner.name=local")
    if not tables.update.kl_coef:
        terms = {"kl_in", "kl_form", "kl_reference"}
        yield _note(settings, "update", terms, "update.kl_coef = 0", "raise update.kl_coef")
    if not tables.cluster.address:
        yield _note(settings, "cluster", set(), "an empty cluster.address", "set cluster.address, such as to local")
    first, copies = getattr(settings.sampler.config, "first", 0), tables.batch.copies
    if settings.sampler.hooks.allocates and first >= copies:
        yield (
            f"sampler.first = {first} has all copies of batch.copies = {copies}, and none is left for "
            f"sampler.name={settings.sampler.name} to distribute: lower sampler.first, or raise batch.copies"
        )


def _note(settings: "Settings", section: str, which: set[str], off: str, advice: str) -> str:
    """The note on the options of a section that the recipe changes; empty if it changes none of them.

    Args:
        settings: the resolved recipe.
        section: the section's name.
        which: the options that are turned off; empty for all.
        off: what turns them off.
        advice: what turns them on.
    """
    table = getattr(settings.tables, section)
    changed = [
        f"{section}.{name}"
        for name, field in type(table).model_fields.items()
        if (not which or name in which) and getattr(table, name) != field.get_default(call_default_factory=True)
    ]
    return f"{off} turns off {', '.join(changed)}: {advice}, or leave them out" if changed else ""
