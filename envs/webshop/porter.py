"""The Porter stemmer, as Lucene has it.

Source: Porter, "An algorithm for suffix stripping", Program 14(3), 1980, with the author's two later changes
("bli" -> "ble", "logi" -> "log"). Words of one or two UTF-16 units stay unchanged. Every character that is not a vowel
counts as a consonant, also digits and letters of other scripts.
"""

_STEP_2 = (
    ("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"), ("bli", "ble"),
    ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous"), ("ization", "ize"), ("ation", "ate"),
    ("ator", "ate"), ("alism", "al"), ("iveness", "ive"), ("fulness", "ful"), ("ousness", "ous"), ("aliti", "al"),
    ("iviti", "ive"), ("biliti", "ble"), ("logi", "log"),
)  # fmt: skip
_STEP_3 = (
    ("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", ""),
)  # fmt: skip
_STEP_4 = (
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate",
    "iti", "ous", "ive", "ize",
)  # fmt: skip


def stem(word: str) -> str:
    """The stem of a lower-case word."""
    if not word.isascii() and max(word) > "\uffff":  # Lucene counts UTF-16 units
        halves = word.encode("utf-16-le", "surrogatepass")
        units = "".join(chr(halves[i] | halves[i + 1] << 8) for i in range(0, len(halves), 2))
        return _stem(units).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return _stem(word)


def _stem(word: str) -> str:
    if len(word) <= 2:
        return word
    word = _plural_and_participle(word)
    if word.endswith("y") and "v" in _shape(word[:-1]):
        word = word[:-1] + "i"
    word = _replace(_replace(word, _STEP_2), _STEP_3)
    word = _drop_suffix(word)
    return _drop_final_e_and_l(word)


def _shape(word: str) -> str:
    """The word with v for each vowel and c for each consonant; y is a vowel after a consonant."""
    shape = ""
    for letter in word:
        vowel = letter in "aeiou" or (letter == "y" and shape[-1:] == "c")
        shape += "v" if vowel else "c"
    return shape


def _measure(word: str) -> int:
    """m in [C](VC){m}[V]."""
    return _shape(word).count("vc")


def _double_consonant(word: str) -> bool:
    return len(word) > 1 and word[-1] == word[-2] and _shape(word)[-1] == "c"


def _ends_cvc(word: str) -> bool:
    """Consonant, vowel, consonant at the end, the last not w, x or y."""
    return len(word) > 2 and _shape(word)[-3:] == "cvc" and word[-1] not in "wxy"


def _plural_and_participle(word: str) -> str:
    if word.endswith(("sses", "ies")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith("ss"):
        word = word[:-1]
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for suffix in ("ed", "ing"):
        base = word.removesuffix(suffix)
        if base != word and "v" in _shape(base):
            return _restore(base)
    return word


def _restore(base: str) -> str:
    """The stem of a word whose -ed or -ing was removed, with the letters that the removal requires."""
    if base.endswith(("at", "bl", "iz")):
        return base + "e"
    if _double_consonant(base):
        return base if base[-1] in "lsz" else base[:-1]
    return base + "e" if _measure(base) == 1 and _ends_cvc(base) else base


def _replace(word: str, rules: tuple[tuple[str, str], ...]) -> str:
    """The first suffix that fits decides; it is replaced if something measurable stands before it."""
    for suffix, new in rules:
        if word.endswith(suffix):
            base = word[: -len(suffix)]
            return base + new if _measure(base) > 0 else word
    return word


def _drop_suffix(word: str) -> str:
    for suffix in _STEP_4:
        base = word.removesuffix(suffix)
        if base != word and (suffix != "ion" or base.endswith(("s", "t"))):
            return base if _measure(base) > 1 else word
    return word


def _drop_final_e_and_l(word: str) -> str:
    measure = _measure(word)
    if word.endswith("e") and (measure > 1 or (measure == 1 and not _ends_cvc(word[:-1]))):
        word = word[:-1]
    if word.endswith("l") and measure > 1 and _double_consonant(word):
        word = word[:-1]
    return word
