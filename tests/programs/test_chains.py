"""Which chains the requests of a program become, by hand: what it asked at the same time, and what one after the other.

A request is written as (name, begun, ended, the request that it extends); times are readings of the episode's clock.
"~" before the request means that the prompt begins with the same task and rewrites the rest.
"""

import itertools

import numpy as np
import pytest

from agentrl.graph import CALLED
from agentrl.programs import arrange, share_outcome
from agentrl.programs.chains import AnsweredRequest
from agentrl.rollout import EpisodeRecord, StepRecord, TooManyFaults, build_graph, stop_on_faults
from agentrl.types import Generation, Message, Observation, Status, Task

BOTH = "ab", "ba"  # in which order two answers came


def calls(*asked: tuple) -> list[AnsweredRequest]:
    """The requests in the order of their answers. Requests of one name (up to its dot) have the same prompt."""
    made: dict[str, AnsweredRequest] = {}
    for name, begun, ended, *after in asked:
        extends = bool(after) and not after[0].startswith("~")
        above = made[after[0]].step if extends else None
        prompt, _, number = name.partition(".")
        before = () if above is None else (*above.asked, Message("assistant", "said"))
        if after and not extends:
            before = made[after[0][1:]].step.asked[:1]
        ids = np.array([len(made)])
        step = StepRecord(
            observation=Observation(text=prompt),
            added=np.array([7]),
            continues=above is not None,
            follows=above,
            generation=Generation(text=name, token_ids=ids, logprobs=np.array([-0.5])),
            action=name,
            valid=True,
            status=Status.OK,
            asked=(*before, Message("user", prompt)),
        )
        made[name] = AnsweredRequest(step, above, prompt.encode(), int(number or 0), begun, ended)
    return sorted(made.values(), key=lambda call: call.ended)


def record(*asked: tuple, copy: int = 0) -> EpisodeRecord:
    found = EpisodeRecord(task=Task(key="t", env="e"), group=0, copy=copy)
    arrange(found, calls(*asked))
    return found


def shape(found: EpisodeRecord) -> list:
    """The names of a chain's steps, and for each called chain the step that called it, and its shape."""
    names = [step.action for step in found.steps]
    return [*names, *([one.caller.action, shape(one)] for one in found.called)]


@pytest.mark.parametrize("first", BOTH)
def test_two_sub_agents_at_the_same_time_are_called_agents(first):
    """main asks once, two sub-agents take two turns each, main goes on with what they found."""
    a1, b1 = (4, 5) if first == "ab" else (5, 4)
    found = record(
        ("main", 0, 1),
        ("a", 2, a1),
        ("b", 3, b1),
        ("a2", 6, 9, "a"),
        ("b2", 7, 8, "b"),
        ("main2", 10, 11, "main"),
    )
    assert shape(found) == ["main", "main2", ["main", ["a", "a2"]], ["main", ["b", "b2"]]]
    assert [chain.agent for chain in found.called] == ["agent" + CALLED] * 2
    assert found.called[0].tokens == 2 and found.called[0].beside


def test_a_slower_sub_agent_changes_nothing():
    """b takes its second turn long after a has ended, so it is in flight alone."""
    found = record(("main", 0, 1), ("a", 2, 4), ("b", 3, 5), ("b2", 6, 7, "b"), ("main2", 8, 9, "main"))
    assert shape(found) == ["main", "main2", ["main", ["a"]], ["main", ["b", "b2"]]]


@pytest.mark.parametrize("chosen", ["0", "1", "2"])
def test_of_several_answers_the_one_that_is_continued_is_the_trunk(chosen):
    answers = [(f"main.{n}", 0, n + 1) for n in range(3)]
    found = record(*answers, ("main2", 9, 10, f"main.{chosen}"))
    others = [f"main.{n}" for n in range(3) if str(n) != chosen]
    assert shape(found) == [f"main.{chosen}", "main2", *([f"main.{chosen}", [name]] for name in others)]


def test_of_several_answers_that_are_never_continued_the_first_is_the_trunk():
    """A vote: the first answer in the order of the requests, whichever came first."""
    for ends in itertools.permutations((1, 2, 3)):
        answers = [(f"main.{n}", 0, end) for n, end in enumerate(ends)]
        assert shape(record(*answers)) == ["main.0", ["main.0", ["main.1"]], ["main.0", ["main.2"]]]


