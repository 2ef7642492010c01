"""`agentrl train RECIPE [section.key=value ...] [--resume] [--dry-run [--memory]] [--explain KEY]`: train a policy.

RECIPE is a TOML file, or the name of a recipe that comes with the program (`agentrl recipes` lists them).

--dry-run only checks the recipe and prints the configuration with all defaults. Comments list the values that were
chosen because the recipe leaves them open, and the sections and keys that have no value. --dry-run --memory also
forecasts the GPU memory of an update, and --memory CARD, such as h100-80, also forecasts what fits on that card; a
forecast takes minutes. With learner.name=tinker, --dry-run estimates what the run costs at the training service.
--explain KEY says what a section or key means, such as --explain optim.lr or --explain optim, and with a recipe also
its value in the recipe; without KEY it lists all sections. For a catalogue entry, such as --explain credit.gigpo or
--explain env.tools.calculator, it prints the entry's documentation and options. Ctrl-C or SIGTERM stops a run; --resume
continues the run from its last checkpoint. --json prints one object when the run is done: the run's folder, its
evaluations and the findings of the health rules. With --dry-run, --json prints the configuration.
Exit code 75: the run made no progress for twice limits.silent_seconds, or lost its engine; --resume continues it.
"""

import json
import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentrl.cli._parser import Parser
from agentrl.cli._stop import on_stop, release, sentence, stop_with
from agentrl.cli._unvisited import unvisited_modules
from agentrl.cli._watched import watched
from agentrl.config import parse_value
from agentrl.extras import require_training
from agentrl.files import for_json
from agentrl.printed import plain
from agentrl.secret import redacted, scrubbed

if TYPE_CHECKING:
    from agentrl.cluster import RankPlace
    from agentrl.run import Run, RunFolder
    from agentrl.settings import Settings


def main(words: Sequence[str]) -> int:
    """See the module."""
    arguments = _arguments(words)
    if arguments.explain is not None:
        return _explain(arguments)
    require_training("agentrl train")  # --dry-run too: it says what `agentrl train` would refuse
    from agentrl.settings import Settings, find_recipe, needs_of

    path = find_recipe(arguments.recipe)
    settings = Settings.load(path, arguments.overrides, trust=arguments.trust)
    on_stop(lambda: "; the run had not begun")
    from agentrl.run import check_beginning, check_folder, dry_run_notes
    from agentrl.trackers import check_packages

    check_folder(settings.folder)
    stored = (settings.folder / "config.toml").is_file()
    if arguments.dry_run:
        for note in dry_run_notes(settings, check_packages, resume=arguments.resume and stored, needs=needs_of(path)):
            print(f"note: {plain(note)}", file=sys.stderr)
        _dry_run(settings, arguments.memory, as_json=arguments.json)
        return 0
    launcher = os.environ.pop("AGENTRL_LAUNCHER", "")
    if arguments.resume and not stored and not launcher and os.environ.get("RANK", "0") == "0":
        print(f"note: there is no run to resume in {settings.folder}, so the run begins", file=sys.stderr)
    if launcher:
        stop_with(int(launcher))
    elif os.environ.get("RANK", "0") == "0":  # the other ranks of torchrun have no engine
        check_beginning(settings, check_packages, resume=arguments.resume and stored, needs=needs_of(path))
    with unvisited_modules():
        from agentrl.cluster import RankPlace, follow_torchrun, launch, needs_launch
        from agentrl.engines import EngineLost
        from agentrl.rollout import TooManyFaults
        from agentrl.train import train

    place = RankPlace.found()
    if place is not None and place.rank:
        release()  # a rank above 0 has nothing to close, and may wait for rank 0 in a call that no signal interrupts
        on_stop(lambda: _how_to_go_on(settings.folder, words))
        with _watched(settings, place):
            follow_torchrun(settings)
        return 0
    another = stored and not arguments.resume  # an older run has this name: `train` refuses and does not change it
    on_stop(lambda: "" if another else _how_to_go_on(settings.folder, words))
    if needs_launch(settings):
        return launch(settings.tables.learner.processes, ["train", *words])
    try:
        with _watched(settings, place):
            run = train(settings, resume=arguments.resume)
    except TooManyFaults as error:
        raise ValueError(str(error)) from error
    except EngineLost as error:  # another start may find the engine's servers
        from agentrl.watchdog import STALLED

        print(f"agentrl: {sentence(error)}{_how_to_go_on(settings.folder, words)}", file=sys.stderr)
        return STALLED
    _tell_of(run, as_json=arguments.json)
    return 0


def _explain(arguments: Namespace) -> int:
    from agentrl.settings import Settings, explained, find_recipe

    recipe = arguments.recipe
    of = recipe and Settings.load(find_recipe(recipe), arguments.overrides, trust=arguments.trust)
    print(explained(arguments.explain, of or None))
    return 0


def _tell_of(run: "Run", *, as_json: bool) -> None:
    """Print the folder of a run that has ended, or its result as JSON, and what is drawn of it."""
    log = run.settings.tables.log
    if log.picture:
        print(f"picture: {drawn(run.folder)}", file=sys.stderr)
    print(json.dumps(_result(run)) if as_json else run.settings.folder, flush=True)
    if log.report:
        print(f"report: {plain(reported(run.folder))}", file=sys.stderr)


