"""The client of training services: keys and addresses, models and checkpoints, and every failure in one sentence."""

import asyncio
import gc
import logging
import os
import re
import socket
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from agentrl.engines import EngineLost
from agentrl.engines.tinker import AdamStep, Datum, Service, ServiceError, ServiceLost, aligned
from agentrl.engines.tinker.sdk import library
from agentrl.engines.tinker.sdk_calls import plain
from agentrl.engines.tinker.service_data import metrics, passed, sampled
from agentrl.engines.tinker.service_errors import Doing, Line, failure, words
from tests.toys.training_service import RunningService, training_service

tinker = pytest.importorskip("tinker")
httpx = pytest.importorskip("httpx")

FLAGS = {"train_attn": True, "train_mlp": True, "train_unembed": False}
STEP = AdamStep(0.02, 0.9, 0.999, 1e-8, 0.0, 0.0)
KEY = "tml-planted-83hf72kdkd"
IDS = np.arange(4, 12)
DATUM = Datum(IDS[:-1], IDS[1:], {"weights": np.ones(7, np.float32)})
UNKNOWN = DATUM._replace(inputs=np.full(7, 999_999))  # no token of the model


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    with training_service(tmp_path_factory.mktemp("service")) as service:
        yield service


@pytest.fixture(scope="module")
def service(running: RunningService) -> Iterator[Service]:
    connection = Service(running.url, timeout_s=60.0)
    yield connection
    connection.close()


@pytest.fixture
def trainer(running: RunningService, service: Service) -> Iterator[Any]:
    made = service.train(running.model, rank=2, seed=1, **FLAGS)
    yield made
    made.unload()


def logprobs(trainer: Any) -> np.ndarray:
    return trainer.forward([DATUM]).result().logprobs[0]


def learn(trainer: Any) -> float:
    """One step; returns the gradient's norm."""
    sent, step = trainer.forward_backward([DATUM], "cross_entropy"), trainer.step(STEP)
    assert len(sent.result().logprobs[0]) == len(DATUM.targets)
    return step.result()["grad_norm"]


# Keys and addresses.


