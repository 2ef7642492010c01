"""The engine of training services: the sampler's laws, versions of weights, and what a lost or odd answer does."""

import asyncio
import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from agentrl.engines import EngineLost, HfEngine, Sampling, Serving, tinker as entry
from agentrl.engines.entry import Demands
from agentrl.engines.tinker import AdamStep, Datum, Sampled, Service, ServiceError, ServiceLost, address, sdk, sdk_calls
from agentrl.engines.tinker.engine import TinkerEngine
from agentrl.engines.tinker.sdk import library
from agentrl.model import ModelConfig, ServedWeights, WeightFolder, load_model
from agentrl.pulse import PULSE
from agentrl.settings import Settings
from agentrl.training_server import SnapshotEngine
from agentrl.types import EnvFault
from tests.engines.engines import request
from tests.toys.training_service import RunningService, training_service

pytest.importorskip("tinker")

FLAGS = {"train_attn": True, "train_mlp": True, "train_unembed": False}
FAST = AdamStep(0.05, 0.9, 0.999, 1e-8, 0.0, 0.0)
TOKENS = 12


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    with training_service(tmp_path_factory.mktemp("service")) as service:
        yield service


@pytest.fixture(scope="module")
def service(running: RunningService) -> Iterator[Service]:
    connection = Service(running.url, timeout_s=60.0)
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def loaded(running: RunningService) -> Any:
    """The base model of the service in this process."""
    return load_model(ModelConfig(path=running.model, dtype="float32", device="cpu"), 0)


@pytest.fixture(scope="module")
def plain(loaded: Any, service: Service, running: RunningService) -> tuple[TinkerEngine, list[int]]:
    """An engine of the base model, and its answer number 1."""
    engine = engine_of(loaded, service.sampler(model=running.model))
    return engine, answers(engine, [1])[0].token_ids.tolist()


@pytest.fixture
def trainer(running: RunningService, service: Service) -> Iterator[Any]:
    made = service.train(running.model, rank=2, seed=1, **FLAGS)
    yield made
    made.unload()


def engine_of(loaded: Any, sampler: Any, version: int = 0, **options: Any) -> TinkerEngine:
    sampling = Sampling(**{"max_tokens": TOKENS, **options.pop("sampling", {})})
    serving = Serving(
        model=ServedWeights(sampler), tokenizer=loaded.tokenizer, sampling=sampling, version=version, **options
    )
    return entry.make(entry.Config(max_context=200), serving)


def prompt(number: int, size: int = 9) -> np.ndarray:
    return np.random.default_rng(number).integers(4, 200, size)


def answers(engine: Any, numbers: Any = range(4), **fields: Any) -> list[Any]:
    async def play() -> list[Any]:
        for number in numbers:
            engine.open(number)
        asked = (engine.generate(request(n, prompt(n), **{"noise_key": (3, n), **fields})) for n in numbers)
        return list(await asyncio.gather(*asked))

    return asyncio.run(play())


def trained_logprobs(trainer: Any, generations: Any) -> list[np.ndarray]:
    """The log-probs of the `answers` by forward passes of the trained model."""
    paths = [np.concatenate([prompt(n), found.token_ids]) for n, found in enumerate(generations)]
    data = [Datum(ids[:-1], ids[1:], {"weights": np.ones(len(ids) - 1, np.float32)}) for ids in paths]
    found = trainer.forward(data).result().logprobs
    return [values[len(prompt(n)) - 1 :] for n, values in enumerate(found)]


def learn(trainer: Any) -> None:
    """One large step, after which log-probs are others."""
    ids = prompt(99, 12)
    datum = Datum(ids[:-1], ids[1:], {"weights": np.ones(len(ids) - 1, np.float32)})
    passed, step = trainer.forward_backward([datum], "cross_entropy"), trainer.step(FAST)
    passed.result(), step.result()


# The sampling distribution.


