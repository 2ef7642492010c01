"""What lies in a folder of published files is told with its size and checksum; nothing unknown is claimed."""

import hashlib

import pytest

from agentrl.cli import main
from agentrl.env import PublishedFile, published_report

CONTENT = b"products"
FILE = PublishedFile(
    name="a.json", about="goods", size=8, exact=True, sha256=hashlib.sha256(CONTENT).hexdigest(), url="http://a"
)


def test_found_missing_and_changed_files(tmp_path):
    assert published_report(tmp_path, [FILE]) == [f"missing: {tmp_path / 'a.json'}"]
    (tmp_path / "a.json").write_bytes(CONTENT)
    assert "sha256 as published" in FILE.found(tmp_path)
    (tmp_path / "a.json").write_bytes(b"product!")
    assert "another sha256" in FILE.found(tmp_path)
    (tmp_path / "a.json").write_bytes(b"longer than that")
    assert "has 16 bytes, the published file 8" in FILE.found(tmp_path)


def test_what_is_not_known_is_said(tmp_path):
    unknown = PublishedFile(name="b.zip", about="games", size=72_000_000)
    assert unknown.facts().startswith("b.zip: games; about 72 MB; checksum not known")
    (tmp_path / "b.zip").write_bytes(b"1")
    assert "no checksum is known" in unknown.found(tmp_path)
    assert "size not known" in PublishedFile(name="c", about="d").facts()
    assert "8 bytes; sha256" in FILE.facts()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("alfworld", ("json_2.1.2_tw-pddl.zip", "curl -LO", "134 games")),
        ("webshop", ("items_human_ins.json", "5,137,548 bytes", "gdown", "webshop-gen")),
    ],
)
def test_an_environment_says_what_to_fetch_and_how(name, words, capsys):
    assert main(["envs", name]) == 0
    text = capsys.readouterr().out
    assert all(word in text for word in words)


def test_webshop_looks_into_a_folder(tmp_path, capsys):
    (tmp_path / "items_ins_v2_1000.json").write_text("{}")
    assert main(["envs", "webshop", f"data={tmp_path}"]) == 0
    text = capsys.readouterr().out
    assert f"missing: {tmp_path / 'items_shuffle_1000.json'}" in text and "has 2 bytes" in text
    assert main(["envs", "webshop", "data=nowhere"]) == 2
    with pytest.raises(SystemExit):
        main(["envs", "webshop", "prepare", "--help"])
    assert "items_shuffle.json, items_ins_v2.json" in capsys.readouterr().out


def test_a_generated_source_has_a_name_of_its_own(capsys):
    assert main(["eval", "alfworld-gen", "--policy", "random", "--tasks", "2"]) == 0
    named = capsys.readouterr().out
    assert main(["eval", "alfworld", "source=generated", "--policy", "random", "--tasks", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == named.splitlines()[:2]
    assert main(["eval", "webshop-gen", "--policy", "random", "data=x"]) == 2
    assert "webshop-gen is webshop with data = ''; write env.name = 'webshop'" in capsys.readouterr().err
    assert main(["envs"]) == 0
    assert "alfworld-gen alfworld with source = 'generated'" in capsys.readouterr().out
