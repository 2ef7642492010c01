"""The reliability campaign finds what is planted: another byte, a file too many, a fault, a slope, a slow action."""

import json
import multiprocessing
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from agentrl.types import Observation
from benchmarks import campaign
from benchmarks.reliability import (
    actions,
    faults,
    folders,
    hostile,
    kills,
    load,
    odd_answers,
    page,
    recipes,
    soak,
    training_server,
)
from benchmarks.reliability.child import Aim, train

SEEN = Observation(text="a room", actions=("go north", "look"))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder in small."""
    folder = tmp_path / "whole"
    for place in ("checkpoints/000002/policy", "graphs", "evaluations"):
        (folder / place).mkdir(parents=True)
    (folder / "config.toml").write_text('[run]\nname = "whole"\nfolder = "x"\nseed = 1\n')
    (folder / "metrics.jsonl").write_text('{"stage": "train", "step": 0, "loss": 0.5}\n')
    (folder / "timings.jsonl").write_text('{"stage": "train", "step": 0, "rollout_s": 0.5}\n')
    for number in range(2):
        (folder / "graphs" / f"00000{number}.safetensors").write_bytes(b"graph")
    (folder / "evaluations" / "end-greedy.json").write_text(
        json.dumps({"success_rate": 0.5, "seconds": 1.0, "wall_seconds": 2.0})
    )
    torch.save({"step": 3, "moments": [torch.arange(4.0)]}, folder / "checkpoints/000002/policy.optimiser.pt")
    (folder / "checkpoints/000002/policy/model.safetensors").write_bytes(b"weights")
    return folder


def changed(run: Path, name: str, data: bytes | None) -> list[str]:
    """The differences of a copy in which a file has other bytes, or is gone."""
    copy = run.with_name("cut")
    shutil.copytree(run, copy)
    (copy / name).parent.mkdir(parents=True, exist_ok=True)
    (copy / name).unlink(missing_ok=True) if data is None else (copy / name).write_bytes(data)
    return folders.differences(run, copy)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("metrics.jsonl", b'{"stage": "train", "step": 0, "loss": 0.6}\n'),
        ("metrics.jsonl", b'{"stage": "train", "step": 0, "loss": 0.5}'),
        ("timings.jsonl", b'{"stage": "train", "step": 1, "rollout_s": 0.5}\n'),
        ("timings.jsonl", b""),
        ("graphs/000000.safetensors", b"grapH"),
        ("graphs/000000.safetensors", None),
        ("graphs/.000000.safetensors.12.part", b"left"),
        ("checkpoints/.part/x", b"left"),
        ("checkpoints/000002/policy/model.safetensors", b"weighty"),
        ("config.toml", b'[run]\nname = "cut"\nfolder = "x"\nseed = 2\n'),
        ("evaluations/end-greedy.json", b'{"success_rate": 0.6, "seconds": 1.0, "wall_seconds": 2.0}'),
    ],
)
def test_every_planted_difference_is_found(run, name, data):
    (found,) = changed(run, name, data)
    assert found.startswith(name)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("timings.jsonl", b'{"stage": "train", "step": 0, "rollout_s": 9.5}\n'),
        ("config.toml", b'[run]\nname = "cut"\nfolder = "y"\nseed = 1\n'),
        ("evaluations/end-greedy.json", b'{"success_rate": 0.5, "seconds": 2.0, "wall_seconds": 3.0}'),
        (".lock", b""),
    ],
)
def test_times_and_names_may_differ(run, name, data):
    assert changed(run, name, data) == []


@pytest.mark.parametrize(
    "state",
    [
        {"step": 3, "moments": [torch.tensor([0.0, 1.0, 2.0, np.nextafter(np.float32(3), np.float32(4))])]},
        {"step": 3, "moments": [torch.tensor([-0.0, 1.0, 2.0, 3.0])]},  # equal numbers, other bits
        {"step": 3, "moments": [torch.arange(4)]},
        {"step": 4, "moments": [torch.arange(4.0)]},
        {"moments": [torch.arange(4.0)], "step": 3},
    ],
)
def test_every_planted_difference_of_an_optimiser_is_found(run, state):
    name = "checkpoints/000002/policy.optimiser.pt"
    torch.save(state, run.parent / "other.pt")
    (found,) = changed(run, name, (run.parent / "other.pt").read_bytes())
    assert found.startswith(name)


def test_the_same_state_packed_in_another_way_is_the_same(run):
    base = torch.arange(8.0)
    torch.save({"step": 3, "moments": [base[:4]]}, run.parent / "other.pt")  # with the storage of all eight
    assert changed(run, "checkpoints/000002/policy.optimiser.pt", (run.parent / "other.pt").read_bytes()) == []


TABLE = {
    "url": "http://127.0.0.1:9",
    "rank": 4,
    "state": "tinker://0a1b:train:1/weights/policy-state-10-4df3cf7155cf",
    "sampler": "tinker://0a1b:train:1/sampler_weights/policy-sampler-10-6e3879118943",
}
ROW = {"stage": "train", "step": 0, "loss": 0.5, "mismatch_max": 2e-7}
COLUMNS = {"ids": torch.arange(3), "logprobs": torch.tensor([-1.0, -2.0, float("nan")])}


@pytest.fixture
def served(tmp_path: Path) -> Callable[..., list[str]]:
    """Two small folders of runs whose weights a training service holds; returns how they differ."""

    def differ(table=TABLE, row=ROW, columns=COLUMNS, state=TABLE["sampler"]) -> list[str]:
        ours = (TABLE, ROW, COLUMNS, TABLE["sampler"])
        for name, (at, line, tensors, frozen) in (("whole", ours), ("cut", (table, row, columns, state))):
            policy = tmp_path / name / "checkpoints/000010/policy"
            for place in (policy, tmp_path / name / "graphs"):
                place.mkdir(parents=True)
            (policy / "tinker.json").write_text(json.dumps(at))
            torch.save({"updates": 10, "reference": {"path": frozen}}, policy.parent / "policy.optimiser.pt")
            (tmp_path / name / "metrics.jsonl").write_text(json.dumps(line) + "\n")
            save_file(tensors, tmp_path / name / "graphs" / "000000.safetensors", {"step_graph": "{}"})
        return folders.differences(tmp_path / "whole", tmp_path / "cut", served=True)

    return differ


def test_runs_at_a_service_may_differ_in_random_names_and_in_rounding(served):
    other = {key: str(value).replace("0a1b:train:1", "ffff:train:7") for key, value in TABLE.items()}
    other["state"] = other["state"].replace("4df3cf7155cf", "0123456789ab")
    near = {**COLUMNS, "logprobs": COLUMNS["logprobs"] + 9e-6}
    assert served({**other, "rank": 4}, {**ROW, "mismatch_max": 4e-7}, near, other["sampler"]) == []


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"table": {**TABLE, "rank": 5}}, "checkpoints/000010/policy/tinker.json"),
        ({"table": {**TABLE, "state": TABLE["state"].replace("-10-", "-8-")}}, "checkpoints/000010/policy/tinker.json"),
        ({"state": TABLE["state"]}, "checkpoints/000010/policy.optimiser.pt"),
        ({"row": {**ROW, "loss": 0.5 + 1e-9}}, "metrics.jsonl"),
        ({"row": {**ROW, "mismatch_max": 2e-5}}, "metrics.jsonl"),
        ({"columns": {**COLUMNS, "ids": torch.arange(1, 4)}}, "graphs/000000.safetensors"),
        ({"columns": {**COLUMNS, "logprobs": COLUMNS["logprobs"] + 2e-5}}, "graphs/000000.safetensors"),
        ({"columns": {**COLUMNS, "logprobs": COLUMNS["logprobs"][:2].clone()}}, "graphs/000000.safetensors"),
        ({"columns": {"ids": COLUMNS["ids"]}}, "graphs/000000.safetensors"),
    ],
)
def test_every_planted_difference_of_runs_at_a_service_is_found(served, changes, name):
    (found,) = served(**changes)
    assert found.startswith(f"{name} differs: ")


@pytest.mark.parametrize(
    ("code", "stage", "said", "sent"),
    [
        (75, "rollout", "agentrl: the service lost an answer; continue with --resume", kills.STRUCK),
        (75, "evaluate", "agentrl: the service lost an answer; nothing was stored yet", kills.STRUCK),
        (75, "rollout", "agentrl: the service lost an answer", ""),
        (2, "start", "agentrl: no training service answers at http://x", kills.STRUCK),
        (2, "update", "agentrl: no training service answers at http://x", ""),
        (2, "start", "agentrl: cannot write a checkpoint", ""),
        (0, "evaluate", "report: x", ""),
    ],
)
def test_a_run_without_its_server_ends_as_it_should(tmp_path, code, stage, said, sent):
    one = kills.Campaign(tmp_path, 0, print)
    (tmp_path / "log").write_text(f"iteration 1\n{said}\n")
    assert one._without_server(code, stage) == (code, sent, stage)
    assert one.tally.report()["training_server_killed"] == {str(code): 1}


def test_other_bytes_at_the_training_server_are_found(tmp_path):
    server = training_server.ServerProcess.__new__(training_server.ServerProcess)  # without its process
    server.work = tmp_path
    other = {name: str(value).replace("0a1b", "ffff") for name, value in TABLE.items()}
    for table, optimiser in ((TABLE, b"1"), (other, b"2")):
        place = tmp_path / "stored" / table["state"].removeprefix("tinker://").replace(":", ".")
        place.mkdir(parents=True)
        (place / "adapter_model.safetensors").write_bytes(b"adapters")
        (place / "optimizer.safetensors").write_bytes(optimiser)
        (place.parent / ".one.partial").mkdir()
    found = server._apart(TABLE, other)
    assert next(found) == "optimizer.safetensors of state has other bytes"
    assert next(found) == "adapter_model.safetensors of sampler is missing at the training server"
    assert training_server.hidden(tmp_path) == [
        f"stored/{run}.train.1/weights/.one.partial" for run in ("0a1b", "ffff")
    ]


def test_odd_answers_are_paid_by_hand():
    env, task = odd_answers.make(odd_answers.Config()), odd_answers.tasks(odd_answers.Config(first=7))[0]
    assert env.reset(task).text == "007"
    assert [env.step(answer)[1] for answer in ("one", "two!")] == [0.5, 0.0]  # lengths 3 and 4, half a point each
    player = odd_answers.expert(env, "careless", 0)
    player.reset(task)
    assert len(player.act(env.reset(task)).action) % 2 == 1  # 7 is no third task


def test_every_configuration_is_a_recipe():
    import tomllib

    from agentrl.config import override
    from agentrl.settings import Settings

    for name in recipes.CONFIGURATIONS:
        assert Settings(override(tomllib.loads(recipes.recipe(name, 5)), [])).tables.run.seed == 5


WRITER = """
import sys
from multiprocessing import Pipe
from pathlib import Path
from benchmarks.reliability.child import Aim, Watch

