"""A training service through its official client, the package `tinker`: the only module that imports it.

The versions 0.16 to 0.38 of the package work. Only names that all of them have are used, except where this module says
so. Newer versions return futures of clients where older ones block and return clients, and both print a stack if such a
call is made in a thread with a running event loop, so these calls run in threads of their own (`outside`).

The package repeats requests by itself, so nothing here sends a request twice. It logs what it repeats; these messages
are kept for the sentence of a failure, and not printed.

Keys come from the environment alone: TINKER_API_KEY, or TINKER_CREDENTIAL_CMD.

Letters: L inputs of one sequence, n tokens.
"""

import logging
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from agentrl.engines.tinker.address import ADDRESS, KEYS, Presence, check_key, checked, is_local, service_address
from agentrl.engines.tinker.sdk_calls import awaited, outside, plain, quieten, raising
from agentrl.engines.tinker.service_data import AdamStep, Datum, Passed, Sampled, metrics, passed
from agentrl.engines.tinker.service_errors import Doing, Line, ServiceError, ServiceLost, failure, version_of, words
from agentrl.engines.tinker.service_sampler import ServiceSampler
from agentrl.pulse import PULSE
from agentrl.secret import hidden_url

log = logging.getLogger(__name__)

__all__ = [
    "AdamStep",
    "Datum",
    "Passed",
    "Pending",
    "Sampled",
    "Service",
    "ServiceError",
    "ServiceLost",
    "ServiceSampler",
    "Trainer",
]

HOSTED = "https://tinker.thinkingmachines.dev"  # for reports; the SDK knows the whole address
INSTALL = "pip install 'agentrl-stepgraph[tinker]'"
OLDEST = (0, 16)
DUMMY = "tml-dummy"  # the SDK demands a key with this prefix, and a server on this machine needs none
CLOSE_S = 10.0  # longest time in seconds for telling the service that the session is over
SHORTEST_S = 3600  # the service keeps a checkpoint for at least this many seconds
PATHS = "tinker://"  # every version of the SDK demands it
NAMES = 8  # number of models that a message lists

CAPABILITIES = Doing("the list of its models")
NEW = Doing("a new model", "choose another learner.model or learner.rank, or free a model of the service")
EXPIRED = "the checkpoint may have expired (learner.keep_days), or belong to another service"
NO_ROOM = "or models of runs that were killed may still have all places: then try again after some minutes"
INFO = Doing("a description of the model", known=True)
FORWARD = Doing("a forward pass", known=True)
BACKWARD = Doing("a forward and backward pass", known=True)
STEP = Doing("an optimiser step", known=True)
SAVE = Doing("saving a checkpoint", known=True)
SNAPSHOT = Doing("a snapshot of the weights", known=True)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Pending(Protocol[T_co]):
    """A request that was submitted, and whose answer was not yet awaited."""

    def result(self) -> T_co:
        """The answer.

        Raises:
            ServiceError: the service refuses the request.
            ServiceLost: the answer cannot be had any more.
        """
        ...


