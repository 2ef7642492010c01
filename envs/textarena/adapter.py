"""Plays games of TextArena in the Python that has it (`agentrl.foreign.adapter_client`); imports no agentrl."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

PACKAGES = {"textarena": "textarena"}
MOVES = re.compile(r"Available Moves: ([^\n]*)")
MOVE = re.compile(r"\[[^\[\]]+\]")
GAME = -1  # sender of the game's own messages
MOST_PLAYERS = 8  # a game that needs more players is started if the option `players` gives their number
WAIT = "The other player moves first. Write [ready]."


def load(options: dict[str, Any]) -> dict[str, Any]:
    """The options, with the number of players; ValueError if the game cannot be started, which is tried once."""
    from textarena.envs.registration import ENV_REGISTRY

    game = options["game"]
    if game not in ENV_REGISTRY or game.endswith(("-raw", "-train")):
        raise ValueError(f"env.game: textarena has no game {game!r}{_near(game, ENV_REGISTRY)}")
    failures = {}
    for players in [options["players"]] if options["players"] else [2, 1, *range(3, MOST_PLAYERS + 1)]:
        try:
            _begin(game, players, 0)
            return {**options, "players": players}
        except (Exception, SystemExit) as error:  # noqa: BLE001  a game may raise any error
            failures[players] = " ".join(re.sub(r"\*{4,}", "", str(error)).split())[:200]
    if len(failures) > 1 and len(set(failures.values())) == 1:
        raise ValueError(f"env.game = {game!r} cannot be started: {failures.popitem()[1]}")
    told = [f"with {players} player{'s' * (players > 1)}: {text}" for players, text in failures.items()]
    raise ValueError(f"env.game = {game!r} cannot be started {'; '.join(told[:2])}")


def _near(name: str, known: Any) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, [one for one in known if not one.endswith(("-raw", "-train"))], 3)
    return f": did you mean {' or '.join(close)}?" if close else f": it has {len(known)}, such as TicTacToe-v0"


def _begin(game: str, players: int, seed: int) -> Any:
    import textarena

    env = textarena.make(f"{game}-raw")  # raw: without wrappers, an observation holds only new messages
    env.reset(num_players=players, seed=seed)
    return env


class PackageError(Exception):
    """The game breaks a promise of its package; the episode ends as a fault of the environment."""


def _number(reward: Any) -> float:
    """A reward; Countdown of 0.7.4 gives a text in its place."""
    if not isinstance(reward, (int, float)):
        raise PackageError(f"the game gives a reward that is no number: {reward!r:.100}")
    return float(reward)


class Episode:
    """One game, in which one player is the agent `main`."""

    def __init__(self, world: dict[str, Any]) -> None:
        self.world = world

    def examine(self) -> int:
        """The number of players."""
        return int(self.world["players"])

    def reset(self, seed: int, params: dict[str, Any]) -> dict[str, Any]:
        """Start the game of a seed."""
        self.me = params["seat"]
        self.env = _begin(self.world["game"], self.world["players"], seed)
        self.heard: dict[int, list[str]] = {}  # player -> all lines that were shown to this player
        if self._turn_of() != self.me:
            return {"text": f"You are Player {self.me}. {WAIT}", "actions": ["[ready]"], "state_key": self._state()}
        return self._observe()

    def step(self, action: str) -> dict[str, Any]:
        """Carry out the move of `main`. If it is another player's turn then, `called` is what that player sees."""
        if self._turn_of() != self.me:  # `main` does not begin, and has written [ready]
            return self._result()
        return self._move(action)

    def reply(self, action: str) -> dict[str, Any]:
        """Carry out the other player's move."""
        return self._move(action)

    def _move(self, action: str) -> dict[str, Any]:
        mover, errors = self._turn_of(), getattr(self.env.state, "error_count", 0)
        over, _ = self.env.step(action if "[" in action or "]" in action else f"[{action}]")
        state = self.env.state
        invalid = getattr(state, "error_count", 0) > errors or (over and bool(self._told(mover).get("invalid_move")))
        return self._result(invalid and mover == self.me)

    def _told(self, player: int) -> dict[str, Any]:
        """What the game reports on a player when the game has ended."""
        told: dict[str, Any] = (self.env.state.game_info or {}).get(player, {})
        return told

    def _result(self, invalid: bool = False) -> dict[str, Any]:
        state = self.env.state
        info: dict[str, Any] = {"status": "parse_error"} if invalid else {}
        if state.done:
            return self._outcome(info)
        result = {"reward": 0.0, "terminated": False, "truncated": False, "info": info, "called": None}
        if self._turn_of() == self.me:
            return {**result, "observation": self._observe()}
        seen = {"text": "The other player moves.", "state_key": self._state()}
        called = self._observe()  # each call is a new episode, so it shows all earlier lines too
        return {**result, "observation": seen, "called": {**called, "text": "\n".join(self.heard[self._turn_of()])}}

    def _outcome(self, info: dict[str, Any]) -> dict[str, Any]:
        rewards = {int(player): _number(reward) for player, reward in (self.env.state.rewards or {}).items()}
        mine = rewards.get(self.me, 0.0)
        others = [reward for player, reward in rewards.items() if player != self.me]
        won = mine > max(others) if others else mine >= 1.0
        signals = {"won": float(won), "drawn": float(bool(others) and mine == max(others))}
        signals["invalid"] = float(bool(self._told(self.me).get("invalid_move")))
        reason = str(self._told(self.me).get("reason") or "The game is over.")
        seen = {"text": reason, "state_key": self._state()}
        whole = {**info, "success": won, "signals": signals}
        return {
            "observation": seen,
            "reward": mine,
            "terminated": True,
            "truncated": False,
            "info": whole,
            "called": None,
        }

    def _turn_of(self) -> int:
        return int(self.env.state.current_player_id)

    def _observe(self) -> dict[str, Any]:
        """The messages that are new for the player whose turn it is, and the moves that these messages list."""
        _, messages = self.env.get_observation()
        roles = self.env.state.role_mapping
        lines = [
            f"[{'GAME' if sender == GAME else roles.get(sender, f'Player {sender}')}] {text}"
            for sender, text, *_ in messages
        ]
        self.heard.setdefault(self._turn_of(), []).extend(lines)
        seen: dict[str, Any] = {"text": "\n".join(lines).strip(), "state_key": self._state()}
        listed = MOVES.findall(seen["text"])
        if listed and (moves := MOVE.findall(listed[-1])):
            seen["actions"] = list(dict.fromkeys(moves))
        return seen

    def _state(self) -> str:
        """The state key: a hash of the game's data, the turn and the player; empty if the data has other objects."""
        state = self.env.state
        whole = json.dumps([state.game_state, state.turn, state.current_player_id], default=repr, sort_keys=True)
        return "" if " object at 0x" in whole else hashlib.sha256(whole.encode()).hexdigest()[:24]
