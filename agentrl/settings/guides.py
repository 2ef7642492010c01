"""Checks that a guide, and the regularizers that need a guide, fit the other sections of a recipe."""

from collections.abc import Sequence

from agentrl.catalogue import load, names
from agentrl.config import Entry
from agentrl.credit import CreditMethod
from agentrl.rollout import GuideFile, RolloutMethod
from agentrl.settings.sections import Tables
from agentrl.trainer import RegularizerFile


def check_guide(
    tables: Tables,
    guide: Entry[GuideFile] | None,
    rollout: Entry[RolloutMethod],
    credit: Entry[CreditMethod],
    regularizers: Sequence[Entry[RegularizerFile]],
    agents: int,
) -> None:
    """Raises ValueError if a guide does not fit the recipe.

    If the guide puts demonstrations into groups, these must have an effect on the credit or the update. A regularizer
    that imitates demonstrations needs such a guide.
    """
    imitates = [entry for entry in regularizers if entry.hooks.demonstrations]
    joins = None if guide is None or guide.hooks.joins is None else guide.hooks.joins(guide.config)
    if guide is not None and guide.hooks.plain is not None:
        _check_hints(guide, rollout, agents, plain=guide.hooks.plain(guide.config))
    _check_teacher(tables, guide, rollout, regularizers, agents)
    if guide is None or joins is None:
        for entry in imitates:
            raise ValueError(
                f"update.regularizers has name={entry.name}, and no demonstration joins the groups of this recipe: set "
                "guide.name=demonstration, or leave the regularizer out"
            )
        return
    which = f"guide.name={guide.name}"
    if rollout.hooks.fills:
        raise ValueError(
            f"{which} puts whole chains into groups, and rollout.name={rollout.name} plays branches, candidates or "
            "probes: choose rollout.name=chain"
        )
    if not joins.in_gradient and not joins.in_statistics and not imitates:
        raise ValueError(
            f"{which} has no effect with guide.statistics=false and without a regularizer that imitates: set "
            "update.regularizers=[{name='imitation'}], or guide.statistics=true"
        )
    by_advantage = any(getattr(entry.config, "by", "") == "advantage" for entry in imitates)
    compared = joins.in_statistics or joins.in_gradient or by_advantage
    if compared and not credit.hooks.demonstrations:
        able = [one for one in names("credit") if load("credit", one).demonstrations]
        raise ValueError(
            f"{which} gives demonstrations an advantage, and credit.name={credit.name} does not compare them with "
            f"their group: choose credit.name from {', '.join(able)}, or only imitate demonstrations: set "
            "guide.train='imitation', guide.statistics=false and by='one' of the regularizer"
        )
    if compared and tables.score:
        raise ValueError(
            f"{which} compares demonstrations with scored episodes, and [[score]] does not score demonstrations: set "
            "guide.statistics=false, guide.train='imitation' and by='one' of the regularizer, or leave [[score]] out"
        )


def _check_hints(guide: Entry[GuideFile], rollout: Entry[RolloutMethod], agents: int, *, plain: bool) -> None:
    """Raises ValueError if chains with hints cannot be added to groups, or cannot be trained without the hints."""
    if rollout.hooks.fills or not rollout.hooks.uneven:
        raise ValueError(
            f"guide.name={guide.name} adds chains to some groups, and rollout.name={rollout.name} either plays the "
            "same number of chains in every group, or plays branches, candidates or probes: choose rollout.name=chain"
        )
    if plain and agents > 1:
        raise ValueError(
            f"guide.name={guide.name} with guide.train='plain' replaces the prompts of chains before training. This "
            f"works for one agent only, and this recipe has {agents} agents: set guide.train='with'"
        )


def _check_teacher(
    tables: Tables,
    guide: Entry[GuideFile] | None,
    rollout: Entry[RolloutMethod],
    regularizers: Sequence[Entry[RegularizerFile]],
    agents: int,
) -> None:
    """Raises ValueError if a teacher does not fit the recipe.

    A teacher needs a regularizer that reads its log-probs, and such a regularizer needs a teacher. The source of the
    teacher must fit the other sections.
    """
    learns = [entry.name for entry in regularizers if "teacher_logprob" in entry.hooks.reads]
    who = None if guide is None or guide.hooks.teaches is None else guide.hooks.teaches(guide.config)
    if who is None:
        for name in learns:
            raise ValueError(
                f"update.regularizers has name={name}, which reads the log-probs of a teacher: set guide.name=teacher, "
                "or leave the regularizer out"
            )
        return
    which = f"guide.source={who.source}"
    if not learns:
        raise ValueError(
            "guide.name=teacher has no effect without a regularizer that reads the teacher's log-probs: set "
            "update.regularizers=[{name='teacher'}]"
        )
    sampling = tables.sampling
    plain = sampling.temperature == 1 and not sampling.truncates and tables.engine.get("actions", "free") == "free"
    if who.source == "endpoint" and not plain:
        raise ValueError(
            f"{which} gives log-probs over all tokens at temperature 1, and this recipe samples in another way: set "
            "engine.actions='free', sampling.temperature=1, top_k=0 and top_p=1, or take guide.source='folder'"
        )
    if who.source == "own" and (agents > 1 or rollout.hooks.fills or tables.learner.processes > 1):
        raise ValueError(
            f"{which} builds the prompts of chains again, which works for one agent and a learner in one process: set "
            "rollout.name=chain and learner.processes=1, and leave other agents out, or set guide.source='folder'"
        )
