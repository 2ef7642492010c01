"""The prepared store: equal to the raw files, all or nothing, resumable."""

import random

import numpy as np
import pytest

from agentrl.envs.webshop import bm25, catalogue, nouns, prepare, store
from agentrl.envs.webshop.cli import configure
from agentrl.envs.webshop.market import open_market


@pytest.fixture
def large(tmp_path, writer, row_of):
    """Raw files of 230 rows with repetitions, ranges, options and instructions."""
    rng = random.Random(1)
    vocabulary = ["red", "blue", "rug", "tea", "café", "★", "lamp", "women's", "soft", "110v"]
    rows, attributes, wishes = [], {}, {}
    for _ in range(230):
        asin = f"B{rng.randrange(200):03}"
        groups = {"Color": [{"value": c} for c in rng.sample(vocabulary, rng.randint(0, 3))]}
        rows.append(
            row_of(
                asin, " ".join(rng.choices(vocabulary, k=6)), pricing=rng.choice(["$5", "$10 $20", ""]),
                query=rng.choice(["rugs", "tea"]), category=rng.choice("abc"), customization_options=groups,
            )
        )  # fmt: skip
        asked = rng.sample(["soft", "warm", "new"], 2)
        attributes[asin] = {
            "attributes": asked,
            "instruction": rng.choice([None, "Find me x"]),
            "instruction_attributes": asked,
        }
        wishes[asin] = [{"instruction": f"i want {asin}", "instruction_attributes": asked, "instruction_options": []}]
    return writer(tmp_path, rows, attributes, wishes)


@pytest.mark.parametrize("shard", [7, 1000])
def test_a_store_equals_its_raw_files(large, shard):
    raw = catalogue.read(large)
    prepare.prepare(large, large / "prepared", nouns.built_in(), shard=shard)
    kept = store.StoredCatalogue(large / "prepared")
    assert len(kept.products) == len(raw.products) and kept.tagger == nouns.BUILT_IN
    for own, other in zip(kept.products, raw.products, strict=True):
        assert own.nouns == nouns.built_in_nouns(own.title)
        assert (own.asin, own.options, own.prices, own.wishes, own.attributes, own.bullets) == (
            other.asin, other.options, other.prices, other.wishes, other.attributes, other.bullets,
        )  # fmt: skip
        assert kept.numbers.get(own.asin) == raw.numbers[own.asin]
    assert kept.numbers.get("B999") is None and kept.numbers.get("B" * 40) is None
    for name in store.GOAL_COLUMNS:
        np.testing.assert_array_equal(getattr(kept.columns, name), getattr(raw.columns, name))
    for query in ("red rug", "café ★", "women soft tea", "absent", "110v lamp blue"):
        assert bm25.search(kept.postings, query, 50) == bm25.search(raw.postings, query, 50)
    for name in ("rugs", "tea", "none"):
        assert list(kept.with_query(name)) == raw.with_query(name)
    assert list(kept.with_category("b")) == raw.with_category("b")
    assert list(kept.with_attribute("soft")) == raw.with_attribute("soft")
    assert not list(large.glob("prepared/shard-*")) and not (large / "prepared.partial").exists()


@pytest.mark.parametrize("goals", ["human", "synthetic"])
def test_a_store_never_overrides_the_price_seed(large, goals):
    options = [f"goals={goals}", "price_seed=7", "tagger=built-in"]
    before = open_market(configure({"data": str(large)}, options))
    instructions = [before.goals[i].instruction for i in range(len(before.goals))]
    prepare.prepare(large, large / "prepared", nouns.built_in())
    after = open_market(configure({"data": str(large / "prepared")}, options))
    assert [after.goals[i].instruction for i in range(len(after.goals))] == instructions
    np.testing.assert_array_equal(after.price, before.price)
    other = open_market(configure({"data": str(large / "prepared")}, [*options, "price_seed=8"]))
    assert [other.goals[i].instruction for i in range(len(other.goals))] != instructions


def test_a_killed_preparation_goes_on_and_ends_the_same(large, monkeypatch):
    prepare.prepare(large, large / "whole", nouns.built_in(), shard=20)
    made, build = [], prepare._shard

    def killed(*args, **options):
        if len(made) == 4:
            raise KeyboardInterrupt
        made.append(args[1])
        return build(*args, **options)

    monkeypatch.setattr(prepare, "_shard", killed)
    with pytest.raises(KeyboardInterrupt):
        prepare.prepare(large, large / "cut", nouns.built_in(), shard=20)
    assert not (large / "cut").exists() and (large / "cut.partial").is_dir()
    starts = []
    monkeypatch.setattr(prepare, "_shard", lambda *args, **o: starts.append(args[1]) or build(*args, **o))
    prepare.prepare(large, large / "cut", nouns.built_in(), shard=20)
    assert starts[0] > made[-1]  # the four whole shards are not read again
    files = sorted(path.name for path in (large / "whole").iterdir())
    assert files == sorted(path.name for path in (large / "cut").iterdir())
    assert all((large / "whole" / name).read_bytes() == (large / "cut" / name).read_bytes() for name in files)


def test_bad_data_leaves_nothing_behind(raw, writer, row_of):
    writer(raw, [row_of("B1", "good"), row_of("B2", "bad", images=[])])
    with pytest.raises(ValueError, match="B2: it has no images"):
        prepare.main(["--data", str(raw), "--tagger", "built-in"])
    assert not list(raw.glob("prepared*"))
    assert prepare.main(["--data", str(raw), "--tagger", "built-in", "--skip-faulty"]) == 0
    assert [p.asin for p in store.StoredCatalogue(raw / "prepared").products] == ["B1"]
    with pytest.raises(ValueError, match="exists already"):
        prepare.main(["--data", str(raw)])


def test_a_truncated_file_leaves_nothing_behind(large):
    path = large / "items_shuffle.json"
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ValueError, match="not complete JSON"):
        prepare.prepare(large, large / "prepared", nouns.built_in(), shard=50)
    assert not list(large.glob("prepared*"))


def test_a_store_answers_only_for_its_own_rows(raw):
    prepare.main(["--data", str(raw), "--num-products", "2", "--tagger", "built-in"])
    assert store.find(raw, 2) == raw / "prepared"
    assert store.find(raw, None) is None and store.find(raw, 1) is None  # the raw files are read instead
    with pytest.raises(ValueError, match="was not prepared for num_products=1"):
        store.find(raw / "prepared", 1)


def test_a_store_of_other_files_is_refused(raw, writer, row_of):
    prepare.main(["--data", str(raw), "--tagger", "built-in"])
    writer(raw, [row_of("B1", "new")])
    with pytest.raises(ValueError, match="have changed since"):
        store.find(raw, None)
    (raw / "prepared" / "low.npy").unlink()
    with pytest.raises(ValueError, match=r"low.npy is missing or damaged"):
        _ = store.StoredCatalogue(raw / "prepared").columns
