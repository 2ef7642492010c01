"""Checkpoints of a training server, on the disk: adapters in the layout of peft, the optimiser, and a description.

    FOLDER/RUN/weights/NAME/           of `save_state`: adapters and optimiser
    FOLDER/RUN/sampler_weights/NAME/   of `save_weights_for_sampler`: adapters alone
        adapter_model.safetensors, adapter_config.json    peft loads this folder on the base model
        optimizer.safetensors                             PARAMETER/KEY -> tensor of AdamW
        checkpoint.json                                   base model, adapters, time of creation and of expiry

RUN is the model's id with "." in place of ":". A folder appears complete or not at all, so a server that is killed
leaves no damaged checkpoint; what it left half-written is removed when a server starts and no other server uses the
folder. An expired checkpoint is deleted when the server next looks at the folder.
"""

import fcntl
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from agentrl.files import flush_to_disk, read_json, recover_folders, remove_folder, write_atomically, writing
from agentrl.http import Refusal
from agentrl.training_server.trained_model import ModelState, State
from agentrl.training_server.verbs import AdapterPlan

SCHEME = "tinker://"
KINDS = {"weights": "training", "sampler_weights": "sampler"}  # the middle of a path -> type in lists
NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
ADAPTERS, SETTINGS, OPTIMISER, ABOUT = (
    "adapter_model.safetensors",
    "adapter_config.json",
    "optimizer.safetensors",
    "checkpoint.json",
)


class StoredCheckpoint(NamedTuple):
    """The description of a checkpoint.

    Attributes:
        path: `tinker://RUN/KIND/NAME`, by which clients name it.
        model: the base model's name.
        plan: its adapters.
        created, expires: seconds since 1970; `expires` is None for never.
        size: bytes of its files.
        metadata: what the client gave.
    """

    path: str
    model: str
    plan: AdapterPlan
    created: float
    expires: float | None
    size: int
    metadata: Mapping[str, str] | None

    @property
    def run(self) -> str:
        """The id of the model that was saved."""
        return self.path.removeprefix(SCHEME).split("/")[0]


