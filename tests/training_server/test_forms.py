"""Requests mean the same in both forms, and what cannot be read is refused in a sentence that names it."""

import copy

import numpy as np
import pytest

from agentrl.http import Refusal
from agentrl.training_server import datum_checks, json_form, protobuf_form
from agentrl.training_server.verbs import (
    AdamSettings,
    AdapterPlan,
    ClipBounds,
    PassResult,
    PlainResult,
    SampledTokens,
    SampleResult,
)
from tests.training_server.bodies import BOUNDS, IDS, ONE, TWO, coded, datum, passes, sample, tensor

needs_sdk = pytest.mark.skipif(protobuf_form.messages() is None, reason="the SDK is not installed")
RL = datum([1, 2], [2, 3], logprobs=[-1.0, -2.0], advantages=[0.5, -0.5])


def same(a, b):
    assert (a.loss, a.bounds, a.backward, len(a.data)) == (b.loss, b.bounds, b.backward, len(b.data))
    for one, other in zip(a.data, b.data, strict=True):
        assert one.flat == other.flat and one.columns.keys() == other.columns.keys()
        np.testing.assert_array_equal(one.inputs, other.inputs)
        np.testing.assert_array_equal(one.targets, other.targets)
        for name, column in one.columns.items():
            np.testing.assert_array_equal(column, other.columns[name])


@needs_sdk
@pytest.mark.parametrize(
    "body",
    [
        passes(),
        passes([RL], "importance_sampling"),
        passes([RL], "ppo", {"clip_low_threshold": 0.5, "clip_high_threshold": 3.0}),
        passes([RL, RL], "cispo"),
    ],
)
def test_both_forms_of_a_training_request_are_equal(body):
    found = json_form.read_passes(body, BOUNDS, True)
    read = protobuf_form.parse_passes(coded(body).SerializeToString())
    assert (read.model, read.seq) == ("m", 1)
    same(protobuf_form.read_passes(read.message, BOUNDS), found)
    assert not protobuf_form.read_passes(coded(body, forward_only=True), BOUNDS).backward


def test_a_datum_keeps_its_targets_apart_from_its_inputs():
    """The cookbook sends 0 as target of prompt tokens; several chunks are one sequence; weights are 1 unless sent."""
    body = datum([5], [0, 0, 9])
    body["model_input"]["chunks"] = [{"tokens": [5]}, {"type": "encoded_text", "tokens": [6, 7]}]
    (found,) = json_form.read_passes(passes([body]), BOUNDS, True).data
    assert found.inputs.tolist() == [5, 6, 7] and found.targets[:, 0].tolist() == [0, 0, 9]
    assert found.columns["weights"][:, 0].tolist() == [1, 1, 1] and found.columns["weights"].dtype == np.float32


def test_several_targets_per_input_and_a_csr_table():
    body = datum([5, 6], [1, 2, 3, 4])
    body["loss_fn_inputs"]["target_tokens"]["shape"] = [2, 2]
    # rows (0, 7) and (8, 0)
    body["loss_fn_inputs"]["weights"] = {
        "data": [7.0, 8.0], "dtype": "float32", "shape": [2, 2],
        "sparse_crow_indices": [0, 1, 2], "sparse_col_indices": [1, 0],
    }  # fmt: skip
    (found,) = json_form.read_passes(passes([body]), BOUNDS, True).data
    assert not found.flat and found.targets.tolist() == [[1, 2], [3, 4]]
    assert found.columns["weights"].tolist() == [[0, 7], [8, 0]]


