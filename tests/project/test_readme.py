"""The examples of the README and of docs/extending.md run as they stand."""

import importlib
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from agentrl.cli import main
from agentrl.config import resolve
from agentrl.credit import CreditMethod, assign
from agentrl.exchange import read_steps
from agentrl.loss import LossInputs

README = Path(__file__).parents[2] / "README.md"
PAGES = (README, README.parent / "docs" / "extending.md")
# a block that stands on both pages is one block: an edit of one of them makes two, and `module` refuses
BLOCKS = dict.fromkeys(block for page in PAGES for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.S))


def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, marker: str) -> ModuleType:
    """The block that holds `marker`, as an importable module."""
    (block,) = [b for b in BLOCKS if marker in b]
    (tmp_path / f"{name}.py").write_text(block)
    (tmp_path / "readme_package").mkdir()
    (tmp_path / "readme_package" / "__init__.py").touch()
    (tmp_path / f"{name}.py").rename(tmp_path / "readme_package" / f"{name}.py")
    monkeypatch.syspath_prepend(tmp_path)
    for known in [m for m in sys.modules if m.startswith("readme_package")]:
        del sys.modules[known]
    return importlib.import_module(f"readme_package.{name}")


def test_the_environment_is_played_by_its_dotted_path_and_keeps_its_promises(tmp_path, monkeypatch, capsys):
    guess = module(tmp_path, monkeypatch, "guess", "class Guess")
    assert main(["eval", "readme_package.guess", "--policy", "random"]) == 0
    assert "on 8 tasks, each once" in capsys.readouterr().out
    from agentrl.gym import check_env

    assert check_env(guess, tasks=4) == []


def test_the_tool_environment_is_the_one_of_the_tools_page_and_plays(tmp_path, monkeypatch, capsys):
    (block,) = [b for b in BLOCKS if "class Letters" in b]
    assert block in (README.parent / "docs" / "tools.md").read_text()  # where it is played by hand, too
    assert len([line for line in block.splitlines() if line.strip()]) <= 15
    module(tmp_path, monkeypatch, "letters", "class Letters")
    assert main(["eval", "readme_package.letters", "--policy", "random"]) == 0
    assert "on 5 tasks, each once" in capsys.readouterr().out


def test_the_credit_method_gives_centred_discounted_returns(tmp_path, monkeypatch):
    method = module(tmp_path, monkeypatch, "reward_to_go", "group_norm(returns")
    steps = tmp_path / "steps.jsonl"
    rows = [("a", 0, 0.0), ("a", 1, 1.0), ("b", 0, 0.0)]
    names = ("episode", "turn", "reward")
    steps.write_text("".join(json.dumps({"group": "g", **dict(zip(names, row, strict=True))}) + "\n" for row in rows))
    credit = assign(resolve(CreditMethod, {"name": method.__name__, "gamma": 0.5}), read_steps(steps))
    # returns 0.5, 1, 0 with mean 0.5
    np.testing.assert_allclose(credit.advantage, [0.0, 0.5, -0.5])


def test_the_loss_is_the_plain_policy_gradient(tmp_path, monkeypatch):
    plain = module(tmp_path, monkeypatch, "plain", "inputs.negative - inputs.positive")
    logprob = torch.tensor([-1.0, -2.0], requires_grad=True)
    zero = torch.zeros(2)
    inputs = LossInputs(
        logprob=logprob,
        old_logprob=zero,
        ref_logprob=None,
        entropy=None,
        positive=torch.tensor([2.0, 0.0]),
        negative=torch.tensor([0.0, 3.0]),
        weight=torch.ones(2),
        step=zero.long(),
        path=zero.long(),
    )
    plain.loss(inputs, plain.Config()).per_token.sum().backward()
    assert logprob.grad.tolist() == [-2.0, 3.0]  # -A


def test_gymnasium_makes_an_environment_by_its_module_and_id():
    (block,) = [b for b in BLOCKS if "gymnasium.make" in b]
    scope: dict[str, object] = {}
    exec(block, scope)
    assert isinstance(scope["observation"], str) and scope["terminated"] is False


def test_the_readme_is_short():
    """At most 900 words outside code: figures belong in docs/results, options in docs."""
    text = re.sub(r"```.*?```", "", README.read_text(), flags=re.S)
    assert len(text.split()) <= 900


def test_every_link_of_the_readme_and_the_pages_leads_to_a_file():
    root = README.parent
    pages = [README, *sorted((root / "docs").rglob("*.md"))]
    links = [(page, link) for page in pages for link in re.findall(r"\]\(([^)#\s]+)", page.read_text())]
    assert len(links) > 10
    broken = [
        f"{page.relative_to(root)}: {link}"
        for page, link in links
        if "://" not in link and not (page.parent / link).exists()
    ]
    assert broken == []
