"""Checkpoints on the disk: complete or not there at all, readable by peft, and kept over a restart of the server."""

import json
import shutil
import threading

import pytest
import torch
from peft import PeftModel

from agentrl.http import Refusal
from agentrl.model import ModelConfig, load_model
from agentrl.training_server import Checkpoints, checkpoints as checkpoints_module, shared_base
from agentrl.training_server.trained_model import ModelState
from agentrl.training_server.verbs import AdapterPlan
from tests.toys.training_service import training_service
from tests.training_server.bodies import IDS, ONE, passes, sample
from tests.training_server.plain_client import PlainClient

PLAN = AdapterPlan(rank=2, seed=3)
STATE = ModelState(PLAN, {"a.lora_A.weight": torch.ones(2, 3)}, {"a.lora_A.weight/step": torch.tensor(4.0)})


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def checkpoints(tmp_path):
    return Checkpoints(tmp_path / "kept", "base", Clock())


def test_what_is_stored_comes_back(checkpoints):
    path = checkpoints.path("s:train:0", "weights", "one")
    checkpoints.save(path, STATE, {"r": 2}, None, {"note": "x"})
    found = checkpoints.load(path, optimiser=True)
    assert found.plan == PLAN
    for stored, given in ((found.adapters, STATE.adapters), (found.optimiser, STATE.optimiser)):
        assert stored.keys() == given.keys() and all(torch.equal(stored[name], given[name]) for name in given)
    about = Checkpoints(checkpoints.folder, "base", Clock()).about(path)
    assert (about.run, about.created, about.expires, about.metadata) == ("s:train:0", 1000.0, None, {"note": "x"})
    folder = checkpoints.folder / "s.train.0" / "weights" / "one"
    assert json.loads((folder / "adapter_config.json").read_text()) == {"r": 2, "base_model_name_or_path": "base"}


def test_a_checkpoint_that_could_not_be_written_leaves_the_older_one(checkpoints):
    path = checkpoints.path("m", "weights", "one")
    checkpoints.save(path, STATE, {}, None)
    with pytest.raises(TypeError):
        checkpoints.save(path, STATE, {"not JSON": object()}, None)
    assert checkpoints.load(path, optimiser=True).plan == PLAN
    assert [one.path for one in checkpoints.listed()] == [path]


def test_what_a_killed_server_left_is_no_checkpoint(checkpoints):
    path = checkpoints.path("m", "weights", "one")
    checkpoints.save(path, STATE, {}, None)
    folder = checkpoints.folder / "m" / "weights" / "one"
    folder.rename(folder.with_name(".one.partial"))
    assert checkpoints.listed() == []
    with pytest.raises(Refusal, match="no checkpoint"):
        checkpoints.about(path)
    checkpoints.save(path, STATE, {}, None)
    assert [one.path for one in checkpoints.listed()] == [path]


def test_what_a_killed_server_left_is_tidied_unless_another_server_uses_the_folder(checkpoints):
    checkpoints.open()
    path = checkpoints.path("m", "weights", "one")
    checkpoints.save(path, STATE, {}, None)
    place = checkpoints.folder / "m" / "weights"
    shutil.copytree(place / "one", place / ".two.partial")  # killed before "two" appeared
    (place / "one").rename(place / ".one.previous")  # killed while a newer "one" was to replace this one
    assert checkpoints.listed() == []
    later = Checkpoints(checkpoints.folder, "base", Clock())
    later.open()  # beside a server that may be writing
    assert sorted(entry.name for entry in place.iterdir()) == [".one.previous", ".two.partial"]
    later.close(), checkpoints.close()
    later.open()
    assert [entry.name for entry in place.iterdir()] == ["one"]
    assert later.load(path, optimiser=True).plan == PLAN
    later.close()


def test_an_expired_checkpoint_is_deleted(checkpoints):
    path = checkpoints.path("m", "weights", "one")
    checkpoints.save(path, STATE, {}, 60.0)
    checkpoints._clock.now += 59
    assert checkpoints.about(path).expires == 1060.0
    checkpoints.expire_in(path, 10.0)
    checkpoints._clock.now += 11
    assert checkpoints.listed() == [] and not (checkpoints.folder / "m" / "weights" / "one").exists()
    checkpoints.check_new(path, overwrite=False)


def test_a_checkpoint_that_is_being_deleted_is_no_checkpoint(checkpoints, monkeypatch):
    """A server that is killed meanwhile leaves no damaged checkpoint; the next one removes the rest."""
    path = checkpoints.path("m", "weights", "one")
    checkpoints.save(path, STATE, {}, None)
    with monkeypatch.context() as killed:
        killed.setattr(shutil, "rmtree", lambda folder, **options: None)  # it has deleted nothing yet
        checkpoints.delete(path)
    place = checkpoints.folder / "m" / "weights"
    assert checkpoints.listed() == [] and [one.name for one in place.iterdir()] == [".one.partial"]
    checkpoints.open()
    assert not list(place.iterdir())
    checkpoints.close()


