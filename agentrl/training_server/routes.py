"""The routes of the protocol: from the body of a request to the service, and to the body of the answer.

The routes are those below /api/v1/ that the training, sampling and checkpoint functions of the SDK use.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from agentrl.http import Refusal
from agentrl.training_server import json_form
from agentrl.training_server.body_fields import Body, flag, optional_whole, refuse, text, texts, whole
from agentrl.training_server.checkpoints import KINDS, SCHEME, StoredCheckpoint
from agentrl.training_server.datum_checks import Bounds
from agentrl.training_server.protobuf_form import parse_passes, read_passes
from agentrl.training_server.service import TrainingService

MOST_SEQ = (1 << 63) - 1
MOST_SECONDS = 100 * 366 * 86400  # 100 years; lists give the date of expiry, and dates have years up to 9999
CLIENT_FLAGS: Mapping[str, Any] = {
    "pjwt_auth_enabled": False,  # API keys alone
    "parallel_fwdbwd_chunks": False,
    "proto_compress_fwdbwd": False,
    "sample_max_concurrent_requests": 256,  # each of them keeps a connection, and so a thread, while it waits
}
Answer = Mapping[str, Any]


class Routes:
    """Answers the requests of a service.

    Args:
        service: the service.
    """

    def __init__(self, service: TrainingService) -> None:
        self.service = service
        self._bounds = Bounds(service.vocabulary, service.limits)
        self._posts: dict[str, Callable[[Body], Answer]] = {
            "asample": self._asample,
            "client/config": lambda body: CLIENT_FLAGS,
            "client/dynamic_config": lambda body: {},
            "create_model": self._create_model,
            "create_sampling_session": self._create_sampler,
            "create_session": lambda body: {"type": "create_session", "session_id": service.sessions.begin()},
            "forward": lambda body: self._passes(body, backward=False),
            "forward_backward": lambda body: self._passes(body, backward=True),
            "get_info": lambda body: service.about_model(text(body, "model_id")),
            "load_weights": self._load,
            "optim_step": self._optim_step,
            "save_weights": lambda body: self._save(body, sampler=False),
            "save_weights_for_sampler": self._save_sampler,
            "session_heartbeat": self._heartbeat,
            "telemetry": lambda body: {"status": "accepted"},
            "unload_model": lambda body: _promise(service.unload(text(body, "model_id"))),
            "weights_info": self._weights_info,
        }

    def post(self, route: str, body: Body) -> Answer:
        """The answer to a POST request; Refusal if it cannot be answered."""
        match route.split("/"):
            case ["sessions", name, "finish"]:
                self.service.sessions.finish(name)
                return {}
        answer = self._posts.get(route)
        if answer is None:
            raise no_route(route)
        return answer(body)

    def post_protobuf(self, route: str, data: bytes) -> Answer:
        """The answer to a POST request whose body is protobuf."""
        if route != "forward_backward":
            raise Refusal(415, f"{route!r:.100} takes JSON: only forward_backward may have a protobuf body")
        asked = parse_passes(data)
        try:
            work = read_passes(asked.message, self._bounds)
        except Refusal as refusal:
            return _promise(self.service.fail(asked.model, asked.seq, refusal), asked.model)
        return _promise(self.service.passes(asked.model, asked.seq, work), asked.model)

    def get(self, route: str, query: Mapping[str, str]) -> Answer:
        """The answer to a GET request. Its query may have the `limit` and the `offset` of a list of checkpoints."""
        service, parts = self.service, route.split("/")
        match parts:
            case ["healthz"]:
                return {"status": "ok"}
            case ["get_server_capabilities"]:
                model = {"model_name": service.name, "max_context_length": service.limits.context}
                return {"supported_models": [model | {"trainable": True, "sampleable": True}]}
            case ["samplers", name]:
                entry = service.sessions.sampler(name)
                return {"sampler_id": name, "base_model": service.name, "model_path": entry.path or None}
            case ["checkpoints"]:
                found = [checkpoint_json(one) for one in service.checkpoints.listed()]
                offset, limit = _number(query, "offset", 0), _number(query, "limit", len(found))
                cursor = {"offset": offset, "limit": limit, "total_count": len(found)}
                return {"checkpoints": found[offset : offset + limit], "cursor": cursor}
            case ["training_runs", run]:
                return self._training_run(run)
            case ["training_runs", run, "checkpoints"]:
                return {"checkpoints": [checkpoint_json(one) for one in service.checkpoints.listed(run)]}
        raise no_route(route)

    def delete(self, route: str) -> None:
        """Delete what a DELETE request names: a checkpoint."""
        self.service.checkpoints.delete(_checkpoint_path(route, ""))

    def put(self, route: str, body: Body) -> Answer:
        """The answer to a PUT request, which sets the expiry of a checkpoint."""
        path = _checkpoint_path(route, "ttl")
        self.service.checkpoints.expire_in(path, _seconds(body))
        return {}

    def _heartbeat(self, body: Body) -> Answer:
        self.service.sessions.touch(text(body, "session_id"))
        return {"type": "session_heartbeat"}

    def _create_model(self, body: Body) -> Answer:
        session, number = _new_model(body)
        plan = json_form.read_plan(body)
        return _promise(self.service.create_model(session, number, text(body, "base_model"), plan))

    def _load(self, body: Body) -> Answer:
        path, optimiser = text(body, "path"), flag(body, "optimizer")
        if body.get("session_id") is not None:  # newer SDKs: the load makes the model
            session, number = _new_model(body)
            return _promise(self.service.create_from(session, number, path, optimiser))
        model = text(body, "model_id")
        return _promise(self.service.load(model, _seq(body), path, optimiser), model)

    def _passes(self, body: Body, backward: bool) -> Answer:
        model, seq = text(body, "model_id"), _seq(body)
        try:
            work = json_form.read_passes(body, self._bounds, backward)
        except Refusal as refusal:
            return _promise(self.service.fail(model, seq, refusal), model)
        return _promise(self.service.passes(model, seq, work), model)

    def _optim_step(self, body: Body) -> Answer:
        model, seq = text(body, "model_id"), _seq(body)
        try:
            adam = json_form.read_adam(body)
        except Refusal as refusal:
            return _promise(self.service.fail(model, seq, refusal), model)
        return _promise(self.service.optim_step(model, seq, adam), model)

    def _save(self, body: Body, sampler: bool) -> Answer:
        model, seq = text(body, "model_id"), _seq(body)
        try:
            promise = self.service.save(
                model,
                seq,
                text(body, "path"),
                sampler=sampler,
                keep_s=_seconds(body),
                overwrite=flag(body, "overwrite"),
                metadata=texts(body, "user_metadata"),
            )
        except Refusal as refusal:
            promise = self.service.fail(model, seq, refusal)
        return _promise(promise, model)

    def _save_sampler(self, body: Body) -> Answer:
        if body.get("path") is not None:
            return self._save(body, sampler=True)
        model = text(body, "model_id")
        if body.get("kind", "snapshot") != "snapshot":
            refusal = Refusal(400, f"kind {body['kind']!r:.100} is not offered here: samplers are snapshots")
            return _promise(self.service.fail(model, _seq(body), refusal), model)
        number = whole(body, "sampling_session_seq_id", 0, MOST_SEQ)
        return _promise(self.service.snapshot(model, _seq(body), number), model)

    def _create_sampler(self, body: Body) -> Answer:
        session, number = text(body, "session_id"), whole(body, "sampling_session_seq_id", 0, MOST_SEQ)
        path, base = text(body, "model_path", ""), text(body, "base_model", "")
        name = self.service.create_sampler(session, number, path, base)
        return {"type": "create_sampling_session", "sampling_session_id": name}

    def _asample(self, body: Body) -> Answer:
        work = json_form.read_sample(body, self._bounds)
        promise = self.service.sample(text(body, "sampling_session_id"), _seq(body), work)
        # SDK 0.26 and newer ask for the names of the sequences.
        return {**_promise(promise), "sample_sequence_ids": [f"{promise}-{i}" for i in range(work.count)]}

    def _training_run(self, run: str) -> Answer:
        """A model that is trained, or one of which there are checkpoints."""
        stored = self.service.checkpoints.listed(run)
        rank = stored[-1].plan.rank if stored else self.service.about_model(run)["lora_rank"]
        last = {kind: [one for one in stored if f"/{kind}/" in one.path] for kind in KINDS}
        shown = {kind: checkpoint_json(found[-1]) if found else None for kind, found in last.items()}
        return {
            "training_run_id": run,
            "base_model": stored[-1].model if stored else self.service.name,
            "model_owner": "",
            "is_lora": True,
            "lora_rank": rank,
            "last_request_time": _time(stored[-1].created if stored else 0.0),
            "last_checkpoint": shown["weights"],
            "last_sampler_checkpoint": shown["sampler_weights"],
        }

    def _weights_info(self, body: Body) -> Answer:
        found = self.service.checkpoints.about(text(body, "tinker_path"))
        plan = found.plan
        parts = {"train_attn": plan.attn, "train_mlp": plan.mlp, "train_unembed": plan.unembed}
        return {"base_model": found.model, "is_lora": True, "lora_rank": plan.rank, **parts}


def no_route(route: str) -> Refusal:
    """The refusal of a route that this server does not have."""
    return Refusal(404, f"this server has no route {route!r:.100}: it offers training, sampling and checkpoints alone")


def checkpoint_json(found: StoredCheckpoint) -> dict[str, Any]:
    """A checkpoint in lists."""
    kind, name = found.path.removeprefix(SCHEME).split("/")[1:]
    return {
        "checkpoint_id": f"{kind}/{name}",
        "checkpoint_type": KINDS[kind],
        "time": _time(found.created),
        "tinker_path": found.path,
        "size_bytes": found.size,
        "public": False,
        "user_metadata": found.metadata,
        "expires_at": None if found.expires is None else _time(found.expires),
    }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def _checkpoint_path(route: str, end: str) -> str:
    """The path of the checkpoint that training_runs/RUN/checkpoints/KIND/NAME names, with `end` after it."""
    match [part for part in route.split("/") if part]:
        case ["training_runs", run, "checkpoints", kind, name, *rest] if rest == [end] * bool(end):
            return f"{SCHEME}{run}/{kind}/{name}"
    raise no_route(route)


def _number(query: Mapping[str, str], name: str, default: int) -> int:
    """A number of a query."""
    value = query.get(name, str(default))
    if not (value.isascii() and value.isdigit() and len(value) < 10):
        raise refuse(name, value, "a whole number of at least 0")
    return int(value)


def _promise(name: str, model: str | None = None) -> dict[str, Any]:
    return {"request_id": name, "model_id": model}


def _seq(body: Body) -> int | None:
    return optional_whole(body, "seq_id", 0, MOST_SEQ)


def _new_model(body: Body) -> tuple[str, int]:
    """The session and the number of a new model."""
    return text(body, "session_id"), whole(body, "model_seq_id", 0, MOST_SEQ)


def _seconds(body: Body) -> float | None:
    """The seconds that a checkpoint is kept; None for ever."""
    found = optional_whole(body, "ttl_seconds", 1, MOST_SECONDS)
    return None if found is None else float(found)