class Checkpoints:
    """The checkpoints in a folder; safe for threads.

    Args:
        folder: it is made when the first checkpoint is saved.
        model: name of the base model.
        clock: seconds since 1970.
    """

    def __init__(self, folder: Path, model: str, clock: Callable[[], float] = time.time) -> None:
        self.folder, self.model, self._clock = folder, model, clock
        self._lock = threading.RLock()  # of what changes a checkpoint: an expired one must not be deleted as a new one
        self._used: int | None = None  # descriptor of the folder while it is marked as used

    def open(self) -> None:
        """Mark the folder as used, and tidy up after a server that was killed, unless another server uses the folder.

        Raises:
            OSError: the folder cannot be made or read.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._used = os.open(self.folder, os.O_RDONLY)
        with suppress(OSError):  # another server uses the folder, and may be writing; or the file system has no locks
            fcntl.flock(self._used, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for kind in KINDS:
                for parent in self.folder.glob(f"*/{kind}"):
                    recover_folders(parent)
        with suppress(OSError):
            fcntl.flock(self._used, fcntl.LOCK_SH)

    def close(self) -> None:
        """The folder is no longer used."""
        if self._used is not None:
            os.close(self._used)
            self._used = None

    def path(self, run: str, kind: str, name: str) -> str:
        """The path of a checkpoint; Refusal if the name cannot be one of a folder."""
        if not NAME.fullmatch(name):
            raise Refusal(
                400, f"{name!r:.110} is no name of a checkpoint: use up to 100 letters, digits and the characters . _ -"
            )
        return f"{SCHEME}{run}/{kind}/{name}"

    def check_new(self, path: str, overwrite: bool) -> None:
        """Refusal if there is a checkpoint of this path, which may not be overwritten."""
        if not overwrite and self._folder(path).exists() and not self._expired(self._folder(path)):
            raise Refusal(400, f"{path} exists: choose another name, or save with overwrite=True")

    def save(
        self,
        path: str,
        state: ModelState,
        settings: Mapping[str, Any],
        keep_s: float | None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        """Write a checkpoint, in place of an older one of this path.

        Args:
            path: see `path`.
            state: adapters and, for a checkpoint that training may go on from, the optimiser.
            settings: the content of `adapter_config.json`.
            keep_s: seconds after which it expires; None for never.
            metadata: see `StoredCheckpoint`.

        Raises:
            ValueError: the disk is full, or the folder cannot be written.
        """
        from safetensors.torch import save_file

        now = self._clock()
        with self._lock, writing(self._folder(path)) as partial:
            partial.mkdir(parents=True)
            save_file(dict(state.adapters), partial / ADAPTERS, {"format": "pt"})
            if state.optimiser is not None:
                save_file(dict(state.optimiser), partial / OPTIMISER)
            (partial / SETTINGS).write_text(json.dumps({**settings, "base_model_name_or_path": self.model}, indent=1))
            about = {
                "path": path,
                "model": self.model,
                "plan": state.plan._asdict(),
                "created": now,
                "expires": None if keep_s is None else now + keep_s,
                "size": sum(file.stat().st_size for file in partial.iterdir()),
                "metadata": metadata,
            }
            (partial / ABOUT).write_text(json.dumps(about, indent=1))
            flush_to_disk(partial)

    def about(self, path: str) -> StoredCheckpoint:
        """The description of a checkpoint; Refusal if there is none of this path."""
        folder = self._folder(path)
        found = None if self._expired(folder) else self._read(folder)
        if found is None:
            raise Refusal(
                404,
                f"no checkpoint {path!r:.300} here: it has expired, was deleted, or is of another server; the "
                "SDK's list_user_checkpoints names those that are here",
            )
        return found

    def load(self, path: str, optimiser: bool) -> ModelState:
        """The state in a checkpoint.

        Raises:
            Refusal: there is no such checkpoint, it is of another base model, it has no optimiser where one is wanted,
                or its files are damaged.
        """
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        about, folder = self.about(path), self._folder(path)
        if about.model != self.model:
            raise Refusal(
                400, f"{path} is of the base model {about.model!r:.200}, and this server has {self.model!r:.200}"
            )
        if optimiser and not (folder / OPTIMISER).is_file():
            raise Refusal(
                400, f"{path} has no optimiser: load it without the optimiser, or load what save_state stored"
            )
        try:
            with self._lock:
                adapters: State = load_file(folder / ADAPTERS)
                stored = load_file(folder / OPTIMISER) if optimiser else None
        except (OSError, SafetensorError) as error:
            raise Refusal(500, f"the files of {path} are damaged: {error}") from None
        return ModelState(about.plan, adapters, stored)

    def delete(self, path: str) -> None:
        """Delete a checkpoint; Refusal if there is none of this path."""
        with self._lock:
            self.about(path)
            remove_folder(self._folder(path))

    def expire_in(self, path: str, keep_s: float | None) -> None:
        """Set the number of seconds after which a checkpoint expires; None for never."""
        with self._lock:
            self.about(path)
            file = self._folder(path) / ABOUT
            about = read_json(file, "a checkpoint's description")
            about["expires"] = None if keep_s is None else self._clock() + keep_s
            write_atomically(file, json.dumps(about, indent=1).encode())

    def listed(self, run: str = "") -> list[StoredCheckpoint]:
        """The checkpoints of a model, or of all models, the oldest first; expired ones are deleted."""
        found = [self._read(folder) for folder in self._folders() if not self._expired(folder)]
        wanted = [one for one in found if one is not None and run in ("", one.run)]
        return sorted(wanted, key=lambda one: (one.created, one.path))

    def _folders(self) -> Iterator[Path]:
        for kind in KINDS:
            found = (about.parent for about in sorted(self.folder.glob(f"*/{kind}/*/{ABOUT}")))
            # The name of a folder that a killed server has not completed begins with a dot.
            yield from (folder for folder in found if NAME.fullmatch(folder.name))

    def _folder(self, path: str) -> Path:
        """The folder of a path; Refusal if the path names none."""
        parts = path.removeprefix(SCHEME).split("/")
        plain = len(parts) == 3 and NAME.fullmatch(parts[0].replace(":", ".")) and NAME.fullmatch(parts[2])
        if not path.startswith(SCHEME) or not plain or parts[1] not in KINDS:
            raise Refusal(400, f"{path!r:.300} is no path of a checkpoint: it has the form tinker://RUN/weights/NAME")
        return self.folder / parts[0].replace(":", ".") / parts[1] / parts[2]

    def _read(self, folder: Path) -> StoredCheckpoint | None:
        with suppress(ValueError, KeyError, TypeError):
            found = read_json(folder / ABOUT, "a checkpoint's description")
            return StoredCheckpoint(**{**found, "plan": AdapterPlan(**found["plan"])})
        return None

    def _expired(self, folder: Path) -> bool:
        """Has a checkpoint expired? It is deleted then."""
        with self._lock:
            found = self._read(folder)
            if found is None or found.expires is None or found.expires > self._clock():
                return False
            with suppress(OSError):
                remove_folder(folder)
            return True
