"""Tiny runs for the campaign: a second or two each, and together every part of a run that keeps something between
iterations (samplers, critics, several policies, regularizers, estimated values of prompts, contexts, worker processes).
"""

from collections.abc import Mapping
from typing import Any

import tomli_w

from agentrl.config import merge

MODEL = {"layers": 1, "hidden": 32, "heads": 2, "kv_heads": 1, "intermediate": 64, "max_positions": 512}
SMALL: Mapping[str, Any] = {
    "run": {"iterations": 10, "checkpoint_every": 2, "graphs_every": 1, "keep": 2},
    "optim": {"lr": 1e-3, "schedule": "cosine"},
    "warmup": {"updates": 3, "episodes": 4},
    "eval": {"every": 5, "tasks": 2},
    "batch": {"tasks": 2, "copies": 3},
    "update": {"minibatches": 2},
}
TINY = merge(SMALL, {"model": {"new": MODEL}, "engine": {"actions": "admissible", "max_slots": 32, "max_context": 512}})
SERVED = "service"  # the configuration whose weights a training service holds
ALFWORLD: Mapping[str, Any] = {
    "env": {"name": "alfworld", "prompt": "compact", "max_steps": 5, "subgoal_reward": 0.3},
    "eval": {"env": {"split": "valid_unseen"}},
    "limits": {"turns": 5, "turn_tokens": 16},
    "warmup": {"expert": "wander"},
}
SOKOBAN: Mapping[str, Any] = {
    "env": {"name": "sokoban", "level": "easy", "prompt": "compact", "border": False, "max_steps": 5},
    "eval": {"env": {"split": "test"}},
    "limits": {"turns": 5, "turn_tokens": 8},
    "warmup": {"expert": "wander:0.5"},
    "context": {"name": "last_k", "k": 0},
}
CONFIGURATIONS: Mapping[str, Mapping[str, Any]] = {
    "trees": merge(
        ALFWORLD,
        {
            "rollout": {"name": "tree", "trees": 2, "nodes": 2, "leaves": 2},
            "credit": {"name": "tree_grpo"},
            "sampler": {"name": "curriculum"},
            "update": {"kl_coef": 0.05, "kl_in": "reward"},
        },
    ),
    "critic": merge(
        SOKOBAN,
        {
            "credit": {"name": "turn_ppo", "gamma": 0.99, "lam": 0.9},
            "loss": {"name": "turn_ppo"},
            "critic": {"model": "own", "lr": 1e-3, "minibatches": 2, "warmup": 1},
            "optim": {"name": "muon"},
            "batch": {"tasks": 6, "copies": 1},
        },
    ),
    "agents": {
        "env": {
            "name": "deep_research",
            "world": "tiny",
            "hops": [2],
            "split": "train",
            "prompt": "compact",
            "max_turns": 2,
            "searcher": {"top_k": 1, "max_turns": 2},
        },
        "eval": {"env": {"split": "test"}},
        "limits": {"turns": 3, "turn_tokens": 24},
        "warmup": {"expert": "careless:0.5"},
        "agents": {"searcher": {"policy": "searcher", "expert": "careless:0.4", "limits": {"turns": 3}}},
        "reward": {"name": "m_grpo_reward", "correct": "em", "expert": "em"},
        "credit": {"name": "m_grpo", "align": 2},
        "update": {"regularizers": [{"name": "entropy_band", "coef": 0.01}]},
        "model": {"new": {"entity_pattern": ""}},
    },
    "contexts": {
        "env": {"name": "notes", "pages": 3, "lines": 1, "brief": True, "split": "train"},
        "eval": {"env": {"split": "test"}},
        "context": {"name": "memory", "chunk_tokens": 24, "memory_tokens": 6, "instruction": ""},
        "limits": {"turns": 8, "turn_tokens": 8},
        "warmup": {"expert": "forgetful"},
        "credit": {"name": "multi_conversation"},
        "model": {"new": {"entity_pattern": ""}},
    },
    "rewards": merge(
        SOKOBAN,
        {
            "sampler": {"name": "dynamic", "max_rounds": 2},
            "credit": {"name": "gigpo", "gamma": 0.95},
            "update": {"kl_coef": 0.1, "kl_in": "reward", "kl_form": "abs", "epochs": 2},
            "run": {"tokens": 3000},
        },
    ),
    "stream": merge(ALFWORLD, {"credit": {"name": "single_stream"}, "batch": {"tasks": 5, "copies": 1}}),
    "workers": merge(SOKOBAN, {"pool": {"kind": "processes", "workers": 1}, "credit": {"name": "grpo"}}),
    SERVED: {
        "run": {"deterministic": False},
        "env": {"name": "benchmarks.reliability.odd_answers"},
        "eval": {"modes": ["sampled"], "env": {"first": 1000}},
        "model": {"path": "model"},
        "learner": {"name": "tinker", "url": "http://127.0.0.1:1", "rank": 4, "sums": "tokens"},
        "engine": {"name": "tinker", "max_context": 256},
        "limits": {"turns": 2, "turn_tokens": 6},
        "warmup": {"expert": "careless"},
        "batch": {"copies": 4},
        "credit": {"name": "gigpo"},
        "optim": {"lr": 1e-2},
        "update": {"kl_coef": 0.05},
    },
}

# Four texts and two actions: every cache is full after the first iterations, so memory that still grows is no cache.
TOY: Mapping[str, Any] = {
    "env": {"name": "benchmarks.reliability.faulty", "share": 0.0, "journal": "unused", "count": 1000},
    "eval": {"env": {"first": 1000}},
    "limits": {"turns": 4, "turn_tokens": 8},
    "credit": {"name": "gigpo"},
}


def recipe(name: str, seed: int, **sections: Mapping[str, Any]) -> str:
    """The TOML text of a configuration, or of `toy`; `sections` replace or add options."""
    first = SMALL if name == SERVED else TINY
    tables = merge(merge(first, {**CONFIGURATIONS, "toy": TOY}[name]), {"run": {"seed": seed}})
    return tomli_w.dumps(merge(tables, sections))
