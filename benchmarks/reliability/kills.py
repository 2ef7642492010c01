"""Kills training runs at random moments and at their file operations, resumes them, and compares every byte they leave.

A run is a real process. Most are forked from a process that has imported torch (`multiprocessing`'s fork server), which
spares some five CPU seconds per start; every twelfth is a fresh interpreter. A run is killed by SIGKILL, SIGTERM or
SIGINT and started again with --resume, until it ends. Then its folder is compared with that of a run of the same recipe
and seed without a kill.

The weights of the configuration `service` are at a training server (`agentrl serve trainer`). About every third kill
hits this server, which is started again at once; the run must then end by itself with exit code 75, or with code 2 if
it begins while the server is away.
"""

import json
import multiprocessing
import os
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.reliability.child import BEGAN, HIT, UP, WIDTH, Aim, left_in_session, train
from benchmarks.reliability.folders import differences
from benchmarks.reliability.recipes import CONFIGURATIONS, SERVED, recipe
from benchmarks.reliability.training_server import PRELOADED as SERVER_PRELOADED, ServerProcess

PRELOADED = [
    "benchmarks.reliability.child",
    "agentrl.train",
    "agentrl.cli.train",
    "agentrl.report",
    "transformers.models.qwen3.modeling_qwen3",
]
HANGS_S = 900.0  # a process that lives longer counts as hanging; a run takes some ten seconds on a calm machine
MOST_KILLS = 20  # largest number of kills of one run, so that the run ends
SOON = 8  # a process lives for about an eighth of a run, so that a run is killed several times
TORCHS = "torchinductor_"  # beginning of a folder that torch keeps for each user among the temporary files
FRESH = 12  # every twelfth start is a fresh interpreter
SIGNALS = {signal.SIGKILL: 0.8, signal.SIGTERM: 0.1, signal.SIGINT: 0.1}
SERVER_SHARE = 1 / 3  # share of the kills of `service` that hit the training server
STRUCK = "training server"  # in place of the name of a signal
AWAY = ("no training service answers", "accepts no connection")  # one of them, and code 2, if a run begins meanwhile
GOES_ON = ("--resume", "nothing was stored yet")  # one of them ends the sentence on a lost service
AIMS = {"start": 0.08, "time": 0.42, "checkpoint": 0.2, "graph": 0.12, "metrics": 0.12, "evaluation": 0.06}


class Death(NamedTuple):
    """How a process ended.

    Attributes:
        code: its exit code, negative for a signal.
        sent: the name of the signal that the campaign sent, or the process itself; STRUCK if the process ended as it
            should after a kill of its training server; empty if it ended by itself.
        stage: what it was doing.
    """

    code: int
    sent: str
    stage: str


@dataclass(kw_only=True)
class Tally:
    """What happened so far; the report.

    Attributes:
        kills: number of kills by stage. signals, aims, configurations: kills by signal, by aim and by configuration.
        resumed: starts with --resume after a kill. fresh: kills of processes that were not forked.
        server: ends of runs whose training server was killed, by exit code.
        compared: runs that reached their end and were compared.
        lost: one sentence for each thing that differs, is left over or was not continued; empty if nothing was lost.
    """

    kills: Counter[str] = field(default_factory=Counter)
    signals: Counter[str] = field(default_factory=Counter)
    aims: Counter[str] = field(default_factory=Counter)
    configurations: Counter[str] = field(default_factory=Counter)
    resumed: int = 0
    fresh: int = 0
    server: Counter[int] = field(default_factory=Counter)
    compared: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)

    def report(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "kills": self.kills.total(),
            "kills_by_stage": dict(self.kills.most_common()),
            "kills_by_signal": dict(self.signals.most_common()),
            "kills_by_aim": dict(self.aims.most_common()),
            "kills_by_configuration": dict(self.configurations.most_common()),
            "kills_of_fresh_interpreters": self.fresh,
            "resumed": self.resumed,
            "training_server_killed": {str(code): count for code, count in self.server.most_common()},
            "runs_compared": self.compared.total(),
            "runs_compared_by_configuration": dict(self.compared.most_common()),
            "lost": self.lost,
        }


