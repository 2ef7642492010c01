"""The pages that `make docs` builds and the repository does not hold: all options, and all catalogue entries.

MkDocs loads this file as a hook (`hooks` of mkdocs.yml) and calls `on_files`, which adds the pages to those of docs/.
Their text comes from the configuration classes and from the docstrings of the entries.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from agentrl import catalogue
from agentrl.settings import defaults, explain
from agentrl.settings.refused_pairs import REFUSED
from agentrl.tinker.checks import REFUSED as OF_SERVICES


class Catalogue(NamedTuple):
    """The page of a catalogue: its name, its title, and the sentence that it begins with."""

    page: str
    title: str
    about: str


CATALOGUES = {
    "credit": Catalogue(
        "credit", "Credit methods", "A credit method turns the rewards of a step graph into what each step earned."
    ),
    "loss": Catalogue("loss", "Losses", "A loss is one number per token, which training minimises."),
    "regularizer": Catalogue("regularizer", "Regularizers", "A regularizer adds a term to the policy loss."),
    "context": Catalogue("context", "Contexts", "A context decides which part of an episode the policy sees."),
    "rollout": Catalogue("rollout", "Rollout methods", "A rollout method decides how a task is played several times."),
    "reward": Catalogue(
        "reward", "Reward transforms", "A reward transform computes the rewards of steps from rewards and signals."
    ),
    "score": Catalogue(
        "score", "Scores", "A score computes named signals of played steps, from rules or from a model."
    ),
    "guide": Catalogue("guide", "Guides", "A guide helps with tasks that fail in every copy."),
    "sampler": Catalogue("sampler", "Samplers", "A sampler decides which tasks a batch plays, and how often."),
    "replay": Catalogue("replay", "Replay", "Replay lets stored rollouts join the groups of their tasks."),
    "envs": Catalogue("environments", "Environments", "An environment is what an agent acts in."),
    "tools": Catalogue("tools", "Tools", "A tool is a function that an agent may call."),
    "engine": Catalogue("engines", "Engines", "An engine generates answers."),
    "tracker": Catalogue("trackers", "Trackers", "A tracker gets every line of metrics while a run goes on."),
}
LETTERS = {
    "credit": "In formulas, A is the advantage, r_k the reward of step k, V_k the value of its state, and `score` the "
    "sum of an episode's rewards. GN(x | key) is x less the mean of x among the rows with an equal key, divided by "
    "their standard deviation. The key `group` also distinguishes the agents of a group. By default most methods count "
    "an episode once in such a mean, not once per row.",
    "loss": "In formulas, l is the loss of a token, A its advantage, and u = pi_new / pi_old the ratio of its "
    "probabilities.",
}
SECTIONS = {kind: section for section, kind in {**explain.CATALOGUE, **explain.TABLES}.items()}
CHOSEN_BY = {"tools": "env.tools", "tracker": "log.to"}  # where a recipe names an entry, if not in `SECTION.name`
NOT_SHOWN = {"Config", "PAPER", "FOR_MODELS", "SMALL_MODEL", "GYMNASIUM_IDS", "MEASURES"}
OPTIONS = """\
# Options: every section and key

A recipe is a TOML file of these sections ([recipes](recipes.md)). `agentrl train --explain optim.lr` prints an entry of
this page, `agentrl train RECIPE.toml --dry-run` a recipe with all its values. The options of catalogue entries, such as
`credit.gamma`, are on the [pages of the catalogues](catalogue/index.md).

## Values that are chosen

