"""Rewards: cases by hand, the off-by-one of the answer blocks, the format's state machine."""

import random

import pytest

from agentrl.envs.search_qa import scores


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Beatles!", "beatles"),
        ("  An   apple, a day ", "apple day"),
        ("U.S.A.", "usa"),
        ("theatre and another", "theatre and another"),  # whole words only
        ("a-b", "ab"),  # punctuation goes first, so this "a" is no word any more
        ("...the...", ""),
        ("“The”", "“ ”"),  # only ASCII punctuation goes
    ],
)
def test_normalisation(text, expected):
    assert scores.normalise(text) == expected


@pytest.mark.parametrize(
    ("answer", "golden", "em", "sub", "f1"),
    [
        ("Beijing", ["Beijing"], 1, 1, 1.0),
        (" the BEIJING. ", ["beijing"], 1, 1, 1.0),
        # given {city, of, beijing}, right {beijing}: one common word, 2 * 1 / (3 + 1)
        ("the city of Beijing", ["Beijing"], 0, 1, 0.5),
        # the first golden has 2 of (2, 3) words in common, 2 * 2 / 5; the second none
        ("Marie Curie", ["Marie Sklodowska Curie", "Pierre"], 0, 0, 0.8),
        # repeated words count as often as both have them: 2 * 1 / (2 + 1)
        ("no no", ["no"], 0, 1, 2 / 3),
        ("Paris", ["Beijing"], 0, 0, 0.0),
        ("", ["Beijing"], 0, 0, 0.0),
        ("1931", ["1931"], 1, 1, 1.0),
    ],
)
def test_signals_by_hand(answer, golden, em, sub, f1):
    assert scores.exact(answer, golden) == em
    assert scores.contains(answer, golden) == sub
    assert scores.f1(answer, golden) == pytest.approx(f1)


EXAMPLE = "For example, <answer> Beijing </answer>. Question: Capital of France?\n"


def test_the_answer_is_the_last_block_and_the_prompts_example_is_none():
    # prompt and response together: one block is the example alone, so nothing was answered
    assert scores.last_answer(EXAMPLE + "I do not know.", prompt_blocks=1) is None
    assert scores.last_answer(EXAMPLE + "<answer> Paris </answer>", prompt_blocks=1) == "Paris"
    # the response alone: the same answer counts with a threshold of one block
    assert scores.last_answer("<answer> Paris </answer>") == "Paris"
    assert scores.last_answer("I do not know.") is None
    # the two mistakes of ports: an answer that is thrown away, an example that is scored
    assert scores.last_answer("<answer> Paris </answer>", prompt_blocks=1) is None
    assert scores.last_answer(EXAMPLE + "I do not know.") == "Beijing"


def test_the_last_of_several_blocks_counts():
    assert scores.last_answer("<answer>a</answer> or <answer>\nb\n</answer>") == "b"
    assert scores.last_answer("<answer>a</answer> <answer>b") == "a"


GOOD = "<think>t</think><search>q</search>\n\n<information>Paris</information>\n\n<think>u</think> <answer>{}</answer>"


@pytest.mark.parametrize(
    ("text", "formed"),
    [
        (GOOD.format("Paris"), True),
        ("<think>t</think><answer>x</answer>", True),
        ("\n<think>t</think>\n<answer>x</answer>\n", True),
        ("<answer>x</answer>", False),  # no thought
        ("<think>t</think>well <answer>x</answer>", False),  # words between tags
        ("<think>t</think><search>q</search><think>u</think><answer>x</answer>", False),  # no information
        ("<think>t</think><search>q</search><information>i</information><answer>x</answer>", False),
        ("<think>t<answer>x</answer>", False),
        ("<think>t</think><answer>x</answer> bye", False),
        ("<think>t</think><answer>x</answer><answer>y</answer>", False),
        ("<think><think>t</think></think><answer>x</answer>", False),
        ("<think>t</think><search>q</search>", False),
        ("", False),
    ],
)
def test_the_format(text, formed):
    assert scores.well_formed(text) is formed


@pytest.mark.parametrize(
    ("text", "score"),
    [
        (GOOD.format("Paris"), 1.0),
        ("<answer>Paris</answer>", 0.8),  # right, ill formed: 1 - 0.2
        (GOOD.format("Lyon"), 0.2 + 0.1),  # wrong, well formed, Paris was found
        (GOOD.format("Lyon").replace("Paris", "?"), 0.2),
        ("<answer>Lyon</answer>", 0.1),
        ("<think>t</think><search>q</search>", 0.0),  # no answer at all
    ],
)
def test_exact_match_with_the_formats_share(text, score):
    assert scores.em_format(text, ["Paris"], structure=0.2, final=0.1, retrieval=0.1) == pytest.approx(score)


@pytest.mark.parametrize("seed", range(30))
def test_the_state_machine_agrees_with_a_grammar(seed):
    """An independent way to say it: one regular expression over the tags."""
    import re

    rng = random.Random(seed)
    tags = [f"<{slash}{name}>" for name in ("think", "search", "information", "answer") for slash in ("", "/")]
    loop = "<think></think><search></search><information></information>"
    pieces = [loop] * rng.randint(0, 3) + ["<think></think><answer></answer>"]
    text = "".join(pieces)
    if seed % 2:  # spoil it in one place
        found = [m.span() for m in re.finditer("<[^>]*>", text)]
        start, end = rng.choice(found)
        text = text[:start] + rng.choice(["", *tags]) + text[end:]
    grammar = rf"(?:{re.escape(loop)})*<think></think><answer></answer>"
    assert scores.well_formed(text) is bool(re.fullmatch(grammar, text))


@pytest.mark.parametrize("seed", range(10))
def test_exact_is_contained_and_has_full_f1(seed):
    rng = random.Random(seed)
    words = ["the", "Port", "Alden", "a", "1931", "U.S."]
    answer, golden = (" ".join(rng.choices(words, k=rng.randint(1, 3))) for _ in range(2))
    if scores.exact(answer, [golden]):
        assert scores.contains(answer, [golden]) == 1.0
        assert scores.f1(answer, [golden]) == (1.0 if scores.normalise(golden) else 0.0)
    assert 0.0 <= scores.f1(answer, [golden]) <= 1.0
    assert scores.f1(answer, [golden]) == scores.f1(golden, [answer])


def test_an_accent_of_its_own_makes_no_difference():
    assert scores.exact("Cafe\u0301 Zürich", ["Café Zu\u0308rich"]) == 1.0 and scores.exact("Cafe", ["Café"]) == 0.0
