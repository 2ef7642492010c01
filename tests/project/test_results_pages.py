"""docs/results and README quote what benchmarks/results holds: the same seeds, differences and intervals."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "results"
WORLDS = {  # file of numbers -> the page that quotes it
    "alfworld-cpu": "alfworld.md",
    "alfworld-cpu-before": "alfworld.md",
    "alfworld-cpu-long": "alfworld.md",
    "alfworld-cpu-long-before": "alfworld.md",
    "search-cpu": "search.md",
    "calculator-cpu": "calculator.md",
    "webshop-cpu": "webshop.md",
}
COMPARISONS = {"trees": "methods.md", "study-sokoban": "study.md", "study-alfworld": "study.md", "agents": "methods.md"}
OF_README = {
    "ALFWorld": "alfworld-cpu",
    "WebShop": "webshop-cpu",
    "search": "search-cpu",
    "calculator": "calculator-cpu",
}


def percent(share: float) -> str:
    return f"{100 * share:.1f}"


def stored(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())
    return found


def plain(page: str) -> str:
    """A page without bold words."""
    return (PAGES / page).read_text().replace("**", "")


def seeds(found: dict[str, Any]) -> list[float]:
    """Success per seed."""
    return list(found["by_seed"].values())


PRETRAINED = ("smollm2-search", "smollm2-calculator", "smollm2-calculator-full", "smollm2-alfworld")


@pytest.mark.parametrize("name", PRETRAINED)
def test_the_runs_of_the_pretrained_model_are_quoted_as_they_were_measured(name):
    lines = plain("pretrained.md").splitlines()
    head = next(line for line in lines if f"`{name}`" in line and line.startswith("| success"))
    column = [cell.strip() for cell in head.split("|")].index(f"`{name}`")
    cells = {row[1].strip(): row[column].strip() for line in lines if len(row := line.split("|")) > column + 1}
    found = stored(name)
    assert cells["panel"] == f"`{found['panel']}`"
    for mode in ("sampled", "greedy"):
        for side, words in {"clone": "its clone", "rl": "after RL", "control": "control: cloning alone"}.items():
            if side in found[mode]:
                shares, (low, high) = (
                    map(percent, seeds(found[mode][side])),
                    map(percent, found[mode][side]["interval"]),
                )
                assert cells[f"{words}, {mode}"] == f"{', '.join(shares)} ({low} to {high})"
        for other in {"clone", "demonstrator", "control"} & found[mode].keys():
            low, high = (f"{100 * x:.1f}" for x in found[mode]["differences"][f"rl - {other}"]["interval"])
            mean = 100 * found[mode]["differences"][f"rl - {other}"]["mean"]
            assert cells[f"RL minus {other}, points, {mode}"] == f"{mean:+.1f} ({low} to {high})"


@pytest.mark.parametrize("name", WORLDS)
def test_a_world_is_quoted_as_it_was_measured(name):
    page = plain(WORLDS[name])
    rows = {tuple(re.findall(r"\| (-?\d+\.\d)(?= |\b)", line)) for line in page.splitlines() if line.startswith("| ")}
    checked = 0
    for mode in ("sampled", "greedy"):
        part = stored(name)[mode]
        for side in part.keys() & {"clone", "control", "rl", "grpo"}:
            wanted = tuple(percent(value) for value in seeds(part[side]))
            assert wanted in rows, f"{WORLDS[name]} does not quote {mode} {side} of {name}.json: {' | '.join(wanted)}"
            checked += 1
    assert checked >= 6


@pytest.mark.parametrize("name", COMPARISONS)
def test_a_comparison_is_quoted_as_it_was_measured(name):
    page, checked = plain(COMPARISONS[name]), 0
    for mode in ("sampled", "greedy"):
        for side, found in stored(f"comparison-{name}")[mode].items():
            if side == "differences":
                for difference in found.values():
                    low, high = (percent(bound) for bound in difference["interval"])
                    assert f"{100 * difference['mean']:+.1f} ({low} to {high})" in page
            elif "clone" not in side:
                each = " ".join(percent(value) for value in seeds(found))
                assert f"({each})" in page, f"{COMPARISONS[name]} does not quote {mode} {side}: {each}"
                checked += 1
    assert checked >= 4


def test_readme_quotes_means_of_the_results():
    lines = (ROOT / "README.md").read_text().splitlines()
    for world, name in OF_README.items():
        (row,) = [line for line in lines if re.match(rf"\| {world}\b.*results/", line)]
        part = stored(name)["sampled"]
        means = [100 * sum(seeds(part[side])) / 3 for side in ("clone", "control", "rl")]
        quoted = [float(cell) for cell in row.split("|")[2:5]]
        assert quoted == pytest.approx(means, abs=0.05 + 1e-9), row


def test_every_page_of_results_is_on_the_map():
    linked = set(re.findall(r"\]\((\w+\.md)\)", plain("index.md")))
    assert linked == {page.name for page in PAGES.glob("*.md")} - {"index.md"}
