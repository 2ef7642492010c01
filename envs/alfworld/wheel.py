"""Makes the data files of generated games out of the `alfworld` wheel.

`python -m agentrl.envs.alfworld.wheel` writes `scenes.json.gz`, `alfred.pddl` and `alfred.twl2` beside this
module; `NOTICE.txt` holds their licences. The wheel is read as files and never imported: importing it creates
a folder and sets an environment variable.
"""

import gzip
import json
import runpy
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from agentrl.envs.alfworld.game import TASK_TYPES

HERE = Path(__file__).parent
_SCENE_NUMBERS = [base + n for base in (0, 200, 300, 400) for n in range(1, 31)]


def wheel_folder() -> Path:
    """Where the `alfworld` package lies.

    Raises:
        ValueError: it is not installed.
    """
    spec = find_spec("alfworld")
    if spec is None or not spec.submodule_search_locations:
        raise ValueError("the alfworld wheel is not installed: pip install 'agentrl-stepgraph[alfworld]'")
    return Path(spec.submodule_search_locations[0])


def read_scene(layouts: Path, number: int) -> dict[str, Any]:
    """One floor plan, lengths in steps of 0.25 m as in the ids of PDDL locations.

    Returns:
        objects: object types seen in the scene, sorted; receptacles: id -> viewpoint [x, z, quarter turns,
        camera degrees]; grid: the reachable [x, z], sorted.
    """
    objects = json.loads((layouts / f"FloorPlan{number}-objects.json").read_text())
    views = json.loads((layouts / f"FloorPlan{number}-openable.json").read_text())
    grid = np.load(layouts / f"FloorPlan{number}-layout.npy")  # [P, 2]
    return {
        "objects": sorted(objects),
        "receptacles": {
            name: [round(x * 4), round(z * 4), round(turn / 90) % 4, round(camera)]
            for name, (x, z, turn, camera) in sorted(views.items())
        },
        "grid": sorted([round(x * 4), round(z * 4)] for x, z in grid.tolist()),
    }


def read_facts(wheel: Path) -> dict[str, Any]:
    """Everything in `scenes.json.gz`."""
    constants = runpy.run_path(str(wheel / "gen" / "constants.py"))
    goals = runpy.run_path(str(wheel / "gen" / "goal_library.py"))["gdict"]
    fits: Mapping[str, set[str]] = constants["VAL_RECEPTACLE_OBJECTS"]
    return {
        "scenes": {str(n): read_scene(wheel / "gen" / "layouts", n) for n in _SCENE_NUMBERS},
        "unseen": sorted(constants["TEST_SCENE_NUMBERS"]),
        "rooms": {room: [min(span), max(span)] for room, span in constants["SCENE_TYPE"].items()},
        "objects": sorted(constants["OBJECTS"]),
        "receptacles": sorted(constants["RECEPTACLES"]),
        "movable": sorted(constants["MOVABLE_RECEPTACLES"]),
        "openable": sorted(constants["OPENABLE_CLASS_LIST"]),
        "fits": {kind: sorted(inside) for kind, inside in sorted(fits.items())},
        "affords": {verb.lower(): sorted(kinds) for verb, kinds in constants["VAL_ACTION_OBJECTS"].items()},
        "goals": {
            name: {
                "pddl": goals[name]["pddl"],
                "templates": goals[name]["templates"],
                "rooms": sorted(constants["GOALS_VALID"][name]),
            }
            for name in TASK_TYPES
        },
    }


def encode(facts: Mapping[str, Any]) -> bytes:
    """The bytes of `scenes.json.gz`; no time stamp, so equal facts give equal bytes with the same version of zlib."""
    text = json.dumps(facts, separators=(",", ":"), sort_keys=True)
    return gzip.compress(text.encode(), compresslevel=9, mtime=0)


def main() -> None:
    """Write the three files beside this module."""
    wheel = wheel_folder()
    (HERE / "scenes.json.gz").write_bytes(encode(read_facts(wheel)))
    for name in ("alfred.pddl", "alfred.twl2"):
        (HERE / name).write_bytes((wheel / "data" / name).read_bytes())
    print(f"wrote scenes.json.gz, alfred.pddl and alfred.twl2 to {HERE}, read from {wheel}")


if __name__ == "__main__":
    main()