def _watched(settings: "Settings", place: "RankPlace | None") -> AbstractContextManager[None]:
    """The watchdog of a training process, which is rank `place` of the learner."""
    rank, size = (0, 1) if place is None else place[:2]
    return watched(settings.shown(), settings.tables.limits.silent_seconds, settings.folder, rank=rank, size=size)


def _arguments(words: Sequence[str]) -> Namespace:
    parser = Parser("agentrl train", __doc__)
    parser.add_argument("recipe", nargs="?", help="a TOML file, or a name that `agentrl recipes` lists")
    parser.add_argument("overrides", nargs="*", metavar="section.key=value")
    parser.add_argument(
        "--resume", action="store_true", help="continue the run of this name, or begin it if there is none"
    )
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument(
        "--memory", nargs="?", const="", metavar="CARD", help="with --dry-run: forecast the GPU memory of an update"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object: folder, evaluations, health")
    parser.add_argument("--trust", action="store_true", help="run the code that the config.toml of a run folder names")
    parser.add_argument("--explain", nargs="?", const="", metavar="KEY", help="what a section or key of a recipe means")
    arguments = parser.parse_intermixed_args(words)
    if arguments.recipe is None and arguments.explain is None:
        parser.error("a recipe is required: a TOML file, or a name that `agentrl recipes` lists")
    if arguments.memory is not None and not arguments.dry_run:
        parser.error("--memory needs --dry-run: add --dry-run, or leave --memory out")
    return arguments


def _dry_run(settings: "Settings", card: str | None, *, as_json: bool) -> None:
    """Print the configuration with all defaults, as TOML or as JSON.

    Args:
        settings: the resolved recipe.
        card: print a forecast of the GPU memory for this card above the TOML; empty for a forecast without a card, None
            for no forecast. With a training service, an estimate of its costs is printed in its place, in any case.
        as_json: print JSON, without a forecast.
    """
    if as_json:
        print(json.dumps(for_json(settings.shown())))
        return
    import tomli_w

    from agentrl.settings import absent_comments, chosen_comments

    if settings.tables.learner.remote:  # its memory is not this machine's
        from agentrl.run import model_chat, read_metrics
        from agentrl.tinker import cost_lines

        stored = read_metrics(settings.folder / "metrics.jsonl", damaged="skip").rows
        for line in cost_lines(settings, model_chat(settings), stored):
            print(f"# {line}")
    elif card is not None:
        from agentrl.preflight import forecast

        for line in forecast(settings, card):
            print(line, flush=True)
    print("\n".join([*chosen_comments(settings), tomli_w.dumps(settings.shown()), *absent_comments(settings)]))


def _result(run: "Run") -> dict[str, Any]:
    """The object of --json: the run's folder, the health findings, and the lines of metrics.jsonl on evaluations."""
    from agentrl.run import read_metrics

    found = (row for row in read_metrics(run.folder.metrics).rows if row["stage"] == "eval")
    rows = [{key: value for key, value in row.items() if key != "stage"} for row in found]
    return {"folder": str(run.folder.path), "evaluations": rows, "health": run.health.dump()["findings"]}


def drawn(folder: "RunFolder") -> str:
    """Draw the learning curve; returns its path, or why there is none.

    No error is raised here, because a finished run must not fail.
    """
    from agentrl.report import learning_curve

    try:
        return str(learning_curve(folder))
    except Exception as error:  # noqa: BLE001  see the docstring
        return f"none, it could not be drawn ({type(error).__name__}: {error}); the numbers are in {folder.metrics}"


def reported(folder: "RunFolder") -> str:
    """Write the run's page; returns its path, or why there is none. No error is raised here, as in `drawn`."""
    from agentrl.report import write_run_page

    path = folder.path / "report.html"
    try:
        write_run_page(folder.path, path, trust=True)  # the recipe named its code, and this process has run it
    except Exception as error:  # noqa: BLE001  see the docstring
        return (
            f"none, it could not be written ({type(error).__name__}: {error}); everything else is stored, and "
            f"agentrl report {folder.path} tries again"
        )
    return f"{path} (open it in a browser)"


def _shown(word: str) -> str:
    """A word of the command line, such as section.key=value, with a secret hidden."""
    key, equals, text = word.partition("=")
    value = parse_value(text)
    shown = redacted(value, tuple(key.split(".")))
    return scrubbed(word) if not equals or shown == value else f"{key}={shown}"


def _how_to_go_on(folder: Path, words: Sequence[str]) -> str:
    """The end of the sentence on a stopped run.

    It names the iteration or warm-up update from which the run continues, and the command that continues it. If the run
    has no config.toml yet, it says that nothing was stored.
    """
    if not (folder / "config.toml").is_file():
        return "; nothing was stored yet"
    from agentrl.run import RunFolder

    stored = RunFolder(folder).checkpoints()
    stage, _, number = stored[-1].name.rpartition("-") if stored else ("", "", "")
    place = "warm-up goes on from update" if stage else "run goes on from iteration"
    where = f"the {place} {int(number)}" if stored else "no checkpoint was stored yet, so the run begins again"
    return f"; {where}; continue with: agentrl train {again(words)}"


def again(words: Sequence[str]) -> str:
    """The words of the command line that resumes the run, quoted for a shell, with secrets hidden."""
    return shlex.join([*map(_shown, words), *([] if "--resume" in words else ["--resume"])])
