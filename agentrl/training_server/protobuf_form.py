"""The protobuf form: bodies of `forward_backward` (SDK 0.25 and newer), and results of passes and samples.

The message classes are those of the SDK, which the extra `tinker` installs. They are loaded by their file, because the
package itself would import transformers. Without them a server speaks JSON alone.
"""

import sys
from functools import cache
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from agentrl.http import Refusal
from agentrl.training_server.datum_checks import ONLY_TEXT, Bounds, check_loss, checked_datum, checked_work, dense
from agentrl.training_server.verbs import PassResult, PassWork, SampleResult, SentDatum

MEDIA_TYPE = "application/x-protobuf"
_FILE = "tinker_public_pb2"


class PassesRead(NamedTuple):
    """Whose request it is, and the message itself."""

    model: str
    seq: int
    message: Any


@cache
def messages() -> Any:
    """The module of the message classes; None if the SDK is not installed, or is older than its protobuf form."""
    package = find_spec("tinker")
    if package is None or package.origin is None:
        return None
    file = Path(package.origin).parent / "proto" / f"{_FILE}.py"
    spec = spec_from_file_location(f"agentrl_{_FILE}", file)
    if not file.is_file() or spec is None or spec.loader is None:
        return None
    module = sys.modules[spec.name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ImportError:  # protobuf is missing or too old
        return None
    return module


def parse_passes(body: bytes) -> PassesRead:
    """The message of a body; Refusal if it is none, or if the classes are not there."""
    found = messages()
    if found is None:
        raise Refusal(
            415, "this server reads no protobuf, because its Python has no SDK: pip install 'agentrl-stepgraph[tinker]'"
        )
    try:
        message = found.ForwardBackwardRequest.FromString(body)
    except Exception as error:  # noqa: BLE001  DecodeError has another place in each version of protobuf
        raise Refusal(400, f"the body is no ForwardBackwardRequest: {error}") from None
    return PassesRead(message.model_id, message.seq_id, message)


def read_passes(message: Any, bounds: Bounds) -> PassWork:
    """The work that a message asks for."""
    check_loss(message.loss_fn)
    config: dict[str, object] = dict(message.loss_fn_config)
    for name, value in getattr(message, "loss_fn_config_v2", {}).items():
        config[name] = value.number if value.WhichOneof("value") == "number" else value.text
    data = (_datum(one, message.loss_fn, bounds) for one in message.data)
    return checked_work(data, message.loss_fn, config, not message.forward_only, bounds)


def _datum(found: Any, loss: str, bounds: Bounds) -> SentDatum:
    parts = [np.zeros(0, np.int32)]
    for chunk in found.model_input:
        if not chunk.HasField("encoded_text"):
            raise Refusal(400, ONLY_TEXT)
        parts.append(_numbers(chunk.encoded_text.tokens, np.dtype(np.int32)))
    tensors = {name: _tensor(name, one, bounds) for name, one in found.loss_fn_inputs.items()}
    return checked_datum(np.concatenate(parts), tensors, loss, bounds)


def _tensor(name: str, found: Any, bounds: Bounds) -> np.ndarray:
    classes = messages()
    kinds = {classes.DTYPE_FLOAT32: np.float32, classes.DTYPE_INT64: np.int64, classes.DTYPE_INT32: np.int32}
    if found.dtype not in kinds:
        raise Refusal(400, f"{name} has a type of numbers that is not offered here: send float32 or int64")
    kind = np.dtype(kinds[found.dtype])
    if found.WhichOneof("encoding") == "sparse_csr":
        csr, index = found.sparse_csr, np.dtype(np.int64)
        rows, columns = _numbers(csr.crow_indices, index), _numbers(csr.col_indices, index)
        return dense(_numbers(csr.values, kind), tuple(found.shape), rows, columns, bounds)
    values = _numbers(found.dense, kind)
    return dense(values, tuple(found.shape) or values.shape, None, None, bounds)


def _numbers(data: bytes, kind: np.dtype[Any]) -> np.ndarray:
    if len(data) % kind.itemsize:
        raise Refusal(400, f"a tensor has {len(data)} bytes, no multiple of {kind.itemsize}")
    return np.frombuffer(data, kind)


def result_bytes(result: PassResult | SampleResult) -> bytes:
    """A result as protobuf."""
    found = _passed(result) if isinstance(result, PassResult) else _sampled(result)
    data: bytes = found.SerializeToString()
    return data


def _passed(result: PassResult) -> Any:
    classes = messages()
    out = classes.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord", metrics=dict(result.metrics))
    # One record holds datums with equally many targets per input.
    start = 0
    while start < len(result.logprobs):
        stop = start + 1
        while stop < len(result.logprobs) and result.logprobs[stop].shape[1:] == result.logprobs[start].shape[1:]:
            stop += 1
        parts = [np.ascontiguousarray(one, np.float32) for one in result.logprobs[start:stop]]
        record = out.loss_fn_outputs.add(type_tag="ArrayRecord", num_datums=len(parts))
        tensor = record.fields["logprobs"]
        tensor.data, tensor.dtype = b"".join(one.tobytes() for one in parts), classes.DTYPE_FLOAT32
        tensor.offsets = np.cumsum([0, *(one.nbytes for one in parts)], dtype=np.int64).tobytes()  # in bytes
        tensor.trailing_shape.extend(parts[0].shape[1:])
        start = stop
    return out


def _sampled(result: SampleResult) -> Any:
    classes = messages()
    reasons = {"stop": classes.STOP_REASON_STOP, "length": classes.STOP_REASON_LENGTH}
    out = classes.SampleResponse()
    for one in result.answers:
        out.sequences.add(
            stop_reason=reasons[one.finish],
            tokens=one.ids.astype(np.int32).tobytes(),
            logprobs=one.logprobs.astype(np.float32).tobytes(),
        )
    if result.prompt_logprobs is not None:
        out.prompt_logprobs = result.prompt_logprobs.astype(np.float32).tobytes()  # NaN: not computed
    return out