folder = Path(sys.argv[1])
ours, theirs = Pipe()
watch = Watch(folder / "run", folder / "marker", Aim("graph", 0.0, 2), theirs)
sys.addaudithook(watch.audit)
for number in range(3):
    (folder / "run" / "graphs" / str(number)).write_bytes(b"x")
    (folder / "other" / "graphs" / str(number)).write_bytes(b"x")
    with (folder / "run" / "metrics.jsonl").open("a") as file:
        file.write("line")
"""


def test_a_process_dies_right_before_the_file_operation_that_is_aimed_at(tmp_path):
    for place in ("run", "other"):
        (tmp_path / place / "graphs").mkdir(parents=True)
    (tmp_path / "marker").write_bytes(b" " * 32)
    ended = subprocess.run([sys.executable, "-c", WRITER, str(tmp_path)], cwd=Path(__file__).parents[2], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert (tmp_path / "marker").read_bytes().strip() == b"write graph"
    assert [p.name for p in (tmp_path / "run" / "graphs").iterdir()] == ["0"]
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == "line"


@pytest.mark.slow
def test_a_run_dies_at_the_file_operation_that_is_aimed_at_and_goes_on(tmp_path):
    (tmp_path / "temporary").mkdir()
    (tmp_path / "marker").write_bytes(b" " * 32)
    (tmp_path / "tiny.toml").write_text(recipes.recipe("contexts", 0, run={"iterations": 0}, warmup={"updates": 0}))
    context = multiprocessing.get_context("spawn")

    def live(aim: Aim) -> tuple[int | None, str]:
        _, theirs = context.Pipe(duplex=False)
        words = [str(tmp_path / "tiny.toml"), f"run.folder={tmp_path}", "run.name=cut", "--resume"]
        process = context.Process(target=train, args=(words, tmp_path / "cut", tmp_path, aim, theirs))
        process.start()
        process.join()
        return process.exitcode, (tmp_path / "marker").read_bytes().strip().decode()

    assert live(Aim("checkpoint", 0.0, 5)) == (-signal.SIGKILL, "write checkpoint")
    assert [p.name for p in (tmp_path / "cut" / "checkpoints").iterdir()] == [".part"]
    assert live(Aim()) == (0, "end")
    operations = json.loads((tmp_path / "operations.json").read_text())
    assert operations["checkpoint"] > 5 and operations["metrics"] > 5
    assert [p.name for p in (tmp_path / "cut" / "checkpoints").iterdir()] == ["000000"]


@pytest.mark.slow
def test_an_interrupt_before_the_program_listens_ends_it_as_a_signal_does(tmp_path):
    """Under multiprocessing's fork server it would be exit code 1, without a word."""
    (tmp_path / "log").touch()
    one = kills.Campaign(tmp_path, 0, print)
    (tmp_path / "none.toml").write_text("")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kills, "SIGNALS", {signal.SIGINT: 1.0})
        for _ in range(3):
            death = one.live(tmp_path / "none.toml", tmp_path / "cut", Aim("start", 0.0), fresh=False)
            assert death[:2] in ((-signal.SIGINT, "SIGINT"), (128 + signal.SIGINT, "SIGINT"), (2, ""))
    assert one.tally.lost == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", ["kill", "fault", "load", "soak"])
