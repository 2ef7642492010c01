"""Requests are answered once, in the order of their numbers, and a bounded number of them waits."""

import numpy as np
import pytest

from agentrl.http import Refusal
from agentrl.training_server.promises import Promise, PromiseFailure, PromiseTable
from agentrl.training_server.verbs import PassResult, PlainResult, SampleWork


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def table(most=100, most_tokens=1000, most_bytes=1 << 20, clock=None):
    made = PromiseTable(most, most_tokens, most_bytes, 10.0, clock or Clock())
    made.open_lane("model", ordered=True)
    return made


def taken(promises):
    """The names of the promises that are ready, in their order."""
    found = []
    while (promise := promises.take(0)) is not None:
        found.append(promise.name)
    return found


def sample(sampler):
    return Promise(sampler=sampler, sample=SampleWork(prompt=np.zeros(1, np.int64)))


def test_a_repeated_request_gets_the_earlier_promise():
    promises = table()
    first = promises.submit("model", 1, Promise())
    assert promises.submit("model", 1, Promise()) == first
    assert taken(promises) == [first], "the work is done once"
    assert promises.submit("model", 1, Promise()) == first, "also after the work is done"


def test_a_restarted_server_does_not_give_the_result_of_another_request():
    earlier, restarted = table(), table()
    name = earlier.submit("model", 1, Promise())
    restarted.submit("model", 1, Promise())
    with pytest.raises(Refusal, match="the server was started again"):
        restarted.wait(name, 0)


def test_requests_run_in_the_order_of_their_numbers():
    # 3 and 2 come before 1, as the chunks of one request do when they are sent at the same time.
    promises = table()
    third, second = promises.submit("model", 3, Promise()), promises.submit("model", 2, Promise())
    assert taken(promises) == []
    first, fourth = promises.submit("model", 1, Promise()), promises.submit("model", 4, Promise())
    assert taken(promises) == [first, second, third, fourth]


def test_requests_without_a_number_run_in_the_order_of_arrival():
    promises = table()
    names = [promises.submit("model", None, Promise()) for _ in range(3)]
    assert taken(promises) == names


def test_models_do_not_wait_for_each_other():
    promises = table()
    promises.open_lane("other", ordered=True)
    promises.submit("model", 2, Promise())
    other = promises.submit("other", 1, Promise())
    assert taken(promises) == [other]


def test_a_request_whose_predecessor_was_lost_fails_and_the_later_ones_go_on():
    clock = Clock()
    promises = table(clock=clock)
    second, third = promises.submit("model", 2, Promise()), promises.submit("model", 3, Promise())
    clock.now = 10.0
    assert promises.give_up_gaps() == []
    clock.now = 10.1
    assert [one.name for one in promises.give_up_gaps()] == [second]
    assert taken(promises) == [third]
    with pytest.raises(Refusal, match="seq_id 1 is too old: this server has gone on to 4"):
        promises.submit("model", 1, Promise())


def test_a_full_queue_refuses_and_takes_requests_again():
    promises = table(most=2, most_tokens=10)
    promises.submit("model", 1, Promise(tokens=8))
    with pytest.raises(Refusal) as refused:
        promises.submit("model", 2, Promise(tokens=8))
    assert refused.value.status == 429
    promises.submit("model", 2, Promise(tokens=2))
    with pytest.raises(Refusal):
        promises.submit("model", 3, Promise())
    promises.finish(promises.take(0), PlainResult({}))
    promises.submit("model", 3, Promise(tokens=8))


def test_a_single_request_may_be_larger_than_the_queue():
    table(most_tokens=10).submit("model", 1, Promise(tokens=11))


def test_results_that_were_fetched_are_dropped_first():
    promises = table(most_bytes=10_000)
    names = [promises.submit("model", n, Promise()) for n in (1, 2, 3)]
    for name in names[:2]:
        promises.finish(promises.take(0), PassResult([np.zeros(1000, np.float32)], {}))  # 4000 + 1000 bytes each
        if name == names[1]:
            assert promises.wait(name, 0) is not None
    promises.finish(promises.take(0), PlainResult({}))
    assert promises.wait(names[0], 0) is not None and promises.wait(names[2], 0) is not None
    with pytest.raises(Refusal) as refused:
        promises.wait(names[1], 0)
    assert refused.value.status == 410


def test_waiting_ends_without_an_outcome():
    promises = table()
    name = promises.submit("model", 1, Promise())
    assert promises.wait(name, 0) is None
    promises.finish(promises.take(0), PromiseFailure("no", user=True))
    assert promises.wait(name, 0) == PromiseFailure("no", user=True) == promises.wait(name, 0)


def test_samples_of_one_sampler_are_taken_together_but_not_past_training():
    promises = table()
    for lane in ("a", "b"):
        promises.open_lane(lane, ordered=False)
    a, b = promises.submit("a", 5, sample("a")), promises.submit("b", 0, sample("b"))
    a_again = promises.submit("a", 2, sample("a"))
    step = promises.submit("model", 1, Promise())
    a_late = promises.submit("a", 3, sample("a"))
    assert promises.take(0).name == a
    assert [one.name for one in promises.more_samples("a".__eq__, 9, past_others=False)] == []
    assert [one.name for one in promises.more_samples("a".__eq__, 9, past_others=True)] == [a_again]
    assert taken(promises) == [b, step, a_late]


def test_no_more_samples_are_taken_than_there_are_places():
    promises = table()
    promises.open_lane("a", ordered=False)
    names = [promises.submit("a", n, sample("a")) for n in range(3)]
    assert [one.name for one in promises.more_samples("a".__eq__, 2, past_others=True)] == names[:2]


def test_a_closed_lane_is_unknown_and_what_it_held_is_worked_on():
    promises = table()
    held = promises.submit("model", 2, Promise())
    promises.close_lane("model")
    assert taken(promises) == [held]
    with pytest.raises(Refusal) as refused:
        promises.submit("model", 3, Promise())
    assert refused.value.status == 404


def test_closing_ends_every_wait():
    promises = table()
    name = promises.submit("model", 1, Promise())
    promises.close()
    assert promises.take(60) is None
    assert promises.wait(name, 60) is None
