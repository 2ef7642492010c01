"""The score: cases worked by hand, laws."""

import importlib.util
import itertools
import random
import sys

import pytest
from rapidfuzz import fuzz

from agentrl.envs.webshop import reward
from agentrl.envs.webshop.reward import COLOURS, Bought, Unscorable, Wanted, alike, colour, plain, score, set_ratio

BOUGHT = Bought(
    title="Red Rug",
    description="It is gluten free.",
    bullets=("No slip", "machine wash"),
    attributes=("machine washable",),
    query="rugs",
    product_category="A › B › C",
)


def want(**fields):
    given = {"attributes": ["x"], "options": [], "price_upper": 20.0, "query": "rugs", "product_category": "A › B › C"}
    return Wanted(**{**given, **fields})


def nouns(bought=("rug",), wanted=("rug",)):
    return lambda: (bought, wanted)


def test_a_score_by_hand():
    # attributes 1 of 2 (the second only as "No slip"), options 1 of 2, price met: (1 + 1 + 1) / (2 + 2 + 1) = 0.6
    found = score(
        BOUGHT, want(attributes=["machine washable", "non slip"], options=["navy blue", "large"]),
        20.0, {"color": "royal blue"}, nouns(),
    )  # fmt: skip
    assert found.reward == pytest.approx(0.6)
    assert found.parts == {
        "r_type": 1.0, "r_att": 0.5, "w_att": 0.4, "query_match": True, "category_match": True, "title_score": 1.0,
        "r_option": 0.5, "w_option": 0.4, "r_price": True, "w_price": 0.2,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("query", "path", "bought", "wanted", "r_type", "title"),
    [
        ("rugs", "A › B", ["a"], ["a", "a", "b", "c"], 1.0, 0.25),  # distinct over all
        ("other", "A › Z", ["a"], ["a", "b", "c", "d", "e"], 0.5, 0.2),  # 0.2 is not above 0.2
        ("other", "A › Z", ["a"], ["a", "b", "c", "d"], 1.0, 0.25),
        ("other", " B ›C", ["a"], ["a", "b", "c", "d", "e"], 1.0, 0.2),  # two shared categories
        ("rugs", "A › B", ["a"], list("abcdefghijk"), 0.1, 1 / 11),  # overrides a query match
        ("rugs", "A › B", ["z"], ["a"], 0.0, 0.0),
        ("rugs", "A › B", ["z"], [], 1.0, 0.2),
        ("other", "Z", ["z"], [], 0.5, 0.2),
    ],
)
def test_kinds(query, path, bought, wanted, r_type, title):
    parts = score(BOUGHT, want(query=query, product_category=path), 1.0, {}, nouns(bought, wanted)).parts
    assert parts["r_type"] == r_type and parts["title_score"] == pytest.approx(title)


@pytest.mark.parametrize(
    ("asked", "hit"),
    [
        ("machine washable", 1),
        ("washable machine", 1),
        ("gluten free", 1),
        ("red rug", 1),  # the title, lower case
        ("Red Rug", 0),  # the goal's case is kept, and no attribute is alike
        ("slip machine", 1),  # across points, joined by blanks
    ],
)
def test_attributes(asked, hit):
    assert score(BOUGHT, want(attributes=[asked]), 1.0, {}, nouns()).parts["r_att"] == hit


def test_points_given_as_one_text_are_spelled_out():
    spelled = Bought(
        title="t", description="d", bullets="no slip", attributes=(), query="rugs", product_category="A › B › C"
    )
    assert score(spelled, want(attributes=["no slip"]), 1.0, {}, nouns()).parts["r_att"] == 0
    assert score(spelled, want(attributes=["n o   s l i p"]), 1.0, {}, nouns()).parts["r_att"] == 1


@pytest.mark.parametrize(
    ("value", "stands_for"),
    [
        ("navy blue", "blue"), ("infrared", "red"), ("titanium", "tan"), ("light grey", "grey"), ("navy", "navy"),
        ("Black", "Black"), ("large", "large"), (("color", "navy blue"), ("color", "navy blue")),
        (("color", "navy"), "navy"),
    ],
)  # fmt: skip
def test_colours(value, stands_for):
    assert colour(value) == stands_for


