"""The environment: one goal per episode; actions and observations are texts."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from agentrl.envs.webshop.brief import brief, brief_actions, resolve, task as brief_task
from agentrl.envs.webshop.config import Config
from agentrl.envs.webshop.market import open_market
from agentrl.envs.webshop.pages import DONE, INDEX, RESULTS, State
from agentrl.envs.webshop.session import Mark, Session
from agentrl.envs.webshop.words import suggested_queries
from agentrl.types import Observation, StepResult, Task

FULL_SCORE = 1.0


class Snapshot(NamedTuple):
    """An episode's whole state."""

    task: Task
    mark: Mark
    steps: int
    score: float
    info: Mapping[str, Any]


class WebShop:
    """WebShop under one configuration; see `Config`.

    `info` carries `success` (a full score was reached), `score` (of the last purchase) and `score_x100` (as papers
    report it), `accepted` (the action was understood and allowed), the parts of the score after a purchase, and
    `error` after an action on which the original crashes.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self._session: Session | None = None
        self._task: Task | None = None
        self._steps, self._score = 0, 0.0
        self._info: Mapping[str, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        """The state without the shop, which a copy opens again in its own process."""
        return {"config": self.config, "snapshot": self.snapshot() if self._session else None}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__init__(state["config"])  # type: ignore[misc]
        if state["snapshot"] is not None:
            self.restore(state["snapshot"])

    @property
    def session(self) -> Session:
        """The session being played; ValueError before the first reset."""
        if self._session is None:
            raise ValueError("the environment was not reset: call reset(task) before step")
        return self._session

    def reset(self, task: Task) -> Observation:
        """Start an episode. `task.params["goal"]` is the index of the goal, `task.seed` seeds random searches."""
        form = "text" if self.config.observation == "brief" else self.config.observation
        self._session = Session(open_market(self.config), int(task.params["goal"]), task.seed, form)
        self._task, self._steps, self._score, self._info = task, 0, 0.0, {}
        return self._observe()

    def step(self, action: str) -> StepResult:
        """Carry out one action; an action that is not accepted changes only the number of steps."""
        session = self.session
        self._steps += 1
        written = resolve(session, action) if self.config.observation == "brief" else action
        outcome = session.step(written)
        if outcome.done:
            self._score = outcome.reward
        terminated = outcome.done or (self.config.end_on_invalid and not outcome.accepted)
        limit = self.config.max_steps
        info: dict[str, Any] = {
            "success": self._score == FULL_SCORE,
            "score": self._score,
            "score_x100": 100 * self._score,
            "accepted": outcome.accepted,
            **outcome.parts,
        }
        if session.error:
            info["error"] = session.error
        self._info = info
        truncated = limit is not None and self._steps >= limit and not terminated
        return StepResult(self._observe(), self._reward(outcome.reward, outcome.done), terminated, truncated, info)

    def _reward(self, score: float, done: bool) -> float:
        if self.config.reward == "score":
            return score
        return self.config.success_reward if done and score == FULL_SCORE else 0.0

    def _observe(self) -> Observation:
        session = self.session
        if self.config.observation == "brief":
            return Observation(
                text=brief(session),
                state_key=state_key(session) if self.config.state_key == "page" else "",
                actions=self._searches() + brief_actions(session),
                task=brief_task(session),
            )
        clicks = tuple(f"click[{name}]" for name in session.clickables() if name != "search")
        return Observation(
            text=session.observe(),
            state_key=state_key(session) if self.config.state_key == "page" else "",
            actions=self._searches() + clicks,
            task=session.goal.instruction,
        )

    def _searches(self) -> tuple[str, ...]:
        session = self.session
        if not session.has_search_bar:
            return ()
        return tuple(f"search[{q}]" for q in suggested_queries(session.goal.instruction, self.config.listed_queries))

    def snapshot(self) -> Snapshot:
        """The episode's state; later steps do not change it."""
        session = self.session
        assert self._task is not None
        return Snapshot(self._task, session.mark(), self._steps, self._score, self._info)

    def restore(self, snapshot: Snapshot) -> Observation:
        """Go back to a snapshot, of this instance or of another with the same configuration; returns the observation
        there."""
        if self._task != snapshot.task or self._session is None:
            self.reset(snapshot.task)
        self.session.back_to(snapshot.mark)
        self._steps, self._score, self._info = snapshot.steps, snapshot.score, snapshot.info
        return self._observe()

    def observe(self) -> Observation:
        """The observation again, as after the last step."""
        return self._observe()

    def close(self) -> None:
        """Nothing is held but memory."""


def state_key(session: Session) -> str:
    """The key of a page: for results, query and page number; for an item, the product and the selected options."""
    state: State = session.state
    if state.kind == INDEX:
        return "index"
    if state.kind == RESULTS:
        shown = session.market.shop.listed(state) if (state.keywords or ("",))[0] == "<r>" else ""
        return f"{RESULTS}/{state.page}/{' '.join(state.keywords or ())}{shown}"
    chosen = json.dumps(dict(sorted(state.options.items())))
    bought = f"/{state.reward}" if state.kind == DONE else ""
    return f"{state.kind}/{state.product}/{state.sub}/{chosen}{bought}"