@pytest.mark.parametrize(
    ("shape", "rows", "columns"),
    [
        ([2, 2], [0, 1, 1 << 60], [1, 0]),  # as many numbers as no memory holds
        ([2, 2], [0, 3, 2], [1, 0]),
        ([2, 2], [1, 1, 2], [1, 0]),
        ([2, 2], [0, 1, 2], [1, 2]),
        ([2, 2], [0, 1, 2], [1, -1]),
        ([2, 2], [0, 1, 2], [1]),
        ([1, 2], [0, 1, 2], [1, 0]),
        ([4], [0, 1, 2], [1, 0]),
        ([1 << 40, 2], None, None),
        ([1, 101], [0, 2], [1, 0]),  # more numbers than a request may have tokens
        ([-1], None, None),
    ],
)
def test_a_table_that_does_not_fit_its_shape_is_refused(shape, rows, columns):
    values = np.array([7.0, 8.0], np.float32)
    arrays = [None if one is None else np.array(one) for one in (rows, columns)]
    with pytest.raises(Refusal, match="a tensor of 2 numbers does not fit the shape"):
        datum_checks.dense(values, tuple(shape), *arrays, BOUNDS)


def test_a_request_of_sparse_tables_is_read_no_further_than_to_its_limit():
    """A table of 8 bytes may be [1, 60], so the limit of 100 tokens must stop the reading, not a check at its end."""
    read = []

    def sent():
        for number in range(3):
            read.append(number)
            targets = datum_checks.dense(np.zeros(0, np.int64), (1, 60), np.zeros(2, int), np.zeros(0, int), BOUNDS)
            yield datum_checks.checked_datum(np.ones(1, int), {"target_tokens": targets}, "cross_entropy", BOUNDS)

    with pytest.raises(Refusal, match="more than 100 tokens"):
        datum_checks.checked_work(sent(), "cross_entropy", {}, True, BOUNDS)
    assert read == [0, 1]


def changed(*path, to):
    """A request with one other value."""
    body = copy.deepcopy(passes([ONE, TWO]))
    place = body["forward_backward_input"]
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = to
    return body


FIRST = ("data", 0, "loss_fn_inputs")
BAD = {
    "loss_fn 'dro' is not offered here": changed("loss_fn", to="dro"),
    "has no datum": passes([]),
    "more than 3 datums": passes([TWO] * 4),
    "more than 100 tokens": passes([datum([1] * 50, [1] * 50), datum([1] * 51, [1] * 51)]),
    "model_input has 65 tokens, the context of this server is 64": passes([datum([1] * 65, [1] * 65)]),
    "the token id 320, and the vocabulary has 320": passes([datum([320], [1])]),
    "target_tokens has the token id -1": passes([datum([3], [-1])]),
    "has no token: send at least one": passes([datum([], [])]),
    "target_tokens has the shape [3], model_input has 2": passes([datum([1, 2], [1, 2, 3])]),
    "weights has the shape [1], target_tokens has [2]": passes([datum([1, 2], [2, 3], weights=[1.0])]),
    "the loss ppo needs logprobs": passes([TWO], "ppo"),
    "'mask', which no loss reads": changed(*FIRST, "mask", to=tensor([1.0] * 5)),
    "not finite": passes([datum([1], [2], weights=[1e39])]),
    "holds numbers that are no token ids": changed(*FIRST, "target_tokens", to=tensor([1.0] * 5)),
    "dtype = 'float16' is not float32 or int64": changed(*FIRST, "weights", "dtype", to="float16"),
    "shape = [True] is not a list of sizes": changed(*FIRST, "weights", "shape", to=[True]),
    "does not fit the shape [4]": changed(*FIRST, "weights", "shape", to=[4]),
    "a tensor has 3 dimensions": changed(*FIRST, "weights", "shape", to=[5, 1, 1]),
    "a tensor has 99 dimensions": changed(*FIRST, "weights", "shape", to=[1] * 98 + [5]),
    "is no list of numbers": changed(*FIRST, "weights", "data", to=[1.0, "x", 1.0, 1.0, 1.0]),
    "is no list of whole numbers": changed("data", 0, "model_input", "chunks", to=[{"tokens": [1, 2.5]}]),
    "a number that is too large": changed("data", 0, "model_input", "chunks", to=[{"tokens": [1 << 70]}]),
    "reads tokens only": changed("data", 0, "model_input", "chunks", to=[{"type": "image", "data": ""}]),
    "takes none": changed("loss_fn_config", to={"clip_low_threshold": 1.0}),
    "clip_low_threshold = -1.0 is no bound": passes([RL], "ppo", {"clip_low_threshold": -1.0}),
    "clip_low_threshold = 2 is above": passes([RL], "ppo", {"clip_low_threshold": 2.0}),
    "data = None is not a list": {"model_id": "m", "forward_backward_input": {"loss_fn": "ppo"}},
}


