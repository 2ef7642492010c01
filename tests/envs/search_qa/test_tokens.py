"""The running turn token by token: what is stored is what the model saw, and nothing but sampled tokens is trained."""

import asyncio
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from agentrl.chat import Chat
from agentrl.config import resolve
from agentrl.engines import HfEngine, Sampling, Wordless, stopping
from agentrl.env import Limits, make_pool, prompt_of, tasks_of
from agentrl.env.pool import InlinePool
from agentrl.envs.search_qa.env import retriever
from agentrl.envs.search_qa.prompts import INVALID, QUESTION
from agentrl.rollout import ExpertActor, Player, PolicyActor, TooManyFaults, build_graph, play
from agentrl.types import Generation, Status
from tests.chat.chats import chat
from tests.tools.search.servers import server
from tests.toys.runs import tiny_model

THOUGHT = "<think>hm</think>\n<search>Ada</search>"
SAID = (THOUGHT, "I do not know", "<search>Ada Adler</search>\n", "<answer>no</answer>")
ENDED = (1,)  # turns that the model ends with its end token instead of a stop string


def on(**options):
    return resolve("envs", {"name": "search_qa", "world": "tiny", **options})


class Speaker(Wordless):
    """A model that says SAID, in tokens that encoding the text would not give."""

    name = "speaker"

    def __init__(self, words: Chat, said=SAID, ended=ENDED) -> None:
        self.words, self.said, self.ended, self.requests = words, said, ended, []

    async def generate(self, request):
        self.requests.append(request)
        turn = request.noise_key[-1]
        text = self.said[min(turn, len(self.said) - 1)]
        ids = np.concatenate([self.words.encode(letter) for letter in text])
        if turn in self.ended:
            ids = np.append(ids, self.words.end_id)
        return Generation(text=text, token_ids=ids, logprobs=-np.ones(len(ids)))


def player(entry, actor, *, limits=None, admissible=False, context="full", **context_options):
    chosen = resolve("context", {"name": context, **context_options})
    return Player(
        actor=actor,
        pool=make_pool(entry, "inline"),
        prompt=prompt_of(entry),
        context=chosen,
        limits=limits or Limits(turns=9, retries=0, fault_share=1.0),
        admissible=admissible,
    )


def spoken(template: str, entry=None, **options):
    words = chat(template)
    speaker = Speaker(words)
    entry = entry or on()
    (record,) = asyncio.run(play(player(entry, PolicyActor(speaker, words, None), **options), [tasks_of(entry)[0]]))
    return record, speaker, words


@pytest.mark.parametrize("template", ["plain", "tight", "thinking", "empty_thought"])
def test_the_path_is_the_running_turn(template):
    record, speaker, words = spoken(template)
    assert [step.status for step in record.steps] == [Status.OK, Status.PARSE_ERROR, Status.OK, Status.OK]
    graph = build_graph([record])
    for row, request in enumerate(speaker.requests):
        sampled = record.steps[row].generation.token_ids
        np.testing.assert_array_equal(graph.tokens.path(row), np.concatenate([request.token_ids, sampled]))
    question = tasks_of(on())[0].params["question"]
    opened = words.tokenizer.decode(words.start(speaker.requests[0].messages))
    again = words.tokenizer.decode(words.go_on("", ended=True))
    told = [step.observation.text for step in record.steps]
    assert told[2] == INVALID and told[1].startswith("\n\n<information>Doc 1(")
    assert QUESTION.format(question=question).strip() in opened
    whole = opened + SAID[0] + told[1] + SAID[1] + "<|im_end|>" + again + told[2] + SAID[2] + told[3] + SAID[3]
    assert words.tokenizer.decode(graph.tokens.path(3)) == whole