def test_two_minutes_of_each_part_lose_nothing(tmp_path, part):
    out = tmp_path / "report.json"
    assert campaign.main([part, "--minutes", "2", "--seed", "12", "--out", str(out)]) == 0
    report = json.loads(out.read_text())
    assert report["lost"] == [] and report["commit"]
    if part == "kill":
        assert report["kills"] > 0 and report["runs_compared"] > 0
    if part == "fault":
        assert report["runs"]["inline"]["counted"] > 0
    if part == "load":
        assert report["worlds"]["alfworld"][0]["open_at_once"] == load.SIZES[0]
    if part == "soak":
        assert report["iterations"] > soak.LEAST_WARM


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ["contexts", "service"])
def test_a_few_kills_lose_nothing(tmp_path, name):
    if name == "service":
        pytest.importorskip("tinker")
    words = ["kill", "--minutes", "0.01", "--only", name, "--out", str(tmp_path / "report.json")]
    assert campaign.main(words) == 0
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["kills"] > 0 and report["runs_compared"] == 1 and report["lost"] == []


def test_hostile_actions_repeat_with_their_seed_and_are_of_every_kind():
    first, again, other = (
        [hostile.draw(rng, SEEN) for _ in range(400)] for rng in map(np.random.default_rng, (1, 1, 2))
    )
    assert first == again and first != other
    assert {kind for kind, _ in first} == set(hostile.KINDS)
    longest = max(len(text) for _, text in first)
    assert longest > 10_000 and any(not text.isprintable() for _, text in first)


