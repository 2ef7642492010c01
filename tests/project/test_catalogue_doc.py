"""docs/catalogue/ is what the catalogues say: every entry with its source, formula, needs and options.

After a change of an entry, its docstring or an option, this writes all pages:

    PYTHONPATH=. python tests/project/test_catalogue_doc.py --write
"""

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from agentrl import catalogue
from agentrl.settings import explain
from tests.project.test_recipes_doc import table

FOLDER = Path(__file__).parents[2] / "docs" / "catalogue"
TITLES = {  # kind -> (name of the page, its title)
    "credit": ("credit", "Credit methods"),
    "loss": ("loss", "Losses"),
    "regularizer": ("regularizer", "Regularizers"),
    "context": ("context", "Contexts"),
    "rollout": ("rollout", "Rollout methods"),
    "reward": ("reward", "Reward transforms"),
    "score": ("score", "Scores"),
    "guide": ("guide", "Guides"),
    "sampler": ("sampler", "Samplers"),
    "replay": ("replay", "Replay"),
    "envs": ("environments", "Environments"),
    "tools": ("tools", "Tools"),
    "engine": ("engines", "Engines"),
    "tracker": ("trackers", "Trackers"),
}
WHAT = {
    "credit": "A credit method turns the rewards of a step graph into what each step earned.",
    "loss": "A loss is one number per token, which training minimises.",
    "regularizer": "A regularizer adds a term to the policy loss.",
    "context": "A context decides which part of an episode the policy sees.",
    "rollout": "A rollout method decides how a task is played several times.",
    "reward": "A reward transform computes the rewards of steps from rewards and signals.",
    "score": "A score computes named signals of played steps, from rules or from a model.",
    "guide": "A guide helps with tasks that fail in every copy.",
    "sampler": "A sampler decides which tasks a batch plays, and how often.",
    "replay": "Replay lets stored rollouts join the groups of their tasks.",
    "envs": "An environment is what an agent acts in.",
    "tools": "A tool is a function that an agent may call.",
    "engine": "An engine generates answers.",
    "tracker": "A tracker gets every line of metrics while a run goes on.",
}
LETTERS = {
    "credit": "In formulas, A is the advantage, r_k the reward of step k, V_k the value of its state, and `score` the "
    "sum of an episode's rewards. GN(x | key) is x less the mean of x among the rows with an equal key, divided by "
    "their standard deviation. The key `group` also distinguishes the agents of a group. By default most methods count "
    "an episode once in such a mean, not once per row.",
    "loss": "In formulas, l is the loss of a token, A its advantage, and u = pi_new / pi_old the ratio of its "
    "probabilities.",
}
ALGORITHMS = [kind for kind in TITLES if catalogue.KINDS[kind].package.startswith("agentrl.algorithms.")]
SECTIONS = {kind: section for section, kind in explain.CATALOGUE.items()}
NOTE = "*This page is generated from the entries' files (`tests/project/test_catalogue_doc.py --write`).*"
NOT_SHOWN = {"Config", "PAPER", "FOR_MODELS", "SMALL_MODEL", "GYMNASIUM_IDS", "MEASURES"}


def pages() -> dict[str, str]:
    """File name -> text of every page."""
    written = {f"{file}.md": page(kind) for kind, (file, _) in TITLES.items()}
    return {"index.md": index(), **written}


def index() -> str:
    """The page that lists all entries."""
    lines = [
        "# Catalogue",
        "",
        "An entry is one file; its name is its name in a recipe ([extending](../extending.md)).",
        "",
    ]
    lines += [NOTE, "", "| catalogue | section of a recipe | entries |", "| --- | --- | --- |"]
    for kind, (file, title) in TITLES.items():
        entries = ", ".join(f"[{name}]({file}.md#{name})" for name in ours(kind))
        lines.append(f"| [{title}]({file}.md) | {in_recipe(kind)} | {entries} |")
    return "\n".join(lines) + "\n"


