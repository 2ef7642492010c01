"""Units and other words behind a number, and what they change.

A word that counts things ("8 students") says nothing that a bare number does not say. Other words change the number
("5 million"), or the answer ("10 south", "5 or 6", "5 or so", "at least 5"): these must be the same in both answers.
"""

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from agentrl.envs.code_math.spelling import TEXT, names

_UNIT_WORDS = """
    dollar:dollar,dollars,usd,USD cent:cent,cents euro:euro,euros pound:pound,pounds yen:yen rupee:rupee,rupees
    percent:percent,percents,percentage,pct degree:degree,degrees,deg radian:radian,radians,rad
    inch:inch,inches,in foot:foot,feet,ft yard:yard,yards,yd mile:mile,miles,mi
    hour:hour,hours,hr,hrs,h minute:minute,minutes,min,mins second:second,seconds,sec,secs,s
    day:day,days week:week,weeks month:month,months year:year,years,yr,yrs
    mm:mm,millimeter,millimeters,millimetre,millimetres cm:cm,centimeter,centimeters,centimetre,centimetres
    m:m,meter,meters,metre,metres km:km,kilometer,kilometers,kilometre,kilometres
    kg:kg,kilogram,kilograms g:g,gram,grams mg:mg,milligram,milligrams lb:lb,lbs
    ounce:ounce,ounces,oz ton:ton,tons,tonnes
    liter:liter,liters,litre,litres,l ml:ml,milliliter,milliliters,millilitre,millilitres
    gallon:gallon,gallons,gal cup:cup,cups person:person,persons,people,student,students,child,children
    newton:newton,newtons,N joule:joule,joules,J watt:watt,watts,W volt:volt,volts,V kelvin:kelvin,K
    celsius:celsius,C fahrenheit:fahrenheit,F hertz:hertz,Hz :unit,units,th
    mile/hour:mph km/hour:kph,kmh m^2:sqm cm^2:sqcm m^3:cc
"""
UNIT_WORDS: Mapping[str, str] = {  # word -> unit; "" is equal to every unit
    word: unit
    for unit, _, words in (entry.partition(":") for entry in _UNIT_WORDS.split())
    for word in words.split(",")
}
MULTIPLIERS: Mapping[str, int] = {
    "hundred": 10**2, "thousand": 10**3, "million": 10**6, "millions": 10**6, "billion": 10**9, "billions": 10**9,
    "trillion": 10**12, "dozen": 12,
}  # fmt: skip
_NUMERALS = """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
    eighteen nineteen twenty
"""
NUMERALS: Mapping[str, int] = {word: value for value, word in enumerate(_NUMERALS.split())}  # words that are an answer
_SIGNS = {"\\$": "dollar", "\\euro": "euro", "\\pounds": "pound", "\\yen": "yen", "\\rupee": "rupee", "%": "percent",
          "°": "degree"}  # fmt: skip
# Words that change an answer. They are compared, also with an answer that has no words.
_CHANGING = names(
    r"""
    or and not no nor but either neither if unless else otherwise maybe perhaps possibly probably likely about
    around approximately approx roughly nearly almost exactly than least most more less fewer greater larger
    smaller above below over under up down left right forward forwards backward backwards north south east west
    northeast northwest southeast southwest n e clockwise counterclockwise anticlockwise inside outside profit
    loss gain gains deficit debt surplus increase decrease increased decreased higher lower hotter colder taller
    shorter older younger faster slower am pm ago later before after early late earlier negative positive minus
    plus times squared cubed root half halves third thirds quarter quarters i pi mod modulo base remainder over
    to through between without except instead win wins won lose loses lost heads tails odd even true false yes
    wrong incorrect double triple pair pairs dozens hundreds thousands factorial zero one two three four five
    six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty
    thirty forty fifty sixty seventy eighty ninety
    """
)
_AREA, _VOLUME = ("square", "sq", "squared"), ("cubic", "cu", "cubed")


class Behind(NamedTuple):
    """An answer's tokens without the words before and behind it, and these words in one spelling."""

    head: list[str]
    words: tuple[str, ...]

    @property
    def changing(self) -> tuple[str, ...]:
        """The words that change the answer; multipliers are among them, unless a number was multiplied."""
        return tuple(word for word in self.words if word in _CHANGING or word in MULTIPLIERS or not word[0].isalpha())


