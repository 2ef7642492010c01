"""The named players of ALFWorld: demonstrators to clone, baselines to compare with.

expert: the exploring expert; words only, see `agentrl.envs.alfworld.explorer`.
wander:0.6,0.2: the imperfect demonstrator. It is the exploring expert with random admissible commands: with probability
    0.6 in place of a deed (take, open, heat, ...), with probability 0.2 in place of a walk. The random commands have
    weight 1: cloning imitates them too.
stray:0.5,0.3: as wander, but the random command is a walk, if a walk is admissible. So random commands interrupt its
    plan, but as a rule it takes and opens only things that it needs.
expert-noisy:0.2: the exploring expert, but with probability 0.2 it gives a random admissible command instead of its
    own. The random commands have weight 0, so that cloning learns to recover from them and not to give them.
oracle: a plan made with full knowledge of the game; native engine only.
random: each admissible command with the same probability.

The numbers may be left out; the numbers above are the defaults. For the same seed and task an expert plays the same
episode.
"""

from typing import Protocol

from agentrl.env import Env, Expert, Move
from agentrl.envs.alfworld.draw import Draw
from agentrl.envs.alfworld.engine import Engine
from agentrl.envs.alfworld.explorer import Explorer
from agentrl.envs.alfworld.game import State
from agentrl.envs.alfworld.oracle import plan
from agentrl.types import Observation, Task

EXPERTS = ("expert", "oracle", "wander", "stray", "expert-noisy", "random")
# Default probabilities of a random command: `wander` and `stray` have one for deeds and one for walks, `expert-noisy`
# has one for all steps.
_DEFAULTS = {"wander": (0.6, 0.2), "stray": (0.5, 0.3), "expert-noisy": (0.2,)}
_TASK = "Your task is to: "


def make_expert(env: Env, name: str, seed: int) -> Expert:
    """The player of that name for an environment instance.

    Raises:
        ValueError: no such player, or its numbers are not probabilities.
    """
    base, *numbers = _split(name)
    match base:
        case "oracle":
            return Oracle(env)
        case "random":
            return RandomPlayer(seed)
        case "wander":
            return ExploringExpert(seed, deed=numbers[0], walk=numbers[1], weight=1.0)
        case "stray":
            return ExploringExpert(seed, deed=numbers[0], walk=numbers[1], weight=1.0, walks_off=True)
        case "expert-noisy":
            return ExploringExpert(seed, deed=numbers[0], walk=numbers[0], weight=0.0)
    return ExploringExpert(seed)


def _split(name: str) -> tuple[str, *tuple[float, ...]]:
    base, _, given = name.partition(":")
    if base not in EXPERTS:
        raise ValueError(f"unknown ALFWorld player {name!r}: use one of {', '.join(EXPERTS)}")
    defaults = _DEFAULTS.get(base, ())
    try:
        numbers = tuple(float(word) for word in given.split(",")) if given else defaults
    except ValueError:
        numbers = (-1.0,)
    if len(numbers) != len(defaults) or not all(0 <= number <= 1 for number in numbers):
        form = ":".join([base, ",".join(map(str, defaults))]) if defaults else base
        raise ValueError(f"{name!r} is not a player: write {form}, with {len(defaults)} probabilities in [0, 1]")
    return (base, *numbers)


class ExploringExpert:
    """The explorer, with random admissible commands instead of some of its own.

    Args:
        seed: the seed of its tie-breaks and slips.
        deed, walk: probability of a random command instead of a deed, and instead of a walk.
        weight: weight of the random commands in cloning.
        walks_off: the random commands are walks, if a walk is admissible.
    """

    def __init__(
        self, seed: int, *, deed: float = 0.0, walk: float = 0.0, weight: float = 1.0, walks_off: bool = False
    ) -> None:
        self.seed, self.deed, self.walk, self.weight, self.walks_off = seed, deed, walk, weight, walks_off
        self.explorer: Explorer | None = None
        self.slips = Draw("slips")
        self.key = ""

    def reset(self, task: Task) -> None:
        """Forget the last game; the next observation must be the first of this task."""
        self.explorer, self.key = None, task.key
        self.slips = Draw("slips", self.seed, task.key)

    def act(self, observation: Observation) -> Move:
        """The command to give now."""
        if self.explorer is None:
            self.explorer = Explorer(task_words(observation), Draw("explorer", self.seed, self.key))
        chosen = self.explorer.act(observation)
        if self.slips.chance(self.walk if chosen.startswith("go to ") else self.deed):
            walks = [action for action in observation.actions if action.startswith("go to ")]
            return Move(self.slips.choice(walks if self.walks_off and walks else observation.actions), self.weight)
        return Move(chosen)


def task_words(observation: Observation) -> str:
    """The task's sentence, from the field `task` of the first observation or from its text.

    Raises:
        ValueError: neither states a task.
    """
    stated = observation.task or observation.text
    before, found, after = stated.rpartition(_TASK)
    if not found and not observation.task:
        raise ValueError(f"the first observation states no task: {observation.text[:80]!r}; call reset(task) first")
    return (after if found else before or stated).partition("\n")[0].strip().removesuffix(".")


class RandomPlayer:
    """Gives each admissible command with the same probability."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.draw = Draw("random")

    def reset(self, task: Task) -> None:
        """Start the stream of this task."""
        self.draw = Draw("random", self.seed, task.key)

    def act(self, observation: Observation) -> Move:
        """Any of the admissible commands."""
        return Move(self.draw.choice(observation.actions))


class ReadsEngine(Protocol):
    """An environment whose native engine can be read."""

    @property
    def engine(self) -> Engine: ...


class Oracle:
    """Follows a plan of `agentrl.envs.alfworld.oracle`; plans anew when the state is not the one that it expected."""

    def __init__(self, env: Env) -> None:
        if not hasattr(type(env), "engine"):
            raise ValueError(
                f"the oracle reads the native ALFWorld engine, and {type(env).__name__} has none: use expert"
            )
        self.env: ReadsEngine = env  # type: ignore[assignment]
        self.rest: list[str] = []
        self.expected: State | None = None

    def reset(self, task: Task) -> None:
        """Drop the plan."""
        self.rest, self.expected = [], None

    def act(self, observation: Observation) -> Move:
        """The plan's next command; `look` where nothing is left to do or no plan exists."""
        engine = self.env.engine
        if self.expected != engine.state or not self.rest:
            self.rest = plan(engine.game, engine.state) or ["look"]
        command = self.rest.pop(0)
        after = Engine(engine.game)
        after.restore(engine.state)
        after.step(command)
        self.expected = after.state
        return Move(command)