def test_hostile_actions_do_sokoban_no_harm():
    report = actions.attack("sokoban", 0, 300, float("inf"), lambda line: None)
    assert report["actions"] == 300 and report["lost"] == [] and report["slowest_action_cpu_ms"] > 0


def test_an_environment_that_breaks_or_dawdles_is_found(tmp_path, monkeypatch):
    broken = {"name": "benchmarks.reliability.faulty", "share": 0.5, "journal": str(tmp_path / "journal"), "count": 10}
    monkeypatch.setitem(actions.ENVIRONMENTS, "broken", broken)
    report = actions.attack("broken", 0, 60, float("inf"), lambda line: None)
    struck = len((tmp_path / "journal").read_text().splitlines())
    assert struck > 5 and len(report["lost"]) == min(struck, actions.MOST_TOLD)
    monkeypatch.setattr(actions, "BOUND_S", 0.0)
    monkeypatch.setitem(actions.ENVIRONMENTS, "broken", {**broken, "share": 0.0})
    assert "the bound is 0" in actions.attack("broken", 0, 5, float("inf"), lambda line: None)["lost"][0]


def failing_run(folder: Path, faults_struck: int, retried: int, given_up: float) -> dict[str, Any]:
    """Metrics of one iteration, and a journal."""
    (folder / "threads").mkdir()
    (folder / "train").write_text("NaN\n" * faults_struck)
    row = {"stage": "train", "env_error_share": given_up, "retried": retried, "episodes": 40}
    (folder / "threads" / "metrics.jsonl").write_text(json.dumps(row))
    lost: list[str] = []
    return {**faults.accounts("threads", folder, lost), "lost": lost}


