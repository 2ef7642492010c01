"""Reads a data set of the Hugging Face hub through the package `datasets` (extra `hub`)."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

PREFIX = "hub:"


def hub_readers(name: str) -> dict[str, Callable[[], Sequence[Mapping[str, Any]]]]:
    """A reader per split of the data set `OWNER/NAME`, or of its configuration `OWNER/NAME:CONFIGURATION`.

    Raises:
        ValueError: the package is missing, or the data set cannot be loaded.
    """
    try:
        import datasets
    except ImportError:
        raise ValueError(f"{PREFIX}{name} needs the package datasets: pip install 'agentrl-stepgraph[hub]'") from None
    repository, _, configuration = name.partition(":")
    datasets.disable_progress_bars()
    try:
        with _quietly():
            found = datasets.load_dataset(repository, configuration or None)
    except Exception as error:  # from the HTTP library, from the hub's client, or about the data set's files
        named = ", ".join(map(repr, filter(None, (repository, configuration))))
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise ValueError(
            f"the data set {repository!r} cannot be loaded from the hub ({why}): check its name; without a network, "
            f"run datasets.load_dataset({named}).save_to_disk(DIR) on a machine with a network, copy DIR here "
            "and name DIR"
        ) from error
    return {str(split): partial(_identity, rows) for split, rows in found.items()}


@contextmanager
def _quietly() -> Iterator[None]:
    """Hide the warnings of the hub's client, one per retry, because they would bury the error message."""
    loggers = [logging.getLogger(name) for name in ("huggingface_hub", "datasets")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def _identity(rows: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    return rows
