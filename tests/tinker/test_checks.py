"""What a recipe cannot have beside a training service: each setting is one sentence, and all verbs refuse alike."""

import socket
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import tomli_w

from agentrl.cli import main
from agentrl.config import merge
from agentrl.engines.tinker.address import KEYS
from agentrl.model import write_toy_model
from agentrl.settings import Settings, shipped_recipes
from agentrl.tinker.checks import REFUSED

Tables = Mapping[str, Any]
SERVED: Tables = {
    "env": {"name": "tests.toys.known_walk", "count": 4},
    "eval": {"tasks": 1, "env": {"first": 5}},
    "model": {"path": "toy"},
    "engine": {"name": "tinker", "max_context": 512},
    "learner": {"name": "tinker"},
    "run": {"iterations": 2, "deterministic": False},
    "warmup": {"expert": "straight"},
    "credit": {"name": "grpo"},
}
NEW: Tables = {"model": {"path": "", "new": {"layers": 1}}}
TEAM: Tables = {"env": {"name": "tests.toys.known_foreman"}, "eval": {"env": {"count": 9}}}
FORBIDDEN: Mapping[str, tuple[Tables, str]] = {  # a setting -> what sets it, and the end of the sentence
    "a critic": ({"critic": {"model": "head"}, "credit": {"name": "turn_ppo"}}, "reads no values, such as gigpo"),
    "credit from values": ({"credit": {"name": "token_gae"}}, "which plays probes for the values of vine_ppo"),
    "a value after the end": (
        {"rollout": {"name": "vine"}, "credit": {"name": "turn_ppo", "bootstrap": "value"}},
        "set credit.bootstrap='none'",
    ),
    "entropy bonus": ({"update": {"entropy_coef": 0.01}}, "set update.entropy_coef=0"),
    "negative entropy bonus": ({"update": {"entropy_coef": -0.01}}, "set update.entropy_coef=0"),
    "a regularizer": ({"update": {"regularizers": [{"name": "entropy_band"}]}}, "only log-probs work"),
    "a rollout": ({"rollout": {"name": "entropy_branch"}}, "choose another [rollout]"),
    "stored entropies": ({"log": {"entropies": True}}, "set log.entropies=false"),
    "muon": ({"optim": {"name": "muon"}}, "set this option to adamw"),
    "muon in the warm-up": ({"warmup": {"updates": 1, "optim": {"name": "muon"}}}, "set this option to adamw"),
    "processes": ({"learner": {"processes": 2}}, "remove processes, or set name=local"),
    "offload": ({"learner": {"offload": True}}, "remove offload, or set name=local"),
    "checkpointing": ({"learner": {"checkpointing": True}}, "remove checkpointing, or set name=local"),
    "dropout": ({"learner": {"keep_dropout": True}}, "remove keep_dropout, or set name=local"),
    "a new model": (NEW, "to the base model's name at the service if it differs"),
    "adapters": ({"model": {"lora": {"r": 8}}}, "train_mlp and train_unembed choose their layers"),
    "another engine": ({"engine": {"name": "hf"}}, "set engine.name=tinker and run.deterministic=false"),
    "admissible": ({"engine": {"actions": "admissible"}}, "update.train_invalid=false"),
    "listed": ({"engine": {"actions": "listed"}}, "update.train_invalid=false"),
    "temperature": ({"sampling": {"temperature": 0.7}}, "(eval.temperature may differ)"),
    "top_k": ({"sampling": {"top_k": 5}}, "set sampling.top_k=0"),
    "top_p": ({"sampling": {"top_p": 0.9}}, "set sampling.top_p=1"),
    "hot chains": ({"sampler": {"name": "explore_solved"}}, "choose another sampler, such as uniform"),
    "deterministic": ({"run": {"deterministic": True}}, "set run.deterministic=false"),
    "a cluster": ({"cluster": {"address": "local", "workers": 1}}, "leave cluster.address empty"),
    "two bases": (
        {**TEAM, "learner": {"model": "b"}, "agents": {"walker": {"policy": "legs", "model": {"path": "other"}}}},
        "each policy's model.path then also names its base model at the service",
    ),
    "a budget without prices": ({"learner": {"budget": 5.0, "price_train": 1.0}}, "or leave budget out"),
}
ALLOWED: Mapping[str, Tables] = {
    "a credit method without values": {},
    "regularizers of log-probs": {"update": {"regularizers": [{"name": "likelihood_guard"}], "kl_coef": 0.1}},
    "probes for values": {"rollout": {"name": "vine", "probes": 1}, "credit": {"name": "vine_ppo"}},
    "values of a filler": {"credit": {"name": "single_stream"}},
    "trees": {"rollout": {"name": "tree"}, "credit": {"name": "tree_grpo"}},
    "several agents": TEAM,
    "several policies": {**TEAM, "agents": {"walker": {"policy": "legs", "model": {"path": "other"}}}},
    "a context": {"context": {"name": "last_k", "k": 1}},
    "rollouts ahead": {"run": {"staleness": 2, "ahead": 1}},
    "a teacher": {"guide": {"name": "teacher"}, "update": {"regularizers": [{"name": "teacher"}]}},
    "evaluation at another temperature": {"eval": {"temperature": 0.5}},
    "a warm-up": {"warmup": {"updates": 2}},
    "a loss that looks at the sampler": {"loss": {"name": "m2po"}, "update": {"old_logprob": "engine"}},
    "a program": {
        "env": {"name": "tests.toys.known_sums", "split": "train"},
        "eval": {"env": {"split": "test"}},
        "warmup": {"expert": "expert"},
        "agents": {"main": {"agent": "tests.toys.known_sums:judged"}},
    },
}