def test_greedy_answers_equal_those_of_the_embedded_engine(loaded, service, running):
    greedy = Sampling(temperature=0.0, max_tokens=TOKENS)
    own = HfEngine(loaded.model, loaded.tokenizer, greedy, max_slots=8, max_context=200)
    there = engine_of(loaded, service.sampler(model=running.model), sampling={"temperature": 0.0})
    assert there.describe()["weights"] == running.model
    for mine, theirs in zip(answers(own), answers(there), strict=True):
        assert mine.token_ids.tolist() == theirs.token_ids.tolist()
        assert (mine.text, mine.finish) == (theirs.text, theirs.finish)


def test_log_probs_are_those_of_the_trained_model(loaded, trainer):
    learn(trainer)
    found = answers(engine_of(loaded, trainer.sampler()))
    for mine, theirs in zip(found, trained_logprobs(trainer, found), strict=True):
        np.testing.assert_allclose(mine.logprobs, theirs, atol=2e-5)


def test_the_noise_key_alone_decides_what_is_drawn(plain):
    engine, expected = plain
    assert answers(engine)[1].token_ids.tolist() == expected  # beside others
    assert answers(engine, [1], noise_key=(4, 1))[0].token_ids.tolist() != expected


def test_a_stop_string_ends_an_answer_and_is_part_of_it(loaded, service, running):
    sampler = service.sampler(model=running.model)
    free = answers(engine_of(loaded, sampler), [1])[0]
    stop = loaded.tokenizer.decode(free.token_ids[3:5])
    cut = answers(engine_of(loaded, sampler, sampling={"stop": (stop,)}), [1])[0]
    assert cut.finish == "stop" and stop in cut.text and len(cut.token_ids) < len(free.token_ids)
    assert cut.token_ids.tolist() == free.token_ids[: len(cut.token_ids)].tolist()
    assert stop not in loaded.tokenizer.decode(cut.token_ids[:-1])


def test_the_service_gets_stop_strings_or_end_ids_and_no_mixture(loaded):
    seen = []

    class Sampler:
        path, model, service = "", "", SimpleNamespace(url="http://there")

        async def sample(self, ids, *, stop, **_):
            seen.append(list(stop))
            return Sampled(np.array([7, loaded.tokenizer.eos_token_id, 8]), np.array([-1.0, -2.0, -3.0]), "length")

    end = loaded.tokenizer.eos_token_id
    for stop in ((), ("never",)):
        found = answers(engine_of(loaded, Sampler(), sampling={"stop": stop}), [0])[0]
        # The end id ends the answer also where the service did not get it.
        assert (found.token_ids.tolist(), found.finish) == ([7, end], "stop")
    assert seen == [[end], ["never"]]


@pytest.mark.parametrize(
    ("fields", "options", "size"),
    [({"max_tokens": 3}, {}, 3), ({}, {"max_tokens": 5}, 5), ({"token_ids": 196}, {}, 4)],
    ids=["request", "sampling", "context"],
)
def test_the_lowest_limit_cuts_an_answer_off(loaded, service, running, fields, options, size):
    engine = engine_of(loaded, service.sampler(model=running.model), sampling=options)
    ids = prompt(1, fields.pop("token_ids", 9))
    found = asyncio.run(engine.generate(request(0, ids, **fields)))
    assert (len(found.token_ids), found.finish) == (size, "length")


def test_a_prompt_that_fills_the_context_needs_no_request(loaded, service, running):
    engine = engine_of(loaded, service.sampler(model=running.model), version=3)
    before = running.faults.seen["asample"]
    found = asyncio.run(engine.generate(request(0, prompt(1, 200))))
    assert (len(found.token_ids), found.finish, found.policy_version) == (0, "length", (3, 3))
    assert running.faults.seen["asample"] == before


# Versions.


