"""The JSON form of requests and results: all of them with SDK 0.16, most of them with newer SDKs."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agentrl.http import Refusal
from agentrl.training_server.body_fields import (
    Body,
    flag,
    items,
    number,
    optional_whole,
    refuse,
    table,
    text,
    whole,
)
from agentrl.training_server.datum_checks import (
    ONLY_TEXT,
    Bounds,
    check_ids,
    check_loss,
    checked_datum,
    checked_work,
    dense,
)
from agentrl.training_server.verbs import (
    AdamSettings,
    AdapterPlan,
    PassResult,
    PassWork,
    Result,
    SampleResult,
    SampleWork,
    SentDatum,
)

TYPES = {"float32": np.float32, "int64": np.int64}


def read_passes(body: Body, bounds: Bounds, backward: bool) -> PassWork:
    """The work of `forward` (`forward_input`) or `forward_backward` (`forward_backward_input`)."""
    asked = table(body, "forward_backward_input") or table(body, "forward_input")
    loss = text(asked, "loss_fn")
    check_loss(loss)
    data = (_datum(one, loss, bounds) for one in items(asked, "data"))
    return checked_work(data, loss, table(asked, "loss_fn_config"), backward, bounds)


def _datum(found: Any, loss: str, bounds: Bounds) -> SentDatum:
    if not isinstance(found, Mapping):
        raise refuse("data", found, "a list of objects")
    tensors = {str(name): _tensor(name, one, bounds) for name, one in table(found, "loss_fn_inputs").items()}
    return checked_datum(_tokens(table(found, "model_input")), tensors, loss, bounds)


def _tokens(model_input: Body) -> np.ndarray:
    """[L] the ids of all chunks."""
    parts = [np.zeros(0, np.int64)]
    for chunk in items(model_input, "chunks"):
        if not isinstance(chunk, Mapping) or chunk.get("type", "encoded_text") != "encoded_text":
            raise Refusal(400, ONLY_TEXT)
        parts.append(_array("tokens", items(chunk, "tokens"), np.int64))
    return np.concatenate(parts)


def _tensor(name: str, found: Any, bounds: Bounds) -> np.ndarray:
    if not isinstance(found, Mapping):
        raise refuse(name, found, "a tensor: an object with data, dtype and shape")
    kind = TYPES.get(text(found, "dtype"))
    if kind is None:
        raise refuse(f"{name}: dtype", found["dtype"], "float32 or int64")
    data = items(found, "data")
    values = _array(name, data, kind)
    shape = found.get("shape")
    sizes = [len(data)] if shape is None else shape
    if not isinstance(sizes, list) or not all(type(n) is int and 0 <= n <= 1 << 24 for n in sizes):
        raise refuse(f"{name}: shape", shape, "a list of sizes")
    csr = [found.get(key) for key in ("sparse_crow_indices", "sparse_col_indices")]
    rows, columns = (None if one is None else _array(name, one, np.int64) for one in csr)
    return dense(values, tuple(sizes), rows, columns, bounds)


def _array(name: str, values: Any, kind: type) -> np.ndarray:
    """The numbers of a list as an array; Refusal for other elements."""
    whole_numbers = kind is np.int64
    allowed = (int,) if whole_numbers else (int, float)
    if not isinstance(values, list) or not all(type(one) in allowed for one in values):
        raise Refusal(400, f"{name} is no list of {'whole ' if whole_numbers else ''}numbers")
    try:
        with np.errstate(over="ignore"):  # infinities are refused later
            return np.array(values, kind)
    except OverflowError:
        raise Refusal(400, f"{name} has a number that is too large") from None


def read_adam(body: Body) -> AdamSettings:
    """The settings of `optim_step`; what an older SDK leaves out has the protocol's default."""
    if "optimizer_params" in body:
        raise Refusal(400, "this server has the optimiser AdamW alone: send adam_params")
    asked, default = table(body, "adam_params"), AdamSettings()
    return AdamSettings(
        lr=number(asked, "learning_rate", default.lr),
        beta1=_beta(asked, "beta1", default.beta1),
        beta2=_beta(asked, "beta2", default.beta2),
        eps=number(asked, "eps", default.eps),
        weight_decay=number(asked, "weight_decay", default.weight_decay),
        grad_clip=max(number(asked, "grad_clip_norm", default.grad_clip, low=-math.inf), 0.0),
    )


