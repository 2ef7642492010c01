"""Learners on actors of a Ray cluster: the same run as with processes of this machine, also after one was killed."""

import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tomli_w
from safetensors.numpy import load_file

from agentrl.cli import main
from agentrl.cluster import ray_cluster
from agentrl.cluster.learner_group import LearnerGroup
from agentrl.cluster.ray_cluster import ReservedCard
from agentrl.config import merge
from agentrl.graph import read_graph
from agentrl.run import Progress
from agentrl.settings import Settings
from agentrl.settings.sections import ClusterSection
from agentrl.train import group_of, train
from agentrl.trainer import LearnerConfig
from tests.cluster.test_ray_driver import same
from tests.run.test_overlap import TABLES

BATCH = {"batch": {"tasks": 4, "copies": 3}, "run": {"iterations": 3, "checkpoint_every": 1, "keep": 9}}
LEARNER = {"processes": 2}


def settings(folder: Path, **sections: Any) -> Settings:
    return Settings(merge(merge(TABLES, BATCH), {"run": {"folder": str(folder)}, "learner": LEARNER, **sections}))


def run(folder: Path, *, resume: bool = False, **sections: Any) -> Path:
    found = settings(folder, **sections)
    train(found, resume=resume, progress=Progress(quiet=True))
    return found.folder


def equal(one: Path, other: Path) -> None:
    """The same graphs and the same last weights."""
    for i in range(3):
        same(*(read_graph(folder / f"graphs/{i:06d}.safetensors") for folder in (one, other)))
    last, others = (load_file(folder / "checkpoints/000003/policy/model.safetensors") for folder in (one, other))
    for name, weight in last.items():
        np.testing.assert_allclose(weight, others[name], atol=1e-6, err_msg=name)


class FakeRay(SimpleNamespace):
    """What `connect` asks of Ray."""

    def __init__(self, cpus: int) -> None:
        super().__init__(
            up=False, begun=0, left=0, faults=[], cpus=cpus, util=SimpleNamespace(scheduling_strategies=None)
        )

    def is_initialized(self) -> bool:
        return self.up

    def init(self, **options: Any) -> None:
        self.begun, self.options = self.begun + 1, options
        if self.faults:
            raise self.faults.pop(0)
        self.up = True

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": float(self.cpus)}

    def shutdown(self) -> None:
        self.up, self.left = False, self.left + 1


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    fake = FakeRay(3)
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.setitem(sys.modules, "ray.util", fake.util)
    monkeypatch.setitem(sys.modules, "ray.util.scheduling_strategies", fake.util)
    return fake


def test_the_connection_is_shared_and_the_last_user_leaves_it(ray):
    cluster, learner = ClusterSection(address="auto", workers=1), LearnerConfig(processes=2)
    found = [ray_cluster.connect(cluster, learner), ray_cluster.connect(cluster, learner)]
    assert ray.begun == 1 and ray.options["address"] == "auto"
    ray_cluster.release(found[0])
    assert ray.up
    ray_cluster.release(found[1])
    assert not ray.up
    ray_cluster.release(ray_cluster.connect(ClusterSection(address="local", workers=1), learner))
    assert ray.options["num_cpus"] == 3 and not ray.up


LATE = "The current node timed out during startup. This could happen because\nsome of the raylet failed to startup"


def test_a_cluster_whose_processes_start_late_is_started_again(ray):
    local, learner = ClusterSection(address="local", workers=1), LearnerConfig(processes=2)
    ray.faults = [Exception(LATE), Exception(LATE)]  # of this type, and no narrower one
    ray_cluster.release(ray_cluster.connect(local, learner))
    assert (ray.begun, ray.left, ray.up) == (3, 3, False)  # what a failed start left was ended, too


@pytest.mark.parametrize(
    ("address", "tries", "sentence"),
    [
        (
            "local",
            3,
            r"address = 'local': Ray could not start a cluster .* in 3 tries \(The current node timed out .*\): ",
        ),
        (
            "auto",
            1,
            r"address = 'auto': no Ray cluster answers there \(The current node timed out .*\); start one with",
        ),
    ],
)
def test_a_cluster_that_does_not_start_is_one_sentence(address, tries, sentence, ray):
    ray.faults = [Exception(LATE) for _ in range(tries)]
    with pytest.raises(ValueError, match=sentence) as told:
        ray_cluster.connect(ClusterSection(address=address, workers=1), LearnerConfig())
    assert "\n" not in str(told.value) and ray.begun == tries and not ray.up


def test_a_cluster_with_too_few_cpus_is_one_sentence(ray):
    with pytest.raises(ValueError, match=r"cluster\.workers = 2 and learner\.processes = 2 need 4 CPUs, and .* has 3"):
        ray_cluster.connect(ClusterSection(address="auto", workers=2), LearnerConfig(processes=2))
    with pytest.raises(ValueError, match=r"cluster\.workers = 4 need 4 CPUs, and the Ray cluster has 3: lower"):
        ray_cluster.connect(ClusterSection(address="auto", workers=4), LearnerConfig())
    assert not ray.up


