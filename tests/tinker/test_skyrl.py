"""agentrl's client against a real server of others: SkyRL 0.3.0, JAX back end on the CPU, with the SDK that fits it.

`make tinker` runs these tests.
"""

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from peft import load_peft_weights, set_peft_model_state_dict

from agentrl.cli import main
from agentrl.engines.tinker import Datum, Service, ServiceError, ServiceLost
from agentrl.graph import decisions, token_rows
from agentrl.model import Lora, ModelConfig, load_model, read_served
from agentrl.run.metrics import read_metrics
from agentrl.tinker import ServedPolicy, ServiceLearner
from agentrl.tinker.ignored_options import check_flags, clips_gradients
from agentrl.tinker.sums import keeps_snapshots, probe_sums
from agentrl.trainer import Learner, LearnerConfig, OptimConfig, UpdateConfig, annotate, update
from tests.tinker.skyrl_server import SDK, SkyRL, sdk
from tests.tinker.test_update import EPS, PLAIN, SHAPES, apart, credited, here, there, tokenizer
from tests.toys.entries import loss
from tests.toys.tiny_qwen3 import model_folder

pytestmark = [pytest.mark.tinker, pytest.mark.timeout(1200)]
RANK, ALPHA = 8, 32.0  # SkyRL's alpha is 32 for every rank


@pytest.fixture(scope="module", autouse=True)
def old_sdk() -> Iterator[None]:
    """`import tinker` takes the version that SkyRL 0.3.0 fits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(sdk(SDK)))
        for name in [name for name in sys.modules if name.split(".")[0] == "tinker"]:
            patch.delitem(sys.modules, name)
        import tinker

        assert tinker.__version__ == SDK
        yield


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SkyRL]:
    # With passes over one sequence at a time and batches of 64 answers, JAX compiles each kind of work once per length.
    options = {"train_micro_batch_size": 1, "sample_max_num_sequences": 64, "max_lora_adapters": 12}
    folder = tmp_path_factory.mktemp("skyrl")
    running = SkyRL(model_folder(folder / "model"), folder, max_lora_rank=RANK, **options)
    yield running
    print(f"\nSkyRL took {running.cpu_s():.0f} CPU seconds")
    running.close()
    assert running.processes() == []


@pytest.fixture(scope="module")
def service(server: SkyRL) -> Iterator[Service]:
    connection = Service(server.url, timeout_s=600.0)
    yield connection
    connection.close()


@pytest.fixture
def remote(server: SkyRL, service: Service) -> Iterator[Any]:
    """Makes learners at the server; it has few places for adapters, so they are freed at the end."""
    made = []

    def make(optim: OptimConfig = PLAIN, **options: Any) -> ServiceLearner:
        config = LearnerConfig(name="tinker", rank=RANK, train_unembed=False)
        policy = ServedPolicy("p", server.model, 5, "sequences")
        made.append(ServiceLearner(service, policy, tokenizer(), optim, config, **options))
        return made[-1]

    yield make
    for learner in made:
        learner.trainer.unload()


@pytest.fixture
def sides(server: SkyRL, remote: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[Learner, Any]:
    """A learner of this process and one at the server, which begin with the server's new adapters."""
    monkeypatch.setattr("agentrl.tinker.service_learner.EPS", EPS)
    served = remote()
    loaded = load_model(ModelConfig(path=server.model, lora=Lora(r=RANK, alpha=ALPHA), dtype="float32"), 0)
    stored = server.adapters(served.trainer.save_sampler("begin", None), tmp_path / "adapters")
    outcome = set_peft_model_state_dict(loaded.model, load_peft_weights(str(stored), device="cpu"))
    assert not outcome.unexpected_keys and not [name for name in outcome.missing_keys if "lora_" in name]
    local = Learner(loaded, PLAIN)
    for group in local.optimisers[0].param_groups:
        group["eps"] = EPS
    return local, served


def test_the_sums_of_the_server_are_found(server, service):
    assert probe_sums(service, server.model) == "sequences"