class _SdkMessages(logging.Handler):
    """Keeps the last warning of the SDK instead of printing it. That the service pauses a run is logged in our name."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._text, self._at = "", 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """Called by the SDK, at most once per minute about a pause."""
        with suppress(Exception):
            self._text, self._at = record.getMessage(), time.monotonic()
            if "paused" in self._text:
                log.warning("the training service waits: %s", words(self._text))

    def within(self, seconds: float) -> str:
        """The last warning, if it is not older; else empty."""
        return self._text if time.monotonic() - self._at <= seconds else ""


_MESSAGES = _SdkMessages()


def check_installed() -> None:
    """Raises ServiceError if the package `tinker` is not installed. Nothing is imported, because that takes seconds."""
    if find_spec("tinker") is None:
        raise ServiceError(f"a training service needs the package tinker: {INSTALL}")


def library() -> Any:
    """The package `tinker`, without its telemetry and without its messages.

    Raises:
        ServiceError: the package is not installed, or too old.
    """
    os.environ.setdefault("TINKER_TELEMETRY", "0")
    try:
        import tinker
    except ImportError as error:
        why = "" if error.name == "tinker" else f" ({error})"
        raise ServiceError(f"a training service needs the package tinker{why}: {INSTALL}") from None
    if version_of(tinker.__version__) < OLDEST:
        raise ServiceError(f"tinker {tinker.__version__} is too old: pip install 'tinker>=0.16'")
    sdk = logging.getLogger("tinker")
    if _MESSAGES not in sdk.handlers:
        sdk.addHandler(_MESSAGES)  # with a handler, Python does not print the messages by itself
    return tinker


class Sent(Generic[T]):
    """A `Pending` request of a model that is trained."""

    def __init__(self, trainer: "Trainer", doing: Doing, future: "Future[Any]", read: Callable[[Any], T]) -> None:
        self._trainer, self._doing, self._future, self._read = trainer, doing, future, read

    def result(self) -> T:
        """See `Pending`."""
        with raising(lambda error: self._trainer.failed(error, self._doing)):
            service = self._trainer.service
            return self._read(awaited(self._future, service.timeout_s, partial(service.look, "update")))


class Service:
    """One connection to a training service, with a session of its own.

    Args:
        url: address; empty for the variable TINKER_BASE_URL or, without it, the hosted service.
        timeout_s: longest time in seconds to wait for one answer.
        section: section of the recipe that messages name, with the options `url` and `timeout_s`.

    Attributes:
        url: the address without credentials, for reports.
        in_order: does the service carry out the requests of a model in the order in which they were sent, if several
            are under way? The hosted service does. Of another one it is not known: SkyRL 0.3.0 carried out one of 488
            optimiser steps before the gradient that was sent 20 ms earlier.
        closed: has the session ended?

    Raises:
        ServiceError: the package `tinker` or a key is missing, or the service refuses the connection.
        ServiceLost: the service gives no answer.
    """

    def __init__(self, url: str, *, timeout_s: float, section: str = "learner") -> None:
        self.tinker, self.timeout_s, self._section, self.closed = library(), timeout_s, section, False
        option = f"{section}.url" if url or not service_address(url) else ADDRESS
        self._address = checked(service_address(url), option)
        self.url = hidden_url(self._address) or HOSTED
        self._presence = Presence(self._address)
        self.in_order = self.url.startswith(HOSTED)
        connection = self._connection()
        self._presence.check(option)

        def connect() -> Any:
            client = self.tinker.ServiceClient(**connection)
            quieten(client.holder.get_loop())  # newer versions open the session when it is first used
            return client

        advice = f"look whether a training service is at {self.url}, or correct {option}"
        self._client = self.ask(Doing("a connection", advice), connect)
        self._models: dict[str, int | None] | None = None
        self._trainers: list[Trainer] = []

    def models(self) -> Mapping[str, int | None]:
        """The names of the base models, and the longest context of each in tokens; None if it is not known.

        The service is asked once per connection.
        """
        if self._models is None:
            self._models = self._listed()
        return self._models

    def _listed(self) -> dict[str, int | None]:
        ask = type(self._client).get_server_capabilities
        while hasattr(ask, "__deprecated__") and hasattr(ask, "__wrapped__"):
            ask = ask.__wrapped__  # without the warning of newer versions, whose other way opens a second connection
        answer = self.ask(CAPABILITIES, lambda: ask(self._client))
        return {one.model_name: getattr(one, "max_context_length", None) for one in answer.supported_models}

    def train(
        self, model: str, *, rank: int, seed: int, train_attn: bool, train_mlp: bool, train_unembed: bool
    ) -> "Trainer":
        """A new model: the base model `model` with adapters of this rank.

        Raises:
            ServiceError: the service does not have the base model, or refuses the adapters.
            ServiceLost: see the class.
        """
        self._check_model(model)
        if not (train_attn or train_mlp or train_unembed):
            raise ServiceError(
                "learner.train_attn, learner.train_mlp and learner.train_unembed are all false: set one of them to true"
            )
        options = {"train_attn": train_attn, "train_mlp": train_mlp, "train_unembed": train_unembed}
        client = self.ask(
            NEW,
            lambda: self._client.create_lora_training_client(base_model=model, rank=rank, seed=seed, **options),
        )
        return self._trainer(client, model, rank)

    def resume(self, path: str, *, optimiser: bool, model: str = "", rank: int = 0) -> "Trainer":
        """A new model with the adapters of a checkpoint.

        Args:
            path: from `Trainer.save`.
            optimiser: also take the state of the optimiser.
            model: the base model that `Trainer.check` expects; empty for any.
            rank: the rank that `Trainer.check` expects; 0 for any.

        Raises:
            ServiceError: the service does not have the checkpoint.
            ServiceLost: see the class.
        """
        kind = "create_training_client_from_state" + ("_with_optimizer" if optimiser else "")
        doing = Doing(f"loading the checkpoint {path}", f"{EXPIRED}, {NO_ROOM}")
        client = self.ask(doing, lambda: getattr(self._client, kind)(path))
        return self._trainer(client, model, rank)

    def _trainer(self, client: Any, model: str, rank: int) -> "Trainer":
        made = Trainer(self, client, model=model, rank=rank)
        self._trainers.append(made)
        return made

    def sampler(self, *, model: str = "", path: str = "") -> "ServiceSampler":
        """A sampler of a base model, or of weights that `Trainer.save_sampler` saved.

        Raises:
            ServiceError: the service does not have the model or the weights.
            ServiceLost: see the class.
        """
        assert bool(model) != bool(path), "either a base model or a path"
        if model:
            self._check_model(model)
        elif not path.startswith(PATHS):
            raise ServiceError(f"{path!r} names no weights of a training service: such names begin with {PATHS}")
        named = {"base_model": model} if model else {"model_path": path}
        doing = Doing(f"a sampler of {path or model}", EXPIRED if path else "")
        return ServiceSampler(self, self.ask(doing, lambda: self._client.create_sampling_client(**named)), path, model)

    def close(self) -> None:
        """Free the models, and end the session; what was saved stays."""
        if self.closed:
            return
        for trainer in self._trainers:
            trainer.unload()
        self.closed = True
        with suppress(Exception):  # there is nothing to do if the service is gone
            close = getattr(self._client, "close", None)  # only newer versions tell the service that the session ends
            if close is None:
                self._client.holder.close()
            else:
                plain(close("success")).result(CLOSE_S)

    def ask(self, doing: Doing, call: Callable[[], Any]) -> Any:
        """The result of a call of the SDK that may block; its errors become ServiceError or ServiceLost."""
        if self.closed:
            raise ServiceLost(f"the connection to {self.url} is closed, so it cannot be asked for {doing.what}")
        with raising(lambda error: self.failed(error, doing)):
            return outside(call, self.timeout_s, partial(self.look, "weights"))

    def look(self, part: str) -> None:
        """Called now and then while an answer is awaited for this part of the run (`agentrl.pulse.PARTS`).

        The wait has a limit of its own, so for the watchdog it is progress.

        Raises:
            ConnectionRefusedError: nothing has listened at the address for minutes.
        """
        PULSE.beat(part)
        self._presence.look()

    def failed(self, error: BaseException, doing: Doing) -> ServiceError | ServiceLost:
        """The error of the SDK as an error of this package."""
        said = _MESSAGES.within(self.timeout_s)
        return failure(error, doing, Line(self.url, str(self.tinker.__version__), self._section, self.timeout_s, said))

    def _connection(self) -> dict[str, Any]:
        """The arguments of a client: the address, and the key if it is not the SDK that finds it."""
        check_key(self._address, self.url)
        key = os.environ.get(KEYS[0]) or (DUMMY if is_local(self._address) else None)
        return {"base_url": self._address or None, "api_key": key}

    def _check_model(self, model: str) -> None:
        """Raises ServiceError if the service lists its models, and this one is not among them."""
        names = sorted(name for name in self.models() if name)
        if names and model not in names:
            more = f" and {len(names) - NAMES} more" if len(names) > NAMES else ""
            listed = ", ".join(map(words, names[:NAMES]))
            raise ServiceError(
                f"the training service at {self.url} has no base model {model!r}: set {self._section}.model to one of "
                f"its own ({listed}{more})"
            )


class Trainer:
    """One model that is trained.

    Attributes:
        service: the connection.
        model: name of the base model; empty if it is not known.
        rank: rank of the adapters; 0 if it is not known.
        lost: why the service takes no more requests for this model; None while it does.
    """

    def __init__(self, service: Service, client: Any, *, model: str, rank: int) -> None:
        self.service, self.model, self.rank, self._client = service, model, rank, client
        self.lost: ServiceLost | None = None
        self._unloaded = False

    def forward(self, data: Sequence[Datum], loss: str = "cross_entropy") -> Pending[Passed]:
        """The log-probs of the targets."""
        return self._pass(FORWARD, self._client.forward, data, loss)

    def forward_backward(self, data: Sequence[Datum], loss: str = "importance_sampling") -> Pending[Passed]:
        """The log-probs of the targets; the gradient of the loss is added to that of earlier calls."""
        return self._pass(BACKWARD, self._client.forward_backward, data, loss)

    def step(self, adam: AdamStep) -> Pending[Mapping[str, float]]:
        """One optimiser step with the gradients so far, which are then 0.

        The answer has the service's numbers. If the service reports a gradient norm under a name that is known here,
        the answer also has it as `grad_norm`.
        """
        options = self.service.tinker.types.AdamParams(
            learning_rate=adam.lr,
            beta1=adam.beta1,
            beta2=adam.beta2,
            eps=adam.eps,
            weight_decay=adam.weight_decay,
            grad_clip_norm=adam.grad_clip,
        )
        return self._send(STEP, lambda: self._client.optim_step(options), metrics)

    def save(self, name: str, keep_s: float | None) -> str:
        """Save adapters and optimiser; the path is for `Service.resume`.

        Args:
            name: name of the checkpoint at the service.
            keep_s: seconds after which the service may delete it, at least one hour; None for never.
        """
        return self._saved(lambda options: self._client.save_state(name, **options), keep_s)

    def save_sampler(self, name: str, keep_s: float | None) -> str:
        """Save the adapters for sampling; the path is for `Service.sampler`. See `save` for the arguments."""
        return self._saved(lambda options: self._client.save_weights_for_sampler(name, **options), keep_s)

    def sampler(self) -> "ServiceSampler":
        """A snapshot of the current weights, which later steps do not change."""
        self._check_alive()
        with raising(lambda error: self.failed(error, SNAPSHOT)):
            look = partial(self.service.look, "weights")
            client = outside(self._client.save_weights_and_get_sampling_client, self.service.timeout_s, look)
        return ServiceSampler(self.service, client, "")

    def check(self) -> None:
        """Compare the service's description of the model with the base model and the rank that were asked for.

        Raises:
            ServiceError: they differ.
        """
        info = self.service.ask(INFO, self._client.get_info)
        found = getattr(info.model_data, "model_name", None) or getattr(info, "model_name", None)
        if self.model and found and found != self.model:
            raise ServiceError(
                f"the training service at {self.service.url} trains {words(found)!r}, and this run trains "
                f"{self.model!r}: correct learner.url, or set learner.model={words(found)}"
            )
        rank = getattr(info, "lora_rank", None)
        if self.rank and rank and rank != self.rank:
            raise ServiceError(
                f"the training service at {self.service.url} trains adapters of rank {rank}, and learner.rank is "
                f"{self.rank}: set learner.rank={rank}"
            )

    def unload(self) -> None:
        """Tell the service that this model is no longer needed; a service that does not understand it goes on."""
        if self.service.closed or self._unloaded:
            return
        self._unloaded = True
        holder = self._client.holder  # no version has a public method for it

        pool = self.service.tinker.lib.client_connection_pool_type.ClientConnectionPoolType.TRAIN

        async def send() -> None:
            with holder.aclient(pool) as client:
                await client.post("/api/v1/unload_model", body={"model_id": self._client.model_id}, cast_to=object)

        with suppress(Exception):
            plain(holder.run_coroutine_threadsafe(send())).result(CLOSE_S)

    def failed(self, error: BaseException, doing: Doing) -> ServiceError | ServiceLost:
        """The error of the SDK as an error of this package. Most failures end the model: it takes no more requests.

        The service carries out the requests of a model in the order of their numbers, so after a request that it did
        not take, it waits for this one. After a refused pass, a part of the gradient may have been added.
        """
        known = self.service.failed(error, doing)
        taken = isinstance(error, ServiceError) or type(error).__name__ == "RequestFailedError"
        if isinstance(known, ServiceLost) or not taken or doing in (BACKWARD, STEP):
            self.lost = self.lost or ServiceLost(f"this model takes no more requests, because one failed: {known}")
        return known

    def _pass(self, doing: Doing, call: Callable[..., Any], data: Sequence[Datum], loss: str) -> Pending[Passed]:
        sizes = [len(datum.targets) for datum in data]
        sent = [self._datum(datum) for datum in data]
        return self._send(doing, lambda: call(sent, loss), lambda answer: passed(answer, sizes, self.service.url))

    def _datum(self, datum: Datum) -> Any:
        types = self.service.tinker.types
        columns = {"target_tokens": datum.targets.astype(np.int64), **datum.columns}
        for name, column in columns.items():
            assert column.shape == datum.inputs.shape, f"{name} has {column.shape}, the inputs {datum.inputs.shape}"
            assert np.isfinite(column).all(), f"{name} is not finite"
        return types.Datum(
            model_input=types.ModelInput.from_ints(datum.inputs.tolist()),
            loss_fn_inputs={
                name: types.TensorData.from_numpy(column if name == "target_tokens" else column.astype(np.float32))
                for name, column in columns.items()
            },
        )

    def _saved(self, call: Callable[[dict[str, Any]], Any], keep_s: float | None) -> str:
        options = {} if keep_s is None else {"ttl_seconds": max(SHORTEST_S, math.ceil(keep_s))}
        path: str = self._send(SAVE, lambda: call(options), lambda answer: str(answer.path)).result()
        return path

    def _send(self, doing: Doing, call: Callable[[], Any], read: Callable[[Any], T]) -> Sent[T]:
        self._check_alive()
        with raising(lambda error: self.failed(error, doing)):
            return Sent(self, doing, plain(call()), read)

    def _check_alive(self) -> None:
        if self.lost is not None:
            raise self.lost
