"""Terms: word breaks, possessives, stop words and stems, by hand and by law."""

import random

import pytest

from agentrl.envs.webshop import analysis
from agentrl.envs.webshop.analysis import term, terms, words
from agentrl.envs.webshop.porter import stem


@pytest.mark.parametrize(
    ("word", "stemmed"),
    # the examples printed in Porter's paper beside each rule (after all steps), and the two later changes
    [
        ("caresses", "caress"), ("ponies", "poni"), ("ties", "ti"), ("cats", "cat"), ("feed", "feed"),
        ("agreed", "agre"), ("plastered", "plaster"), ("bled", "bled"), ("motoring", "motor"), ("sing", "sing"),
        ("conflated", "conflat"), ("troubled", "troubl"), ("sized", "size"), ("hopping", "hop"), ("tanned", "tan"),
        ("falling", "fall"), ("hissing", "hiss"), ("fizzed", "fizz"), ("failing", "fail"), ("filing", "file"),
        ("happy", "happi"), ("sky", "sky"), ("relational", "relat"), ("conditional", "condit"),
        ("rational", "ration"), ("valenci", "valenc"), ("digitizer", "digit"), ("radically", "radic"),
        ("vietnamization", "vietnam"), ("operator", "oper"), ("feudalism", "feudal"), ("hopefulness", "hope"),
        ("sensibiliti", "sensibl"), ("triplicate", "triplic"), ("formative", "form"), ("formalize", "formal"),
        ("electrical", "electr"), ("goodness", "good"), ("revival", "reviv"), ("allowance", "allow"),
        ("airliner", "airlin"), ("replacement", "replac"), ("adjustment", "adjust"), ("dependent", "depend"),
        ("adoption", "adopt"), ("communism", "commun"), ("angulariti", "angular"), ("probate", "probat"),
        ("rate", "rate"), ("cease", "ceas"), ("controll", "control"), ("roll", "roll"),
        ("conformabli", "conform"), ("apologi", "apolog"),
        ("as", "as"), ("a1", "a1"), ("100s", "100"), ("usb", "usb"),
    ],
)  # fmt: skip
def test_stems_of_the_paper(word, stemmed):
    assert stem(word) == stemmed


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("110V/220V, Wi-Fi & U.S.B. ports.", ["110V", "220V", "Wi", "Fi", "U.S.B", "ports"]),
        ("3,000.5 a:b 1:2 x_y _ __", ["3,000.5", "a:b", "1", "2", "x_y"]),
        ("don't rock'n'roll o''clock", ["don't", "rock'n'roll", "o", "clock"]),
        ("★Upper★ 5™ ©", ["★", "Upper", "★", "5", "™", "©"]),
        ("naïve café — 14 × 3", ["naïve", "café", "14", "3"]),
        ("日本語 カタカナ ひら", ["日", "本", "語", "カタカナ", "ひ", "ら"]),
        ("👍🏽👩‍💻🇩🇪🇫🇷", ["👍🏽", "👩‍💻", "🇩🇪", "🇫🇷"]),
        ("1️⃣ ✔️ok", ["1️⃣", "✔️", "ok"]),
        ("¸ ˥", []),  # letters only in newer Unicode tables
    ],
)
def test_word_breaks_by_hand(text, found):
    assert words(text) == found


def test_terms_by_hand():
    # "the", "for", "and" are stop words; "women's" loses its possessive; "shoes" and "running" are stemmed
    assert terms("The Women's Running Shoes, for him and HER’S") == ["women", "run", "shoe", "him", "her"]
    assert term("'s") == "" or term("its") == "it"


def test_long_words_are_cut_every_255_characters():
    assert [len(word) for word in words("x" * 600)] == [255, 255, 90]


@pytest.mark.parametrize("seed", range(30))
def test_plain_and_general_word_breaks_agree_on_ascii(seed):
    rng = random.Random(seed)
    text = "".join(rng.choices("aZ09_ .,:;'\"-/#*!", k=200))
    assert analysis._ASCII_WORD.findall(text) == analysis._cut(text)


@pytest.mark.parametrize("seed", range(20))
def test_blanks_separate(seed):
    rng = random.Random(seed)
    pieces = ["".join(rng.choices("ab1é日★👍🇩_'.:", k=6)) for _ in range(8)]
    assert words("  ".join(pieces)) == [word for piece in pieces for word in words(piece)]


def test_lower_case_is_one_letter_to_one():
    assert term("ΣΑΣ") == "σασ"  # no final sigma
    assert term("İX") == "ix"