If a recipe leaves these keys open, they get values by the kind of its model
([when](recipes.md#what-a-recipe-leaves-open)):
"""


def on_files(files: Any, config: Any) -> Any:
    """Add the pages to MkDocs's collection of files."""
    from mkdocs.structure.files import File

    for name, text in pages().items():
        files.append(File.generated(config, name, content=text))
    return files


def pages() -> dict[str, str]:
    """Path below docs/ -> text, of every page."""
    entries = {f"catalogue/{about.page}.md": catalogue_page(kind) for kind, about in CATALOGUES.items()}
    return {"options.md": options_page(), "catalogue/index.md": index_page(), **entries}


def options_page() -> str:
    """One table per section, in the order of a recipe."""
    models = dict(explain.models())
    lines = [OPTIONS, *chosen()]
    for name in explain.in_order([*models, *explain.CATALOGUE]):
        lines += ["", f"## `[{name}]`"]
        if name in explain.CATALOGUE:
            page, title, _ = CATALOGUES[explain.CATALOGUE[name]]
            lines += ["", f"{explain.choice(name)} ([{title}](catalogue/{page}.md))."]
        if name in models:
            lines += ["", explain.first_line(models[name]), "", *table(explain.keys(name, models[name]))]
    return "\n".join([*lines, "", "## What cannot be combined", "", *refused()]) + "\n"


def refused() -> Iterator[str]:
    """The table of pairs that a recipe cannot combine."""
    yield "A recipe that has both sides of a row is refused before anything is played."
    yield ""
    yield "| this | and this | why not | what to do |"
    yield "| --- | --- | --- | --- |"
    for row in (*REFUSED, *OF_SERVICES):
        sides = [(side.__doc__ or "").rstrip(".") for side in (row.one, row.other)]
        cells = (*sides, row.reason, row.whole_advice)
        yield f"| {' | '.join(in_markdown(cell).replace('|', chr(92) + '|') for cell in cells)} |"


def chosen() -> Iterator[str]:
    """What is chosen if a recipe leaves it open: a table by the kind of model, and a list of other keys."""
    kinds = list(defaults.OPTIM)
    yield f"| key | {' | '.join(defaults.IN_WORDS[kind] for kind in kinds)} |"
    yield f"| --- |{' --- |' * len(kinds)}"
    for path in dict.fromkeys(path for kind in kinds for path in defaults.of_kind(kind)):
        values = [defaults.of_kind(kind).get(path) for kind in kinds]
        yield f"| `{path}` | {' | '.join('' if value is None else f'{value}' for value in values)} |"
    yield ""
    yield from (f"- `{path.replace('.hf', '')}`: {value}." for path, value in defaults.BY_ENVIRONMENT.items())
    yield "- options that an environment proposes for a model made from scratch (`SMALL_MODEL` of its file)."


def index_page() -> str:
    """The page that lists all entries."""
    lines = [
        "# Catalogue",
        "",
        "An entry is one file; its name is its name in a recipe ([extending](../extending.md)).",
        "`agentrl train --explain credit.gigpo` prints an entry of these pages.",
        "",
        "| catalogue | chosen by | entries |",
        "| --- | --- | --- |",
    ]
    for kind, (page, title, _) in CATALOGUES.items():
        entries = ", ".join(f"[{name}]({page}.md#{name})" for name in ours(kind))
        lines.append(f"| [{title}]({page}.md) | `{chosen_by(kind)}` | {entries} |")
    return "\n".join(lines) + "\n"


def catalogue_page(kind: str) -> str:
    """All entries of a catalogue: docstring, facts and options."""
    _, title, about = CATALOGUES[kind]
    hooks = f"Chosen by `{chosen_by(kind)}`; `agentrl check --hooks {kind}` lists what a file of your own may offer."
    lines = [f"# {title}", "", about, hooks, "", *([LETTERS[kind], ""] if kind in LETTERS else []), *overview(kind)]
    for name in ours(kind):
        entry = catalogue.load(kind, name)
        lines += ["", f"## {name}", "", in_markdown(entry.about)]
        needs = list(facts(entry))
        lines += ["", *needs] if needs else []
        keys = list(explain.entry_keys(SECTIONS[kind], name))
        lines += ["", *table(keys)] if keys else ["", "No options."]
    return "\n".join(lines) + "\n"


def overview(kind: str) -> Iterator[str]:
    """A table of the entries: the first paragraph of each, and its source."""
    yield "| name | what it is | source |"
    yield "| --- | --- | --- |"
    for name in ours(kind):
        about = catalogue.load(kind, name).about
        first = in_markdown(" ".join(about.partition("\n\n")[0].split())).replace("|", "\\|")
        yield f"| [{name}](#{name}) | {first} | {papers(about)} |"


def papers(about: str) -> str:
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


def table(keys: Iterable[explain.Key]) -> Iterator[str]:
    """Keys with type, default and meaning."""
    yield "| key | type | default | meaning |"
    yield "| --- | --- | --- | --- |"
    for key in keys:
        cells = (key.type, key.default or "must be given", key.meaning)
        words = " | ".join(in_markdown(cell).replace("|", "\\|") for cell in cells)
        yield f"| `{key.path.rpartition('.')[2]}` | {words} |"


def in_code(value: Any) -> str:
    """Names or a table as code."""
    if isinstance(value, str):
        return f"`{value}`"
    if isinstance(value, Mapping):
        return ", ".join(f"`{key} = {one!r}`" for key, one in value.items())
    return ", ".join(f"`{one}`" for one in value)


def in_markdown(text: str) -> str:
    """A text whose angle brackets outside code are no HTML."""
    parts = re.split(r"(`[^`]+`|^    .*$)", text, flags=re.M)
    return "".join(part if at % 2 else part.replace("<", "&lt;") for at, part in enumerate(parts))


def chosen_by(kind: str) -> str:
    """The key by which a recipe chooses entries."""
    return CHOSEN_BY.get(kind, f"{SECTIONS[kind]}.name")


def ours(kind: str) -> list[str]:
    """The names of the entries that belong to agentrl."""
    return [name for name in catalogue.names(kind) if catalogue.load(kind, name).module.startswith("agentrl.")]