@pytest.mark.parametrize("sentence", BAD)
def test_a_bad_training_request_is_one_sentence(sentence):
    with pytest.raises(Refusal) as refused:
        json_form.read_passes(BAD[sentence], BOUNDS, True)
    assert sentence in str(refused.value) and "\n" not in str(refused.value)


@needs_sdk
def test_bad_protobuf_is_one_sentence():
    with pytest.raises(Refusal, match="the body is no ForwardBackwardRequest"):
        protobuf_form.parse_passes(b"\xff\xff")
    message = coded(passes())
    message.data[0].model_input[0].encoded_text.tokens = b"abc"
    with pytest.raises(Refusal, match="3 bytes, no multiple of 4"):
        protobuf_form.read_passes(message, BOUNDS)
    message = coded(passes())
    message.data[0].model_input[0].image.data = b"a picture"
    with pytest.raises(Refusal, match="reads tokens only"):
        protobuf_form.read_passes(message, BOUNDS)
    message = coded(passes([RL], "ppo", {"clip_low_threshold": 0.5}))
    message.loss_fn_config_v2["clip_low_threshold"].text = "half"
    with pytest.raises(Refusal, match="clip_low_threshold = 'half' is no bound"):
        protobuf_form.read_passes(message, BOUNDS)


def test_without_the_sdk_protobuf_is_refused_and_json_is_not(monkeypatch):
    monkeypatch.setattr(protobuf_form, "messages", lambda: None)
    with pytest.raises(Refusal, match=r"pip install 'agentrl-stepgraph\[tinker\]'") as refused:
        protobuf_form.parse_passes(b"")
    assert refused.value.status == 415
    json_form.read_passes(passes(), BOUNDS, True)


def test_an_older_sdk_leaves_out_the_defaults_of_adam():
    assert json_form.read_adam({"adam_params": {"learning_rate": 0.01}}) == AdamSettings(
        lr=0.01, beta1=0.9, beta2=0.95, eps=1e-12, weight_decay=0.0, grad_clip=0.0
    )


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"adam_params": {"beta2": 1.0}}, "beta2 = 1.0 is not a number of at least 0 and below 1"),
        ({"adam_params": {"learning_rate": "x"}}, "learning_rate = 'x' is not a number"),
        ({"adam_params": {"learning_rate": -1}}, "learning_rate = -1 is not"),
        ({"optimizer_params": {"type": "dimuon"}}, "AdamW alone"),
    ],
)
def test_bad_settings_of_adam_are_one_sentence(given, sentence):
    with pytest.raises(Refusal, match=sentence):
        json_form.read_adam(given)


def test_the_plan_of_adapters():
    body = {"lora_config": {"rank": 8, "seed": 5, "train_unembed": False, "train_mlp": True, "train_attn": True}}
    assert json_form.read_plan(body) == AdapterPlan(8, 5, True, True, False)
    assert json_form.read_plan({}) == AdapterPlan(32, 0, True, True, True)
    with pytest.raises(Refusal, match="'dimuon' is not offered"):
        json_form.read_plan({"optimizer_config": {"type": "dimuon"}})


def test_what_a_sample_asks_for():
    found = json_form.read_sample(sample(top_k=-1), BOUNDS)
    assert found.prompt.tolist() == IDS and (found.count, found.max_tokens, found.seed) == (3, 8, 1)
    assert (found.temperature, found.top_k, found.top_p) == (1.0, 0, 1.0)