def page(kind: str) -> str:
    """The page of one catalogue."""
    _, title = TITLES[kind]
    chosen = f"Chosen by {in_recipe(kind)}; `agentrl check --hooks {kind}` lists what a file of your own may offer."
    lines = [f"# {title}", "", WHAT[kind], chosen, "", *([LETTERS[kind], ""] if kind in LETTERS else []), NOTE, ""]
    lines += overview(kind)
    for name in ours(kind):
        entry = catalogue.load(kind, name)
        lines += ["", f"## {name}", "", in_markdown(entry.about)]
        needs = list(facts(entry))
        lines += ["", *needs] if needs else []
        section = SECTIONS.get(kind, kind)
        keys = list(explain.keys(f"{section}.{name}", entry.config)) if hasattr(entry.config, "model_fields") else []
        lines += ["", *(row.replace("<", "&lt;") for row in table(keys))] if keys else ["", "No options."]
    return "\n".join(lines) + "\n"


def overview(kind: str) -> Iterator[str]:
    """A table of the entries: the first sentence of each, and its source."""
    yield "| name | what it is | source |"
    yield "| --- | --- | --- |"
    for name in ours(kind):
        about = catalogue.load(kind, name).about
        first = in_markdown(" ".join(about.partition("\n\n")[0].split())).replace("|", "\\|")
        yield f"| [{name}](#{name}) | {first} | {source(about)} |"


def source(about: str) -> str:
    """The arXiv numbers that a docstring names, as links."""
    numbers = dict.fromkeys(re.findall(r"arXiv:(\d{4}\.\d{4,5})", about))
    return ", ".join(f"[{number}](https://arxiv.org/abs/{number})" for number in numbers)


def facts(entry: Any) -> Iterator[str]:
    """One line per constant of the file that differs from the catalogue's default, such as the columns it needs."""
    for name, field in catalogue.hooks_of(type(entry)):
        value = getattr(entry, field.name)
        if name in NOT_SHOWN or name != name.upper() or callable(value) or value == field.default or not value:
            continue
        shown = "" if value is True else f": {in_code(value)}"
        yield f"- `{name}`, {field.metadata['help'].rstrip('.').replace('<', '&lt;')}{shown}"


def in_code(value: Any) -> str:
    """Names or a table as code."""
    if isinstance(value, str):
        return f"`{value}`"
    if isinstance(value, Mapping):
        return ", ".join(f"`{key} = {one!r}`" for key, one in value.items())
    return ", ".join(f"`{one}`" for one in value)


def in_markdown(text: str) -> str:
    """A docstring whose angle brackets outside code are no HTML."""
    parts = re.split(r"(`[^`]+`|^    .*$)", text, flags=re.M)
    return "".join(part if at % 2 else part.replace("<", "&lt;") for at, part in enumerate(parts))


def in_recipe(kind: str) -> str:
    """Where a recipe names an entry."""
    if kind in SECTIONS:
        return f"`{SECTIONS[kind]}.name`"
    return {"tools": "`env.tools`", "tracker": "`log.to`"}[kind]


def ours(kind: str) -> list[str]:
    """The names of the entries that belong to agentrl."""
    return [name for name in catalogue.names(kind) if catalogue.load(kind, name).module.startswith("agentrl.")]


def test_the_pages_are_what_the_catalogues_say():
    stale = [
        name for name, text in pages().items() if not (FOLDER / name).exists() or (FOLDER / name).read_text() != text
    ]
    assert stale == [], f"not up to date: see {__doc__}"
    assert {file.name for file in FOLDER.glob("*.md")} == set(pages())


def test_every_catalogue_has_a_page():
    assert set(TITLES) == set(catalogue.KINDS)


@pytest.mark.parametrize("kind", ALGORITHMS)
def test_every_entry_has_a_source_and_a_formula(kind):
    """`Source:` names the paper, or says that there is none; `Formula:` is what the entry computes."""
    for name in ours(kind):
        about = catalogue.load(kind, name).about
        for word, pattern in (("Source", "Sources?[:.]"), ("Formula", "Formula:")):
            found = re.search(rf"^{pattern} \S", about, re.M)
            assert found, f"{kind} {name}: its docstring has no paragraph '{word}: ...'"


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: python tests/project/test_catalogue_doc.py --write")
    FOLDER.mkdir(exist_ok=True)
    for file_name, text in pages().items():
        (FOLDER / file_name).write_text(text)
