"""Every mistake in a command's words is one sentence on standard error and exit code 2, and nothing is written."""

import json
import pkgutil
import shlex
import tomllib
import warnings
from pathlib import Path

import pytest

from agentrl import cli
from agentrl.cli import main
from agentrl.cli.train import again

RANDOM = ("eval", "alfworld", "--policy", "random")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Files that are something else than what a command takes them for."""
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "object.json").write_text('{"a": 1}')
    (tmp_path / "cut.json").write_text("[1, ")
    (tmp_path / "report.json").write_text('{"panel": "p", "benchmark": "b", "outcomes": 3}')
    (tmp_path / "odd.json").write_text(
        '{"panel": "p", "benchmark": "b", "outcomes": [{"task": "t", "success": "yes", "ending": "done"}]}'
    )
    (tmp_path / "nothing.json").write_text('{"panel": "p", "benchmark": "b", "outcomes": []}')
    (tmp_path / "empty.tw-pddl").write_text("")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("traim",), "unknown verb 'traim': did you mean train?"),
        (("eval", "alfworld"), "required: --policy; see agentrl eval --help"),
        (("eval", "nope", "--policy", "random"), "unknown environment 'nope'"),
        (("eval", "alfworld", "--policy", "nope"), "'nope' is no policy"),
        ((*RANDOM, "--split", "nope"), "unknown ALFWorld split 'nope'"),
        ((*RANDOM, "--tasks", "-3"), "argument --tasks: '-3' is no whole number from 1"),
        ((*RANDOM, "--tasks", "0"), "argument --tasks"),
        ((*RANDOM, "--tasks", "9999999999999"), "argument --tasks"),
        ((*RANDOM, "--turns", "0"), "argument --turns"),
        ((*RANDOM, "--seed", "-1"), "argument --seed"),
        ((*RANDOM, "--temperature", "nan"), "argument --temperature"),
        ((*RANDOM, "--temperature=-1"), "argument --temperature"),
        ((*RANDOM, "--panel", "nope"), "no such panel"),
        ((*RANDOM, "--panel", "binary"), "is not UTF-8 text"),
        ((*RANDOM, "--panel", "object.json"), "no JSON list of task keys"),
        ((*RANDOM, "--games", "empty.tw-pddl"), "is empty: write or download it again"),
        ((*RANDOM, "--tasks", "1", "--out", "."), "is a folder: name a file in it"),
        (
            (*RANDOM, "--tasks", "1", "--out", "odd.json/report.json"),
            "cannot write odd.json/report.json: Not a directory",
        ),
        (("check", "alfworld", "--tasks", "-1"), "argument --tasks"),
        (("play", "alfworld", "--actions", "nope"), "no such actions file"),
        (("play", "alfworld", "--actions", "binary"), "is not UTF-8 text"),
        (("play", "alfworld", "--actions", "object.json"), "must be a JSON list of strings"),
        (("play", "alfworld", "--actions", "cut.json"), "is not JSON"),
        (("play", "alfworld", "--game", "empty.tw-pddl"), "is empty"),
        (("compare", "report.json"), "the following arguments are required: b"),
        (("compare", "report.json", "report.json"), "not a report with episodes"),
        (("compare", "nothing.json", "nothing.json"), "without an environment error in both"),
        (("compare", "odd.json", "odd.json"), "not a report with episodes"),
        (("compare", "binary", "report.json"), "is not UTF-8 text"),
        (("compare", "nope", "nope"), "no such report"),
        (("doctor", "--nope"), "unrecognized arguments: --nope"),
        (("envs", "alfworld", "nope"), "no command 'nope': known are write"),
        (("envs", "alfworld", "--nope"), "unrecognized arguments: --nope; see agentrl envs alfworld --help"),
        (("envs", "alfworld", "write"), "required: folder; see agentrl envs alfworld write --help"),
        (("envs", "alfworld", "write", "x", "--split", "nope"), "argument --split: invalid choice: 'nope'"),
        (("envs", "alfworld", "write", "x", "--count", "0"), "argument --count: '0' is no whole number"),
        (("envs", "alfworld", "write", "x", "--seed", "-1"), "argument --seed"),
        (("envs", "webshop", "search"), "required: --query; see agentrl envs webshop search --help"),
        (("envs", "webshop", "search", "--query", "x", "--k", "many"), "argument --k: 'many' is no whole number"),
        (("envs", "webshop", "prepare"), "required: --data"),
    ],
)
def test_a_mistake_is_one_sentence(words, sentence, files, capsys, monkeypatch):
    monkeypatch.chdir(files)
    before = sorted(files.iterdir())
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith("agentrl: ")
    assert sentence in err
    assert sorted(files.iterdir()) == before


def test_an_operating_system_that_refuses_is_one_sentence(capsys, monkeypatch):
    def refuse(words):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("agentrl.cli.doctor.main", refuse)
    assert main(["doctor"]) == 2
    assert capsys.readouterr().err.startswith("agentrl: [Errno 28] No space left on device")


def test_a_program_tells_a_warning_in_one_line(capsys, monkeypatch):
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    monkeypatch.setattr("sys.argv", ["agentrl", "--version"])
    assert cli.main() == 0
    assert warnings.formatwarning("slow", UserWarning, "file.py", 3) == "agentrl: slow\n"


def test_every_module_is_one_verb_of_one_group():
    modules = [name for _, name, _ in pkgutil.iter_modules(cli.__path__) if not name.startswith("_")]
    assert sorted(cli.verbs().values()) == sorted(modules) and len(modules) == 20
    assert len(cli.verbs()) == sum(map(len, cli.GROUPS.values()))


def test_the_first_page_of_the_documentation_lists_the_verbs_as_help_does():
    page = (Path(__file__).parents[2] / "docs" / "index.md").read_text()
    listed = cli.overview().split("usage: agentrl VERB ...\n\n")[1].rpartition("\n\n")[0]
    assert f"```\n{listed}\n```" in page, f"docs/index.md lacks this list:\n{listed}"


@pytest.mark.parametrize(
    ("verb", "sentence"),
    [
        ("data", "data check ROWS is now agentrl check ROWS"),
        ("diagnose", "diagnose RUN is now agentrl report RUN --diagnose"),
        ("inspect", "inspect RUN is now agentrl report RUN --serve"),
        ("samples", "samples RUN|REPORT is now agentrl view RUN|REPORT --samples"),
    ],
)
def test_a_verb_of_an_older_version_answers_with_its_new_name(verb, sentence, capsys):
    assert main([verb, "runs/mine", "--help"]) == 2
    assert capsys.readouterr() == ("", f"agentrl: {sentence}\n")


@pytest.mark.parametrize("verb", sorted(cli.verbs()))
def test_every_verb_says_what_it_does_and_has_help(verb, capsys):
    line = next(line for line in cli.overview().splitlines() if line.strip().startswith(verb))
    assert len(line.split(maxsplit=1)[1]) > 10
    try:
        code = main([verb, "--help"])
    except SystemExit as left:
        code = left.code
    assert code == 0
    assert "agentrl " + verb in capsys.readouterr().out


def test_doctor_names_every_extra_and_what_is_missing(capsys, monkeypatch):
    described = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["extras"]
    assert set(found) == set(described["project"]["optional-dependencies"]) - {"dev", "docs"}
    monkeypatch.setattr("agentrl.cli.doctor.installed", lambda package: package != "httpx")
    assert main(["doctor"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("extra")]
    missing = [line for line in lines if "missing" in line]
    assert missing == [  # search needs bm25s too
        f"extra {name:14} missing: pip install 'agentrl-stepgraph[{name}]'" for name in ("search", "vllm")
    ]


def test_the_words_that_resume_a_run_are_what_a_shell_takes():
    words = ["r.toml", "eval.modes=['greedy']", "run.name=a b"]
    assert shlex.split(again(words)) == shlex.split(again([*words, "--resume"])) == [*words, "--resume"]