def test_the_colour_list():
    assert len(COLOURS) == 102 and list(COLOURS) == sorted(COLOURS)


@pytest.mark.parametrize(
    ("options", "clicked", "hits"),
    [
        (["large"], ["x-large"], 1),
        ({"size": "large"}, ["x-large"], 0),  # the group's name takes part
        (["12 inch (pack of 2)"], ["12 inch (pack of 1)"], 1),
        ({"color": "blue"}, ["navy blue"], 1),
        (["small", "small"], ["small"], 2),
        (["small"], [], 0),
    ],
)
def test_options(options, clicked, hits):
    parts = score(BOUGHT, want(options=options), 1.0, dict(enumerate(clicked)), nouns()).parts
    assert parts["r_option"] == pytest.approx(hits / len(options))


def test_no_options_no_part():
    assert "r_option" not in score(BOUGHT, want(), 1.0, {"color": "red"}, nouns()).parts


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ("", "x", False),
        ("!!!", "!!!", False),
        ("100% cotton", "COTTON", True),
        ("é", "é", False),
        ("it's", "it s", True),
    ],
)
def test_alike(left, right, same):
    assert alike(left, right) is same


def test_the_ratio_is_that_of_matching_blocks_by_hand():
    # After "fast char" (9) difflib takes the first g of "ging", and nothing is left before the g of "i3g":
    # 2 * 10 / (13 + 12) = 80%. The longest common subsequence also has the i: 2 * 11 / 25 = 88%, a match.
    assert set_ratio("fast charging", "fast chari3g") == 80
    assert round(fuzz.token_set_ratio("fast charging", "fast chari3g")) == 88
    assert not alike("fast charging", "fast chari3g")
    # "non slip", "non slp": after "non sl" (6) also the p: 2 * 7 / 15 = 93%.
    assert set_ratio("non slip", "non slp") == 93 and alike("non slip", "non slp")


@pytest.mark.parametrize("seed", range(20))
def test_ruling_out_by_the_longest_subsequence_changes_nothing(seed):
    rng = random.Random(seed)
    for _ in range(200):
        left, right = ("".join(rng.choices("abc ", k=rng.randint(1, 12))) for _ in range(2))
        if rng.random() < 0.6:
            at = rng.randrange(len(left))
            right = left[:at] + rng.choice("abc ") + left[at + rng.randint(0, 1) :]
        first, second = plain(left), plain(right)
        assert alike(left, right) == bool(first and second and set_ratio(first, second) > 85), (left, right)


@pytest.mark.parametrize("n_attributes", [1, 2, 3])
@pytest.mark.parametrize("n_options", [0, 1, 2])
@pytest.mark.parametrize("price", [5.0, 50.0])
def test_the_score_is_the_weighted_sum_of_its_parts(n_attributes, n_options, price):
    asked = ["machine washable", "gluten free", "absent"][:n_attributes]
    options = ["red", "large"][:n_options]
    for clicked in itertools.product(("red", "small"), ("large", "none")):
        found = score(BOUGHT, want(attributes=asked, options=options), price, dict(enumerate(clicked)), nouns())
        parts = found.parts
        total = parts["w_att"] * parts["r_att"] + parts["w_price"] * parts["r_price"]
        total += parts.get("w_option", 0) * parts.get("r_option", 0)
        assert found.reward == pytest.approx(parts["r_type"] * total)
        assert parts["w_att"] + parts["w_price"] + parts.get("w_option", 0) == pytest.approx(1)


@pytest.mark.parametrize("fields", [{"attributes": []}, {"price_upper": 0}, {"price_upper": -1}])
def test_what_the_original_cannot_score(fields):
    with pytest.raises(Unscorable):
        score(BOUGHT, want(**fields), 1.0, {}, nouns())


def test_without_the_extra_one_sentence_says_which(monkeypatch):
    monkeypatch.setitem(sys.modules, "rapidfuzz", None)
    spec = importlib.util.spec_from_file_location("reward_again", reward.__file__)
    with pytest.raises(ValueError, match=r"webshop needs the package rapidfuzz: pip install .*\[webshop\]"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