@pytest.mark.parametrize("template", ["plain", "empty_thought"])
def test_only_sampled_tokens_are_trained(template):
    """Masks come from the rollout: the information and the sentence about an invalid action are never targets."""
    record, _, words = spoken(template)
    graph = build_graph([record])
    tokens = graph.tokens
    for row, step in enumerate(record.steps):
        own = slice(tokens.offsets[row], tokens.offsets[row + 1])
        ids, sampled = tokens.ids[own], tokens.sampled[own]
        n = len(step.generation.token_ids)
        assert not sampled[: len(ids) - n].any() and sampled[len(ids) - n :].all()
        np.testing.assert_array_equal(ids[sampled], step.generation.token_ids)
        assert words.tokenizer.decode(ids[sampled]) == SAID[row] + ("<|im_end|>" if row in ENDED else "")
        given = words.tokenizer.decode(ids[~sampled])
        assert given.endswith(step.observation.text if row else "")  # all that the environment told
    assert tokens.sampled.sum() == sum(len(s.generation.token_ids) for s in record.steps)


def test_an_observation_is_cut_at_its_budget_and_the_path_still_holds():
    record, _, words = spoken("plain", observation_tokens=7)
    whole = words.encode(record.steps[1].observation.text)
    added = record.steps[1].added
    assert len(whole) > 7 and added.tolist() == whole[:7].tolist()
    assert record.steps[2].added.tolist() == [*words.go_on("", ended=True), *words.encode(INVALID)[:7]]


def test_the_published_loop_ends_after_one_forced_answer():
    entry = on(max_turns=2)
    words = chat("plain")
    speaker = Speaker(words, said=("<search>Ada</search>",), ended=())
    (record,) = asyncio.run(play(player(entry, PolicyActor(speaker, words, None)), [tasks_of(entry)[0]]))
    assert len(record.steps) == 3 and record.ending == Status.DONE and record.steps[-1].info["searches"] == 2
    assert sum(step.reward for step in record.steps) == 0.0


@pytest.fixture(scope="module")
def small():
    """A random model over the world's words and the tags."""
    entry = on()
    words = prompt_of(entry)
    env = entry.hooks.make(entry.config)
    texts = [f" {name}" for name in entry.hooks.entities(entry.config)]
    for task in [tasks_of(entry)[i] for i in range(5)]:
        texts += [words.first(env.reset(task)), env.step(f"<search>{task.params['path'][0]}</search>").observation.text]
    names = entry.hooks.entities(entry.config)
    texts += ["<answer></answer>", *(f"<search>{name}</search>" for name in names)]
    return tiny_model(texts, max_positions=900, entity_pattern="")


def test_an_engine_chooses_among_actions_inside_the_running_turn(small):
    """Listed actions without an end token: the engine stops at the tag, and the next turn goes on from there."""
    entry = on(max_turns=2, top_k=1)
    prompt, words = prompt_of(entry), Chat(small.tokenizer)
    sampling = stopping(Sampling(), prompt)
    assert sampling.stop == ("</search>", "</answer>")
    engine = HfEngine(small.model, small.tokenizer, sampling, max_slots=8, max_context=900, actions="admissible")
    tasks = [tasks_of(entry)[i] for i in range(3)]
    by = player(entry, PolicyActor(engine, words, 900), admissible=True)
    records = asyncio.run(play(by, tasks, copies=2))
    graph, row = build_graph(records), 0
    assert {record.ending for record in records} == {Status.DONE}
    for record in records:
        path = np.zeros(0, np.int64)
        for step in record.steps:
            assert step.status == Status.OK and step.action in step.observation.actions
            assert words.end_id not in step.generation.token_ids
            assert small.tokenizer.decode(step.generation.token_ids) == step.action
            path = np.concatenate([path, step.added, step.generation.token_ids])
            np.testing.assert_array_equal(graph.tokens.path(row), path)
            row += 1


