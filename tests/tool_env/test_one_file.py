"""What a class says of its own actions and its own demonstrator, and objects that can be neither copied nor pickled."""

import pickle
import sqlite3
import sys

import pytest

from agentrl.config import resolve
from agentrl.env import EnvironmentFile, Limits, make_pool, prompt_of, tasks_of
from agentrl.gym import check_env
from agentrl.rollout import Agent, ContextPolicy, PlayerFactory, expert_actor, play
from agentrl.run import Loop
from agentrl.tool import action as tool_action
from agentrl.tool_env import Listed, environment
from agentrl.types import Status


class Ledger:
    """Pay in until the balance is right; the balance lies in a database."""

    def reset(self, target: int) -> str:
        self.target, self.db = target, sqlite3.connect(":memory:")
        self.db.execute("CREATE TABLE paid (amount INT)")
        return f"bring the balance to {target}"

    def pay(self, amount: int) -> int:
        """Pay in.

        Args:
            amount: how much
        """
        if amount < 1:
            raise ValueError("nothing to pay")
        self.db.execute("INSERT INTO paid VALUES (?)", [amount])
        return self._balance()

    def _balance(self) -> int:
        return int(self.db.execute("SELECT COALESCE(SUM(amount), 0) FROM paid").fetchone()[0])

    def reward(self, answer: str) -> float:
        return float(self._balance() == self.target)

    def _actions(self) -> list[str]:
        return ["pay(0)", "pay(1)", "pay(amount=2)", tool_action.call("pay", amount=1), "done"]

    def _expert(self, observation: str) -> str:
        assert observation
        left = self.target - self._balance()
        return f"pay({min(left, 2)})" if left > 0 else "done"


Config, make, tasks, prompt = environment(Ledger, rows=[{"target": t} for t in range(1, 9)])
THIS = sys.modules[__name__]
ENTRY = resolve(EnvironmentFile, {"name": __name__})
CANONICAL = (*(tool_action.call("pay", amount=n) for n in (0, 1, 2)), tool_action.answer("done"))


def test_it_keeps_all_promises_in_both_forms():
    """A tool that raises has answered; the connection can be neither copied nor pickled."""
    assert check_env(ENTRY) == []
    assert check_env(THIS, Config(prompt="compact")) == []


def test_actions_are_calls_as_in_python_each_listed_once():
    assert make(Config()).reset(tasks(Config())[0]).actions == CANONICAL
    words = [prompt(Config(prompt="compact")).answer(action) for action in CANONICAL]
    assert words == ["pay 0", "pay 1", "pay 2", "answer done"]


def test_results_are_shown_in_the_words_of_the_prompt():
    """With the space before them by which a word tokenizer knows them, which tool messages lack."""
    for form, messages in (("compact", 0), ("chat", 1)):
        env = make(Config(prompt=form))
        env.reset(tasks(Config())[0])
        assert len(env.step("pay(2)").observation.messages) == messages
    assert prompt(Config(prompt="compact")).turn(env.step("pay(1)").observation) == " 3"


def test_few_words_mean_the_listed_action_alone():
    env, words = make(Config()), prompt(Config(prompt="compact"))
    observation = env.reset(tasks(Config())[0])
    assert words.parse(" pay 2 ", observation)[:3] == (CANONICAL[2], True, Status.OK)
    wrong = words.parse("pay 3", observation)
    assert (wrong.valid, wrong.status) == (False, Status.PARSE_ERROR)
    result = env.step(wrong.action)
    assert result.observation.text == "this is none of the listed actions" and not result.terminated


def test_an_error_of_a_tool_is_told_and_a_wrong_argument_is_refused():
    env = make(Config())
    env.reset(tasks(Config())[0])
    assert "refused" not in env.step("pay(0)").info and env.step('pay("x")').info["refused"] == 1


def test_a_copy_in_another_process_is_where_the_original_is():
    env = make(Config())
    env.reset(tasks(Config())[7])
    env.step("pay(2)")
    env.step("pay(2)")
    copy = pickle.loads(pickle.dumps(env))
    assert copy.instance is not env.instance and copy.step("pay(1)").observation.text == "5"
    assert env.step("pay(1)").observation.text == "5"


def test_snapshots_of_what_cannot_be_copied_leave_it_to_the_actions():
    hooks = environment(Ledger, rows=[{"target": 3}], snapshots=True, module=__name__)
    env = hooks.make(hooks.Config())
    env.reset(hooks.tasks(hooks.Config())[0])
    assert env.snapshot() is None
    listed = Listed(make(Config()), lists=False)
    assert listed.reset(tasks(Config())[0]).actions == () and listed.snapshot() is None


@pytest.mark.parametrize(("name", "won"), [("expert", 8), ("random", 0), ("careless:0.0", 8)])
def test_its_demonstrator_plays_in_threads(name, won):
    """All calls of an instance run in one thread: a SQLite connection refuses to work in another."""
    pool = make_pool(ENTRY, "threads")
    agent = Agent(
        name="agent",
        policy="policy",
        trained=True,
        env=ENTRY,
        prompt=prompt_of(ENTRY),
        context=resolve(ContextPolicy, {"name": "full"}),
        limits=Limits(turns=8),
        expert=name,
    )
    crew = PlayerFactory({"agent": agent}, {"agent": pool}, admissible=False, seed=0)
    with Loop() as loop:
        records = loop.run(play(crew.player({"agent": expert_actor(agent)}), list(tasks_of(ENTRY)), copies=2))
    pool.close()
    steps = [step for record in records for step in record.steps]
    assert not any(step.info.get("refused") for step in steps) and {r.ending for r in records} <= {
        Status.DONE,
        Status.TURN_LIMIT,
    }
    answers = [step.observation.text for step in steps]
    assert not any("thread" in text for text in answers)
    assert sum(record.success for record in records) >= 2 * won if won else True


def test_the_file_says_what_its_class_brings():
    assert ENTRY.hooks.experts == ("expert", "careless", "random") and ENTRY.hooks.small_model == {"prompt": "compact"}
    with pytest.raises(ValueError, match=r"unknown tests.tool_env.test_one_file player 'exprt'"):
        make.expert(make(Config()), "exprt", 0)


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        (3, "which is no text"),
        ("pay(1, 2)", "_actions gave 'pay\\(1, 2\\)'"),
        ("pay('x')", '_actions gave a call that its tool refuses: pay: argument .* is "x"'),
        ('{"calls": [{"name": "pya", "arguments": {}}]}', "_actions gave a call of 'pya', which is no tool: did you"),
    ],
)
def test_a_wrong_action_names_its_method(written, sentence):
    wrong = type("Wrong", (Ledger,), {"_actions": lambda self: [written]})
    hooks = environment(wrong, rows=[{"target": 3}], module=__name__)
    with pytest.raises(ValueError, match=sentence):
        hooks.make(hooks.Config()).reset(hooks.tasks(hooks.Config())[0])


def test_few_words_need_listed_actions():
    plain = type("Plain", (Ledger,), {"_actions": None})
    hooks = environment(plain, rows=[{"target": 3}], module=__name__)
    with pytest.raises(ValueError, match=r"give the class a method _actions\(\)"):
        hooks.prompt(hooks.Config(prompt="compact"))