def test_the_server_gets_the_credit_and_returns_its_sum(server, sides):
    _, remote = sides
    graph, credit = credited(SHAPES["windows"], "gigpo")
    config = UpdateConfig(unit="rollout", importance="none")  # the log-probs of the toy's sampler are not real
    graph = annotate(graph, remote, config, 1.0).graph
    found = update(remote, graph, credit, config, loss("ppo_clip"), temperature=1.0, seed=3)
    exchange = server.exchanges("FORWARD_BACKWARD")[-1]
    sent, got = exchange.request["data"], exchange.answer["loss_fn_outputs"]
    assert exchange.request["loss_fn"] == "importance_sampling" and len(sent) == len(got) > 1
    scale = [len(one["loss_fn_inputs"]["target_tokens"]["data"]) * len(sent) for one in sent]  # of the server's means
    columns = [np.array(one["loss_fn_inputs"]["advantages"]["data"]) for one in sent]
    advantages = np.concatenate([column[column != 0] / by for column, by in zip(columns, scale, strict=True)])
    # At ratio 1, token-mean gives each token the advantage of its step, divided by the number of tokens.
    chosen = decisions(graph.tokens)
    expected = credit.advantage[token_rows(graph.tokens)[chosen]] / chosen.sum()
    np.testing.assert_allclose(np.sort(advantages), np.sort(expected[expected != 0]), rtol=1e-5)
    total = sum(sum(one["elementwise_loss"]["data"]) / by for one, by in zip(got, scale, strict=True))
    assert total == pytest.approx(found["loss"], abs=1e-6)


CASES = [
    ("chains", "gigpo", "ppo_clip", {"minibatches": 2, "epochs": 2}),
    ("trees", "tree_grpo", "cispo", {"epochs": 2}),
    ("windows", "gigpo", "ppo_clip", {"minibatches": 2, "aggregation": "seq-mean-token-sum"}),
]


@pytest.mark.parametrize(("shape", "method", "name", "options"), CASES)
def test_an_update_equals_one_of_this_process(sides, shape, method, name, options):
    config = UpdateConfig(unit="rollout", **options)
    local, remote = sides
    graph, credit = credited(SHAPES[shape], method)
    assert apart(local, remote, graph) < 1e-5
    mine, theirs = (annotate(graph, one, config, 1.0).graph for one in sides)
    before = here(local, graph)
    found = [
        update(one, own, credit, config, loss(name), temperature=1.0, seed=3)
        for one, own in ((local, mine), (remote, theirs))
    ]
    moved, difference = np.nanmax(np.abs(here(local, graph) - before)), apart(local, remote, graph)
    print(f"\n{shape}: {found[0]['loss']:+.7f} {found[1]['loss']:+.7f}, {found[0]['grad_norm']:.6f} "
          f"{found[1]['grad_norm']:.6f}, moved {moved:.3g}, apart {difference:.1e}")  # fmt: skip
    assert found[1]["loss"] == pytest.approx(found[0]["loss"], abs=1e-6)
    assert found[1]["grad_norm"] == pytest.approx(found[0]["grad_norm"], rel=1e-4)
    assert moved > 1e-2 and difference < 5e-4 * moved + 2e-6


def test_sampler_and_trainer_give_the_same_logprobs(sides):
    _, remote = sides
    graph, credit = credited(SHAPES["chains"], "gigpo")
    graph = annotate(graph, remote, UpdateConfig(), 1.0).graph
    update(remote, graph, credit, UpdateConfig(), loss("ppo_clip"), temperature=1.0)
    sampler, prompt = remote.generating.sampler, graph.tokens.ids[:8]

    async def answers() -> Any:
        options = {"limit": 4, "temperature": 1.0, "top_p": 1.0, "top_k": 0, "stop": [1]}
        return await asyncio.gather(*(sampler.sample(prompt, seed=seed, **options) for seed in (0, 0, 1, 2)))

    first, again, *_ = found = asyncio.run(answers())
    assert np.array_equal(first.tokens, again.tokens) and len({one.tokens.tobytes() for one in found}) == 3
    for one in found:
        path = np.concatenate([prompt, one.tokens])
        datum = Datum(path[:-1], path[1:], {"weights": np.ones(len(path) - 1, np.float32)})
        (expected,) = remote.trainer.forward([datum]).result().logprobs
        assert np.abs(one.logprobs - expected[-len(one.tokens) :]).max() < 1e-5
        (scored,) = sampler.logprobs([path])
        assert np.abs(scored[1:] - expected).max() < 1e-5  # SkyRL's list is one entry short


def test_a_checkpoint_continues_exactly(remote, service, server, tmp_path):
    adam = OptimConfig(lr=3e-3, weight_decay=0.0)
    first = remote(adam)
    graph, credit = credited(SHAPES["chains"], "gigpo")
    config = UpdateConfig(minibatches=2)

    def improve(learner: ServiceLearner) -> Any:
        own = annotate(graph, learner, config, 1.0).graph
        return update(learner, own, credit, config, loss("ppo_clip"), temperature=1.0)

    improve(first)
    first.save(tmp_path / "p", first.generating)
    again = remote(adam, stored=read_served(tmp_path / "p"))
    again.load_state_dict(first.state_dict())
    assert np.array_equal(there(again, graph), there(first, graph), equal_nan=True)
    assert improve(again) == improve(first)
    assert np.array_equal(there(again, graph), there(first, graph), equal_nan=True)