@pytest.fixture
def no_keys(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("TINKER_API_KEY", "TINKER_CREDENTIAL_CMD", "TINKER_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_an_address_elsewhere_needs_a_key_of_the_environment(no_keys):
    with pytest.raises(ServiceError, match=r"^https://tinker.thinkingmachines.dev needs a key: set .* TINKER_API_KEY"):
        Service("", timeout_s=1.0)
    with pytest.raises(ServiceError, match=r"^http://10.1.2.3:8000 needs a key"):
        Service("http://10.1.2.3:8000", timeout_s=1.0)


def test_the_option_wins_over_the_environment(no_keys, running):
    no_keys.setenv("TINKER_BASE_URL", running.url)
    own = Service("", timeout_s=60.0)
    assert (own.url, list(own.models())) == (running.url, [running.model])
    own.close()
    no_keys.setenv("TINKER_BASE_URL", f"http://me:{KEY}@127.0.0.1:1")
    with pytest.raises(ServiceError, match=r"^TINKER_BASE_URL = 'http://\*\*\*@127.0.0.1:1' has a user, a password"):
        Service("", timeout_s=60.0)
    own = Service(f"{running.url}/", timeout_s=60.0)
    assert (own.url, list(own.models())) == (running.url, [running.model])
    own.close()


@pytest.mark.fault
def test_a_key_opens_the_service_and_is_nowhere_else(no_keys, tmp_path, running, capfd):
    with training_service(tmp_path, token=KEY, model=Path(running.model)) as closed:
        no_keys.setenv("TINKER_API_KEY", KEY)
        own = Service(closed.url, timeout_s=60.0)
        made = own.train(closed.model, rank=1, seed=0, **FLAGS)
        assert KEY not in repr([vars(own), vars(made), vars(made.sampler())])
        own.close()
        for wrong, sentence in (
            ("tml-another-1234567", r"does not accept the key for a connection \(HTTP 401\): set TINKER_API_KEY"),
            ("sk-another-1234567", "the SDK does not take the key of TINKER_API_KEY: .* 'tml-' prefix"),
        ):
            no_keys.setenv("TINKER_API_KEY", wrong)
            with pytest.raises(ServiceError, match=sentence) as caught:
                Service(closed.url, timeout_s=60.0)
            assert wrong not in str(caught.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("127.0.0.1:8000", "learner.url = '127.0.0.1:8000' is no address: write http://HOST:PORT"),
        ("http://host:port", "is no address"),
        (
            f"http://me:{KEY}@127.0.0.1:8000",
            "has a user, a password, a query or a fragment, and addresses are stored: leave",
        ),
        (
            f"http://127.0.0.1:8000/?api_key={KEY}",
            "has a user, a password, a query or a fragment, and addresses are stored: leave",
        ),
    ],
)
def test_an_address_has_no_secrets(url, sentence):
    with pytest.raises(ServiceError, match=sentence) as caught:
        Service(url, timeout_s=1.0)
    assert KEY not in str(caught.value)


@pytest.mark.fault
def test_nothing_that_listens_is_told_at_once(no_keys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ServiceError, match=rf"no training service answers at {url} .*: start it, or correct"):
            Service(url, timeout_s=600.0)


def test_telemetry_is_off_unless_the_user_set_it(monkeypatch):
    monkeypatch.delenv("TINKER_TELEMETRY", raising=False)
    library()
    assert os.environ["TINKER_TELEMETRY"] == "0"
    monkeypatch.setenv("TINKER_TELEMETRY", "1")
    library()
    assert os.environ["TINKER_TELEMETRY"] == "1"


def test_an_sdk_that_is_missing_or_old_is_told(monkeypatch):
    monkeypatch.setattr(tinker, "__version__", "0.9.3")
    with pytest.raises(ServiceError, match=r"tinker 0.9.3 is too old: pip install 'tinker>=0.16'"):
        library()
    monkeypatch.setitem(sys.modules, "tinker", None)
    with pytest.raises(ServiceError, match=r"needs the package tinker.*: pip install 'agentrl-stepgraph\[tinker\]'"):
        library()


# Models and checkpoints.


def test_a_base_model_that_the_service_lacks_is_told_with_those_it_has(service, running):
    for ask in (lambda: service.train("no/model", rank=2, seed=0, **FLAGS), lambda: service.sampler(model="no/model")):
        with pytest.raises(ServiceError, match=rf"no base model 'no/model': set learner.model to .* \({running.model}"):
            ask()


def test_flags_that_train_nothing_are_told(service, running):
    with pytest.raises(ServiceError, match="are all false: set one of them to true"):
        service.train(running.model, rank=2, seed=0, train_attn=False, train_mlp=False, train_unembed=False)


def test_an_address_of_something_else_names_the_option(running, no_keys):
    running.faults.add("create_session", 404)
    with pytest.raises(ServiceError, match=r"refuses a connection .*: look whether .*, or correct learner.url"):
        Service(running.url, timeout_s=30)


@pytest.mark.fault
def test_another_model_or_rank_at_the_address_is_told(service, trainer):
    trainer.check()
    path = trainer.save("checked", None)
    for asked, sentence in (
        ({"model": "other/model"}, r"trains '.*', and this run trains 'other/model': correct learner.url"),
        ({"rank": 5}, "trains adapters of rank 2, and learner.rank is 5: set learner.rank=2"),
    ):
        again = service.resume(path, optimiser=True, **asked)
        with pytest.raises(ServiceError, match=sentence):
            again.check()
        again.unload()


def test_a_checkpoint_goes_on_exactly(service, trainer):
    learn(trainer)
    path = trainer.save("state", 3600.0 * 48)
    resumed, fresh = (service.resume(path, optimiser=with_optimiser) for with_optimiser in (True, False))
    np.testing.assert_array_equal(logprobs(resumed), logprobs(trainer))
    np.testing.assert_array_equal(logprobs(fresh), logprobs(trainer))
    for one in (trainer, resumed, fresh):
        learn(one)
    np.testing.assert_array_equal(logprobs(resumed), logprobs(trainer))
    assert np.abs(logprobs(fresh) - logprobs(trainer)).max() > 1e-3  # without the optimiser's moments
    resumed.unload(), fresh.unload()


@pytest.mark.fault
def test_a_checkpoint_that_is_gone_is_told(service):
    with pytest.raises(ServiceError, match=r"may have expired \(learner.keep_days\), or belong to another service"):
        service.resume("tinker://nowhere/weights/1", optimiser=True)
    with pytest.raises(ServiceError, match="'runs/a' names no weights of a training service: such names begin with"):
        service.sampler(path="runs/a")


@pytest.mark.slow
def test_gradients_add_up_until_a_step(service, running):
    one, two = (service.train(running.model, rank=2, seed=1, **FLAGS) for _ in range(2))
    norm = learn(one)
    two.forward_backward([DATUM], "cross_entropy").result()  # gradients add up
    assert learn(two) == pytest.approx(2 * norm, rel=1e-5)
    one.unload(), two.unload()


@pytest.mark.slow
def test_log_probs_of_texts_are_those_of_the_trained_model(trainer):
    learn(trainer)
    whole, start = trainer.sampler().logprobs([IDS, IDS[:3]])
    np.testing.assert_allclose(whole[1:], logprobs(trainer), atol=2e-5)
    assert np.isnan(whole[0]) and np.isnan(start[0])
    np.testing.assert_allclose(start[1:], whole[1:3], atol=2e-5)


def test_the_session_ends_with_the_connection(running):
    own = Service(running.url, timeout_s=60.0)
    own.train(running.model, rank=1, seed=0, **FLAGS)
    before = running.faults.seen["unload_model"]
    own.close()
    own.close()  # twice is no mistake
    assert running.faults.seen["unload_model"] == before + 1  # old SDKs do not tell the service that a session ends
    with pytest.raises(ServiceLost, match=f"the connection to {running.url} is closed"):
        own.train(running.model, rank=1, seed=0, **FLAGS)


def test_calls_in_an_event_loop_print_no_stack(service, trainer, caplog, capfd):
    """The SDK complains about blocking calls in a thread with a running loop, and blocks there."""

    async def play() -> None:
        trainer.sampler()
        service.sampler(path=trainer.save_sampler("loop", None))
        trainer.check()
        assert len(logprobs(trainer)) == len(DATUM.targets)

    with caplog.at_level(logging.WARNING):
        asyncio.run(play())
    assert [one for one in caplog.records if "called from async" in one.getMessage()] == []
    assert capfd.readouterr() == ("", "")


def test_errors_in_the_sdk_that_nobody_awaits_print_no_stack(service, caplog):
    """Such as those of the other requests of a run whose service is gone."""

    async def fails() -> None:
        raise RuntimeError("the service is gone")

    async def forgets() -> None:
        forgotten = asyncio.ensure_future(fails())
        await asyncio.wait([forgotten])

    async def reports() -> None:
        asyncio.get_running_loop().call_exception_handler({"message": "another defect"})

    for play in (forgets, reports):
        plain(service._client.holder.run_coroutine_threadsafe(play())).result()
        gc.collect()
    assert [record.getMessage() for record in caplog.records] == ["another defect"]


# Faults while training.


@pytest.mark.fault
def test_a_pass_that_is_sent_again_adds_its_gradient_once(service, running, capfd):
    plain, troubled = (service.train(running.model, rank=2, seed=1, **FLAGS) for _ in range(2))
    for fault in ("lose", "drop", 503):
        expected = learn(plain)
        running.faults.add("forward_backward", fault)
        assert learn(troubled) == pytest.approx(expected, rel=1e-6)
        assert not running.faults.waiting
    assert capfd.readouterr() == ("", "")
    plain.unload(), troubled.unload()


@pytest.mark.fault
def test_a_session_that_ends_while_a_run_begins_is_lost(service, running, trainer):
    """The server was started again between the connection and its first model: a supervisor may try again."""
    path = trainer.save("begun", None)
    asks = [
        ("create_model", lambda: service.train(running.model, rank=1, seed=0, **FLAGS)),
        ("load_weights", lambda: service.resume(path, optimiser=True)),
        ("create_sampling_session", lambda: service.sampler(model=running.model)),
    ]
    for route, ask in asks:
        running.faults.add(route, 410)
        with pytest.raises(ServiceLost, match=r"no longer has what .* needs .* it may have been started again"):
            ask()
        assert not running.faults.waiting


@pytest.mark.fault
def test_a_lost_pass_ends_the_model_and_not_the_connection(service, running, trainer):
    running.faults.add("forward_backward", 404)
    sent = trainer.forward_backward([DATUM], "cross_entropy")
    with pytest.raises(ServiceLost, match=r"no longer has what a forward and backward pass needs .*started again"):
        sent.result()
    for ask in (lambda: trainer.forward([DATUM]), lambda: trainer.step(STEP), lambda: trainer.save("x", None)):
        with pytest.raises(EngineLost, match=r"takes no more requests, because one failed: the training service at"):
            ask()
    other = service.train(running.model, rank=1, seed=0, **FLAGS)
    learn(other)
    other.unload()


def test_what_is_refused_in_an_answer_leaves_the_model_and_what_was_not_taken_ends_it(running, trainer):
    with pytest.raises(ServiceError, match=r"refuses saving a checkpoint \('\.\./x' is no name"):
        trainer.save("../x", None)
    with pytest.raises(ServiceError, match=r"refuses a forward pass \(model_input has the token id 999999"):
        trainer.forward([UNKNOWN]).result()
    learn(trainer)
    running.faults.add("save_weights", 400)
    with pytest.raises(ServiceError, match="refuses saving a checkpoint"):
        trainer.save("x", None)
    with pytest.raises(ServiceLost, match=r"takes no more requests, because one failed: .* refuses saving a"):
        trainer.forward([DATUM])


def test_a_refused_step_ends_the_model(trainer):
    with pytest.raises(ServiceError, match="refuses a forward and backward pass"):
        trainer.forward_backward([UNKNOWN], "cross_entropy").result()
    with pytest.raises(ServiceLost, match="takes no more requests, because one failed"):
        trainer.step(STEP)


# Errors of the SDK, all versions.

HERE = Line("http://there:1", "0.38.0", "learner", 7.0)
PASS = Doing("a forward pass", known=True)


def of_status(status: int, body: Any = None) -> Exception:
    response = httpx.Response(status, request=httpx.Request("POST", "http://there:1/api/v1/forward"))
    return tinker.APIStatusError(f"Error code: {status} - key {KEY}", response=response, body=body)


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def failed(category: str) -> Exception:
    message = f"Request failed: out of {KEY} memory for self.request_id='r1' and expected type self.model_cls=<class>"
    return tinker.RequestFailedError(message, "r1", SimpleNamespace(value=category))


class RetryableException(Exception):
    pass


LOST: list[tuple[Callable[[], BaseException], str]] = [
    (TimeoutError, "gave no answer to a forward pass in 7 s: look at the service, or raise learner.timeout_s"),
    (lambda: of_status(429, {"detail": "slow down"}), r"too busy .* in every try of its SDK \(HTTP 429\): slow down$"),
    (
        lambda: of_status(500),
        r"\(HTTP 500\): .*; if its log shows no other reason, .* SkyRL 0.3.0 takes tinker==0.16.1",
    ),
    (lambda: of_status(404, {"detail": "no model m1"}), r"no longer has what a forward pass needs \(no model m1\)"),
    (lambda: of_status(410), "no longer has what a forward pass needs"),
    (lambda: caused(ValueError("Error retrieving result: gone"), of_status(404)), "has lost the answer to a forward"),
    (lambda: tinker.APIConnectionError(request=httpx.Request("POST", "http://there:1")), "cannot be reached for a"),
    (lambda: failed("server"), r"failed at a forward pass: out of \*\*\* memory$"),
    (lambda: RetryableException("Promise expired/broken"), "has lost the answer to a forward pass$"),
    (lambda: RuntimeError("A previous request failed; this TrainingClient is poisoned"), "takes no more requests"),
    (lambda: RuntimeError("Internal client holder is closed"), "takes no more requests"),
    (CancelledError, "a forward pass was given up, because the connection"),
]
REFUSED: list[tuple[Callable[[], BaseException], str]] = [
    (lambda: of_status(401), r"does not accept the key for a forward pass \(HTTP 401\): set TINKER_API_KEY"),
    (lambda: of_status(402, {"detail": "no credit"}), "asks for payment before a forward pass: no credit"),
    (lambda: of_status(400, {"detail": "too long"}), r"refuses a forward pass \(too long\)$"),
    (lambda: failed("user"), r"refuses a forward pass \(out of \*\*\* memory\)$"),
    (
        lambda: AssertionError("asample promises always carry sample_sequence_ids"),
        "in an older form of the protocol: the service may need another version of the SDK than 0.38.0",
    ),
    (lambda: ValueError("Server returned a JSON payload, which this SDK supports only as proto"), "in an older form"),
    (lambda: tinker.TinkerError("The api_key must start with the 'tml-' prefix"), "the SDK does not take the key of"),
    (lambda: KeyError("loss:sum"), r"do not understand each other at .* \(KeyError: 'loss:sum'\): the"),
]


@pytest.mark.fault
@pytest.mark.parametrize(("kind", "make", "sentence"), [
    *((ServiceLost, *one) for one in LOST), *((ServiceError, *one) for one in REFUSED)
])  # fmt: skip
def test_every_error_of_the_sdk_is_one_sentence(kind, make, sentence):
    found = failure(make(), PASS, HERE)
    assert isinstance(found, kind) and re.search(sentence, str(found)), str(found)
    assert KEY not in str(found) and "\n" not in str(found)


def test_words_of_a_service_are_one_short_line_without_keys():
    assert words(f"a\n  b {KEY} eyJhbGciOi.JIUzI1NiJ9 c.") == "a b *** *** c"
    assert len(words("x " * 9000)) == 303


# Answers that do not fit.


def test_prompt_log_probs_are_aligned():
    # Three tokens: the protocol has [None, b, c]; SkyRL's JAX back end returns [b, c].
    for found in ([None, -1.0, -2.0], [-1.0, -2.0]):
        np.testing.assert_array_equal(aligned(found, 3, "u"), [np.nan, -1.0, -2.0])
    for nothing in (None, [], [None, None, None]):
        with pytest.raises(ServiceError, match=r"returns no log-probs of prompts, .*: set update.kl_coef=0"):
            aligned(nothing, 3, "u")
    for wrong in ([-1.0], [None, -1.0, None], [None, -1.0, -2.0, -3.0]):
        with pytest.raises(ServiceError, match=r"returned \d log-probs for a text of 3 tokens"):
            aligned(wrong, 3, "u")
    np.testing.assert_array_equal(aligned([None], 1, "u"), [np.nan])


@pytest.mark.fault
def test_answers_without_log_probs_are_refused():
    def answer(**fields: Any) -> Any:
        one = SimpleNamespace(**{"tokens": [4, 5], "logprobs": [-1.0, -2.0], "stop_reason": "stop", **fields})
        return SimpleNamespace(sequences=[one])

    assert sampled(answer(), "u").finish == "stop" and sampled(answer(stop_reason="length"), "u").finish == "length"
    for fields in ({"logprobs": None}, {"logprobs": [-1.0]}, {"logprobs": [-1.0, float("nan")]}):
        with pytest.raises(ServiceError, match=r"log-prob"):
            sampled(answer(**fields), "u")
    tensor = SimpleNamespace(to_numpy=lambda: np.array([[-1.0], [-2.0]], np.float32))
    found = SimpleNamespace(loss_fn_outputs=[{"logprobs": tensor}], metrics=None)
    np.testing.assert_array_equal(passed(found, [2], "u").logprobs[0], [-1.0, -2.0])
    for sizes in ([3], [2, 2]):
        with pytest.raises(ServiceError, match="the training service at u returned"):
            passed(found, sizes, "u")


@pytest.mark.parametrize("name", ["grad_norm", "skyrl.ai/grad_norm", "unclipped_grad_l2:mean"])
def test_gradient_norms_have_one_name(name):
    assert metrics(SimpleNamespace(metrics={name: 3, "x": 1}))["grad_norm"] == 3.0
    assert "grad_norm" not in metrics(SimpleNamespace(metrics={"x": 1}))
