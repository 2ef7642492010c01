"""Every block of code in the README and in docs/: Python is run, recipes resolve, verbs read their command lines.

A block after the line `<!-- not run: REASON -->` is left out; its reason is a download, a GPU, or hours. Some pages
have tests of their own, which run their commands one after another (`tests/project/test_*_doc.py`); the tutorials are
followed in `test_tutorials.py`.
"""

import argparse
import importlib
import json
import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import tomli_w

from agentrl import catalogue
from agentrl.cli import main
from agentrl.cli._parser import Parser
from agentrl.config import resolve
from agentrl.env import EnvironmentFile
from agentrl.settings import Settings, shipped

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"(?:<!-- (not run|slow): ([^>]+) -->\n)?^```(\w*)\n(.*?)^```$", re.S | re.M)
RUN_ELSEWHERE = {  # pages whose Python and recipes belong together
    "docs/models.md": "test_models_doc.py",
    "docs/environments.md": "test_environments_doc.py",
}
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
PLACEHOLDERS = {"RECIPE", "RECIPE.toml", "R.toml", "recipe.toml"}
STANDS_FOR = {"ENV": "calculator", "...": "random"}  # `--policy ...`
FILES = {"python": "py", "toml": "toml", "json": "jsonl"}  # language of a block -> ending of the file that it is
IN_PLACE = ["calculator-cpu", "grpo-sokoban-cpu", "alfworld-gigpo-1.5b"]  # what a page may mean by RECIPE.toml
BASE = "calculator-cpu"  # completes recipes that are shown in part


class Block(NamedTuple):
    """A block of code.

    Attributes:
        page: path from the root of the tree.
        line: the line of the page in which it begins.
        language: as the page says; empty for commands and for what they print.
        text: the code.
        file: name of the file that it is; empty if the page names none.
        left_out: why it is not run; empty if it is.
        slow: it takes long.
    """

    page: str
    line: int
    language: str
    text: str
    file: str
    left_out: str
    slow: bool


def of_page(page: Path) -> Iterator[Block]:
    """The blocks of a page. The file of a block is the one that the text before it names last, such as `letters.py`."""
    text = page.read_text()
    for match in BLOCK.finditer(text):
        named = re.findall(r"`([\w/]+\.(?:py|toml|jsonl|txt))`", text[max(0, match.start() - 250) : match.start()])
        left_out = match[2] if match[1] == "not run" else ""
        line = text[: match.start()].count("\n") + 1
        file = named[-1].rpartition("/")[2] if named else ""
        name = page.relative_to(ROOT).as_posix()
        yield Block(name, line, match[3], match[4], file, left_out, match[1] == "slow")


def blocks(*languages: str) -> Iterator[Any]:
    """The blocks of these languages that are run."""
    for page in PAGES:
        for block in of_page(page):
            if block.language in languages and not block.left_out:
                yield pytest.param(block, id=f"{page.name}:{block.line}")