def test_a_checkpoint_saved_in_place_of_an_expired_one_stays(checkpoints, monkeypatch):
    """A thread that lists checkpoints sees the expired one, and meanwhile the worker saves a new one of this path."""
    path = checkpoints.path("m", "weights", "one")
    checkpoints.save(path, STATE, {}, 60.0)
    checkpoints._clock.now += 61
    saving = threading.Thread(target=checkpoints.save, args=(path, STATE, {}, None))
    removed = checkpoints_module.remove_folder

    def remove_folder(folder):
        saving.start()
        saving.join(0.5)  # it waits for the lock, or it is done
        removed(folder)

    monkeypatch.setattr(checkpoints_module, "remove_folder", remove_folder)
    checkpoints.listed()
    saving.join()
    assert [one.expires for one in checkpoints.listed()] == [None]


@pytest.mark.parametrize("damage", ["adapter_model.safetensors", "optimizer.safetensors", "checkpoint.json"])
def test_damaged_files_are_one_sentence(checkpoints, damage):
    path = checkpoints.path("m", "weights", "one")
    checkpoints.save(path, STATE, {}, None)
    (checkpoints.folder / "m" / "weights" / "one" / damage).write_bytes(b"{")
    with pytest.raises(Refusal) as refused:
        checkpoints.load(path, optimiser=True)
    assert path in str(refused.value) and "\n" not in str(refused.value)


def test_checkpoints_of_another_base_model_are_refused(checkpoints):
    path = checkpoints.path("m", "weights", "one")
    checkpoints.save(path, STATE, {}, None)
    other = Checkpoints(checkpoints.folder, "other", Clock())
    with pytest.raises(Refusal, match="is of the base model 'base', and this server has 'other'"):
        other.load(path, optimiser=False)


@pytest.mark.parametrize(
    "path",
    ["weights/one", "tinker://m/weights", "tinker://m/else/one", "tinker://../weights/x", "tinker://m/weights/.x"],
)
def test_what_is_no_path_is_refused(checkpoints, path):
    with pytest.raises(Refusal, match="is no path of a checkpoint"):
        checkpoints.about(path)


def test_a_restarted_server_goes_on_and_peft_reads_its_adapters(tmp_path):
    with training_service(tmp_path) as running:
        client = PlainClient(running.url)
        model = client.model(running.model, train_unembed=True)
        client.do("forward_backward", passes([ONE], model=model, seq=1))
        step = {"adam_params": {"learning_rate": 0.1}, "model_id": model, "seq_id": 2}
        client.do("optim_step", step)
        path = client.do("save_weights", {"model_id": model, "path": "ck", "seq_id": 3})["path"]
        wanted = client.do("forward_backward", passes([ONE], model=model, seq=4))
        client.do("optim_step", step | {"seq_id": 5})
        last = client.do("forward_backward", passes([ONE], model=model, seq=6))
        folder = running.service.checkpoints._folder(path)
    with training_service(tmp_path) as running:
        again = PlainClient(running.url)
        again.begin()
        assert again.send("POST", "get_info", {"model_id": model}).status == 404, "the model itself is gone"
        body = {"session_id": again.session, "model_seq_id": 0, "path": path, "optimizer": True}
        made = again.do("load_weights", body)["model_id"]
        assert again.do("forward_backward", passes([ONE], model=made, seq=1)) == wanted
        again.do("optim_step", step | {"model_id": made, "seq_id": 2})
        assert again.do("forward_backward", passes([ONE], model=made, seq=3)) == last
        asked = {"session_id": again.session, "sampling_session_seq_id": 0, "model_path": path}
        sampler = again.post("create_sampling_session", asked)["sampling_session_id"]
        scored = again.do("asample", sample(sampler=sampler) | {"prompt_logprobs": True})["prompt_logprobs"]
    plain = load_model(ModelConfig(path=str(tmp_path / "model"), dtype="float32", device="cpu"), 0).model
    outcome = PeftModel.from_pretrained(plain, folder)
    assert outcome.peft_config["default"].lora_alpha == shared_base.ALPHA
    logits = outcome(input_ids=torch.tensor([IDS])).logits[0].log_softmax(-1)
    read = logits[:-1].gather(1, torch.tensor(IDS[1:])[:, None])[:, 0]
    torch.testing.assert_close(read, torch.tensor(scored[1:]), atol=2e-6, rtol=0)
    start = wanted["loss_fn_outputs"][0]["logprobs"]["data"]
    torch.testing.assert_close(read, torch.tensor(start), atol=2e-6, rtol=0)