def test_answers_that_are_under_way_keep_their_snapshot(loaded, trainer):
    engine = engine_of(loaded, trainer.sampler())
    alone = answers(engine)
    learn(trainer)
    later = trainer.sampler()

    async def play() -> list[Any]:
        tasks = [asyncio.create_task(engine.generate(request(n, prompt(n), noise_key=(3, n)))) for n in range(4)]
        await asyncio.sleep(0)  # they are sent, and not answered
        assert not any(task.done() for task in tasks)
        engine.load(ServedWeights(later), 1)
        return list(await asyncio.gather(*tasks))

    early, late = asyncio.run(play()), answers(engine)
    assert [a.policy_version for a in early + late] == [(0, 0)] * 4 + [(1, 1)] * 4
    for mine, theirs in zip(early, alone, strict=True):
        assert mine.token_ids.tolist() == theirs.token_ids.tolist()
        np.testing.assert_allclose(mine.logprobs, theirs.logprobs, atol=1e-6)
    for mine, theirs in zip(late, trained_logprobs(trainer, late), strict=True):
        np.testing.assert_allclose(mine.logprobs, theirs, atol=2e-5)
    moved = trained_logprobs(trainer, early)
    assert max(np.abs(a.logprobs - b).max() for a, b in zip(early, moved, strict=True)) > 0.1  # the step shows


@pytest.mark.slow
def test_an_evaluation_names_its_weights_by_address_and_path(loaded, trainer, running):
    learn(trainer)
    path = trainer.save_sampler("kept", None)
    config = entry.Config(url=running.url, path=path, max_context=200)
    sampling = Sampling(max_tokens=TOKENS)
    serving = Serving(model=None, tokenizer=loaded.tokenizer, sampling=sampling)
    engine = entry.make(config, serving)
    assert engine.describe()["weights"] == path and engine.describe()["where"] == running.url
    here = answers(engine_of(loaded, trainer.sampler()), [1])
    assert answers(engine, [1])[0].token_ids.tolist() == here[0].token_ids.tolist()
    engine.close()


# Faults. The SDK repeats requests by itself, prints nothing, and what it gives up is one sentence.


@pytest.mark.fault
@pytest.mark.parametrize(
    ("route", "fault"),
    [
        ("asample", 429),
        ("asample", "cut"),
        ("retrieve_future", 500),
        pytest.param("asample", 503, marks=pytest.mark.slow),
        pytest.param("asample", "drop", marks=pytest.mark.slow),
        pytest.param("retrieve_future", 408, marks=pytest.mark.slow),
        pytest.param("retrieve_future", "lose", marks=pytest.mark.slow),
    ],
)
def test_a_fault_of_the_network_changes_no_answer(plain, running, capfd, route, fault):
    engine, expected = plain
    running.faults.add(route, fault)
    assert answers(engine, [1])[0].token_ids.tolist() == expected
    assert not running.faults.waiting
    assert capfd.readouterr() == ("", "")


@pytest.mark.fault
@pytest.mark.parametrize(
    ("route", "status", "sentence"),
    [
        ("asample", 404, "no longer has what a sample needs .*: it may have been started again"),
        ("retrieve_future", 404, "has lost the answer to a sample .*: it may have been started again"),
    ],
)
def test_a_lost_answer_is_a_lost_engine(plain, running, capfd, route, status, sentence):
    engine, _ = plain
    running.faults.add(route, status)
    with pytest.raises(EngineLost, match=rf"^the training service at {running.url} {sentence}") as caught:
        answers(engine, [1])
    assert isinstance(caught.value, ServiceLost) and caught.value.__cause__ is None
    assert capfd.readouterr() == ("", "")
    answers(engine, [1])  # the engine itself is not broken


@pytest.mark.fault
def test_no_answer_in_time_is_a_lost_engine(loaded, running, capfd):
    impatient = Service(running.url, timeout_s=0.4)
    engine = engine_of(loaded, impatient.sampler(model=running.model))
    running.faults.add("asample", 503, times=9)
    with pytest.raises(EngineLost, match=r"gave no answer to a sample in 0.4 s: .* or raise learner.timeout_s"):
        answers(engine, [1])
    running.faults.waiting.clear()
    impatient.close()
    assert capfd.readouterr() == ("", "")


