"""Instances in this process: every way an environment can fail becomes an EnvFault, in time and in words."""

import math
import signal
import time

import pytest

from agentrl.env import Slot, checked_observation, checked_result, deadline, limits as time_limit
from agentrl.env.pool import InlinePool
from agentrl.types import EnvFault, Observation, StepResult, Task
from tests.toys import faulty, walk

SEEN = Observation(text="here")


def slot(timeout_s: float = 5.0) -> Slot:
    return Slot(lambda: faulty.make(faulty.Config()), walk.expert, timeout_s)


@pytest.mark.fault
@pytest.mark.parametrize(
    "fault",
    sorted(set(faulty.FAULTS) - {"hang", "hang_in_c", "die", "killed", "unpicklable", "info_huge", "truncates"}),
)
@pytest.mark.parametrize("at", [-1, 0])
def test_whatever_an_environment_does_wrong_is_a_fault(fault, at):
    one = slot()
    with pytest.raises(EnvFault) as caught:
        one.reset(faulty.task(0, fault, at))
        one.step("right")
    assert str(caught.value)


class Echo(walk.Walk):
    def step(self, action: str) -> StepResult:
        return StepResult(Observation(text=f"You say {action}"), 0.0, False, False, {})


@pytest.mark.parametrize(
    ("action", "heard"), [("a\ud800b", "a?b"), ("\udfff\ud800", "??"), ("é🙂", "é🙂"), ("go", "go")]
)
def test_an_action_with_half_of_a_surrogate_pair_is_no_fault_of_an_environment_that_repeats_it(action, heard):
    one = Slot(lambda: Echo(walk.Config()), None, 5.0)
    one.reset(walk.tasks(walk.Config())[0])
    assert one.step(action).observation.text == f"You say {heard}"


@pytest.mark.fault
def test_a_hang_in_python_is_cut_off_even_if_the_environment_swallows_exceptions(monkeypatch):
    raised = []

    class Counted(time_limit.Expired):
        def __init__(self) -> None:
            raised.append(self)

    monkeypatch.setattr(time_limit, "Expired", Counted)
    one = slot(timeout_s=0.3)
    one.reset(faulty.task(0, "hang", 0))
    with pytest.raises(EnvFault, match=r"no answer in 0.3 s"):
        one.step("right")
    assert len(raised) == 1  # the alarm would ring again each second


@pytest.mark.fault
def test_making_an_instance_has_a_limit_of_its_own():
    patient = Slot(lambda: faulty.make_slowly(1.5, faulty.Config()), None, timeout_s=1.0, start_s=60.0)
    assert patient.reset(faulty.task(0)).text
    hasty = Slot(lambda: faulty.make_slowly(60.0, faulty.Config()), None, timeout_s=60.0, start_s=0.1)
    with pytest.raises(EnvFault, match=r"no answer in 0.1 s"):
        hasty.reset(faulty.task(0))


def test_the_deadline_gives_the_callers_timer_and_handler_back():
    rang = []
    before = signal.signal(signal.SIGALRM, lambda number, _: rang.append(number))
    outer = signal.setitimer(signal.ITIMER_REAL, 0)  # pytest-timeout may own the timer
    try:
        began = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, 100.0)
        with deadline(50.0):
            time.sleep(0.05)
        left, _ = signal.getitimer(signal.ITIMER_REAL)
        gone = time.monotonic() - began
        assert 0.05 <= 100.0 - left <= gone + 0.01
        signal.raise_signal(signal.SIGALRM)
        assert rang == [signal.SIGALRM]
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *outer)


def test_no_deadline_without_end():
    with deadline(math.inf):
        assert signal.getsignal(signal.SIGALRM) is not None


def test_terminated_wins_over_truncated():
    result = checked_result((SEEN, 1, True, True, {}))
    assert result == StepResult(SEEN, 1.0, True, False, {}) and isinstance(result.reward, float)


def test_info_is_copied_since_environments_reuse_theirs():
    info = {"success": False}
    result = checked_result((SEEN, 0.0, False, False, info))
    info["success"] = True
    assert result.info == {"success": False}


def test_the_words_of_a_fault_name_the_call():
    with pytest.raises(EnvFault, match=r"^reset returned str, not an Observation$"):
        checked_observation("here")
    with pytest.raises(EnvFault, match=r"^step returned str, not an Observation$"):
        checked_result(("here", 0.0, False, False, {}))
    with pytest.raises(EnvFault, match=r"info\['status'\] = 10"):
        checked_result((SEEN, 0.0, False, False, {"status": 10}))  # DONE is the word of the core


def test_instances_are_reused_unless_broken():
    made = []
    pool = InlinePool(lambda: made.append(walk.make(walk.Config())) or made[-1])
    task = Task(key="a", env="walk", seed=0)
    first = pool.acquire()
    first.slot.reset(task)
    pool.release(first, broken=False)
    assert pool.acquire() is first
    pool.release(first, broken=True)
    second = pool.acquire()
    second.slot.reset(task)
    assert second is not first and len(made) == 2


def test_an_unknown_expert_is_the_users_mistake_not_a_fault():
    one = slot()
    one.reset(faulty.task(0))
    with pytest.raises(ValueError, match="no expert 'clever'"):
        one.act("clever", 0)
