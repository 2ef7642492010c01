"""Streaming JSON: equal to the library's whole read, at any window, from any entry on."""

import json
import random

import pytest

from agentrl.envs.webshop import json_stream


def thing(rng, depth=0):
    kind = rng.randrange(6 if depth < 3 else 4)
    if kind == 0:
        return rng.choice([None, True, False, -1.5e3, 17])
    if kind < 4:
        return "".join(rng.choices('ab"\\]}é★👍\n,', k=rng.randrange(30)))
    size = rng.randrange(5)
    if kind == 4:
        return [thing(rng, depth + 1) for _ in range(size)]
    return {f"k{i}": thing(rng, depth + 1) for i in range(size)}


@pytest.mark.parametrize("seed", range(20))
def test_entries_equal_the_library(tmp_path, monkeypatch, seed):
    rng = random.Random(seed)
    monkeypatch.setattr(json_stream, "WINDOW", rng.choice([1, 7, 64, 1 << 20]))
    whole = [thing(rng) for _ in range(40)] if seed % 2 else {f"key {i}": thing(rng) for i in range(40)}
    path = tmp_path / "x.json"
    path.write_text(json.dumps(whole, indent=rng.choice([None, 2]), ensure_ascii=bool(seed % 3)), "utf-8")
    found = list(json_stream.entries(path))
    assert [entry.value for entry in found] == list(whole.values() if isinstance(whole, dict) else whole)
    assert [entry.key for entry in found] == (list(whole) if isinstance(whole, dict) else [""] * 40)
    rest = list(json_stream.entries(path, found[24].end))
    assert rest == found[25:]


def test_a_broken_entry_is_not_read_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(json_stream, "LARGEST", 1 << 16)
    path = tmp_path / "x.json"
    path.write_text("[1, oops, " + "2, " * 100_000 + "3]")
    with pytest.raises(ValueError, match="not complete JSON"):
        list(json_stream.entries(path))
