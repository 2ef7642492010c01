"""The verb `agentrl model export`."""

import shutil
from argparse import Namespace
from pathlib import Path

from agentrl.catalogue import nearest
from agentrl.model import export_model, exported_form
from agentrl.report import Exported, model_card
from agentrl.run import RunFolder
from agentrl.runs import read_config, setting


def export(arguments: Namespace) -> dict[str, str]:
    """Write a policy of a checkpoint to a folder.

    Returns the path of the folder, and the names of the exported checkpoint, policy and form.

    Raises:
        ValueError: there is no such run, checkpoint or policy; the checkpoint has several policies and no option names
            one of them; --adapter or --merged is given and the policy has no adapters; --adapter is given and the base
            model was made from scratch; or the folder cannot be written.
    """
    run = Path(arguments.source)
    config = read_config(run)
    checkpoint = _checkpoint(RunFolder(run), arguments.checkpoint)
    policy = _policy(checkpoint, arguments.policy)
    source = checkpoint / policy
    form = exported_form(source, "adapter" if arguments.adapter else "merged" if arguments.merged else "")
    base = str(setting(config, "model.path") or "")
    if form == "adapter" and not base:
        raise ValueError(
            f"the adapters of {run} belong to a model that was made from scratch, so peft has no base model to load: "
            "leave out --adapter, which exports the whole model with its adapters"
        )
    card = model_card(Exported(run=run, checkpoint=checkpoint, policy=policy, form=form, licence=arguments.licence))

    def finish(partial: Path) -> None:
        (partial / "README.md").write_text(card, "utf-8")
        shutil.copyfile(run / "config.toml", partial / "agentrl.toml")

    export_model(source, arguments.folder, form, base, finish)
    return {"folder": str(arguments.folder), "checkpoint": checkpoint.name, "policy": policy, "form": form}


def _checkpoint(folder: RunFolder, name: str) -> Path:
    if not name:
        return folder.latest()
    known = {path.name: path for path in folder.checkpoints()}
    if name not in known:
        raise ValueError(f"{folder.path} has no checkpoint {name!r}: it has {', '.join(known) or 'none'}")
    return known[name]


def _policy(checkpoint: Path, name: str) -> str:
    known = sorted(path.parent.name for path in checkpoint.glob("*/config.json"))
    if not known:
        raise ValueError(f"{checkpoint} holds no model: choose another checkpoint")
    if name and name not in known:
        raise ValueError(f"{checkpoint} has no policy {name!r}{nearest(name, known)}")
    if not name and len(known) > 1:
        raise ValueError(f"{checkpoint} has the policies {', '.join(known)}: choose one with --policy")
    return name or known[0]