@pytest.mark.parametrize(
    ("stop", "texts", "ids"),
    [
        (None, (), None),
        ([], (), frozenset()),  # no token ends the answer, not even the end token
        ("a", ("a",), None),
        (["a", "bc"], ("a", "bc"), None),
        ([3, 4], (), frozenset({3, 4})),
    ],
)
def test_stops_are_texts_or_ids(stop, texts, ids):
    found = json_form.read_sample(sample(stop=stop), BOUNDS)
    assert (found.stop_texts, found.stop_ids) == (texts, ids)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (sample(stop=["a", 3]), "the two do not mix"),
        (sample(stop=[320]), "below 320"),
        (sample(stop=[""]), "of 1 to 1000 characters"),
        (sample(stop=5), "is not a text, or a list"),
        (sample(top_p=0), "above 0 and at most 1"),
        (sample(temperature=-1), "temperature = -1 is not"),
        (sample(ids=[]), "prompt has no token"),
        (sample() | {"num_samples": 5}, "num_samples = 5 is not a whole number from 1 to 4"),
        (sample() | {"topk_prompt_logprobs": 2}, "topk_prompt_logprobs is not offered"),
        (sample() | {"prompt_logprobs_last_n": 9}, "from 0 to 6"),
        ({"sampling_params": 3}, "is not an object"),
    ],
)
def test_a_bad_sample_is_one_sentence(body, sentence):
    with pytest.raises(Refusal) as refused:
        json_form.read_sample(body, BOUNDS)
    assert sentence in str(refused.value)


LOGPROBS = [np.array([-0.5, -1.0], np.float32), np.array([-3.0], np.float32), np.array([[-1.0, -2.0]], np.float32)]
ANSWER = SampledTokens(np.array([7, 8]), np.array([-0.25, -0.5]), "stop")
SAMPLES = SampleResult([ANSWER, ANSWER._replace(finish="length")], np.array([np.nan, -0.125]))


def test_results_as_json():
    found = json_form.result_json(PassResult(LOGPROBS, {"loss:sum": 1.5}))
    assert found["metrics"] == {"loss:sum": 1.5}
    assert found["loss_fn_outputs"][2]["logprobs"] == {"data": [-1.0, -2.0], "dtype": "float32", "shape": [1, 2]}
    found = json_form.result_json(SAMPLES)
    assert found["prompt_logprobs"] == [None, -0.125]
    assert found["sequences"][1] == {"stop_reason": "length", "tokens": [7, 8], "logprobs": [-0.25, -0.5]}
    assert json_form.result_json(PlainResult({"type": "optim_step"})) == {"type": "optim_step"}


@needs_sdk
def test_results_as_protobuf_are_what_the_sdk_reads():
    conv = pytest.importorskip("tinker.proto.response_conv")
    found = conv.deserialize_forward_backward_output(
        protobuf_form.result_bytes(PassResult(LOGPROBS, {"loss:sum": 1.5}))
    )
    assert found.metrics == {"loss:sum": 1.5} and len(found.loss_fn_outputs) == 3
    for output, logprobs in zip(found.loss_fn_outputs, LOGPROBS, strict=True):
        assert output["logprobs"].shape == list(logprobs.shape)
        np.testing.assert_array_equal(np.array(output["logprobs"].data), logprobs.ravel())
    found = conv.deserialize_sample_response(protobuf_form.result_bytes(SAMPLES))
    assert [one.stop_reason for one in found.sequences] == ["stop", "length"]
    assert list(found.sequences[0].tokens) == [7, 8] and list(found.sequences[0].logprobs) == [-0.25, -0.5]
    assert found.prompt_logprobs == [None, -0.125]


def test_bounds_of_ratios_are_those_of_the_protocol():
    assert json_form.read_passes(passes([RL], "ppo"), BOUNDS, True).bounds == ClipBounds(0.8, 1.2)
