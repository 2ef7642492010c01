"""StepSearch's signals: by hand, by laws, against a slow loop, and in the search environment, where OTC pays."""

import asyncio
import math
import random

import numpy as np
import pytest

from agentrl.algorithms.score import search_steps
from agentrl.credit import rescore, resolve_rewards
from agentrl.env import Limits, pool_within
from agentrl.rollout import Scripted, build_graph
from agentrl.scoring import ScoreStage, resolve_scores
from agentrl.scoring.sections import ScoringConfig
from agentrl.tool import Passage, action as tool_action, write_passages
from tests.rollout.playing import entry, play_all, player
from tests.scoring.stages import chain, signals_of, turn

NAN = math.nan
WORDS = ("red", "blue", "green", "white", "black", "brown")


def test_by_hand():
    # The second result of each search is a gold document; tf-idf of equal texts has the cosine 1.
    gold = ["red fox", "old king"]
    gain, redundancy = search_steps.steps(
        gold, [["red cat", "red fox"], ["old king", "red fox"], ["red fox"], [], None]
    )
    # 1: c = (1, 0), so 1/2. 2: c = (1, 1): the second is new, 1/2; one of two was seen. 3: nothing new, all seen.
    # (What "red cat" says, 1 / (1 + idf) of "red fox", is less than "red fox" itself.)
    assert gain == pytest.approx([0.5, 0.5, 0, 0, NAN], nan_ok=True)
    assert redundancy == pytest.approx([0, 0.5, 1, 0, NAN], nan_ok=True)
    assert search_steps.steps(gold, [["x", "y", "x"]])[1] == pytest.approx([1 / 3])  # twice in one result
    # F1 of "capital of France" with "France capital": 2*2/5; the better of both queries counts for each key
    assert search_steps.key_score(["capital of France", "x"], ["France capital", "Rome"]) == pytest.approx(0.4)


def test_in_a_chain_of_searches():
    chains = [
        chain(
            turn("<search>old king</search>", "Who?", action="<search>old king</search>"),
            turn("thoughts", "\n\n<information>Doc 1(Title: K) old king\nDoc 2(Title: F) fox\n</information>\n\n"),
            turn("", "invalid", action="<search>fox</search>"),
            turn("", "<information>Doc 1(Title: F) fox\n</information>", action="<answer>he</answer>"),
            documents=["K old king"],
            keys=["king"],
        )
    ]
    (found,) = signals_of({"name": "search_steps"}, *chains)
    # "title k old king" against "k old king", without words of one letter: two equal words, in both of 2 texts, so of
    # weight log(3 / 3) + 1 = 1, and "title", in one of them
    other = math.log(3 / 2) + 1
    first = 2 / math.sqrt(2) / math.sqrt(2 + other**2)
    assert found["search_gain"] == pytest.approx([first, NAN, 0, NAN], nan_ok=True)
    assert found["search_redundancy"] == pytest.approx([0, NAN, 1, NAN], nan_ok=True)
    assert found["search_keys"] == pytest.approx(2 / 3)


def test_a_search_without_a_result_that_was_seen():
    (found,) = signals_of({"name": "search_steps", "keys": ""}, chain(turn("<search>x</search>"), documents=["a"]))
    assert found == {
        "search_gain": pytest.approx([NAN], nan_ok=True),
        "search_redundancy": pytest.approx([NAN], nan_ok=True),
    }


def test_searches_of_tool_environments():
    calls = tool_action.calls([("search", {"query": "old king"}), ("add", {"a": 1})])
    one = chain(turn("", action=calls), turn("", "# K: old king"), documents=["K old king"], keys=["old king"])
    (found,) = signals_of({"name": "search_steps"}, one)
    assert found["search_gain"][0] == pytest.approx(1) and found["search_keys"] == 1


@pytest.mark.parametrize("form", ["brief", "search_r1", "verl", "verl_agent"])
def test_every_form_of_results_is_read(form):
    passages = [Passage("1", '"Rome"\nA city.'), Passage("2", '"Oslo"\nAnother\ncity.')]
    first, second = write_passages(passages, form), write_passages(passages[::-1], form)
    assert len(search_steps.documents(first)) == 2
    assert set(search_steps.documents(first)) == set(search_steps.documents(second))
    assert search_steps.documents(write_passages([], form)) == ()


