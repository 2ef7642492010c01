"""Named difficulties of generated games. Results are reported by level, so the numbers of a level never change."""

from dataclasses import dataclass

from agentrl.envs.alfworld.game import TASK_TYPES


@dataclass(frozen=True, kw_only=True)
class Level:
    """How big and how full a room is.

    Attributes:
        name: what it is called in keys and results.
        about: one line for people.
        kinds: the task types that are played if the option `task_types` is empty.
        spots: (fewest, most) receptacles kept, among them those that the task needs; None keeps the whole scene.
        others: (fewest, most) objects drawn besides the target, at most two of a kind; None draws 1 to 3 of every
            kind. A drawn object that fits into no kept receptacle is left out.
        targets: (fewest, most) objects of the kind asked for; pick-two has at least two.
        apart: keep at most one receptacle of each viewpoint, so that every other one can be walked to.
        scenery: True: the room also has all lamps of the scene, things that only stand around (chairs, windows), and
            things inside cups and bowls. False: the only lamp is the one that the task asks for, if it asks for one.
    """

    name: str
    about: str
    kinds: tuple[str, ...]
    spots: tuple[int, int] | None
    others: tuple[int, int] | None
    targets: tuple[int, int]
    apart: bool
    scenery: bool


LEVELS = {
    level.name: level
    for level in (
        Level(
            name="small",
            about="4-8 receptacles, each its own viewpoint; 3-8 other objects; pick-and-place only",
            kinds=("pick_and_place_simple",),
            spots=(4, 8),
            others=(3, 8),
            targets=(1, 2),
            apart=True,
            scenery=False,
        ),
        Level(
            name="medium",
            about="8-14 receptacles, each its own viewpoint; 8-16 other objects; six task types",
            kinds=TASK_TYPES,
            spots=(8, 14),
            others=(8, 16),
            targets=(1, 3),
            apart=True,
            scenery=False,
        ),
        Level(
            name="full",
            about="the whole scene, viewpoints shared as in ALFRED; 1-3 of every object; six task types",
            kinds=TASK_TYPES,
            spots=None,
            others=None,
            targets=(1, 3),
            apart=False,
            scenery=True,
        ),
    )
}


def level(name: str) -> Level:
    """The level of that name.

    Raises:
        ValueError: there is none.
    """
    if name not in LEVELS:
        raise ValueError(f"unknown level {name!r} of generated games: use one of {', '.join(LEVELS)}")
    return LEVELS[name]


def table() -> str:
    """The levels and their numbers, for people."""

    def span(numbers: tuple[int, int] | None) -> str:
        return "all" if numbers is None else f"{numbers[0]}-{numbers[1]}"

    lines = [f"{'level':8}{'receptacles':>12}{'targets':>9}{'others':>8}{'task types':>12}  what"]
    lines += [
        f"{one.name:8}{span(one.spots):>12}{span(one.targets):>9}{span(one.others):>8}{len(one.kinds):>12}  {one.about}"
        for one in LEVELS.values()
    ]
    return "\n".join(lines)
