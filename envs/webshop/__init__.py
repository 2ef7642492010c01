"""WebShop: shop for what an instruction asks, on the original's data or on a generated catalogue; no Java, no index
to download.

Source: Yao et al., "WebShop: Towards Scalable Real-World Web Interaction with Grounded Language Agents", NeurIPS 2022,
arXiv:2207.01206. Pages, search, goals and reward are those of the published code, with its quirks.

| piece | module |
| --- | --- |
| products and goals from the raw files | `products`, `catalogue`, `goals`, `store` |
| search | `analysis`, `porter`, `bm25`, `search` |
| pages | `pages` (the machine), `views` and `render` (what is visible) |
| reward | `reward`, `nouns` |
| generated catalogue | `generate`, `assortment` |
| what a policy sees | `environment`, `brief`, `prompts`, `experts`, `splits`, `panel` |
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from agentrl.env import Env, Expert, Prompt
from agentrl.envs.webshop.config import Config
from agentrl.types import Task

__all__ = [
    "ERRING",
    "EXPERTS", "FOR_MODELS", "GYMNASIUM_IDS", "HEAVY", "MEASURES", "Config", "benchmark", "commands", "expert", "find",
    "kind", "make", "play", "prompt", "tasks",
]  # fmt: skip

ERRING = {"careless": 2}
HEAVY = False
# Entries of an episode's last `info`, which a report averages over episodes.
MEASURES = ("score_x100", "score", "r_type", "r_att", "r_option", "r_price")
EXPERTS = ("expert", "careless", "rule", "random")
SMALL_MODEL: Mapping[str, Any] = {"prompt": "compact"}
FOR_MODELS: Mapping[str, Any] = MappingProxyType({"prompt": "verl_agent"})
GYMNASIUM_IDS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "agentrl/WebShop-v0": {},
        "agentrl/WebShopOriginal-v0": {"preset": "original"},
        "agentrl/WebShopVerlAgent-v0": {"preset": "verl_agent"},
    }
)


def make(config: Config) -> Env:
    """One environment instance; instances of a process share the catalogue."""
    from agentrl.envs.webshop.environment import WebShop

    return WebShop(config)


def tasks(config: Config) -> Sequence[Task]:
    """The goals of the configuration's split."""
    from agentrl.envs.webshop.panel import Tasks

    return Tasks(config)


def find(config: Config, key: str) -> Task:
    """The task of a key, in whichever split it is."""
    from agentrl.envs.webshop.panel import find as find_task

    return find_task(config, key)


def prompt(config: Config) -> Prompt:
    """How the environment speaks to a model."""
    from agentrl.envs.webshop.prompts import choose

    return choose(config)


def expert(env: Env, name: str, seed: int) -> Expert:
    """A player of this instance: expert, careless (an imperfect demonstrator), rule or random."""
    from agentrl.envs.webshop.experts import expert as make_expert

    return make_expert(env, name, seed)


def kind(task: Task) -> str:
    """Difficulty of a generated goal, department of a real one."""
    return str(task.params.get("kind", "webshop"))


def benchmark(config: Config) -> str:
    """The name under which results are reported."""
    from agentrl.envs.webshop.panel import benchmark as describe

    return describe(config)


def play(argv: Sequence[str]) -> int:
    """Carry out `agentrl play webshop`; `argv` are the words after it."""
    from agentrl.envs.webshop.cli import play as run

    return run(argv)


def _verb(name: str) -> Callable[[Sequence[str]], int]:
    def run(argv: Sequence[str]) -> int:
        from agentrl.envs.webshop.cli import VERBS, about

        return VERBS[name](argv) if name else about(argv)

    return run


commands: Mapping[str, Callable[[Sequence[str]], int]] = MappingProxyType(
    {name: _verb(name) for name in ("", "prepare", "search", "reward")}
)
