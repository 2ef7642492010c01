"""The words of token ids, from the tokenizer that a run has stored with its checkpoints."""

from collections.abc import Callable, Sequence
from pathlib import Path


def token_words(run: Path) -> Callable[[Sequence[int]], list[str]] | None:
    """A function from token ids to one text each, by the tokenizer of the run's newest checkpoint.

    Returns:
        The function; None if no checkpoint has a tokenizer, or if the policies of the newest checkpoint have different
        tokenizers.
    """
    by_step: dict[str, list[Path]] = {}
    for file in sorted((run / "checkpoints").glob("*/*/tokenizer.json")):
        by_step.setdefault(file.parents[1].name, []).append(file)
    if not by_step:
        return None
    newest = by_step[max(by_step)]
    if len({file.read_bytes() for file in newest}) > 1:
        return None
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(newest[0]))

    def words(ids: Sequence[int]) -> list[str]:
        return [tokenizer.decode([i], skip_special_tokens=False) for i in ids]

    return words