@pytest.mark.parametrize("seed", range(20))
def test_laws(seed):
    rng = random.Random(seed)
    text = lambda: " ".join(rng.choices(WORDS, k=rng.randrange(1, 5)))  # noqa: E731
    gold, results = [text() for _ in range(3)], [[text() for _ in range(rng.randrange(4))] for _ in range(5)]
    gain, redundancy = search_steps.steps(gold, results)
    assert all(-1e-12 <= g <= 1 + 1e-9 and 0 <= r <= 1 for g, r in zip(gain, redundancy, strict=True))
    # gains add up to what all results together bring, so nothing is paid twice, and later steps change no earlier one
    (whole,), _ = search_steps.steps(gold, [[one for found in results for one in found]])
    assert sum(gain) == pytest.approx(whole)
    assert search_steps.steps(gold, results[:3])[0] == gain[:3]
    again, repeated = search_steps.steps(gold, [results[0], results[0]])
    assert again[1] == pytest.approx(0) and repeated[1] == (1.0 if results[0] else 0.0)
    # case, punctuation and articles do not count
    plain = text()
    assert search_steps.similarities(f"The {plain.upper()}!", gold) == search_steps.similarities(plain, gold)


@pytest.mark.parametrize("seed", range(10))
def test_against_a_slow_loop(seed):
    rng = random.Random(seed)
    vocabulary = WORDS
    text = lambda: " ".join(rng.choices(vocabulary, k=4))  # noqa: E731
    gold, results = [text() for _ in range(2)], [[text() for _ in range(2)] for _ in range(4)]

    def cosine(g: str, r: str) -> float:  # as TfidfVectorizer of scikit-learn on the result and all gold documents
        texts = [r, *gold]
        df = np.array([sum(word in one.split() for one in texts) for word in vocabulary])
        idf = np.log((1 + len(texts)) / (1 + df)) + 1
        a, b = (np.array([one.split().count(word) for word in vocabulary]) * idf for one in (g, r))
        return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))

    expected = []
    for t, found in enumerate(results):
        total = 0.0
        for g in gold:
            before = max((cosine(g, r) for other in results[:t] for r in other), default=0.0)
            total += max(0.0, max(cosine(g, r) for r in found) - before)
        expected.append(total / len(gold))
    assert search_steps.steps(gold, results)[0] == pytest.approx(expected)


def test_in_search_qa_where_otc_pays():
    env = entry("search_qa", world="tiny")
    tasks = env.hooks.tasks(env.config)
    task = next(task for task in tasks if len(task.params["gold"]) == 2)
    first, second = task.params["path"][:2]
    right = f"<answer>{task.params['answers'][0]}</answer>"
    searched = [f"<search>{first}</search>", f"<search>{second}</search>"]
    scripts = [[*searched, right], [searched[0], *searched, right], [searched[0], "<answer>nobody</answer>"]]
    records = []
    for copy, script in enumerate(scripts):
        limits = Limits(turns=6)
        pool = pool_within(env, limits, "inline", 0)
        (record,) = play_all(player(env, pool, policy=Scripted(script), limits=limits), [task])
        pool.close()
        record.copy = copy
        records.append(record)
    graph = build_graph(records)
    assert np.nansum(graph.column("signal/searches")) == 2 + 3 + 1
    stage = ScoreStage(resolve_scores({"name": "search_steps"}), ScoringConfig(), "agent")
    stage.begin(0)
    found = asyncio.run(stage.score(graph, {task.key: task}))
    gain = found.columns["signal/search_gain"]
    rows = [np.flatnonzero(graph.episode == e) for e in range(3)]
    assert gain[rows[0][0]] > 0.2 and gain[rows[0][1]] > 0.2  # each search finds one of both gold passages
    assert gain[rows[1][1]] == 0 and found.columns["signal/search_redundancy"][rows[1][1]] == 1  # the repeated one
    # OTC: two right answers with 2 and 3 searches: the fewest, 2, is paid fully, 3 are paid sin(f pi / 4), f = 12 / 5
    paid = rescore(graph, resolve_rewards({"name": "tool_efficiency", "calls": "searches"}))
    ends = [paid.reward[row[-1]] for row in rows]
    assert ends == pytest.approx([1.0, math.sin(2.4 * math.pi / 4), 0.0])
