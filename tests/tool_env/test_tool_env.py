"""Tool environments: calls, complaints, rewards and budgets, through the real rollout."""

import asyncio
import json
import pickle
import sys
import threading
from dataclasses import dataclass
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pydantic import Field

from agentrl.env import Limits, PastTurn, make_pool, prompt_of, tasks_of
from agentrl.env.pool import InlinePool
from agentrl.evaluate.evaluation import outcome
from agentrl.gym import check_env
from agentrl.rollout import ExpertActor, History, Point, Random, Scripted, build_graph
from agentrl.rollout.branch import go_back
from agentrl.tool import action as tool_action, run_all
from agentrl.tool_env import SnapshotToolEnv, environment, setup as tool_setup
from agentrl.types import Message, Status, Task
from tests.rollout.playing import entry, play_all, player
from tests.toys import sums

SUMS = "tests.toys.sums"
ON = entry(SUMS)


def written(name: str, **arguments: Any) -> str:
    return "<tool_call>\n" + json.dumps({"name": name, "arguments": arguments}) + "\n</tool_call>"


def played(texts: list[str], limits: Limits | None = None, on: Any = ON, number: int = 7, **pool: Any) -> Any:
    by = player(on, make_pool(on, "inline", **pool), policy=Scripted(texts), limits=limits)
    (record,) = play_all(by, [tasks_of(on)[number]])  # row 7: a=1, b=2
    return record


def test_calls_are_answered_in_order_and_an_answer_without_a_call_is_final():
    record = played([written("add", a=1, b=2) + written("add", a=3, b=4), "3"])
    first, last = record.steps
    assert first.observation.text == "What is 1 + 2?"
    assert last.observation.text == "add: 3\nadd: 7"
    assert last.observation.messages == (Message("tool", "3", "add"), Message("tool", "7", "add"))
    assert (first.reward, last.reward) == (0.25, 1.5)  # 0.125 a call; 1 + 0.5 * format 1 + 0 * length 2
    assert last.info["signals"] == {"calls": 0.0, "reward": 1.0, "format": 1.0, "length": 2.0}
    assert record.ending == Status.DONE and record.success and first.calls == 2


@pytest.mark.fault
@pytest.mark.parametrize(
    ("call", "status", "said"),
    [
        (written("fail"), Status.TOOL_ERROR, "error: KeyError: 'oops'"),
        (written("ad", a=1), Status.TOOL_ERROR, "error: there is no tool 'ad': did you mean add?"),
        (written("reset", a=1, b=1), Status.TOOL_ERROR, "error: there is no tool 'reset'"),
        (written("add", a="1", b=2), Status.TOOL_ERROR, "error: add: argument 'a' is \"1\": input should be a valid"),
        (written("add", a=1, b=2, c=3), Status.TOOL_ERROR, "error: add: there is no argument 'c'"),
        (written("wait", seconds=0, words="fail"), Status.TOOL_ERROR, "error: RuntimeError: waited for nothing"),
        ("<tool_call>{", Status.PARSE_ERROR, "this tool call is not valid"),
        ("", Status.PARSE_ERROR, "the answer is empty"),
    ],
)
def test_whatever_goes_wrong_in_a_call_is_said_and_the_episode_goes_on(call, status, said):
    record = played([call, "3"])
    assert record.steps[0].status == status and record.steps[0].valid == (status != Status.PARSE_ERROR)
    assert record.steps[1].observation.text.startswith(said)
    assert record.ending == Status.DONE and record.success


@pytest.mark.fault
def test_a_lost_service_is_an_environment_fault_that_leaves_siblings_untouched():
    texts = {0: written("fail", how="lost"), 1: written("fail", how="hang"), 2: written("add", a=1, b=2)}

    class PerTask(Scripted):
        async def generate(self, request):
            answers = [texts[request.noise_key[3]], "3"]
            return (await Scripted(answers).generate(request)) if request.noise_key[-1] < 2 else None

    limits = Limits(turns=4, retries=0, fault_share=1.0)
    by = player(ON, make_pool(ON, "inline", timeout_s=0.3), policy=PerTask(["x"]), limits=limits)
    lost, hung, fine = play_all(by, [tasks_of(ON)[7]] * 3)
    assert (lost.ending, hung.ending, fine.ending) == (Status.ENV_ERROR, Status.ENV_ERROR, Status.DONE)
    assert "ToolFault: no service" in lost.fault and "no answer in 0.3 s" in hung.fault
    assert [s.observation.text for s in fine.steps] == ["What is 1 + 2?", "3"] and fine.success