def test_learners_are_actors_only_where_a_recipe_has_both_sections(tmp_path, monkeypatch):
    from agentrl.cluster.ray_learners import RayLearnerGroup

    local = {"address": "local"}
    assert type(group_of(settings(tmp_path, cluster=local))) is RayLearnerGroup
    assert type(group_of(settings(tmp_path, learner={"offload": True}))) is LearnerGroup
    assert type(group_of(settings(tmp_path, cluster=local, learner={"processes": 1, "offload": True}))) is LearnerGroup
    with group_of(settings(tmp_path, learner={})) as alone:
        assert alone is None
    with pytest.raises(ValueError, match="this one was started alone"):
        group_of(settings(tmp_path))
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "0")):
        monkeypatch.setenv(name, value)  # torchrun has started them
    assert type(group_of(settings(tmp_path, cluster=local))) is LearnerGroup


@pytest.mark.parametrize(
    ("sections", "sentence"),
    [
        ({"cluster": {"address": "local", "workers": 0}, "learner": {"processes": 1}}, "has no effect with"),
        (
            {
                "cluster": {"address": "local"},
                "engine": {"name": "vllm", "python": "p"},
                "run": {"deterministic": False},
            },
            r"play with engines in processes of Ray, .*: set cluster\.workers=0",
        ),
    ],
)
def test_a_cluster_without_work_or_with_servers_behind_workers_is_refused(sections, sentence):
    with pytest.raises(ValueError, match=sentence):
        Settings(merge(merge(TABLES, BATCH), sections))


@pytest.mark.parametrize(("visible", "card"), [("3", 3), ("5,6", 5), ("", 0), (None, 0), ("GPU-8932f937", 0)])
def test_the_gpu_of_rank_0_is_the_one_that_ray_gave(visible, card, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert ReservedCard().card() == card


@pytest.mark.ray
@pytest.mark.timeout(1800)
def test_learners_as_actors_train_as_processes_do_also_with_workers(tmp_path):
    pytest.importorskip("ray")
    processes = settings(tmp_path / "processes").folder
    (tmp_path / "toy.toml").write_text(tomli_w.dumps(settings(tmp_path / "processes").dump()))
    assert main(["train", str(tmp_path / "toy.toml")]) == 0
    actors = run(tmp_path / "actors", cluster={"address": "local", "workers": 0})
    equal(processes, actors)
    both = run(tmp_path / "both", cluster={"address": "local", "workers": 1})
    equal(processes, both)


@pytest.mark.ray
@pytest.mark.timeout(1800)
def test_a_learner_killed_in_mid_update_ends_the_run_and_resuming_gives_the_undisturbed_one(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    from agentrl.cluster.ray_learners import RayLearnerGroup

    cluster = {"address": "local", "workers": 0}
    calm = run(tmp_path / "calm", cluster=cluster)
    tell, killed = RayLearnerGroup.tell, list[int]()

    def disturbed(self, message):
        last = message.call == "improve" and message.values["iteration"] == 1
        victim = self.pids()[0] if last else 0  # before the call: an actor answers when it has done what was said
        tell(self, message)
        if last:
            killed.append(victim)
            os.kill(victim, signal.SIGKILL)

    monkeypatch.setattr(RayLearnerGroup, "tell", disturbed)
    with pytest.raises(
        ValueError,
        match=r"process 1 of the learner was lost: .*; agentrl ended the other processes; continue with --resume",
    ):
        run(tmp_path / "shaken", cluster=cluster)
    assert len(killed) == 1
    monkeypatch.setattr(RayLearnerGroup, "tell", tell)
    equal(calm, run(tmp_path / "shaken", resume=True, cluster=cluster))


@pytest.mark.ray
def test_actors_of_one_machine_read_a_graph_without_a_copy(tmp_path):
    ray = pytest.importorskip("ray")
    from tests.graph.graphs import trees

    graph = trees(1)
    graph = graph.with_columns(reward=np.arange(float(len(graph))), wide=np.zeros((len(graph), 40_000)))

    def look(actor: Any, seen: Any) -> tuple[bool, bool, float]:
        return seen.columns["wide"].flags.writeable, seen.columns["wide"].flags.owndata, float(seen.reward.sum())

    found = ray_cluster.connect(ClusterSection(address="local", workers=1), LearnerConfig())
    try:
        actor = ray.remote(ReservedCard).remote()
        writeable, owned, total = ray.get(actor.__ray_call__.remote(look, ray.put(graph)))
    finally:
        ray_cluster.release(found)
    assert not writeable and not owned  # the array lies in the object store
    assert total == float(np.arange(len(graph)).sum())
