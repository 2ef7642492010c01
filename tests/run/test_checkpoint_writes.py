"""A checkpoint that cannot be written says why, and leaves nothing."""

from pathlib import Path

import pytest

from agentrl.run.checkpoint import RunState, write
from agentrl.run.folder import RunFolder


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        (OSError(28, "No space left on device"), ValueError, r"cannot write a checkpoint into .* free some space"),
        (ConnectionResetError("the service is gone"), ConnectionResetError, "^the service is gone$"),
    ],
)
def test_a_full_disk_and_a_lost_service_are_told_apart(tmp_path, error, kind, sentence):
    """A lost service is a ConnectionError, which is an OSError too; a supervisor may start the run again after it."""

    def save(part: Path) -> None:
        (part / "policy").mkdir(parents=True)
        raise error

    with pytest.raises(kind, match=sentence):
        write(RunFolder(tmp_path / "run"), "000001", save, RunState(), 1, {})
    assert list((tmp_path / "run" / "checkpoints").iterdir()) == []