def test_a_demonstrator_speaks_the_same_tokens(small):
    entry, words = on(top_k=1), Chat(small.tokenizer)
    actor = ExpertActor("expert", prompt_of(entry), words)
    (record,) = asyncio.run(play(player(entry, actor, admissible=True), [tasks_of(entry)[0]]))
    assert record.success
    for step in record.steps:
        assert small.tokenizer.decode(step.generation.token_ids) == step.action
        assert step.generation.allowed is not None and len(step.generation.allowed) == len(step.generation.token_ids)


# ---------------------------------------------------------------- a retriever that is lost


def remote(url: str, **options):
    http = {"urls": [url], "retries": 0, "backoff_s": 0.01, **options}
    return on(retriever={"name": "search", "backend": "http", "http": http})


class Searcher(Wordless):
    """Copy 1 searches for what the server cannot bear, the others for anything else; then all answer."""

    name = "searcher"

    async def generate(self, request):
        copy, turn = request.noise_key[4], request.noise_key[-1]
        words = ["poison" if copy == 1 and turn == 1 else f"tea {copy} {turn}"]
        return Generation(text=f"<search>{words[0]}</search>" if turn < 2 else "<answer>x</answer>")


def test_a_retriever_lost_in_mid_episode_costs_that_episode_only():
    with server(how="bad:poison") as url:
        by = player(remote(url), PolicyActor(Searcher(), None, None))
        records = asyncio.run(play(by, [tasks_of(on())[0]], copies=4))
    assert [record.ending for record in records] == [Status.DONE, Status.ENV_ERROR, Status.DONE, Status.DONE]
    assert "gave no answer" in records[1].fault and "cannot encode" in records[1].fault
    for record in (records[0], *records[2:]):
        assert [len(record.steps), record.steps[-1].info["searches"]] == [3, 2]
        assert '(Title: "tea' in record.steps[1].observation.text
    assert not any("gave no answer" in step.observation.text for record in records for step in record.steps)


def test_a_retriever_that_dies_stops_the_run_in_words():
    with server(how="die:3") as url:
        entry = remote(url)
        by = player(entry, PolicyActor(Searcher(), None, None), limits=Limits(turns=9, retries=1, fault_share=0.2))
        with pytest.raises(TooManyFaults, match=r"of the environment.* ended .* episodes.*gave no answer in 1 tries"):
            asyncio.run(play(by, [tasks_of(entry)[0]], copies=4))


def test_a_retriever_that_comes_back_is_tried_again():
    with server(how="500:1") as url:
        entry = remote(url)
        by = player(entry, PolicyActor(Searcher(), None, None), limits=Limits(turns=9, retries=1, fault_share=0.2))
        (record,) = asyncio.run(play(by, [tasks_of(entry)[0]]))
    assert (record.ending, record.attempts, len(record.steps)) == (Status.DONE, 2, 3)


def test_the_pool_makes_one_retriever_a_process():
    entry = on()
    made = InlinePool(partial(entry.hooks.make, entry.config))
    one, other = made.acquire(), made.acquire()
    assert one is not other and retriever(entry.config) is retriever(entry.config)


def test_episodes_that_wait_for_a_server_run_in_threads():
    """20 episodes search a slow server side by side, not in turn."""
    asking, most = [], []

    def watched(url, queries, k):
        asking.append(url)
        most.append(len(asking))
        try:
            return once(url, queries, k)
        finally:
            asking.pop()

    with server(how="slow:1.5") as url:  # long beside what 20 threads need to start on a busy machine
        entry = remote(url, connections=20, max_batch=1)
        client = retriever(entry.config).retriever
        once, client._try = client._try, watched
        pool = make_pool(entry)
        assert type(pool).__name__ == "ThreadPool" and type(make_pool(on())).__name__ == "InlinePool"
        by = replace(player(entry, PolicyActor(Searcher(), None, None)), pool=pool)
        records = asyncio.run(play(by, [tasks_of(entry)[0]], copies=20))
        pool.close()
    assert {record.fault for record in records} == {""}
    assert [len(record.steps) for record in records] == [3] * 20
    assert max(most) >= 10
