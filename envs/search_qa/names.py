"""The words of which the encyclopaedia's names are made. Every name has two words from short lists, so a name that
is new to a trained model is made of words that it has read in other names."""

from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType


def _read() -> Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    found: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
    for line in files("agentrl.envs.search_qa").joinpath("words.txt").read_text("utf-8").splitlines():
        kind, colon, words = line.partition(": ")
        if colon and not line.startswith("#"):
            first, _, last = words.partition(" | ")
            found[kind] = (tuple(first.split()), tuple(last.split()))
    return MappingProxyType(found)


WORDS = _read()  # kind -> (first words, second words) of the kind's names