RECIPE: dict[str, Any] = {
    "run": {"name": "signal", "iterations": 3, "deterministic": False},
    "env": {"name": "tests.toys.letter_signal"},
    "eval": {"tasks": 64, "modes": ["sampled"], "env": {"first": 1000}},
    "engine": {"name": "tinker", "max_context": 48},
    "limits": {"turns": 1, "turn_tokens": 4},
    "warmup": {"expert": "hasty", "updates": 8, "episodes": 32, "minibatches": 4, "optim": {"lr": 5e-3}},
    "batch": {"tasks": 16, "copies": 8},
    "credit": {"name": "grpo"},
    "update": {"minibatches": 8},
    "optim": {"lr": 2e-3, "weight_decay": 0.0},
    "learner": {"name": "tinker", "rank": RANK},
}


def test_three_iterations_improve_the_success_on_held_out_tasks(server, tmp_path, capsys):
    recipe = tmp_path / "signal.toml"
    recipe.write_text(tomli_w.dumps(RECIPE))
    command = [
        "train",
        str(recipe),
        f"learner.url={server.url}",
        f"model.path={server.model}",
        f"run.folder={tmp_path}",
    ]
    assert main([*command, "run.iterations=2"]) == 0
    assert main([*command, "--resume"]) == 0  # the third iteration, from the checkpoint
    rows = read_metrics(tmp_path / "signal" / "metrics.jsonl").rows
    success = {row["name"]: row["success_rate"] for row in rows if row["stage"] == "eval"}
    with capsys.disabled():
        print("\nsuccess on held-out tasks:", success)
    # The expert is right in three of four tasks. In five seeds, the clone had 0.58 to 0.72, and the end 0.95 to 1.
    assert success["start"] < 0.1 and success["end"] > success["clone"] + 0.1
    trained = [row for row in rows if row["stage"] == "train"]
    assert len(trained) == 3 and all(row["mismatch_max"] < 1e-3 for row in trained)
    # The run has freed its model, and the server samples only what is loaded: the evaluation loads the checkpoint.
    capsys.readouterr()
    words = ["eval", "tests.toys.letter_signal", "--policy", str(tmp_path / "signal"), "--tasks", "32", "--json"]
    assert main([*words, "first=64"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["success_rate"] > success["clone"] + 0.1


def test_what_the_server_does_not_have_is_one_sentence(service, server):
    options = {"rank": RANK, "seed": 0, "train_attn": True, "train_mlp": True, "train_unembed": False}
    with pytest.raises(ServiceError, match=r"no base model 'another': set learner\.model") as error:
        service.train("another", **options)
    assert server.model in str(error.value)
    with pytest.raises(ServiceError, match=r"the checkpoint may have expired \(learner\.keep_days\)"):
        service.resume("tinker://model_00000000/weights/p", optimiser=True)
    with pytest.raises(ServiceError, match=r"ignores learner\.train_unembed=false"):
        check_flags(service, server.model, LearnerConfig(name="tinker", train_unembed=False))
    assert not clips_gradients(service, server.model)


def test_a_reference_of_its_own_model_moves_no_weight(server, service, remote):
    assert not keeps_snapshots(service, server.model)
    learner = remote(OptimConfig(lr=3e-3, weight_decay=0.0), reference=True)
    graph, credit = credited(SHAPES["chains"], "gigpo")
    config = UpdateConfig(kl_coef=0.1)
    own = annotate(graph, learner, config, 1.0).graph
    update(learner, own, credit, config, loss("ppo_clip"), temperature=1.0)
    before = there(learner, graph)
    again = annotate(graph, learner, config, 1.0).graph
    assert np.array_equal(there(learner, graph), before, equal_nan=True)
    reference = [one.token_column("ref_logprob") for one in (own, again)]
    assert np.array_equal(*reference, equal_nan=True)
    assert np.nanmax(np.abs(reference[1] - before)) > 1e-3


def test_a_server_that_ends_is_one_sentence(server, remote):
    learner = remote()
    server.close()
    learner.trainer.service.timeout_s = 20.0
    with pytest.raises(ServiceLost, match=r"gave no answer to a forward pass in 20 s"):
        there(learner, SHAPES["chains"])
