"""The official SDK against the training server: every verb, and a loop that equals agentrl's own learner."""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from agentrl.model import Lora, ModelConfig, load_model
from agentrl.trainer import Learner, OptimConfig, UpdateConfig, clone
from tests.graph.graphs import chains
from tests.toys.training_service import training_service

tinker = pytest.importorskip("tinker", reason="no SDK: pip install 'agentrl-stepgraph[tinker]'")
from tests.training_server import sdk_session  # noqa: E402  it imports the SDK

SCRIPT = Path(sdk_session.__file__)


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    before = os.environ.get("TINKER_TELEMETRY")
    os.environ["TINKER_TELEMETRY"] = "0"
    with training_service(tmp_path_factory.mktemp("service")) as found:
        yield found
    if before is None:
        del os.environ["TINKER_TELEMETRY"]


@pytest.fixture
def service(running):
    made = tinker.ServiceClient(base_url=running.url, api_key="tml-dummy")
    yield made
    made.close("success").result()  # which frees its models


def check(found):
    """What must hold of a session, in every version of the SDK."""
    first, second, third = found["losses"]
    assert first == pytest.approx(-sum(found["first"][0][1:]) - sum(found["first"][1]), rel=1e-5)
    assert first > second > third
    assert found["same again"] and not found["snapshot moved"] and found["named differs"]
    for name in ("prompt log-probs", "forward", "base"):
        assert found[name] < 2e-6, name
    # At ratio 1, advantages, weights and a custom loss with the same derivative give the same gradient.
    np.testing.assert_allclose(found["norms"], found["norms"][3], rtol=1e-4)
    assert found["twice"] == pytest.approx(2, rel=1e-5), "the losses are summed over datums"
    assert found["loaded"] == found["a step later"] == 0.0


def test_every_verb(running):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer SDKs deprecate names that older ones have
        check(sdk_session.session(running.url, running.model))


@pytest.mark.slow
@pytest.mark.foreign
@pytest.mark.parametrize("version", ["0.16.1", "0.25.0"])
def test_every_verb_with_an_older_sdk(running, version, tmp_path):
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", tmp_path, f"tinker=={version}"],
        check=True,
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "TINKER_TELEMETRY": "0"}
    command = [sys.executable, "-W", "ignore", SCRIPT, running.url, running.model]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["sdk"] == version
    check(found)


def test_a_supervised_loop_equals_the_learner_of_this_process(running, service):
    """The same losses, gradient norms and weights as `clone` of a learner with the same adapters, over three steps.

    Adam has eps=1, because it divides by the size of the gradient: with a small eps, gradients that are rounding alone
    would move weights as far as others.
    """
    graph = chains(1)
    rows, tokens = np.arange(len(graph)), graph.tokens
    data = [datum_of(tokens, row, len(rows)) for row in rows]
    client = service.create_lora_training_client(base_model=running.model, rank=4, seed=3, train_unembed=False).result()
    direct = load_model(ModelConfig(path=running.model, dtype="float32", device="cpu", lora=Lora(r=4, alpha=32.0)), 0)
    take(direct.model, adapters(running, client.save_state("start").result().path))
    optim = OptimConfig(lr=0.8, betas=(0.9, 0.95), weight_decay=0.01, grad_clip=3.0)
    learner = Learner(direct, optim)
    for group in learner.optimisers[0].param_groups:
        group["eps"] = 1.0
    config = UpdateConfig(aggregation="seq-mean-token-sum", max_tokens=64)
    adam = tinker.AdamParams(learning_rate=0.8, beta1=0.9, beta2=0.95, eps=1.0, weight_decay=0.01, grad_clip_norm=3.0)
    losses = []
    for _ in range(3):
        work, step = client.forward_backward(data, "cross_entropy"), client.optim_step(adam)
        metrics = clone(learner, graph, config)
        losses.append(work.result().metrics["loss:sum"])
        assert losses[-1] == pytest.approx(metrics["loss"], rel=2e-5)
        assert step.result().metrics["grad_norm"] == pytest.approx(metrics["grad_norm"], rel=1e-4)
    assert abs(losses[2] - losses[0]) > 0.05 * losses[0], "the weights moved far enough to tell"
    stored = adapters(running, client.save_state("end").result().path)
    moved = 0.0
    for name, parameter in direct.model.named_parameters():
        if parameter.requires_grad:
            found = stored[name.replace(".default", "")]
            np.testing.assert_allclose(found.numpy(), parameter.detach().numpy(), atol=1e-5)
            moved = max(moved, float(found.abs().max()) if "lora_B" in name else 0.0)
    assert moved > 1e-2