@pytest.mark.fault
def test_a_service_that_is_gone_is_told_long_before_the_time_limit(loaded, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(address, "LOOK_S", 0.03)
    monkeypatch.setattr(sdk_calls, "LOOK_S", 0.03)
    with training_service(tmp_path) as short:
        lone = Service(short.url, timeout_s=3600.0)
        engine = engine_of(loaded, lone.sampler(model=short.model))
        trainer = lone.train(short.model, rank=1, seed=0, **FLAGS)
    beats = next(state.beats for state in PULSE.standing() if state.part == "engine")
    with pytest.raises(EngineLost, match=rf"^nothing listens at {short.url} any more, so there is no answer to a sam"):
        answers(engine, [1])
    assert PULSE.standing()[0].beats >= beats + address.REFUSALS  # for the watchdog, the wait was progress
    with pytest.raises(EngineLost, match="any more, so there is no answer to a forward pass: start the service again"):
        trained_logprobs(trainer, [SimpleNamespace(token_ids=np.array([4, 5]))])
    monkeypatch.setattr(sdk, "CLOSE_S", 0.1)
    lone.close()
    assert capfd.readouterr() == ("", "")


@pytest.mark.fault
def test_a_failure_at_one_answer_costs_this_answer(plain, running, monkeypatch, capfd):
    """A service of many machines may fail at a few of thousands of answers. The rollout plays their tasks again."""
    engine, expected = plain
    draw, failures = SnapshotEngine._draw, ["out of memory"]

    async def once(*arguments: Any) -> Any:
        if failures:
            raise RuntimeError(failures.pop())
        return await draw(*arguments)

    monkeypatch.setattr(SnapshotEngine, "_draw", once)
    with pytest.raises(EnvFault, match=rf"^the training service at {running.url} failed at a sample: .*out of memory"):
        answers(engine, [1])
    assert answers(engine, [1])[0].token_ids.tolist() == expected
    assert capfd.readouterr() == ("", "")


@pytest.mark.fault
def test_a_refused_request_is_a_mistake_of_the_user(plain, running, capfd):
    engine, _ = plain
    running.faults.add("asample", 400)
    with pytest.raises(ServiceError, match=r"refuses a sample \(a fault of the test: 400\): shorten the prompt, or"):
        answers(engine, [1])
    assert capfd.readouterr() == ("", "")


@pytest.mark.fault
def test_a_pause_of_the_service_is_told_once_in_our_name(caplog):
    library()
    with caplog.at_level(logging.WARNING):
        logging.getLogger("tinker.lib").warning("Sampling is paused for sampler s. Reason: tml-key-123456 is out")
    mine = [one.getMessage() for one in caplog.records if one.name.startswith("agentrl")]
    assert mine == ["the training service waits: Sampling is paused for sampler s. Reason: *** is out"]


def one_answer(tokens: list[int], finish: str) -> Any:
    class Sampler:
        path, model, service = "", "", SimpleNamespace(url="http://there")

        async def sample(self, ids, **_):
            return Sampled(np.array(tokens), np.full(len(tokens), -1.0), finish)

    return Sampler()


@pytest.mark.fault
def test_an_answer_without_its_end_is_refused(loaded):
    """The service says that the answer is over, and leaves out the end token: nobody could learn to end an answer."""
    engine = engine_of(loaded, one_answer([5, 6, 7], "stop"))
    with pytest.raises(ServiceError, match="ended an answer of 3 tokens without an end token or a stop string"):
        answers(engine, [1])
    assert answers(engine_of(loaded, one_answer([5, 6, 7], "length")), [1])[0].finish == "length"
    special = next(i for i in loaded.tokenizer.all_special_ids if i != loaded.tokenizer.eos_token_id)
    found = answers(engine_of(loaded, one_answer([5, special], "stop")), [1])[0]
    assert (found.finish, found.token_ids.tolist()) == ("stop", [5, special])


# Refusals.

TRAINS = Demands(Sampling(), False, False, 1, False)


@pytest.mark.parametrize(
    ("demands", "options", "sentence"),
    [
        (TRAINS._replace(deterministic=True), {}, "set run.deterministic=false"),
        (TRAINS._replace(sampling=Sampling(temperature=0.7)), {}, "set sampling.temperature=1"),
        (TRAINS._replace(sampling=Sampling(top_p=0.9)), {}, "set sampling.top_p=1"),
        (TRAINS._replace(sampling=Sampling(top_k=5)), {}, "set sampling.top_k=0"),
        (TRAINS._replace(entropies=True), {}, r"the rollout method needs entropies.*choose another \[rollout\]"),
        (TRAINS._replace(nats=True), {}, "set log.entropies=false"),
        (TRAINS, {"actions": "admissible"}, "engine.actions=free and.*update.train_invalid=false"),
        (TRAINS, {"actions": "listed"}, "engine.actions=free and.*update.train_invalid=false"),
        (TRAINS, {"url": "http://127.0.0.1:1"}, "set learner.url, and leave engine.url out"),
        (TRAINS, {"path": "tinker://a"}, "set learner.model, and leave engine.path out"),
        (TRAINS, {"timeout_s": 3.0}, "set learner.timeout_s, and leave engine.timeout_s out"),
    ],
)
def test_what_the_protocol_lacks_is_refused_before_a_run(demands, options, sentence):
    entry.check(entry.Config(), TRAINS)
    with pytest.raises(ValueError, match=sentence):
        entry.check(entry.Config(**options), demands)


def test_a_run_with_entropies_is_refused_when_its_recipe_is_read():
    tables = {
        "run": {"name": "run", "iterations": 1},
        "env": {"name": "benchmarks.reliability.odd_answers", "count": 8},
        "eval": {"tasks": 1, "env": {"first": 8}},
        "model": {"path": "somebody/model"},
        "learner": {"name": "tinker", "url": "http://127.0.0.1:1"},
        "engine": {"name": "tinker"},
    }
    Settings(tables)
    with pytest.raises(ValueError, match=r"log.entropies needs the entropies of answers.*: set log.entropies=false"):
        Settings({**tables, "log": {"entropies": True}})


def test_a_missing_client_is_told_before_a_run(monkeypatch):
    entry.check_here(entry.Config())
    monkeypatch.setattr(sdk, "find_spec", lambda name: None)
    with pytest.raises(ServiceError, match=r"needs the package tinker: pip install 'agentrl-stepgraph\[tinker\]'"):
        entry.check_here(entry.Config())


def test_other_settings_are_for_evaluation_only(loaded, service, running):
    sampler = service.sampler(model=running.model)
    train = engine_of(loaded, sampler)
    with pytest.raises(ServiceError, match=r"ask for temperature 0.5, and a training service computes"):
        answers(train, [1], temperature=0.5)
    panel = engine_of(loaded, sampler, sampling={"temperature": 0.8, "top_k": 5, "top_p": 0.9}, beside=train)
    assert len(answers(panel, [1], temperature=0.5)[0].token_ids)
    with pytest.raises(ValueError, match=r"returns no entropies: set log.entropies=false"):
        engine_of(loaded, sampler, beside=train, nats=True)


def test_weights_of_this_machine_are_refused(loaded, tmp_path):
    for weights in (loaded.model, WeightFolder(tmp_path)):
        serving = Serving(model=weights, tokenizer=loaded.tokenizer, sampling=Sampling())
        with pytest.raises(ValueError, match=r"set learner.name=tinker, or engine.name=hf"):
            entry.make(entry.Config(), serving)


def test_one_source_of_weights_is_named():
    with pytest.raises(ValueError, match=r"engine.path .* or engine.model .*, not both"):
        entry.Config(path="tinker://a", model="b")
