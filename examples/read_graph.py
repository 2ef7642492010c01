"""Read a stored step graph: which states do episodes share, and what does GiGPO say of the choices made there?

agentrl train alfworld-cpu run.iterations=1      # stores rollouts under runs/alfworld-cpu
python examples/read_graph.py runs/alfworld-cpu  # or a file of steps, as in docs/credit.md
"""

import sys
from collections import defaultdict
from pathlib import Path

from agentrl.config import resolve
from agentrl.credit import CreditMethod, assign
from agentrl.exchange import read_any
from agentrl.graph import StepGraph


def shared_states(graph: StepGraph) -> dict[tuple[int, int], list[int]]:
    """The rows of each (group, state) in which episodes chose different actions."""
    rows = defaultdict(list)
    for row in range(len(graph)):
        rows[int(graph.group[row]), int(graph.state[row])].append(row)
    return {place: here for place, here in rows.items() if len({int(graph.action[row]) for row in here}) > 1}


def main(source: Path) -> None:
    """Print the three shared states whose actions differ most in credit."""
    graph = read_any(source)
    episodes, tasks = len(set(graph.rollout.tolist())), len(set(graph.group.tolist()))
    print(f"{len(graph)} steps of {episodes} episodes of {tasks} tasks")

    method = resolve(CreditMethod, {"name": "gigpo", "gamma": 0.95, "std": "none"})
    advantage = assign(method, graph).advantage  # [N]
    places = shared_states(graph)
    print(f"{len(places)} states in which different actions were tried")
    telling = sorted(places.items(), key=lambda item: -float(advantage[item[1]].std() * len(item[1])))
    for (group, state), rows in telling[:3]:
        print(f"\ntask {graph.names['group'][group]}, state {graph.names['state'][state][:70]!r}, {len(rows)} visits")
        chosen = defaultdict(list)
        for row in rows:
            chosen[graph.names["action"][graph.action[row]]].append(float(advantage[row]))
        for action, credits in sorted(chosen.items(), key=lambda item: -sum(item[1]) / len(item[1])):
            print(f"  {sum(credits) / len(credits):+.3f} on average, {len(credits)} times: {action}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/read_graph.py runs/NAME (or a file of steps)")
    main(Path(sys.argv[1]))