def test_a_fault_that_is_not_counted_is_found(tmp_path):
    for name, struck, lost in (("fair", 5, 0), ("silent", 6, 1)):
        (tmp_path / name).mkdir()
        report = failing_run(tmp_path / name, struck, 4, 1 / 48)
        assert report["counted"] == 5 and len(report["lost"]) == lost
        assert report["faults_by_kind"] == {"NaN": struck} == dict(Counter({"NaN": struck}))


def samples(growth_mb: float, files: int = 0) -> list[soak.Sample]:
    rng = np.random.default_rng(0)
    return [
        soak.Sample(2.0 * i, 10 * i, 400 + growth_mb * i / 10 + rng.normal(), 12, 3, files * i // 100)
        for i in range(120)
    ]


def test_memory_that_grows_and_files_that_stay_are_found():
    assert soak.report("toy", samples(0.0), [])["lost"] == []
    warming = [s._replace(memory_mb=400 + min(s.iterations, 500) / 100) for s in samples(0.0)]  # 5 MB, then no more
    assert soak.report("toy", warming, [])["lost"] == []
    step = [s._replace(memory_mb=400 + 1.5 * (s.iterations > 800)) for s in samples(0.0)]  # of an allocator
    assert soak.report("toy", step, [])["lost"] == []
    assert soak.report("stream", samples(0.6), [])["lost"] == []
    assert "the bound is 0.1" in soak.report("toy", samples(0.6), [])["lost"][0]
    (grows,) = soak.report("stream", samples(2.0), [])["lost"]
    assert "memory grows by 2.0" in grows or "memory grows by 1.9" in grows
    assert soak.report("stream", samples(0.0, files=4), [])["lost"] == ["files grew from 2 to 4"]
    assert "too few samples" in soak.report("stream", samples(0.0)[:9], [])["lost"][0]


def test_the_slope_by_hand():
    # y = 2 x + 1 with residuals 1, -2, 1: slope (−1·0 + 1·6)/2... = (y2 − y0) / 2 = (6 − 2) / 2
    found = soak.slope(np.array([0.0, 1.0, 2.0]), np.array([2.0, 1.0, 6.0]))
    assert found.slope == pytest.approx(2.0)
    assert found.error == pytest.approx((6 / 1 / 2) ** 0.5)  # residuals 1, -2, 1: 6, one degree of freedom, spread 2


def row(episodes: int, cpu_s: float, memory_mb: float, at_once: int = 0) -> dict[str, float]:
    return {"episodes": episodes, "open_at_once": at_once or episodes, "cpu_s": cpu_s, "memory_mb": memory_mb}


def test_a_load_that_grows_faster_than_its_episodes_is_found():
    # linear: 0.022 MB per episode, of which the process hides 9 MB, and 3 ms; the first row is 13 KB per episode
    linear = [row(1000, 3, 13), row(3000, 9, 57), row(10_000, 30, 211)]
    assert load.faults(linear) == load.faults(linear[:2]) == load.faults([]) == []
    # by hand: 10,000 at 61 CPU s: (61 - 9) / 7000 = 7.4 ms per further episode, 2.48 times (9 - 3) / 2000 = 3 ms
    assert load.faults([*linear[:2], row(10_000, 61, 211)]) == []
    assert load.faults([*linear[:2], row(10_000, 62, 211)])[0].startswith("cpu_s of a further episode grew")
    squares = [row(n, 3e-6 * n**2, 22e-6 * n**2) for n in load.SIZES]
    assert [why.split()[0] for why in load.faults(squares)] == ["cpu_s", "memory_mb"]
    assert "memory_mb" in load.faults([*linear[:2], row(10_000, 30, 300)])[0]
    assert load.faults([row(1000, 0.01, 0.0), row(3000, 0.05, 0.5), row(10_000, 9, 9)]) == []  # too small to judge
    assert "only 7" in load.faults([row(1000, 1, 5, 7)])[0]
    assert load.faults([{"episodes": 5, "error": "gone"}]) == ["5 episodes: gone"]


def test_a_load_without_time_measures_nothing_and_says_so():
    report = load.load(0.0, ("toy",), lambda report: None)
    assert report["not_measured"] == [f"toy, {size} episodes" for size in load.SIZES]
    assert report["lost"] == ["nothing was measured: give it more --minutes"]


def test_every_episode_of_a_load_is_open_at_once():
    world = load.WORLDS["toy"]
    report = load.measure(world["env"], world["turns"], 40, "inline")
    assert report["episodes"] == report["open_at_once"] == 40 and report["steps"] == 160


def reports(folder: Path, *, ends: bool = True, **commits: str) -> Path:
    """Four small reports, as the parts write them; without `ends`, that on kills is from before training servers."""
    place = {"faults_by_kind": {"NaN": 5}, "faults": 5, "counted": 5, "retried_episodes": 4, "given_up_episodes": 1}
    place |= {"scored_episodes": 47, "episodes": 48, "scored_in_silence": 0, "stopped": False}
    action = {"actions": 300, "cpu_us_per_action": 160.2, "slowest_action_cpu_ms": 9.5, "lost": []}
    loaded = {**row(1000, 3.0, 19.5), "cpu_ms_per_episode": 3.0, "kb_per_episode": 20.0, "wall_s": 4.0}
    kill = {"kills": 9, "kills_by_configuration": {"trees": 9}, "runs_compared": 1, "lost": []}
    kill |= {"runs_compared_by_configuration": {"trees": 1}, "kills_by_signal": {"SIGKILL": 8, "SIGTERM": 1}}
    kill |= {"kills_by_stage": {"RL: rollout": 9}, "kills_of_fresh_interpreters": 1}
    kill |= {"training_server_killed": {"75": 3, "0": 1}} if ends else {}
    parts = {
        "kill": kill,
        "fault": {"runs": {"inline": place}, "actions": {"sokoban": action}, "bound_cpu_s": 1.0, "lost": []},
        "load": {"worlds": {"toy": [loaded]}, "large": {"big, inline": loaded}, "not_measured": ["x"], "lost": []},
        "soak": soak.report("toy", samples(0.0), []),
    }
    parts["fault"]["not_begun"] = []
    about = {"seed": 12, "asked_minutes": 30.0, "minutes": 31.2, "machine": "x86_64, 2 cores", "python": "3.11"}
    for part, report in parts.items():
        whole = {**about, "commit": commits.get(part, "0123456789ab"), **report}
        (folder / f"campaign-{part}.json").write_text(json.dumps(whole))
    return folder


def test_four_reports_of_one_commit_are_the_page(tmp_path):
    out = tmp_path / "page.md"
    assert campaign.main(["page", "--reports", str(reports(tmp_path)), "--out", str(out)]) == 0
    text = out.read_text()
    assert "**Nothing was lost.**" in text and "Commit 0123456789ab, x86_64, 2 cores" in text
    assert "\n| `trees` | Tree-GRPO" in text and "| 9 | 1 |" in text and "| `agents` |" in text
    assert "| this process | 1 | 5 | 5 | 4, 1, 47 of 48 | 0 | no |" in text
    assert "| toy | 1,000 | 3.0 | 3.0 | 19.5 | 20.0 |" in text and "The time did not suffice for: x." in text
    assert "{" not in text.replace("{table", "") and "kill --minutes 30 --seed 12" in text


@pytest.mark.parametrize("ends", [True, False])
def test_the_page_tells_of_killed_training_servers(tmp_path, ends):
    text = page.page(page.read(reports(tmp_path, ends=ends)))
    assert "| `service` | weights, optimiser and KL reference at a training server" in text
    told = "The training server was killed 4 times under a run: 3 ended by themselves with code 75"
    assert (told in text) is ends and ("\n\n\n" not in text)


@pytest.mark.parametrize("commits", [{"soak": "other"}, dict.fromkeys(("kill", "fault", "load", "soak"), "0123+")])
def test_reports_of_several_commits_or_of_changed_files_are_no_page(tmp_path, commits):
    with pytest.raises(SystemExit, match="the reports are not of one commit"):
        campaign.main(["page", "--reports", str(reports(tmp_path, **commits)), "--out", str(tmp_path / "page.md")])
    assert not (tmp_path / "page.md").exists()


def test_a_missing_report_is_named_with_its_command(tmp_path):
    (reports(tmp_path) / "campaign-load.json").unlink()
    with pytest.raises(SystemExit, match=r"campaign-load\.json is missing: python benchmarks/campaign\.py load --out"):
        campaign.main(["page", "--reports", str(tmp_path), "--out", str(tmp_path / "page.md")])