def tables(example: Tables) -> dict[str, Any]:
    """The recipe with an example's sections; an environment of the example replaces that of the recipe."""
    own = {name: example[name] for name in ("env", "eval") if "env" in example}
    return merge({**SERVED, **own}, example)


@pytest.mark.parametrize("case", FORBIDDEN)
def test_a_setting_that_a_service_lacks_is_refused_with_what_can_be_done(case):
    example, advice = FORBIDDEN[case]
    with pytest.raises(ValueError, match=r"tinker|training service|budget") as error:
        Settings(tables(example))
    assert str(error.value).endswith(advice) and "\n" not in str(error.value)


def test_every_row_of_the_table_is_tried():
    ends = [end for _, end in FORBIDDEN.values()]
    untried = [row.other.__name__ for row in REFUSED if not any(row.advice.endswith(end) for end in ends)]
    assert untried == ["entropy_reward"]  # no reward of agentrl reads entropies


def test_a_reward_that_reads_entropies_is_refused():
    settings = Settings(tables({"reward": {"name": "unlikeliness"}}))
    (entry,) = settings.reward
    row = next(row for row in REFUSED if row.other.__name__ == "entropy_reward")
    assert row.refusal(settings) == ""
    settings.reward = (entry._replace(hooks=replace(entry.hooks, needs=("token_entropy",))),)
    assert "reward.name=unlikeliness" in row.refusal(settings)


@pytest.mark.parametrize("case", ALLOWED)
def test_what_a_service_can_do_is_not_refused(case):
    settings = Settings(tables(ALLOWED[case]))
    settings.check_new()
    assert settings.tables.learner.remote


def test_without_the_learner_its_engine_cannot_train_and_other_recipes_are_not_looked_at():
    lone = merge(SERVED, {"learner": {"name": "local"}})
    with pytest.raises(ValueError, match=r"^engine\.name=tinker samples .*: set learner\.name=tinker, or engine"):
        Settings(lone).check_new()
    Settings(lone, stored=True)  # as an evaluation reads the sections of a run that it needs
    local = merge(lone, {"engine": {"name": "hf"}, "update": {"entropy_coef": 0.1}})
    Settings(local).check_new()


def test_adapters_are_trained_at_their_rate():
    settings = Settings(SERVED)
    local = {**SERVED, "learner": {"name": "local"}, "engine": {"name": "hf"}, "model": {"path": "toy", "lora": {}}}
    assert settings.tables.optim == Settings(local).tables.optim
    assert settings.tables.optim.lr > Settings({**local, "model": {"path": "toy"}}).tables.optim.lr


def test_the_device_and_type_of_weights_that_are_elsewhere_are_noted():
    given = Settings(tables({"model": {"dtype": "float32"}}))
    assert "learner.name=tinker turns off model.dtype: set learner.name=local, or leave them out" in given.notes
    assert not any("turns off" in note for note in Settings(SERVED).notes)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """A folder that holds a tokenizer and no weights."""
    folder = tmp_path_factory.mktemp("served")
    write_toy_model(folder / "model")
    for name in ("model.safetensors", "config.json", "generation_config.json"):
        (folder / "model" / name).unlink()
    return folder / "model"


@pytest.fixture(scope="module")
def port():
    """A port at which nothing listens."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        yield closed.getsockname()[1]


def verdicts(words: list[str], capsys: pytest.CaptureFixture[str]) -> list[tuple[int, str]]:
    """Exit code and standard error of a dry run, of the doctor, and of training, which a closed port keeps from
    beginning."""
    found = []
    for verb in (["train", "--dry-run"], ["doctor"], ["train"]):
        code = main([verb[0], *words, *verb[1:]])
        found.append((code, capsys.readouterr().err))
    return found


def check_agreement(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Assert that the verbs agree; returns the first line of what training said."""
    dry, doctor, train = verdicts(words, capsys)
    assert doctor[0] == train[0] == 2
    refused = train[1].removeprefix("agentrl: ").strip()
    if dry[0]:  # the recipe is wrong on every machine
        assert dry == train
        said = [line.split(": ", 2)[-1] if "agentrl: data: " in line else line for line in doctor[1].splitlines()]
        assert any(refused in one for one in [doctor[1], *said])
    else:  # this machine lacks something
        missing = [line.split(": ", 2)[2] for line in doctor[1].splitlines()]
        assert refused in ("; ".join(missing[:number]) for number in range(1, len(missing) + 1)) or refused in missing
    return refused


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "http://127.0.0.1:99999", "http://[::1", "http://:8000", "ftp://a"])
def test_what_is_no_address_is_refused(url):
    with pytest.raises(ValueError, match=r"this is no address: write http://HOST:PORT"):
        Settings(merge(SERVED, {"learner": {"url": url}}))


