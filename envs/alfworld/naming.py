"""All names that generated games can use; a model made from scratch gets one token for each."""

from collections import Counter
from collections.abc import Iterator

from agentrl.envs.alfworld.levels import level
from agentrl.envs.alfworld.scenes import SPLITS, numbers, scene


def names_at(level_name: str) -> set[str]:
    """Every name an object or receptacle of the level's games can have, in any scene ("mug 2").

    Raises:
        ValueError: no such level.
    """
    chosen = level(level_name)
    # At most two other objects are of one kind; a full scene has up to three of each. Pick-two tasks need two.
    most = max(2, chosen.targets[1], 3 if chosen.others is None else 2)
    names: set[str] = set()
    for number in sorted({one for split in SPLITS for one in numbers(split)}):
        here = scene(number)
        spots = Counter(spot.kind for spot in here.spots)
        names.update(_named(spots))
        names.update(_named(dict.fromkeys(here.kinds, most)))
        names.update(_named(dict.fromkeys((*here.lamps, *here.scenery), 1)))
    return names


def _named(most: dict[str, int]) -> Iterator[str]:
    for kind, count in most.items():
        yield from (f"{kind.lower()} {number}" for number in range(1, count + 1))
