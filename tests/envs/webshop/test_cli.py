"""The command line: lines, errors, saved sessions."""

import json

import pytest

from agentrl.envs import webshop
from agentrl.envs.webshop.cli import configure, main
from agentrl.envs.webshop.terminal import shop_by_hand
from agentrl.graph import read_graph


def lines(capsys):
    """What was printed, as JSON objects."""
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_play_prints_the_reset_and_every_action(raw, tmp_path, capsys):
    actions = ["search[rug]", "search[<a> x]", "click[b0red]", "click[buy now]", "search[tea]"]
    (tmp_path / "a.json").write_text(json.dumps(actions))
    given = ["--data", str(raw), "--goals", "human", "--goal", "0", "--observation", "url", "price_seed=3"]
    assert webshop.play([*given, "tagger=built-in", "--actions", str(tmp_path / "a.json"), "--json"]) == 0
    rows = lines(capsys)
    assert [row["action"] for row in rows] == [None, *actions]
    assert rows[0]["reward"] == 0 and rows[0]["terminated"] is False and rows[0]["has_search_bar"]
    assert "error" in rows[2] and rows[2]["observation"] == rows[1]["observation"]
    assert rows[4]["terminated"] and "r_type" in rows[4]["info"] and "w_price" in rows[4]["info"]
    assert rows[5]["observation"].endswith("/search_results/0/tea/1")  # it serves on after the purchase


def test_actions_one_a_line_and_a_step_limit(raw, tmp_path, capsys):
    (tmp_path / "a.txt").write_text("search[rug]\n click[b0red]\nclick[b0red]\n")
    options = ["--actions", str(tmp_path / "a.txt"), "--json", "tagger=built-in", "max_steps=2"]
    webshop.play(["--data", str(raw), *options])
    assert [row["action"] for row in lines(capsys)] == [None, "search[rug]", " click[b0red]"]


def test_an_action_ends_at_a_line_feed_only(raw, tmp_path, capsys):
    (tmp_path / "a.txt").write_bytes("search[red\u2028rug]\r\n\nsearch[a\x0bb]".encode())
    webshop.play(["--data", str(raw), "--actions", str(tmp_path / "a.txt"), "--json", "tagger=built-in"])
    assert [row["action"] for row in lines(capsys)] == [None, "search[red\u2028rug]", "", "search[a\x0bb]"]


def test_half_a_surrogate_pair_is_printed(tmp_path, writer, row_of, capsys):
    wish = {"instruction": "a rug", "instruction_attributes": ["red"], "instruction_options": []}
    folder = writer(tmp_path, [row_of("B1", "rug \ud83d")], {}, {"B1": [wish]})
    (tmp_path / "a.json").write_text('["search[\\ud83d]", "search[rug]", "click[b1]"]')
    assert webshop.play(["--data", str(folder), "--actions", str(tmp_path / "a.json"), "--json"]) == 0
    assert "rug \ud83d" in lines(capsys)[3]["observation"]


def test_search_prints_ids_and_scores(raw, capsys):
    assert main(["search", "--data", str(raw), "--query", "red rug", "--k", "1", "--json"]) == 0
    assert [set(row) for row in lines(capsys)] == [{"id", "score"}]


def test_reward_scores_cases_and_reports_what_has_no_score(tmp_path, capsys):
    product = {
        "Title": "Tea", "Attributes": ["x"], "BulletPoints": [], "Description": "", "query": "q",
        "product_category": "A › B",
    }  # fmt: skip
    goal = {"attributes": ["x"], "goal_options": [], "price_upper": 20.0, "query": "q", "product_category": "A › B"}
    case = {"product": product, "goal": goal, "price": 1.0, "options": {}, "product_nouns": ["a"], "goal_nouns": ["a"]}
    (tmp_path / "c.json").write_text(json.dumps([case, {**case, "goal": {**goal, "attributes": []}}]))
    assert main(["reward", "--cases", str(tmp_path / "c.json"), "--json"]) == 0
    first, second = lines(capsys)
    assert first["reward"] == 1.0 and first["info"]["r_att"] == 1.0 and "error" in second
    (tmp_path / "c.json").write_text(json.dumps([{"product": product}]))
    assert main(["reward", "--cases", str(tmp_path / "c.json")]) == 2
    assert "case 0 lacks a field" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["play", "--data", "/nowhere"], "no such folder: /nowhere"),
        (["play", "--goal", "5000", "--actions", "x"], "goal 5000 does not exist"),
        (["play", "price_sed=3"], "unknown option 'price_sed': did you mean price_seed"),
        (["play", "price_seed=x"], "option price_seed='x'"),
        (["play", "seed"], "'seed' is not an option"),
        (["play", "--actions", "/nowhere.json"], "no such actions file: /nowhere.json"),
        (["play", "--goals", "both"], "invalid choice"),
        (["search", "--query", "x", "--k", "0"], "argument --k: '0' is no whole number"),
        (["search"], "--query"),
        (["reward", "--cases", "/nowhere.json"], "no such cases file"),
        (["prepare", "--data", "/nowhere"], "no such folder"),
        ([], "usage"),
    ],
)
def test_mistakes_are_one_sentence_and_exit_code_2(argv, says, capsys):
    assert main(argv) == 2
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1


def test_a_session_by_hand_is_saved_as_a_step_graph(raw, tmp_path, shopper):
    said = []
    config = configure({"data": str(raw), "tagger": "built-in", "max_steps": None, "split": "all"}, [])
    path = tmp_path / "demo.safetensors"
    session = shopper(0)
    typed = iter(["", "red rug", "3", "click[large]", "click[buy now]"])
    assert shop_by_hand(session, config, path, ask=lambda _: next(typed), say=said.append) == 0
    assert any("score" in line for line in said)
    graph = read_graph(path)
    assert len(graph) == 4 and graph.terminated.tolist() == [False, False, False, True]
    assert graph.reward[-1] == session.state.reward
    assert graph.names["action"][1] == "click[b0red]"


def test_commands_are_offered_to_the_command_line():
    assert set(webshop.commands) == {"", "prepare", "search", "reward"}