@pytest.mark.parametrize("first", BOTH)
def test_two_continuations_of_one_context_at_the_same_time(first):
    ends = (4, 5) if first == "ab" else (5, 4)
    forked = [("main", 0, 1), ("left", 2, ends[0], "main"), ("right", 3, ends[1], "main")]
    assert shape(record(*forked, ("more", 6, 7, "right"))) == ["main", "right", "more", ["main", ["left"]]]
    assert shape(record(*forked)) == ["main", "left", ["main", ["right"]]]
    # the program comes back to the context: both were asked beside its main conversation
    back = record(*forked, ("more", 6, 7, "left"), ("back", 8, 9, "main"))
    assert shape(back) == ["main", "back", ["main", ["left", "more"]], ["main", ["right"]]]


def test_a_sub_agent_that_calls_at_the_same_time():
    """main calls a and b; a asks x and y at the same time, while b has ended; then a and main go on."""
    found = record(
        ("main", 0, 1),
        ("a", 2, 5),
        ("b", 3, 4),
        ("x", 6, 8),
        ("y", 7, 9),
        ("a2", 10, 11, "a"),
        ("main2", 12, 13, "main"),
    )
    assert shape(found) == ["main", "main2", ["main", ["a", "a2", ["a", ["x"]], ["a", ["y"]]]], ["main", ["b"]]]


def test_a_sub_agent_alone_joins_and_its_calls_are_its_own():
    found = record(("main", 0, 1), ("a", 2, 3), ("x", 4, 6), ("y", 5, 7), ("a2", 8, 9, "a"), ("main2", 10, 11, "main"))
    assert shape(found) == ["main", "a", "a2", "main2", ["a", ["x"]], ["a", ["y"]]]
    alternatives = record(("main", 0, 1), ("a.0", 2, 4), ("a.1", 2, 3), ("a2", 5, 6, "a.0"), ("main2", 7, 8, "main"))
    assert shape(alternatives) == ["main", "a.0", "a2", "main2", ["main", ["a.1"]]]


def test_a_request_in_the_background():
    """The main conversation goes on while another request is in flight, at the beginning or later."""
    later = record(("main", 0, 1), ("title", 2, 7), ("main2", 3, 4, "main"), ("main3", 5, 6, "main2"))
    assert shape(later) == ["main", "main2", "main3", ["main", ["title"]]]
    first = record(("a title", 0, 7), ("main", 1, 3), ("main2", 4, 5, "main"), ("summary", 8, 9))
    assert shape(first) == ["main", "main2", "summary", ["main", ["a title"]]]


def test_sub_agents_that_rewrite_their_history_keep_their_chains():
    """As packages do that word earlier turns anew in each prompt; b is slow, and main rewrites its history too."""
    found = record(
        ("main", 0, 1),
        ("a", 2, 4),
        ("b", 3, 5),
        ("a2", 6, 7, "~a"),
        ("b2", 8, 10, "~b"),
        ("a3", 9, 11, "~a"),
        ("b3", 12, 13, "~b"),
        ("main2", 14, 15, "~main"),
    )
    assert shape(found) == ["main", "main2", ["main", ["a", "a2", "a3"]], ["main", ["b", "b2", "b3"]]]
    # two reviewers get the task too: which of them goes on with main's conversation is unknown, so none does
    reviewed = record(("main", 0, 1), ("a", 2, 4, "~main"), ("b", 3, 5, "~main"), ("main2", 6, 7, "main"))
    assert shape(reviewed) == ["main", "main2", ["main", ["a"]], ["main", ["b"]]]
    voted = record(("main", 0, 1), ("vote.0", 2, 4, "~main"), ("vote.1", 2, 3, "~main"), ("end", 5, 6, "~main"))
    assert shape(voted) == ["main", "vote.0", "end", ["main", ["vote.1"]]]


def test_requests_of_the_beginning_and_what_is_made_of_them():
    """Map and reduce: one of the first requests begins the main chain, because every chain needs a caller."""
    found = record(("b", 0, 3), ("a", 1, 2), ("c", 1, 4), ("reduce", 5, 6))
    assert shape(found) == ["a", "reduce", ["a", ["b"]], ["a", ["c"]]]
    planned = record(("plan", 0, 1), ("b", 2, 5), ("a", 3, 4), ("reduce", 6, 7))
    assert shape(planned) == ["plan", "reduce", ["plan", ["a"]], ["plan", ["b"]]]


SEQUENTIAL = [
    ("main", 0, 1),
    ("sub", 2, 3),
    ("sub2", 4, 5, "sub"),
    ("main2", 6, 7, "main"),
    ("rewritten", 8, 9),
    ("other", 10, 11, "main"),  # back to an earlier context
    ("again", 12, 13, "main2"),
    ("sub3", 14, 15, "sub2"),
    ("reworded", 16, 17, "~main"),
    ("reworded again", 18, 19, "~main"),
]


