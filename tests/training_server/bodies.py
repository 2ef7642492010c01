"""Bodies of requests: as SDK 0.16.1 sends them (recorded), and as protobuf."""

from typing import Any

import numpy as np

from agentrl.training_server import ServiceLimits
from agentrl.training_server.datum_checks import Bounds
from agentrl.training_server.protobuf_form import messages

BOUNDS = Bounds(320, ServiceLimits(context=64, tokens=100, datums=3, samples=4))
IDS = [256, 40, 41, 42, 43, 44]


def tensor(values, dtype="float32", shape=None) -> dict[str, Any]:
    return {"data": values, "dtype": dtype, "shape": shape or [len(values)]}


def datum(inputs, targets, **columns) -> dict[str, Any]:
    given = {"target_tokens": tensor(targets, "int64"), **{name: tensor(x) for name, x in columns.items()}}
    return {"loss_fn_inputs": given, "model_input": {"chunks": [{"tokens": inputs}]}}


ONE = datum(IDS[:-1], IDS[1:], weights=[0.0, 1.0, 1.0, 1.0, 1.0])
TWO = datum([256, 50], [50, 51], weights=[1.0, 1.0])


def passes(data=(ONE, TWO), loss="cross_entropy", config=None, model="m", seq=1) -> dict[str, Any]:
    """The body of `forward_backward`."""
    work = {"data": list(data), "loss_fn": loss, "loss_fn_config": config}
    return {"forward_backward_input": work, "model_id": model, "seq_id": seq}


def coded(body, forward_only=False) -> Any:
    """The same request as a protobuf message."""
    pb = messages()
    work = body["forward_backward_input"]
    found = pb.ForwardBackwardRequest(model_id=body["model_id"], seq_id=body["seq_id"], loss_fn=work["loss_fn"])
    found.forward_only = forward_only
    for name, value in (work["loss_fn_config"] or {}).items():
        found.loss_fn_config[name] = value
        found.loss_fn_config_v2[name].number = value
    for one in work["data"]:
        message = found.data.add()
        for chunk in one["model_input"]["chunks"]:
            message.model_input.add().encoded_text.tokens = np.array(chunk["tokens"], np.int32).tobytes()
        for name, value in one["loss_fn_inputs"].items():
            kind, number = (np.int64, pb.DTYPE_INT64) if value["dtype"] == "int64" else (np.float32, pb.DTYPE_FLOAT32)
            target = message.loss_fn_inputs[name]
            target.dense, target.dtype = np.array(value["data"], kind).tobytes(), number
            target.shape.extend(value["shape"])
    return found


def sample(ids=IDS, sampler="s", seq=0, **params) -> dict[str, Any]:
    """The body of `asample`."""
    return {
        "num_samples": 3,
        "prompt": {"chunks": [{"tokens": ids}]},
        "sampling_params": {"max_tokens": 8, "seed": 1, "temperature": 1.0, **params},
        "sampling_session_id": sampler,
        "seq_id": seq,
        "prompt_logprobs": False,
        "topk_prompt_logprobs": 0,
    }
