"""`agentrl train --explain`: every section, key and catalogue entry has a meaning, and wrong names get help."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from agentrl import catalogue
from agentrl.cli import main
from agentrl.settings import explain


def test_every_key_has_a_meaning():
    of_sections = [key for name, model in explain.models() for key in explain.keys(name, model)]
    of_entries = [
        key
        for name, kind in {**explain.CATALOGUE, **explain.TABLES}.items()
        for entry in catalogue.names(kind)
        for key in explain.entry_keys(name, entry)
    ]
    assert [key.path for key in (*of_sections, *of_entries) if not key.meaning] == []
    assert len(of_sections) > 100 and len(of_entries) > 200


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "[warmup]"),
        (["optim.lr"], "0.001 for a model made from scratch, 1e-06 for a pretrained model"),
        (["warmup"], "warmup.expert: text"),
        (["model.lora.r"], "rank"),
        (["credit.gigpo.gamma"], "discount per step"),
        (["credit.step_weight"], "credit.graph_gpo.step_weight"),
        (["env.alfworld"], "env.alfworld.level"),
        (["env.tools.calculator"], "env.tools.calculator.digits: whole number, default 12"),
        (["log.options.wandb.mode"], '"auto" | "online" | "offline"'),
    ],
)
def test_explained(words, told, capsys):
    assert main(["train", "--explain", *words]) == 0
    assert told in capsys.readouterr().out


def test_an_entry_is_explained_by_its_whole_docstring(capsys):
    assert main(["train", "--explain", "credit.gigpo"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith('[credit] name = "gigpo": Group-in-group policy optimisation: GRPO')
    parts = ["\n\nFormula: `A = GN(", "\n\nSource: GiGPO, Feng et al., arXiv:2505.10978", "\n\ncredit.gigpo.preset: "]
    places = [shown.index(part) for part in parts]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("optm", "no section or key 'optm': did you mean optim?"),
        ("optim.lrr", "did you mean optim.lr"),
        ("credit.gigpo.gama", "did you mean gamma?"),
        ("credit.gigpoo", "did you mean gigpo"),
        ("env.tools.calculatr", "[env.tools] has no entry and no option 'calculatr': did you mean calculator?"),
        ("log.options.wandb.projec", "log.options.wandb has no option 'projec': did you mean project?"),
    ],
)
def test_unknown_names_get_help(word, told, capsys):
    assert main(["train", "--explain", word]) == 2
    assert told in capsys.readouterr().err


def test_the_page_on_recipes_names_every_section():
    text = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text().partition("\n## Sections\n")[2]
    named = re.findall(r"`\[([\w.]+)\]`", text.partition("\n## ")[0])
    assert sorted(named) == sorted({*dict(explain.models()), *explain.CATALOGUE})


def test_it_needs_no_torch():
    code = (
        "import sys; from agentrl.cli import main; main(['train', '--explain', 'optim']); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