class Campaign:
    """Runs that are killed until the time is over.

    Args:
        work: an empty folder.
        seed: draws recipes, moments and signals.
        say: prints a line.
        served: are there runs whose weights a training server holds?
    """

    def __init__(self, work: Path, seed: int, say: Callable[[str], None], *, served: bool = False) -> None:
        self.work, self.rng, self.say, self.seed = work, np.random.default_rng(seed), say, seed
        self.tally = Tally()
        self._starts = 0
        self._forks = multiprocessing.get_context("forkserver")
        self._forks.set_forkserver_preload([*PRELOADED, *SERVER_PRELOADED] if served else PRELOADED)
        self._server: ServerProcess | None = None
        (work / "marker").write_bytes(b" " * WIDTH)

    def round(self, name: str, number: int, ends: float) -> None:
        """One configuration: the undisturbed run, then one that is killed, compared.

        After `ends`, a time of `time.monotonic`, the run is killed no more than once, and goes on to its end.
        """
        path = self.work / f"{name}.toml"
        server = self.server() if name == SERVED else None
        path.write_text(recipe(name, self.seed * 1000 + number, **(server.sections if server else {})))
        whole, cut = self.work / "runs" / "whole", self.work / "runs" / "cut"
        for place in ("runs", "temporary"):
            shutil.rmtree(self.work / place, ignore_errors=True)
        (self.work / "temporary").mkdir()
        (self.work / "log").write_bytes(b"")
        death = self.live(path, whole, Aim(), fresh=number == 0)
        if death.code != 0:
            self.lose(name, number, f"the undisturbed run ended with code {death.code}: {self.last_words()}")
            return
        mean_s = spent(whole) / SOON
        operations = json.loads((self.work / "operations.json").read_text())
        before, kills = len(self.tally.lost), 0
        while True:
            aim = self.draw(mean_s, operations) if kills < (MOST_KILLS if time.monotonic() < ends else 1) else Aim()
            self._starts += 1
            fresh = self._starts % FRESH == 0
            victim = server if server and aim.what and self.rng.random() < SERVER_SHARE else None
            death = self.live(path, cut, aim, fresh=fresh, server=victim)
            if not death.sent:
                break
            kills += 1
            self.count(name, cut, aim, death, fresh)
            self.tally.resumed += 1
        if death.code != 0:
            self.lose(name, number, f"after {kills} kills it ended with code {death.code}: {self.last_words()}")
        else:
            self.tally.compared[name] += 1
            for why in server.differences(whole, cut) if server else differences(whole, cut):
                self.lose(name, number, f"after {kills} kills {why}")
        for left in os.listdir(self.work / "temporary"):
            if not left.startswith(TORCHS):
                self.lose(name, number, f"{left} is left in the temporary folder")
        if len(self.tally.lost) > before:
            shutil.copytree(self.work / "runs", self.work / f"lost-{name}-{number}", dirs_exist_ok=True)
            shutil.copy(self.work / "log", self.work / f"lost-{name}-{number}")
        self.say(
            f"{name} {number}: {kills} kills, {len(self.tally.lost) - before} lost; {self.tally.kills.total()} kills"
        )

    def server(self) -> ServerProcess:
        """The training server; the first call starts it."""
        if self._server is None:
            self._server = ServerProcess(self.work / "server", self._forks)
            self._server.start()
        return self._server

    def end(self) -> None:
        """Stop the training server, and note what it leaves."""
        if self._server is not None:
            self.tally.lost += [f"{SERVED}: {why}" for why in self._server.end()]
            self.say(f"{SERVED}: at most {self._server.most} models were at the training server")

    def abort(self) -> None:
        """Kill the training server, if it is still there."""
        if self._server is not None:
            self._server.kill()

    def draw(self, mean_s: float, operations: Mapping[str, int]) -> Aim:
        """Draw when the next process is killed: in its first two seconds, on average `mean_s` seconds after its first
        rollout began, or on average after about 1 / SOON of a run's operations on one kind of file."""
        what = str(self.rng.choice(list(AIMS), p=list(AIMS.values())))
        if what == "start":
            return Aim(what, float(self.rng.uniform(0, 2.0)))
        if what == "time":
            return Aim(what, float(self.rng.exponential(mean_s)))
        late = float(self.rng.uniform(0, 0.02)) if self.rng.random() < 0.5 else 0.0
        return Aim(what, late, 1 + int(self.rng.integers(1 + 2 * operations[what] // SOON)))

    def live(self, path: Path, folder: Path, aim: Aim, *, fresh: bool, server: ServerProcess | None = None) -> Death:
        """Start (or resume) the run; kill it as aimed, or this server in its place."""
        words = [str(path), f"run.folder={folder.parent}", f"run.name={folder.name}", "--resume"]
        context = multiprocessing.get_context("spawn") if fresh else self._forks
        ours, theirs = context.Pipe(duplex=False)
        (self.work / "marker").write_bytes(b" " * WIDTH)
        if server is not None:  # at 0 the process would kill itself
            aim = aim._replace(after_s=max(aim.after_s, 1e-3))
        process = context.Process(target=train, args=(words, folder, self.work, aim, theirs))
        process.start()
        theirs.close()
        number = signal.Signals(int(self.rng.choice(list(SIGNALS), p=list(SIGNALS.values()))))
        stage, sent = "", False
        try:
            if self._hunt(process, ours, aim) and process.pid is not None:
                stage, sent = self._stage(), True
                send(process.pid, number) if server is None else server.restart()
            process.join(HANGS_S)
            if process.is_alive():
                struck = number.name if server is None else f"the {STRUCK} was killed"
                self.tally.lost.append(f"{path.stem}: it did not end {HANGS_S:g} s after {struck}")
        finally:  # also where the campaign itself is stopped
            process.kill()
            process.join()
            ours.close()
        assert process.pid is not None and process.exitcode is not None
        for member in left_in_session(process.pid):
            self.tally.lost.append(f"{path.stem}: process {member} is left in stage {self._stage()!r}")
            os.kill(member, signal.SIGKILL)
        if server is not None and sent:
            return self._without_server(process.exitcode, stage)
        stage = self._stage()
        if process.exitcode == -signal.SIGKILL:
            return Death(process.exitcode, signal.SIGKILL.name, stage)
        stopped = process.exitcode in (128 + number, -number) and sent
        if stopped and process.exitcode > 0 and "agentrl: stopped" not in self.last_words():
            self.tally.lost.append(f"{path.stem}: it was stopped without saying so: {self.last_words()}")
        return Death(process.exitcode, number.name if stopped else "", stage)

    def _without_server(self, code: int, stage: str) -> Death:
        """The end of a process whose training server was killed in a stage."""
        self.tally.server[code] += 1
        said = self.last_words()
        lost = code == os.EX_TEMPFAIL and any(words in said for words in GOES_ON)
        away = code == 2 and stage == "start" and any(words in said for words in AWAY)
        return Death(code, STRUCK if lost or away else "", stage)

    def _stage(self) -> str:
        """What the process was doing when it last wrote its marker."""
        return (self.work / "marker").read_bytes().strip().decode()

    def _hunt(self, process: Any, messages: Any, aim: Aim) -> bool:
        """Wait for the moment of the aim; False if the process ended before that moment."""
        wanted = {"start": UP, "time": BEGAN}.get(aim.what, HIT)
        ends = time.monotonic() + HANGS_S
        while True:
            ready = wait([messages, process.sentinel], max(0.0, ends - time.monotonic()))
            if not ready:
                break
            if process.sentinel in ready:
                return False
            try:
                message = messages.recv_bytes()
            except EOFError:
                process.join(HANGS_S)
                return False
            if message == wanted:
                ends = time.monotonic() + aim.after_s
        return bool(process.is_alive())

    def count(self, name: str, folder: Path, aim: Aim, death: Death, fresh: bool) -> None:
        """Add a kill to the tally."""
        learns = any(p.name.isdecimal() for p in (folder / "checkpoints").glob("*"))
        half = "start" if death.stage in ("", "start") else "RL" if learns else "cloning"
        self.tally.kills[f"{half}: {death.stage}" if half != "start" else half] += 1
        self.tally.signals[death.sent] += 1
        self.tally.aims[aim.what] += 1
        self.tally.configurations[name] += 1
        self.tally.fresh += fresh

    def last_words(self) -> str:
        """The last line that a process has printed."""
        lines = (self.work / "log").read_text("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else ""

    def lose(self, name: str, number: int, why: str) -> None:
        """Note a defect."""
        self.tally.lost.append(f"{name}, seed {self.seed * 1000 + number}: {why}")
        self.say(f"LOST {self.tally.lost[-1]}")


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process; SIGINT also to the processes that it has started, as Ctrl-C does."""
    if number == signal.SIGINT and os.getpgid(pid) == pid:
        os.killpg(pid, number)
    else:
        os.kill(pid, number)


def spent(folder: Path) -> float:
    """Wall-clock seconds of all phases of a run."""
    rows = [json.loads(line) for line in (folder / "timings.jsonl").read_text().splitlines()]
    return sum(value for row in rows for name, value in row.items() if name.endswith("_s") and "_cpu_" not in name)


def kill(
    minutes: float, seed: int, save: Callable[[dict[str, Any]], None], names: Sequence[str] = (), work: str = ""
) -> dict[str, Any]:
    """Kill and resume for some minutes; the report, which `save` gets after each run.

    Args:
        minutes: the time after which no further run is begun; a run that was begun goes on to its end.
        seed: see `Campaign`.
        save: called with the report so far.
        names: configurations; all of them by default.
        work: a folder in which the runs lie; default: a temporary one, removed unless something was lost.
    """
    folder = Path(work or tempfile.mkdtemp(prefix="agentrl-campaign-"))
    folder.mkdir(parents=True, exist_ok=True)
    chosen = names or [name for name in CONFIGURATIONS if name != SERVED or find_spec("tinker")]
    if not names and SERVED not in chosen:
        print(f"{SERVED} is left out: it needs the extra tinker", flush=True)
    campaign = Campaign(folder, seed, lambda line: print(line, flush=True), served=SERVED in chosen)
    ends, number = time.monotonic() + 60 * minutes, 0
    try:
        while time.monotonic() < ends:
            for name in chosen:
                if time.monotonic() >= ends:
                    break
                campaign.round(name, number, ends)
                save(campaign.tally.report())
            number += 1
        campaign.end()
    finally:
        campaign.abort()
    if not campaign.tally.kills.total():
        campaign.tally.lost.append("nothing was killed: give it more --minutes")
    if campaign.tally.lost:
        print(f"the folders of what was lost are kept in {folder}")
    elif not work:
        shutil.rmtree(folder, ignore_errors=True)
    return campaign.tally.report()
