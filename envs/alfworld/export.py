"""Writes generated games as a data folder that ALFWorld's own loader reads unchanged."""

import json
from collections.abc import Iterable
from pathlib import Path

from agentrl.envs.alfworld.generate import Made, make, trial_name


def write_games(folder: Path | str, keys: Iterable[str]) -> list[Path]:
    """Write each game to a SPLIT/TASK-Object-None-Receptacle-SCENE/trial_... folder of its own.

    Args:
        folder: the data root, such as a new $ALFWORLD_DATA/json_2.1.1; made if missing.
        keys: the keys of generated games, see `agentrl.envs.alfworld.generate`.

    Returns:
        The game files, in the order of the keys.
    """
    return [_write(Path(folder), make(key)) for key in keys]


def _write(root: Path, made: Made) -> Path:
    key, goal = made.key, made.goal
    folder = root / key.split / f"{key.task}-{goal.target}-None-{goal.to}-{key.scene}" / trial_name(key)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "initial_state.pddl").write_text(made.data["pddl_problem"], encoding="utf-8")
    (folder / "traj_data.json").write_text(json.dumps(_trajectory(made), indent=1), encoding="utf-8")
    # Last, so that a folder with a game file is complete.
    game = folder / "game.tw-pddl"
    game.write_text(json.dumps(made.data), encoding="utf-8")
    return game


def _trajectory(made: Made) -> dict[str, object]:
    """What loaders read of ALFRED's trajectory file; there is no recorded trajectory in it."""
    key, goal = made.key, made.goal
    lamp = key.task == "look_at_obj_in_light"
    return {
        "task_id": trial_name(key),
        "task_type": key.task,
        "pddl_params": {
            "mrecep_target": "",
            "object_sliced": False,
            "object_target": goal.target,
            "parent_target": "" if lamp else goal.to,
            "toggle_target": goal.to if lamp else "",
        },
        "scene": {"floor_plan": f"FloorPlan{key.scene}", "scene_num": key.scene},
        "turk_annotations": {"anns": [{"task_desc": made.game.task, "high_descs": [], "votes": []}]},
        "generated": str(key),
    }