def test_adapters_of_no_layer_are_refused():
    none = {"train_attn": False, "train_mlp": False, "train_unembed": False}
    with pytest.raises(ValueError, match="are all false: set one of them to true"):
        Settings(merge(SERVED, {"learner": none}))


def test_micro_batches_are_the_services_business():
    (note,) = [one for one in Settings(merge(SERVED, {"update": {"max_tokens": 77}})).notes if "turns off" in one]
    assert note == "learner.name=tinker turns off update.max_tokens: set learner.name=local, or leave them out"


def served(recipe: str, tokenizer: Any, port: int, folder: Any) -> list[str]:
    """The words that put a recipe's model at a service."""
    return [
        recipe,
        f"learner={{name='tinker',url='http://127.0.0.1:{port}'}}",
        f"model={{path='{tokenizer}'}}",
        "engine={name='tinker',max_context=4096}",
        "run.deterministic=false",
        f"run.folder={folder}",
    ]


@pytest.mark.parametrize("recipe", [one.path.stem for one in shipped_recipes()])
def test_the_verbs_agree_on_every_shipped_recipe_with_a_service(recipe, port, tmp_path, capsys):
    words = [recipe, "learner.name=tinker", f"learner.url=http://127.0.0.1:{port}", f"run.folder={tmp_path}"]
    check_agreement(words, capsys)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    "recipe",
    [
        pytest.param(one.path.stem, marks=() if one.path.stem == "smollm2-alfworld" else pytest.mark.slow)
        for one in shipped_recipes()
    ],
)
def test_the_verbs_agree_on_a_shipped_recipe_whose_model_is_at_a_service(recipe, tokenizer, port, tmp_path, capsys):
    refused = check_agreement(served(recipe, tokenizer, port, tmp_path), capsys)
    assert recipe != "smollm2-alfworld" or refused.startswith("learner.url = ")


def test_only_the_tokenizer_is_read_and_no_gpu_is_asked_for(tokenizer, port, tmp_path, capsys):
    path = tmp_path / "mine.toml"
    given = merge(SERVED, {"model": {"path": str(tokenizer), "device": "cuda"}})
    path.write_text("# Needs: a GPU with 80 GB\n" + tomli_w.dumps(given))
    words = [str(path), f"learner.url=http://127.0.0.1:{port}", f"run.folder={tmp_path}"]
    dry, doctor, train = verdicts(words, capsys)
    assert dry[0] == 0 and "cuda" not in dry[1].replace("model.device: set", "")
    assert doctor[1].count("\n") == 1 and doctor[1].startswith("agentrl: endpoint: learner.url = ")
    assert train[1].startswith("agentrl: learner.url = ")
    missing = [str(path), f"model.path={tmp_path / 'nowhere'}", *words[1:]]
    for code, said in verdicts(missing, capsys)[1:]:
        assert code == 2 and "nowhere does not exist" in said


def test_a_recipe_for_a_service_says_what_can_be_found_by_the_doctor(tokenizer, port, tmp_path, capsys):
    main(["doctor", *served("smollm2-alfworld", tokenizer, port, tmp_path)])
    out = capsys.readouterr().out
    assert f"the tokenizer in {tokenizer}; the weights are at the training service" in out and "device" not in out


@pytest.mark.parametrize("url", ["", "http://192.0.2.1:9"])
def test_a_service_elsewhere_needs_a_key(url, tokenizer, tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("TINKER_BASE_URL", raising=False)
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "mine.toml"
    path.write_text(tomli_w.dumps(merge(SERVED, {"model": {"path": str(tokenizer)}, "learner": {"url": url}})))
    monkeypatch.setattr("agentrl.run.endpoints.refusal", lambda address: "")  # it accepts connections
    words = [str(path), f"run.folder={tmp_path / 'runs'}"]
    dry, doctor, train = verdicts(words, capsys)
    who = url or "the hosted training service (learner.url is empty)"
    sentence = f"{who} needs a key: set the environment variable TINKER_API_KEY (or TINKER_CREDENTIAL_CMD)"
    assert dry[0] == 0 and doctor == (2, f"agentrl: endpoint: {sentence}\n") and train == (2, f"agentrl: {sentence}\n")
    monkeypatch.setenv("TINKER_API_KEY", "tml-some")
    assert main(["doctor", *words]) == 0
    monkeypatch.setenv("TINKER_API_KEY", "")
    monkeypatch.setenv("TINKER_BASE_URL", "http://localhost:9")
    Settings(merge(SERVED, {"learner": {"url": ""}})).check_here()  # a service on this machine