def _beta(asked: Body, name: str, default: float) -> float:
    found = number(asked, name, default)
    if found >= 1:
        raise refuse(name, found, "a number of at least 0 and below 1")
    return found


def read_plan(body: Body) -> AdapterPlan:
    """The adapters of `create_model`."""
    kind = table(body, "optimizer_config").get("type", "adamw")
    if kind != "adamw":
        raise Refusal(400, f"optimizer_config: {kind!r:.100} is not offered here: use adamw")
    asked, default = table(body, "lora_config"), AdapterPlan()
    return AdapterPlan(
        rank=whole(asked, "rank", 1, 1 << 20, default.rank),
        seed=whole(asked, "seed", -(1 << 63), (1 << 63) - 1, default.seed),
        attn=flag(asked, "train_attn", default.attn),
        mlp=flag(asked, "train_mlp", default.mlp),
        unembed=flag(asked, "train_unembed", default.unembed),
    )


def read_sample(body: Body, bounds: Bounds) -> SampleWork:
    """The work of `asample`."""
    for name in ("topk_prompt_logprobs", "topk_sample_logprobs", "prompt_alt_tokens_k", "target_prompt_logprobs"):
        if body.get(name):
            raise Refusal(400, f"{name} is not offered here: this server returns log-probs of the given tokens")
    asked = table(body, "sampling_params")
    top_p = number(asked, "top_p", 1.0, high=1.0)
    if not top_p:
        raise refuse("top_p", top_p, "a number above 0 and at most 1")
    prompt = check_ids(_tokens(table(body, "prompt")), "prompt", bounds)
    stop_texts, stop_ids = _stops(asked.get("stop"), bounds)
    return SampleWork(
        prompt=prompt,
        count=whole(body, "num_samples", 1, bounds.limits.samples, 1),
        max_tokens=optional_whole(asked, "max_tokens", 0, 1 << 40),
        temperature=number(asked, "temperature", 1.0),
        top_p=top_p,
        top_k=max(whole(asked, "top_k", -1, 1 << 40, -1), 0),
        seed=optional_whole(asked, "seed", -(1 << 63), (1 << 64) - 1),
        stop_texts=stop_texts,
        stop_ids=stop_ids,
        prompt_logprobs=flag(body, "prompt_logprobs"),
        last=whole(body, "prompt_logprobs_last_n", 0, len(prompt), 0),
    )


def _stops(found: Any, bounds: Bounds) -> tuple[tuple[str, ...], frozenset[int] | None]:
    """The stop texts and the stop ids. Without stops, and beside stop texts, the end tokens end an answer."""
    stops = [found] if isinstance(found, str) else found
    if stops is None:
        return (), None
    if not isinstance(stops, list) or len(stops) > 64:
        raise refuse("stop", found, "a text, or a list of at most 64 texts or 64 token ids")
    if stops and all(isinstance(one, str) and 0 < len(one) <= 1000 for one in stops):
        return tuple(stops), None
    if not all(type(one) is int for one in stops):
        raise refuse("stop", found, "a list of texts of 1 to 1000 characters, or of token ids; the two do not mix")
    if any(not 0 <= one < bounds.vocabulary for one in stops):
        raise refuse("stop", found, f"a list of token ids below {bounds.vocabulary}")
    return (), frozenset(stops)


def result_json(result: Result) -> dict[str, Any]:
    """A result as an object. Metrics that are not finite are left out: JSON has no such numbers."""
    if isinstance(result, PassResult):
        outputs = [{"logprobs": _tensor_json(one)} for one in result.logprobs]
        return {"loss_fn_output_type": "ArrayRecord", "loss_fn_outputs": outputs, "metrics": finite(result.metrics)}
    if isinstance(result, SampleResult):
        sequences = [
            {"stop_reason": one.finish, "tokens": one.ids.tolist(), "logprobs": one.logprobs.tolist()}
            for one in result.answers
        ]
        return {"type": "sample", "sequences": sequences, "prompt_logprobs": _or_null(result.prompt_logprobs)}
    return dict(result.fields)


def finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics that are finite numbers."""
    return {name: value for name, value in metrics.items() if math.isfinite(value)}


def _tensor_json(values: np.ndarray) -> dict[str, Any]:
    return {"data": values.ravel().tolist(), "dtype": "float32", "shape": list(values.shape)}


def _or_null(values: np.ndarray | None) -> Sequence[float | None] | None:
    return None if values is None else [None if math.isnan(one) else one for one in values.tolist()]
