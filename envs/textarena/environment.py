"""A game whose other players are agents that the game calls, and the environment of one turn of such a player."""

from collections.abc import Mapping
from typing import Any

from agentrl.foreign import ForeignEnv
from agentrl.types import AgentCall, AgentReply, Observation, Status, StepResult, Task

OPPONENT = "opponent"


class TextArena(ForeignEnv):
    """The environment of the agent `main`."""

    def reset(self, task: Task) -> Observation:
        """Start the game."""
        self._calls = 0
        return super().reset(task)

    def carry_out(self, action: str) -> StepResult:
        """Carry out the move of `main`; if another player is next, the result has an errand for `opponent`."""
        return self._result(self.ask("step", action))

    def returned(self, replies: tuple[AgentReply, ...]) -> StepResult:
        """Carry out the other player's move. If `opponent` failed or could not be called, the game ends undecided."""
        (reply,) = replies
        self.record(reply)
        if reply.status == Status.ENV_ERROR or reply.status == Status.DEPTH_LIMIT:
            told = Observation(text="The other player cannot go on; the game ends undecided.")
            return self.concluded(StepResult(told, 0.0, False, True, {"signals": {"won": 0.0, "opponent_lost": 1.0}}))
        return self.concluded(self._result(self.ask("reply", reply.text)))

    def _result(self, value: Mapping[str, Any]) -> StepResult:
        called = value["called"]
        result = self.read({name: one for name, one in value.items() if name != "called"})
        if called is None:
            return result
        assert self.task is not None
        self._calls += 1
        turn = Task(
            key=f"{self.task.key}/{self._calls}", env="textarena", seed=self.task.seed, params={"shown": called}
        )
        return result._replace(info={**result.info, "errands": (AgentCall(OPPONENT, turn),)})


class Seat:
    """One turn of a called player: it sees what the game shows that player, and its answer is the move."""

    def reset(self, task: Task) -> Observation:
        """Begin the turn; the observation is what the player sees."""
        shown = task.params["shown"]
        listed = tuple(shown.get("actions", ()))
        return Observation(text=shown["text"], state_key=shown.get("state_key", ""), actions=listed)

    def step(self, action: str) -> StepResult:
        """End the episode; the action is the move, which the game judges later."""
        return StepResult(Observation(text="Your move is made."), 0.0, True, False, {"answer": action, "success": True})

    def close(self) -> None:
        """Nothing to release."""