def datum_of(tokens, row, count):
    """One step as a datum: the loss is the mean over steps of the sums over their tokens."""
    path = tokens.path(row)
    weights = np.zeros(len(path), np.float32)
    own = int(tokens.offsets[row + 1] - tokens.offsets[row])
    weights[len(path) - own :] = tokens.sampled[tokens.offsets[row] : tokens.offsets[row + 1]] / count
    return sdk_session.datum(path.tolist(), weights=weights[1:])


def adapters(running, path):
    """The stored adapters of a checkpoint."""
    return load_file(running.service.checkpoints._folder(path) / "adapter_model.safetensors")


def take(model, stored):
    own = {name.replace(".default", ""): p for name, p in model.named_parameters() if p.requires_grad}
    assert own.keys() == stored.keys()
    for name, parameter in own.items():
        parameter.data.copy_(stored[name])


def test_many_answers_at_a_time(running, service):
    """Requests of two samplers, sent together, get what each of them gets alone."""
    client = service.create_lora_training_client(base_model=running.model, rank=4).result()
    sdk_session.trained(client, [sdk_session.datum(sdk_session.IDS)], 1)
    base = service.create_sampling_client(base_model=running.model).result()
    mine = client.save_weights_and_get_sampling_client().result()
    prompt = tinker.ModelInput.from_ints(sdk_session.IDS)
    params = [tinker.SamplingParams(max_tokens=4, seed=seed) for seed in range(2)]
    alone = [[c.sample(prompt, 1, one).result().sequences[0].tokens for one in params] for c in (base, mine)]
    futures = [c.sample(prompt, 1, one) for one in params for c in (base, mine)]
    together = [future.result().sequences[0].tokens for future in futures]
    assert [together[0::2], together[1::2]] == alone
    assert alone[0] != alone[1]


def test_a_bad_request_is_a_sentence_and_the_client_goes_on(running, service):
    client = service.create_lora_training_client(base_model=running.model, rank=4).result()
    good = sdk_session.datum(sdk_session.IDS)
    bad = client.forward_backward([sdk_session.datum([5, 6])], "ppo")
    after = client.forward_backward([good], "cross_entropy")
    with pytest.raises(tinker.RequestFailedError, match="the loss ppo needs logprobs"):
        bad.result()
    assert after.result().metrics["loss:sum"] > 0
    with pytest.raises(tinker.BadRequestError, match="no base model 'other'"):
        service.create_lora_training_client(base_model="other").result()
    with pytest.raises(tinker.NotFoundError, match="no checkpoint"):
        service.create_training_client_from_state("tinker://x/weights/y").result()


@pytest.mark.parametrize("fault", ["lose", "cut", 500])
def test_a_fault_of_the_network_adds_no_gradient_twice(running, service, fault):
    client = service.create_lora_training_client(base_model=running.model, rank=4).result()
    data = [sdk_session.datum(sdk_session.IDS)]
    _, wanted = sdk_session.gradients(client, data)
    seen = running.faults.seen["forward_backward"]
    running.faults.add("forward_backward", fault)
    assert sdk_session.gradients(client, data)[1] == wanted
    assert running.faults.seen["forward_backward"] == seen + 2


@pytest.mark.parametrize("fault", ["lose", 408])
def test_a_lost_result_can_be_fetched_again(running, service, fault):
    client = service.create_lora_training_client(base_model=running.model, rank=4).result()
    running.faults.add("retrieve_future", fault)
    assert client.forward([sdk_session.datum(sdk_session.IDS)], "cross_entropy").result().metrics["loss:sum"] > 0


def test_a_step_that_is_skipped_has_an_answer_that_the_sdk_reads(running, service):
    """The SDK's JSON reader refuses NaN, which the norm of such a gradient is."""
    client = service.create_lora_training_client(running.model, rank=2, train_unembed=False).result()
    wide = {"target_tokens": [3, 4], "logprobs": [-3e38, -1.0], "advantages": [1.0, 1.0]}  # the ratio is infinite
    data = [tinker.Datum(model_input=tinker.ModelInput.from_ints([2, 3]), loss_fn_inputs=wide)]
    client.forward_backward(data, "importance_sampling").result()
    assert client.optim_step(tinker.AdamParams(learning_rate=0.1)).result().metrics == {"skipped": 1.0}
