"""Contexts that the model rewrites itself: summaries and memories are steps, and make room."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from agentrl.chat import Chat
from agentrl.cli import main
from agentrl.config import Entry, resolve
from agentrl.credit import assign
from agentrl.engines import HfEngine, Sampling
from agentrl.env import Limits, Plain, make_pool, panel_tasks, prompt_of, tasks_of
from agentrl.envs.notes import KEYS, NotesEnv, make_notes, tasks
from agentrl.evaluate import replay
from agentrl.gym import check_env
from agentrl.rollout import BatchPlan, ExpertActor, History, Player, PolicyActor, build_graph, collect, play
from agentrl.rollout.branch import own_copy
from agentrl.rollout.hints import taught
from agentrl.trainer.policy_update import unfinished
from agentrl.types import Observation, Status
from tests.toys import runs

TERSE = {"brief": True, "pages": 6, "lines": 6}
SHORT = {"instruction": "sum up", "heading": "so far"}


def loaded():
    """A tiny model whose words are those of the notes."""
    on = resolve("envs", {"name": "notes", **TERSE})
    texts = ["Page 1 2 3 4 5 6 of", "so far", "sum up nothing Memory: Section: Nothing yet. ? next", *KEYS]
    texts += [prompt_of(on).first(NotesEnv(on.config).reset(task)) for task in tasks_of(on)[:40]]
    return runs.tiny_model(texts, max_positions=1024)


MODEL = loaded()
CHAT = Chat(MODEL.tokenizer)


def played(on: Entry, context: dict, actor, count: int = 4, **limits):
    """Records of some notes."""
    chosen = resolve("context", context)
    pool = make_pool(on, "inline")
    player = Player(
        actor=actor,
        pool=pool,
        prompt=prompt_of(on),
        context=chosen,
        limits=Limits(**{"turns": 40, "turn_tokens": 16, **limits}),
        admissible=True,
    )
    return asyncio.run(play(player, tasks_of(on)[:count]))


def expert(limit: int, name: str = "expert") -> ExpertActor:
    """The reader, with a window of so many tokens."""
    return ExpertActor(name, Plain(), CHAT, limit)


def test_the_notes_do_not_fit_the_window_unless_they_are_summed_up():
    on = resolve("envs", {"name": "notes", **TERSE})
    assert all(r.ending == Status.TOKEN_LIMIT for r in played(on, {"name": "full"}, expert(100)))
    records = played(on, {"name": "summary", "max_tokens": 70, **SHORT}, expert(100))
    assert all(r.ending == Status.DONE and r.success for r in records)
    graph = build_graph(records)
    lengths = graph.tokens.context_tokens + np.diff(graph.tokens.offsets)
    assert lengths.max() <= 100
    for record in records:
        rewrites = [i for i, step in enumerate(record.steps) if step.action not in ("next", *KEYS)]
        assert rewrites  # summaries were written
        for i in rewrites:
            assert record.steps[i].continues  # a summary is written at the end of the chat it sums up
            assert not record.steps[i + 1].continues  # and what follows begins anew


def test_a_replay_sends_no_summary_to_the_environment(monkeypatch):
    on = resolve("envs", {"name": "notes", **TERSE})
    (record,) = played(on, {"name": "summary", "max_tokens": 70, **SHORT}, expert(100), count=1)
    own, sent = NotesEnv.step, []
    monkeypatch.setattr(NotesEnv, "step", lambda env, action: sent.append(action) or own(env, action))
    tasks_by_key = {record.task.key: record.task}
    again = asyncio.run(replay(build_graph([record]), make_pool(on, "inline"), tasks_by_key, Limits(turns=40)))
    assert again.differences == [] and again.steps == len(record.steps)
    assert sent == [step.action for step in record.steps if step.action in ("next", *KEYS)] != []


def test_the_prompt_after_a_summary_is_the_task_the_summary_and_the_page():
    on = resolve("envs", {"name": "notes", **TERSE})
    (record,) = played(on, {"name": "summary", "max_tokens": 70, **SHORT}, expert(100), count=1)
    at = next(i for i, step in enumerate(record.steps) if step.action not in ("next", *KEYS))
    told = record.steps[at].action
    page = record.steps[at].observation
    seen = CHAT.tokenizer.decode(record.steps[at + 1].added)
    for part in (page.task, told, "so far", page.text.splitlines()[1]):
        assert part in seen
    assert record.steps[0].observation.text.splitlines()[1] not in seen  # the first page is forgotten


def test_a_memory_reads_what_no_window_holds():
    on = resolve("envs", {"name": "notes", "show": "whole", **TERSE})
    with pytest.raises(ValueError, match=r"raise engine\.max_context, or shorten"):
        played(on, {"name": "full"}, expert(60))
    context = {"name": "memory", "chunk_tokens": 30, "memory_tokens": 8, "instruction": "", "empty": "nothing"}
    records = played(on, context, expert(60))
    assert all(r.ending == Status.DONE and r.success for r in records)
    graph = build_graph(records)
    assert (graph.tokens.context == -1).all()  # every conversation is a prompt of its own
    assert (np.diff(graph.tokens.offsets) <= 60).all()
    record = records[0]
    chunks = len(record.steps) - 1
    assert chunks >= 3
    notes = make_notes(record.task)
    assert record.steps[-2].action == f"{notes.name} {notes.key}"


def test_a_chunk_is_whole_lines_where_they_fit():
    from agentrl.algorithms.context import memory

    config = memory.Config(chunk_tokens=4)
    assert memory.split(config, None, "a b\nc d\ne f") == ("a b\nc d", "e f")
    joined = " ".join(" ".join(memory.split(config, None, "a b c d e f\ng h i j k")).split())
    assert joined == "a b c d e f g h i j k"
    assert memory.split(config, None, "") == ("",)


def test_each_word_of_a_long_text_is_counted_once_however_often_the_memory_is_asked():
    from agentrl.algorithms.context import memory

    class Counting:
        seen = 0

        def encode_plain(self, text):
            self.seen += len(text)
            return text.split()

    chat, text = Counting(), "\n".join("one two three four" for _ in range(2000))
    for _ in range(50):  # an episode asks once a chunk
        chunks = memory.split(memory.Config(chunk_tokens=160), chat, text)
    assert len(chunks) == 50 and all(len(chunk.split()) == 160 for chunk in chunks)
    assert chat.seen == len(text)


@pytest.mark.parametrize("show", ["pages", "whole"])
def test_a_model_writes_its_own_memory_freely_and_acts_under_the_mask(show):
    on = resolve("envs", {"name": "notes", "show": show, **TERSE})
    engine = HfEngine(
        MODEL.model,
        MODEL.tokenizer,
        Sampling(temperature=1.0),
        max_slots=8,
        max_context=300,
        actions="admissible",
        deterministic=True,
    )
    context = {
        "pages": {"name": "summary", "max_tokens": 70, "summary_tokens": 6, **SHORT},
        "whole": {"name": "memory", "chunk_tokens": 30, "memory_tokens": 6},
    }[show]
    records = played(on, context, PolicyActor(engine, CHAT, 300), turns=20)
    graph = build_graph(records)
    row = np.repeat(np.arange(len(graph)), np.diff(graph.tokens.offsets))
    masked = np.bincount(row, np.diff(graph.tokens.allowed_offsets) > 0, len(graph)) > 0
    acts = np.array([step.action in ("next", *KEYS) for r in records for step in r.steps])
    written = ~masked
    assert written.any() and masked.any()
    assert acts[masked].all()
    sampled = np.bincount(row, graph.tokens.sampled, len(graph))
    assert (sampled[written] <= 6).all()


def test_credit_is_the_rollouts_copied_to_every_part():
    on = resolve("envs", {"name": "notes", "show": "whole", **TERSE})
    context = {"name": "memory", "chunk_tokens": 30, "instruction": ""}
    good, bad = (played(on, context, expert(80, name), count=3) for name in ("expert", "forgetful"))
    records = [*good, *bad]
    for number, record in enumerate(records):
        record.group, record.copy = number % 3, number // 3
    graph = build_graph(records)
    method = resolve("credit", {"name": "multi_conversation"})
    credit = assign(method, graph)
    for episode in np.unique(graph.episode):
        rows = graph.episode == episode
        assert len(np.unique(credit.advantage[rows])) == 1
        others = np.unique(graph.score[graph.group == graph.group[rows][0]])
        # no std: the score less the mean of the two rollouts of these notes
        assert credit.advantage[rows][0] == pytest.approx(graph.score[rows][0] - np.mean([others.min(), others.max()]))


def test_unfinished_rollouts_are_told_apart():
    on = resolve("envs", {"name": "notes", **TERSE})
    done = played(on, {"name": "summary", "max_tokens": 70, **SHORT}, expert(100), count=2)
    cut = played(on, {"name": "summary", "max_tokens": 70, **SHORT}, expert(100), count=2, turns=4)
    graph = build_graph([*done, *cut])
    late = np.isin(graph.episode, graph.episode[graph.ending == Status.TURN_LIMIT])
    np.testing.assert_array_equal(unfinished(graph), late)
    assert late.any() and not late.all()


def test_most_summaries_and_then_the_context_ends_it():
    on = resolve("envs", {"name": "notes", "brief": True, "pages": 12, "lines": 6})
    context = {"name": "summary", "max_tokens": 70, "max_summaries": 1, **SHORT}
    assert all(r.ending == Status.TOKEN_LIMIT for r in played(on, context, expert(100)))


def test_an_expert_that_keeps_no_memory_is_named():
    on = resolve("envs", {"name": "sokoban", "prompt": "compact"})
    with pytest.raises(ValueError, match=r"no write\(memory, text\)"):
        played(on, {"name": "memory", "chunk_tokens": 30}, expert(500), count=1)


def test_a_history_copied_for_a_branch_keeps_its_memory():
    now = Observation(text="x")
    history = History(chat=None, first=now, now=now, memory="m", rewrites=2, since=3, read=1)
    copy = own_copy(history)
    assert (copy.memory, copy.rewrites, copy.since, copy.read) == ("m", 2, 3, 1)


@pytest.mark.parametrize("show", ["pages", "whole"])
def test_notes_keep_the_promises_of_an_environment(show):
    assert check_env(resolve("envs", {"name": "notes", "show": show}), tasks=2, steps=12) == []


def test_notes_are_found_by_their_keys_in_a_list_without_end():
    on = resolve("envs", {"name": "notes", "split": "test", **TERSE})
    some = [tasks_of(on)[i] for i in (0, 7, 10**12)]
    assert panel_tasks(on, [task.key for task in some]) == some
    with pytest.raises(ValueError, match="names no notes"):
        panel_tasks(on, ["notes-gen/6x6/test"])
    with pytest.raises(ValueError, match=r"too many to search for 'notes-gen.*find"):
        panel_tasks(on._replace(hooks=replace(on.hooks, find=None)), [some[0].key])


def test_splits_share_no_notes_and_a_key_names_them_for_good():
    from agentrl.envs.notes import Config

    seen = {
        split: {repr(make_notes(t)) for t in tasks(Config(split=split, pages=1, lines=2))[:80]}
        for split in ("train", "test")
    }
    assert not seen["train"] & seen["test"]
    task = tasks(Config())[7]
    assert make_notes(task) == make_notes(tasks(Config())[7])


def test_the_answer_is_the_last_key_told():
    for task in tasks(resolve("envs", {"name": "notes", **TERSE}).config)[:30]:
        notes = make_notes(task)
        told = [key for page in notes.pages for who, key in page if who == notes.name]
        assert told[-1] == notes.key


def test_a_run_clones_and_trains_with_a_memory(tmp_path):
    sections = runs.recipe(
        runs.TOY,
        env={"name": "notes", "show": "whole", "brief": True, "pages": 3, "lines": 4},
        eval={"tasks": 4, "env": {"split": "test"}},
        model={"new": {**runs.MODEL, "max_positions": 256}},
        engine={"max_context": 256},
        context={"name": "memory", "chunk_tokens": 16, "memory_tokens": 6},
        limits={"turns": 12, "turn_tokens": 8},
        warmup={"updates": 2, "episodes": 4},
        batch={"tasks": 2, "copies": 4},
        credit={"name": "multi_conversation"},
        update={"train_unfinished": False},
    )
    (tmp_path / "r.toml").write_text(sections)
    assert main(["train", str(tmp_path / "r.toml"), f"run.folder={tmp_path}", "run.name=x"]) == 0
    assert (tmp_path / "x" / "checkpoints" / "000002").is_dir()


class Sure:
    """A guide that hints at every group, whatever the copies did."""

    plain = True
    context_words = "next " * 30

    def begin(self, draws):
        return draws

    def lacking(self, groups):
        return []

    def shown(self, records): ...

    def again(self, draw, records):
        return replace(draw, words=self.context_words, copies=2)

    def observe(self, records): ...

    def told(self, record):
        return self.context_words


def test_hints_that_cannot_be_taken_out_are_kept_and_counted():
    on = resolve("envs", {"name": "notes", **TERSE})
    by = Player(
        actor=expert(1000),
        pool=make_pool(on, "inline"),
        prompt=prompt_of(on),
        context=resolve("context", {"name": "summary", "max_tokens": 70, **SHORT}),
        limits=Limits(turns=40, turn_tokens=16),
        admissible=True,
    )
    found = resolve("sampler", {"name": "uniform"})
    draws = found.hooks.make(found.config, tasks_of(on), 0)
    plan = BatchPlan(sampler=draws, sampler_entry=found, tasks=2, copies=1, guide=Sure())
    batch = asyncio.run(collect(by, plan, iteration=0))
    hinted = [r for r in batch.records if r.words]
    kept = [r for r in hinted if r.keeps_words]
    assert len(hinted) == 4 and len(kept) == batch.metrics["hints_kept"] > 0
    assert all(r.reprompted != r.keeps_words for r in hinted)
    assert batch.graph.has("reprompted") == any(r.reprompted for r in hinted)
    teacher, metrics = taught(Sure(), [r for r in batch.records if not r.words], by)
    assert teacher is None and metrics == {"untaught_chains": 2.0}