def test_tools_that_wait_run_at_once_and_answer_in_order(monkeypatch):
    waiting, most, sleep = 0, 0, asyncio.sleep

    async def counted(seconds: float) -> None:
        nonlocal waiting, most
        waiting += 1
        most = max(most, waiting)
        await sleep(seconds)
        waiting -= 1

    monkeypatch.setattr(sums, "asyncio", SimpleNamespace(sleep=counted))
    calls = "".join(written("wait", seconds=0.2, words=f"w{i}") for i in range(5)) + written("add", a=1, b=1)
    record = played([calls, "3"])
    assert most == 5
    assert [m.content for m in record.steps[1].observation.messages] == ["w0", "w1", "w2", "w3", "w4", "2"]


def test_a_tool_may_end_the_episode():
    record = played([written("give_up")])
    assert record.ending == Status.DONE and len(record.steps) == 1 and not record.success
    assert record.steps[0].info["signals"]["reward"] == 0.0


def test_the_budget_of_calls_ends_the_episode_without_carrying_out_what_exceeds_it():
    call = written("add", a=1, b=2)
    record = played([call, call + call, "3"], Limits(calls=2))
    assert record.ending == Status.CALL_LIMIT and [s.calls for s in record.steps] == [1, 2]
    assert record.steps[-1].truncated and not record.steps[-1].terminated
    # judged at the end: 0 for the answer, 0 for its form; the second turn's calls were not made
    assert record.steps[-1].info["signals"] == {"reward": 0.0, "format": 0.0, "length": 1.0}
    exact = played([call, call, "3"], Limits(calls=2))
    assert exact.ending == Status.DONE and exact.success
    assert outcome(record, "sums").ending == "call_limit" and outcome(exact, "sums").calls == 2


def test_an_episode_that_the_turn_limit_ends_is_scored_once():
    record = played([written("add", a=1, b=2)], Limits(turns=2))
    assert record.ending == Status.TURN_LIMIT
    assert [s.reward for s in record.steps] == [0.125, 0.125]
    assert record.steps[-1].info["signals"] == {"calls": 0.125, "reward": 0.0, "format": 0.0, "length": 2.0}
    assert record.steps[-1].info["success"] is False


@pytest.mark.fault
def test_long_outputs_keep_head_and_tail():
    record = played([written("shout", times=1000), "3"], output_chars=100)
    seen = record.steps[1].observation
    assert seen.messages[0].content == f"{'ha' * 25}\n... [1900 characters left out] ...\n{'ha' * 25}"
    assert len(seen.text) < 200


def test_each_episode_has_an_object_of_its_own():
    env = sums.make(sums.Config())
    env.reset(tasks_of(ON)[7])
    first = env.instance
    env.step(tool_action.call("add", a=1, b=1))
    env.reset(tasks_of(ON)[7])
    assert env.instance is not first and env.instance.seen == 0


def test_what_people_type_is_understood():
    env = sums.make(sums.Config())
    env.reset(tasks_of(ON)[7])
    assert env.step("add(1, b=5)").observation.text == "6"
    assert env.step("add(1, b=").observation.text.startswith("it is no call")
    done = env.step(" 3 ")
    assert done.terminated and done.info["success"] and env.step("3").observation.text == "The episode is over."


def test_the_state_is_what_was_done_and_seen():
    env = sums.make(sums.Config())
    task = tasks_of(ON)[7]
    keys = [env.reset(task).state_key, env.step("add(1, 2)").observation.state_key]
    assert [env.reset(task).state_key, env.step("add(b=2, a=1)").observation.state_key] == keys[:1] + keys[1:]
    env.reset(task)
    assert env.step("add(2, 1)").observation.text == "3" and env.step("add(1,2)").observation.state_key not in keys


def test_an_environment_of_tools_keeps_every_promise():
    assert check_env(ON) == []


def test_chance_and_expert_play_and_their_answers_are_read_back():
    words = prompt_of(ON)
    by = player(ON, make_pool(ON, "inline", timeout_s=1), policy=Random(words), limits=Limits(turns=6, fault_share=1))
    for record in play_all(by, [tasks_of(ON)[i] for i in range(6)]):
        for step in record.steps:
            assert words.parse(words.answer(step.action), step.observation).action == step.action
    by = player(ON, make_pool(ON, "inline"), actor=ExpertActor("expert", words))
    assert all(r.success and len(r.steps) == 2 for r in play_all(by, [tasks_of(ON)[i] for i in range(6)]))