@pytest.fixture
def page_files(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder with the files that the block's page shows, and an evaluation's report."""
    for example in (ROOT / "examples").glob("*.py"):
        shutil.copy(example, tmp_path)
    for one in of_page(ROOT / block.page):
        if one.file and one.file.rpartition(".")[2] == FILES.get(one.language):
            (tmp_path / one.file).write_text(one.text)
    for name in ("report.json", "before.json"):
        (tmp_path / name).write_text('{"outcomes": []}')
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def commands(text: str) -> list[list[str]]:
    """The words of each command line, without comments."""
    lines = text.replace("\\\n", " ").replace(" && ", "\n").splitlines()
    return [words for line in lines if (words := shlex.split(line.removesuffix("&"), comments=True))]


def is_output(block: Block) -> bool:
    """Is it what a program printed, or a drawing, and not a command?"""
    return not block.language and not re.search(
        r"^(agentrl|make|python|export|curl|pip|hf|for|mkdir) ", block.text, re.M
    )


@pytest.mark.parametrize("block", blocks("python"))
def test_python_runs(block, page_files):
    if block.page in RUN_ELSEWHERE:
        assert block.page in (Path(__file__).parent / RUN_ELSEWHERE[block.page]).read_text()
        return
    (page_files / "shown_block.py").write_text(block.text)
    importlib.import_module("shown_block")


@pytest.mark.parametrize("block", blocks("json"))
def test_json_can_be_read(block):
    for line in block.text.splitlines():
        json.loads(line)


@pytest.mark.parametrize("block", blocks("toml"))
def test_recipes_resolve(block, page_files):
    if block.page in RUN_ELSEWHERE:
        return
    tables = tomllib.loads(block.text)
    file = page_files / "shown_recipe.toml"
    if "endpoint" in tables:  # of an evaluation, which test_evaluation_doc.py runs
        return
    for name, options in tables.get("env", {}).get("tools", {}).items():
        tool = catalogue.load("tools", name)
        assert tool.config(**{"command": ["server"], **options}), options
        return
    file.write_text(tomli_w.dumps(completed(tables)))
    Settings.load(file)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_environments_of_recipes_that_are_not_run_have_these_options(page):
    for block in of_page(page):
        env = tomllib.loads(block.text).get("env", {}) if block.left_out and block.language == "toml" else {}
        if env.get("name") in catalogue.names("envs"):
            resolve(EnvironmentFile, env)


def completed(tables: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe with these sections, where the page shows a part of one."""
    base = tomllib.loads(shipped.find(BASE).read_text())
    if tables.get("engine", {}).get("name") == "vllm":
        base["run"] = {"deterministic": False}
    if "agents" in tables:
        free = {"name": "hf", "actions": "free"}
        base |= {"warmup": {"updates": 0}, "model": {"path": "models/smollm2"}, "engine": free}
    if "retriever" in tables.get("env", {}):
        return {"env": {"name": "search_qa", **tables["env"]}, "model": {"new": {}}}
    if "env" in tables or "model" in tables:  # a whole recipe, or nearly
        return {"env": base["env"], "model": {"new": {}}, **tables}
    return {**base, **tables}


class Read(BaseException):
    """A command line was read to its end without a mistake."""


@pytest.fixture
def only_reads(monkeypatch: pytest.MonkeyPatch):
    """Verbs stop after they have read their words."""

    def stop(parse):
        def parsed(self, words=None, namespace=None):
            found = parse(self, words, namespace)
            raise Read(found)

        return parsed

    monkeypatch.setattr(Parser, "parse_args", stop(argparse.ArgumentParser.parse_args), raising=False)
    monkeypatch.setattr(
        Parser, "parse_intermixed_args", stop(argparse.ArgumentParser.parse_intermixed_args), raising=False
    )


@pytest.mark.parametrize("block", [b for b in blocks("", "sh") if not is_output(b.values[0])])
def test_commands_are_read_by_their_verbs(block, page_files, only_reads, capsys):
    for words in commands(block.text):
        if words[0] == "make":
            assert all(word in TARGETS for word in words[1:]), words
        elif words[0] == "cd":
            assert (ROOT / words[1]).is_dir(), words
        elif words[0] == "python" and words[1] != "-m":
            assert (ROOT / words[1]).is_file(), words
        elif words[0] == "agentrl" and len(words) > 1:
            check_command(words[1:], capsys)
        else:
            assert words[0] in ("agentrl", "python"), (
                f"{block.page}: {words[0]} is not run: mark the block with a reason"
            )


def check_command(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The verb reads the words; the keys of a recipe and its overrides exist."""
    words = [word.strip("[]") if word.startswith("[") or "=" not in word else word for word in words]
    words = [STANDS_FOR.get(word, word) for word in words if word and word != "section.key=value"]
    words = [word for before, word in pairwise(["", *words]) if word != "random" or before == "--policy"]
    try:
        code = main(words)
    except Read:
        code = 0
    assert code == 0, (words, capsys.readouterr().err)
    if words[0] == "train" and "--explain" not in words and "start.json" not in str(words):
        overrides = [word for word in words[2:] if "=" in word]
        recipes = IN_PLACE if words[1] in PLACEHOLDERS else [words[1]]
        resolves([r for r in recipes if r in shipped.names() or Path(r).is_file()], overrides)


def resolves(recipes: list[str], overrides: list[str]) -> None:
    """The overrides fit one of the recipes at least."""
    mistakes = []
    for recipe in recipes:
        try:
            Settings.load(shipped.find(recipe) if recipe in shipped.names() else Path(recipe), overrides)
        except ValueError as mistake:
            mistakes.append(str(mistake))
    assert not recipes or len(mistakes) < len(recipes), mistakes


def test_blocks_are_found_and_reasons_are_given():
    every = [match for page in PAGES for match in BLOCK.finditer(page.read_text())]
    assert len(every) > 80
    reasons = [match[2] for match in every if match[1]]
    assert reasons and all(len(reason.split()) >= 2 for reason in reasons)
