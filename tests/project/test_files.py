"""Files that users name: values and line numbers, and one sentence for what cannot be read."""

import json

import pytest

from agentrl.files import appearing, read_json, read_jsonl


def test_values_come_with_their_line_numbers(tmp_path):
    file = tmp_path / "rows.jsonl"
    rows = [{"text": "a\u2028b\x85c\x1cd"}, [1, "\r"], "é", None]  # at all but "\n" splitlines would cut
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    file.write_bytes("\ufeff".encode() + "\r\n\n".join(lines).encode())  # every other line is blank
    assert list(read_jsonl(file, "file of rows")) == list(zip((1, 3, 5, 7), rows, strict=True))


@pytest.mark.parametrize("line", [b"{", b"\xff", b"[" * 100_000, b"\xef\xbb\xbf1"])
def test_the_sentence_names_the_line_and_the_file(tmp_path, line):
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b"1\n\n" + line)
    with pytest.raises(ValueError, match=r"line 3 of .*rows\.jsonl is not JSON: ") as error:
        list(read_jsonl(file, "file of rows"))
    assert "\n" not in str(error.value)


def test_missing_files_are_named(tmp_path):
    for read in (read_json, lambda *args: list(read_jsonl(*args))):
        with pytest.raises(ValueError, match=r"no such list of cases: .*nowhere\.json"):
            read(tmp_path / "nowhere.json", "list of cases")


def test_a_file_that_is_not_json(tmp_path):
    (tmp_path / "a.json").write_text("[1")
    with pytest.raises(ValueError, match=r"a\.json is not JSON: "):
        read_json(tmp_path / "a.json", "list of cases")


def test_a_folder_comes_back_if_its_replacement_was_killed_between_the_two_renames(tmp_path):
    target, previous = tmp_path / "folder", tmp_path / ".folder.previous"
    previous.mkdir()
    (previous / "old").touch()
    with pytest.raises(OSError, match="disk"), appearing(target) as partial:
        partial.mkdir()
        raise OSError("disk")
    assert (target / "old").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
    with appearing(target) as partial:
        partial.mkdir()
        (partial / "new").touch()
    assert [path.name for path in target.iterdir()] == ["new"]
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