@pytest.mark.parametrize("context", ["full", "last_k"])
def test_the_same_run_in_worker_processes_gives_the_same_graph(context):
    tasks = [tasks_of(ON)[i] for i in range(3)]
    texts = [written("add", a=1, b=2), written("fail"), "<tool_call>{", "3"]
    graphs = []
    for where in ("inline", "processes"):
        pool = make_pool(ON, where, 1)
        graphs.append(build_graph(play_all(player(ON, pool, policy=Scripted(texts), context=context), tasks)))
        pool.close()
    a, b = graphs
    assert a.texts == b.texts and a.names == b.names
    assert all(np.array_equal(a.columns[name], b.columns[name], equal_nan=True) for name in a.columns)


def test_an_instance_can_be_pickled_at_any_moment():
    env = sums.make(sums.Config())
    env.reset(tasks_of(ON)[7])
    env.step("add(1, 2)")
    copy = pickle.loads(pickle.dumps(env))
    assert copy.setup is env.setup and copy.step("3") == env.step("3")


# functions, a reward function and rows


def double(x: int) -> int:
    """Twice a number.

    Args:
        x: the number
    """
    return 2 * x


def exact(answer: str, target: int, calls: Any) -> float:
    return float(answer == str(target) and len(calls) == 1)


ROWS = [{"prompt": f"Twice {i}?", "target": 2 * i, "id": f"d{i}"} for i in range(40)]
Config, make, tasks, prompt = environment(tools=[double], reward=exact, rows=ROWS, system="Be brief.")


def test_functions_a_reward_and_rows_are_an_environment():
    env = make(Config())
    listed = tasks(Config())
    assert listed[3].key.endswith("/d3") and len(listed) == 40
    assert env.reset(listed[3]).text == "Twice 3?"
    assert env.step("double(3)").observation.text == "6"
    assert env.step("6")[1:4] == (1.0, True, False)


def test_training_and_test_tasks_are_told_apart_by_their_keys():
    train, test = ([t.key for t in tasks(Config(split=split))] for split in ("train", "test"))
    assert not set(train) & set(test) and len(train) + len(test) == 40 and 2 <= len(test) <= 16


