"""The credit page as a file: one piece, the same bytes, nothing from outside; and the verb that writes it."""

import base64
import gzip
import hashlib
import json
import re

import pytest

from agentrl.cli import main
from agentrl.report import credit_page, inspector_page, run_data, run_page
from tests.report.pages import data_of, graph_of, household
from tests.report.runs import make_run


def unpacked(page: str) -> dict:
    (data,) = re.findall(r'id="data">([^<]*)</script>', page)
    return json.loads(gzip.decompress(base64.b64decode(data)))


def test_the_page_holds_its_data_and_admits_its_own_script_alone():
    data = data_of(graph_of(household()), "grpo", "gigpo")
    page = credit_page(data)
    assert unpacked(page) == json.loads(data.model_dump_json())
    script = page[page.rindex("<script>") + len("<script>") : page.rindex("</script>")]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; script-src 'sha256-{digest}'" in page
    assert page == credit_page(data)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page)  # the one address is a name, never asked for


def test_every_page_has_the_same_credit_part_once(tmp_path):
    alone = credit_page(data_of(graph_of(household()), "grpo"))
    in_a_run, served = run_page(run_data(make_run(tmp_path / "r"))), inspector_page("r")
    part = alone[alone.index('<p id="sets"') : alone.index("</section>")]
    script = alone[alone.rindex("<script>") + len("<script>") : alone.rindex("</script>")]
    for page in (alone, in_a_run, served):
        assert page.count(part) == page.count(script) == 1 and page.count('id="timeline"') == 1
        assert "{{" not in page[: page.index("<script")]
    assert "connect-src" in served and "connect-src" not in alone + in_a_run


def test_hostile_texts_are_never_markup():
    rows = household()
    rows[0]["state"] = "</script><script>window.x=1</script>"
    rows[1]["action"] = "<img src=x onerror=alert(1)> {{ data }}"
    data = data_of(graph_of(rows), "grpo")
    page = credit_page(data.model_copy(update={"title": "<b>{{ script }}</b>"}))
    assert "window.x" not in page and "onerror" not in page
    assert "<title>&lt;b&gt;{{ script }}&lt;/b&gt;</title>" in page


@pytest.fixture
def steps(tmp_path):
    path = tmp_path / "steps.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in household()))
    return path


def test_the_verb_writes_one_or_several_methods(steps, tmp_path, capsys):
    out = tmp_path / "credit.html"
    assert main(["credit", "gigpo", "gamma=0.5", "--steps", str(steps), "--html", str(out)]) == 0
    assert "1 of 1 groups, 12 of 12 steps" in capsys.readouterr().out
    (method,) = unpacked(out.read_text())["methods"]
    assert method["name"] == "gigpo" and method["options"]["gamma"] == 0.5
    words = ["credit", "--compare", "grpo,salt", "--steps", str(steps), "--html", str(out)]
    assert main(words) == 0
    assert [m["name"] for m in unpacked(out.read_text())["methods"]] == ["grpo", "salt"]


def test_several_methods_may_simply_be_named(steps, tmp_path, capsys):
    out = tmp_path / "credit.html"
    assert main(["credit", "grpo", "gigpo", "gigpo.gamma=0.5", "--steps", str(steps), "--html", str(out)]) == 0
    grpo, gigpo = unpacked(out.read_text())["methods"]
    assert (grpo["name"], gigpo["name"], gigpo["options"]["gamma"]) == ("grpo", "gigpo", 0.5)
    capsys.readouterr()
    assert main(["credit", "grpo", "gigpo", "--steps", str(steps)]) == 0
    assert capsys.readouterr().out.startswith("methods")
    assert main(["credit", "grpo", "gigpu", "--steps", str(steps)]) == 2
    assert "'gigpu' is not an option" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["gigpo", "--html", "."], "--html . is a folder: name the file to write"),
        (["gigpo", "--html", "nowhere/x.html"], "there is no folder nowhere"),
        (["gigpo", "--html", "x.html", "--group", "4"], "there is no group 4"),
        (["gigpo", "--group", "0"], "--group chooses the groups that --html shows"),
        (["gigpu", "--html", "x.html"], "did you mean gigpo"),
        (["gigpo", "gama=1", "--html", "x.html"], "did you mean gamma"),
    ],
)
def test_mistakes_are_one_sentence_and_write_nothing(words, sentence, steps, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["credit", *words, "--steps", str(steps)]) == 2
    out, err = capsys.readouterr()
    assert sentence in err and len(err.splitlines()) == 1 and out == ""
    assert [p.name for p in tmp_path.iterdir()] == ["steps.jsonl"]