def parted(tokens: Sequence[str]) -> Behind:
    """The words before and behind an answer, apart from it. The head is empty if there are only words."""
    if is_prose(tokens):
        return Behind([], _spelled(tokens))
    found = list(tokens)
    before: list[str] = []
    at = 1 if found[:1] in (["-"], ["+"]) else 0
    if found[at : at + 2] in (["US", "\\$"], [" US", "\\$"]):
        del found[at]
    if len(found) > at + 1 and found[at] in _SIGNS and found[at] not in ("%", "°"):
        before = [_SIGNS[found.pop(at)]]
    end = _end_of_head(found)
    return Behind(found[:end], tuple(sorted(before)) + _spelled(found[end:]))


def _end_of_head(tokens: Sequence[str]) -> int:
    """Where the words behind an answer begin."""
    end = len(tokens)
    while end:
        token = tokens[end - 1]
        power = next((n for n in (4, 5) if end > n and tokens[end - n : end - n + 2] == ["^", "{"]), 0)
        if token == "}" and power and _is_word(tokens, end - power - 1):
            end -= power + 1
        elif (
            token in _SIGNS
            or _is_word(tokens, end - 1)
            or (token in ("/", "\\cdot") and end > 1 and _is_word(tokens, end - 2) and _is_word(tokens, end))
        ):
            end -= 1
        else:
            break
    return end or len(tokens)


def is_prose(tokens: Sequence[str]) -> bool:
    """Are these tokens words, and not a product of letters?"""
    only = all(_is_text(token) or token.strip().isalpha() for token in tokens)
    return only and any(_is_text(token) or len(token.strip()) > 3 for token in tokens)


def _is_text(token: str) -> bool:
    return token.startswith(TEXT)


def _is_word(tokens: Sequence[str], at: int) -> bool:
    """Is the token a word behind a number? Letters that may be variables are none."""
    token = tokens[at]
    if _is_text(token):
        return True
    word = token.strip()
    if not word.isalpha() or at == 0:
        return False
    before = tokens[at - 1]
    if word in (*_AREA, *_VOLUME, "per") or (word.lower() in ("am", "pm") and before[-1].isdigit()):
        return True
    if before[-1].isdigit() or before == "°":  # "5 m" has a unit, "5m" a variable; "5cm" has a unit
        return (word in UNIT_WORDS and (len(word) > 1 or token != word or before == "°")) or (
            token != word and len(word) > 3
        )
    if before == "/":
        return at > 1 and word in UNIT_WORDS and _is_word(tokens, at - 2)
    return (word in UNIT_WORDS and len(word) > 1) or (token != word and len(word) > 3)


def _spelled(tokens: Sequence[str]) -> tuple[str, ...]:
    """The words of some tokens in one spelling."""
    text = " ".join(_SIGNS.get(token, token.removeprefix(TEXT)) for token in tokens)
    text = re.sub(r"\^ ?\{? ?(-?) ?(\d) ?\}?", r"^\1\2", text.replace("\\cdot", " "))
    words: list[str] = []
    power = ""
    for word in re.findall(r"\^-?\d|/|[^\W\d_]+|[^\s.,]", text):
        low = word if len(word) == 1 else word.lower()
        if low in _AREA + _VOLUME:
            if words and low in ("squared", "cubed") and words[-1] in UNIT_WORDS.values():
                words[-1] += "^2" if low in _AREA else "^3"
            else:
                power = "^2" if low in _AREA else "^3"
        elif word[0] == "^":
            words[-1:] = [words[-1] + word] if words else [word]
        else:
            unit = UNIT_WORDS.get(word, UNIT_WORDS.get(low, low if word not in "/" else "per"))
            words += [unit + power] if unit else []
            power = ""
    return tuple("per" if word == "/" else word for word in words)


def multiplied(value: Fraction, words: Sequence[str]) -> tuple[Fraction, tuple[str, ...]]:
    """A number times the multipliers among the words behind it, and the other words."""
    rest: list[str] = []
    for word in words:
        if word in MULTIPLIERS and not rest:
            value *= MULTIPLIERS[word]
        else:
            rest.append(word)
    return value, tuple(rest)