def test_rows_from_files(tmp_path):
    import pyarrow
    import pyarrow.parquet

    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (tmp_path / "rows.json").write_text(json.dumps(ROWS))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), tmp_path / "rows.parquet")
    wanted = list(tasks(Config()))
    for kind in ("jsonl", "json", "parquet"):
        assert list(tasks(Config(rows=str(tmp_path / f"rows.{kind}")))) == wanted
    (tmp_path / "marked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS), "utf-8-sig")
    assert list(tasks(Config(rows=str(tmp_path / "marked.jsonl")))) == wanted
    (tmp_path / "bad.jsonl").write_text('{"prompt": "x", "target": 1}\n{oops\n')
    with pytest.raises(ValueError, match=r"line 2 of .*bad\.jsonl is not JSON"):
        tasks(Config(rows=str(tmp_path / "bad.jsonl")))
    with pytest.raises(ValueError, match="no such file of rows"):
        tasks(Config(rows=str(tmp_path / "none.jsonl")))
    with pytest.raises(ValueError, match=r"rows are read from \.jsonl, \.json, \.csv, \.tsv or \.parquet"):
        tasks(Config(rows="rows.txt"))
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(ValueError, match="there are no rows"):
        tasks(Config(rows=str(tmp_path / "empty.jsonl")))
    (tmp_path / "poor.jsonl").write_text('{"prompt": "x"}\n')
    with pytest.raises(ValueError, match="reward exact needs 'target', and there is only"):
        tasks(Config(rows=str(tmp_path / "poor.jsonl")))


class Dataset:
    """As a Hugging Face dataset: `len` and rows by number, arrays inside."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"prompt": np.array([{"role": "user", "content": f"Twice {i}?"}]), "target": np.int64(2 * i)}


def test_a_dataset_with_chat_messages_and_arrays():
    hooks = environment(tools=[double], reward=exact, rows=Dataset(), module=__name__)  # type: ignore[arg-type]
    task = hooks.tasks(hooks.Config())[1]
    assert json.loads(json.dumps(task.params)) == {"prompt": [{"role": "user", "content": "Twice 1?"}], "target": 2}
    env = hooks.make(hooks.Config())
    seen = env.reset(task)
    assert seen.text == "Twice 1?" and seen.messages == (Message("user", "Twice 1?"),)


def test_rows_as_they_come():
    def listed(rows: Any, **options: Any) -> list[Task]:
        hooks = environment(tools=[double], reward=exact, rows=rows, module=__name__)
        return list(hooks.tasks(hooks.Config(**options)))

    start = {"prompt": "Twice 1?", "target": 2}
    mine = "tests.tool_env.test_tool_env"
    same = listed([{**start, "id": name} for name in ("a", "b", "a", 3, "3")])
    assert [t.key for t in same] == [f"{mine}/{name}" for name in ("a#0", "b", "a#2", "3#3", "3#4")]
    many = [{**start, "id": i % 50} for i in range(100)]
    train, test = ({t.key.partition("#")[0] for t in listed(many, split=split)} for split in ("train", "test"))
    assert len(train) + len(test) == 50 and not train & test  # a row and its double are in one split
    given = listed([{**start, "seed": None}, {**start, "seed": 7.0}, {**start, "when": datetime(2026, 1, 2, 3)}])
    assert [t.seed for t in given] == [0, 7, 2] and given[2].params["when"] == "2026-01-02T03:00:00"
    with pytest.raises(ValueError, match="row 1 has the seed 'x': it must be a whole number"):
        listed([start, {**start, "seed": "x"}])
    for seed in (float("nan"), float("inf"), True, 1.5):  # as a Parquet column of numbers with a gap may hold
        with pytest.raises(ValueError, match=f"row 0 has the seed {seed}: it must be a whole number"):
            listed([{**start, "seed": seed}])
    with pytest.raises(ValueError, match=r"a mapping of train, test, not a list: choose one of its splits"):
        listed({"train": [start], "test": [start]})


# tools that do what tools do in the world


@dataclass
class Small:
    x: int

    def __post_init__(self) -> None:
        if self.x > 3:
            raise KeyError("too large")


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError


class Wild:
    """Everything at once: async hooks, types of one's own, ends of the program, cancelled work."""

    async def reset(self, name: str) -> str:
        await asyncio.sleep(0)
        return f"Greet {name}."

    def greet(self, name: str) -> str:
        return f"hello {name}"

    def take(self, small: Small) -> int:
        return small.x

    def later(self) -> str:
        """A plain function that hands out what must be awaited, as a wrapped tool does."""
        return asyncio.sleep(0.01, "late")  # type: ignore[return-value]

    async def leave(self) -> str:
        sys.exit(3)

    def leave_at_once(self) -> str:
        sys.exit(3)

    def cancelled(self) -> str:
        raise asyncio.CancelledError

    def mute(self) -> str:
        raise Mute

    def half(self) -> str:
        raise OSError("no file \udcff")

    async def odd(self) -> object:
        return {"points": {Small(1).x}}

    async def reward(self, answer: str) -> float:
        await asyncio.sleep(0)
        return float(answer == "done")


WILD = environment(Wild, rows=[{"name": "Ada"}], module=__name__)


@pytest.mark.fault
@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("greet", {"name": "Bo"}, "hello Bo"),
        ("take", {"small": {"x": 2}}, "2"),
        ("take", {"small": {"x": 4}}, "error: KeyError: 'too large'"),
        ("later", {}, "late"),
        ("leave", {}, "error: SystemExit: 3"),
        ("leave_at_once", {}, "error: SystemExit: 3"),
        ("cancelled", {}, "error: CancelledError"),
        ("mute", {}, "error: Mute"),
        ("half", {}, "error: OSError: no file ?"),
        ("odd", {}, '{"points": [1]}'),
    ],
)
def test_whatever_a_tool_does_the_model_is_told_and_the_episode_goes_on(name, arguments, said):
    env = WILD.make(WILD.Config())
    assert env.reset(WILD.tasks(WILD.Config())[0]).text == "Greet Ada."
    result = env.step(tool_action.call(name, **arguments))
    assert result.observation.text == said and not result.terminated
    assert result.info["status"] == (Status.TOOL_ERROR if said.startswith("error") else Status.OK)
    assert env.step("done").reward == 1.0


@pytest.mark.fault
def test_a_waiting_tool_that_ends_the_program_leaves_the_tools_of_others_alone():
    seen: list[Any] = []

    async def slow() -> str:
        await asyncio.sleep(0.3)
        return "fine"

    sibling = threading.Thread(target=lambda: seen.extend(run_all([slow()])), daemon=True)
    sibling.start()
    env = WILD.make(WILD.Config())
    env.reset(WILD.tasks(WILD.Config())[0])
    env.step(tool_action.call("leave"))
    sibling.join(5)
    assert seen == ["fine"]


# options of one's own, nudges, catalogue tools, texts


class Own(tool_setup.ToolConfig, frozen=True):
    top: int = Field(3, ge=1)