def test_a_sequential_program_is_one_chain_in_the_order_of_its_requests():
    found = record(*SEQUENTIAL)
    assert shape(found) == [name for name, *_ in SEQUENTIAL]
    share_outcome(found)
    plain = EpisodeRecord(task=found.task, group=0, copy=0, steps=[call.step for call in calls(*SEQUENTIAL)])
    graphs = [build_graph([one]) for one in (found, plain)]
    for name, column in graphs[0].columns.items():
        assert np.array_equal(column, graphs[1].columns[name]), name
    assert np.array_equal(graphs[0].tokens.context, graphs[1].tokens.context)


def test_what_was_sequential_stays_one_chain_beside_two_requests_at_the_same_time():
    found = record(*SEQUENTIAL, ("x", 20, 22), ("y", 21, 23), ("end", 24, 25))
    names = [name for name, *_ in SEQUENTIAL]
    assert shape(found) == [*names, "end", [names[-1], ["x"]], [names[-1], ["y"]]]


def test_rewards_of_actions_stay_in_the_main_chain_and_the_outcome_is_everywhere():
    """An action after b paid 0.25: it belongs to main's step before b. The end pays 1."""
    asked = calls(("main", 0, 1), ("a", 2, 4), ("b", 3, 5), ("main2", 6, 7, "main"))
    by_name = {call.step.action: call.step for call in asked}
    by_name["b"].reward, by_name["b"].info = 0.25, {"signals": {"format": 1.0}}
    found = EpisodeRecord(task=Task(key="t", env="e"), group=0, copy=0)
    arrange(found, asked)
    assert [step.reward for step in found.steps] == [0.25, 0.0] and by_name["b"].reward == 0.0
    last = found.steps[-1]
    last.reward, last.terminated, found.ending = 1.0, True, Status.DONE
    last.info = {"success": False, "signals": {"format": 0.5, "long": 2.0}, "answer": "4"}
    share_outcome(found)
    graph = build_graph([found])
    assert graph.score.tolist() == [1.25] * 4 and not graph.succeeded.any()  # not "score above 0": the word counts
    assert graph.reward.tolist() == [0.25, 1.0, 1.25, 1.25] and graph.caller.tolist() == [-1, -1, 0, 0]
    assert graph.columns["signal/format"][2:].tolist() == [1.5, 1.5]
    assert graph.columns["signal/long"][2:].tolist() == [2.0, 2.0]
    assert graph.terminated.tolist() == [False, True, True, True] and (graph.ending[1:] == Status.DONE).all()
    assert len(set(graph.rollout.tolist())) == 1 and found.score == 1.25


def test_chains_beside_do_not_hide_how_many_episodes_the_environment_lost():
    """One of two episodes is lost; the other one has three chains."""
    sound, lost = record(("main", 0, 1), ("a", 2, 4), ("b", 3, 5)), record(("main", 0, 1), copy=1)
    lost.ending = Status.ENV_ERROR
    assert len([*sound.chains()]) == 3
    with pytest.raises(TooManyFaults, match="1 of 2 episodes"):
        stop_on_faults([sound, lost], 0.4)


def test_of_any_program_no_two_requests_of_a_chain_are_in_flight_together():
    """Random programs: each request is in one chain, callers and contexts come first, and the order of the answers of
    requests that are in flight together does not matter."""
    noise = np.random.default_rng(7)
    for _ in range(300):
        asked: list[tuple] = []
        clock, done = 0, []
        while len(asked) < 12:
            together = []
            for _ in range(int(noise.integers(1, 4))):
                extends = [done[int(noise.integers(len(done)))]] if done and noise.random() < 0.8 else []
                extends = ["~" + name if noise.random() < 0.4 else name for name in extends]
                together.append((f"q{len(asked) + len(together)}", clock, extends))
                clock += 1
            ends = clock + noise.permutation(len(together))
            swapped = clock + noise.permutation(len(together))
            clock += len(together)
            pairs = zip(together, ends.tolist(), swapped.tolist(), strict=True)
            asked += [(name, begun, end, *extends, other) for (name, begun, extends), end, other in pairs]
            done += [name for name, *_ in together]
        found = record(*((*one[:2], one[2], *one[3:-1]) for one in asked))
        again = record(*((*one[:2], one[-1], *one[3:-1]) for one in asked))
        assert shape(found) == shape(again)
        times = {one[0]: one[1:3] for one in asked}
        for chain in found.chains():
            spans = [times[step.action] for step in chain.steps]
            assert all(ended < begun for (_, ended), (begun, _) in itertools.pairwise(spans)), shape(found)
        names = [step.action for chain in found.chains() for step in chain.steps]
        assert sorted(names) == sorted(times)
        share_outcome(found)
        build_graph([found])  # its checks: callers and contexts are earlier rows