class Count:
    def __init__(self, config: Own) -> None:
        self.top = config.top

    def reset(self, seed: int) -> str:
        self.done = False
        return f"Say {self.top} ({seed})."

    def say(self, n: int) -> str:
        """Say a number."""
        self.done = n == self.top
        return "no" if n != self.top else "yes"

    def success(self) -> bool:
        return self.done

    def state_key(self) -> str:
        return f"done {self.done}"

    def reward_polite(self, texts: tuple[str, ...]) -> float:
        return float(all("please" in text for text in texts))


def test_own_options_nudges_success_state_and_texts():
    hooks = environment(Count, config=Own, no_call="nudge", module=__name__)
    config = hooks.Config(top=2)
    env, words = hooks.make(config), hooks.prompt(config)
    seen = env.reset(hooks.tasks(config)[5])
    assert seen.text == "Say 2 (5)." and seen.state_key == "done False" and len(hooks.tasks(config)) == 1000
    nudged = words.parse("I do not know, please", seen)
    assert nudged.status == Status.PARSE_ERROR and not nudged.valid
    assert "no tool was called" in env.step(nudged.action).observation.text
    result = env.step(words.parse("please " + written("say", n=2), seen).action)
    assert result.terminated and result.info["success"] and result.info["signals"] == {"polite": 1.0}
    assert result.observation.state_key == "done True"


class Diary:
    """A tool with a state of its own."""

    name = "note"
    closed = 0

    def __init__(self) -> None:
        self.notes: list[str] = []

    def __call__(self, words: str) -> str:
        """Keep some words."""
        self.notes.append(words)
        return str(len(self.notes))

    def reset(self) -> None:
        self.notes.clear()

    def close(self) -> None:
        Diary.closed += 1


class NoOptions(tool_setup.BaseModel, frozen=True, extra="forbid"):
    pass


def offer_diary(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalogue with the diary alone."""
    (tmp_path / "diary_tool.py").write_text(
        "from tests.tool_env.test_tool_env import Diary, NoOptions as Config\ndef make(config): return Diary()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("agentrl.catalogue.names", lambda kind: ("diary_tool",))
    monkeypatch.setitem(__import__("sys").modules, "agentrl.tools.diary_tool", __import__("diary_tool"))


def test_catalogue_tools_with_state_are_reset_with_the_episode(tmp_path, monkeypatch):
    offer_diary(tmp_path, monkeypatch)
    hooks = environment(tools=["diary_tool"], reward=exact, rows=ROWS, module=__name__)
    env, other = hooks.make(hooks.Config()), hooks.make(hooks.Config())
    for _ in range(2):
        env.reset(hooks.tasks(hooks.Config())[0])
        other.reset(hooks.tasks(hooks.Config())[0])
        assert [env.step("note('x')").observation.text for _ in range(2)] == ["1", "2"]
        assert other.step("note('y')").observation.text == "1"
    before = Diary.closed
    env.close()
    assert Diary.closed == before + 1


def test_a_branch_does_not_share_a_tools_state_with_its_trunk(tmp_path, monkeypatch):
    """The diary is no part of a snapshot, so the actions are played again: each branch finds what its trunk wrote."""
    offer_diary(tmp_path, monkeypatch)
    hooks = environment(tools=["diary_tool"], reward=exact, rows=ROWS, snapshots=True, module=__name__)
    pool = InlinePool(lambda: hooks.make(hooks.Config()))

    async def branch() -> list[str]:
        trunk, task = pool.acquire(), hooks.tasks(hooks.Config())[0]
        history = History(chat=None, first=await trunk.reset(task), now=await trunk.reset(task))
        said = await trunk.step("note('x')")
        history.past.append(PastTurn(history.now, "note('x')", ()))
        history.now = said.observation
        point = await Point.mark(trunk, history, 0, 0)
        assert point.snapshot is None
        texts = []
        for _ in range(2):
            other = pool.acquire()
            await go_back(other, task, point)
            texts.append((await other.step("note('y')")).observation.text)
        return texts

    assert asyncio.run(branch()) == ["2", "2"]


def test_snapshots_go_back_where_the_class_can_be_copied():
    hooks = environment(sums.Sums, rows=[{"a": 1, "b": 2}], snapshots=True, module=__name__)
    env: Any = hooks.make(hooks.Config())
    env.reset(hooks.tasks(hooks.Config())[0])
    env.step("add(1,2)")
    kept = env.snapshot()
    after = [env.step("add(2,2)"), env.step("3")]
    seen = env.restore(pickle.loads(pickle.dumps(kept)))
    assert seen.text == "3" and [env.step("add(2,2)"), env.step("3")] == after
    assert isinstance(env, SnapshotToolEnv)


def test_a_task_survives_without_a_pool():
    assert isinstance(tasks_of(ON)[0], Task)
