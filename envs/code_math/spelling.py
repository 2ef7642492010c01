"""One spelling for the many in which LaTeX, Unicode and plain text write an answer: a list of tokens.

A token is a number ("1234", "0.5"), a command ("\\frac"), a run of letters ("xy"; with a blank in front if the text
has one, " cm"), words in a text command ("T:square cm"), or a sign. Arguments always have braces: `\\frac12`,
`\\frac{1}2` and ½ give the same tokens, and so do `x^2`, `x^{2}`, `x²` and `x**2`. An argument without braces is one
token, as in TeX: `2^n-1` is 2^{n}-1. Two departures from TeX follow how people write plain text: digits behind `^`
belong together (`x^10`), and so do a sign and what it stands before (`10^-3`), and a bracket (`2^(n+1)`).

What changes nothing is dropped: `$`, `\\(`, `\\left`, spacing, styles. Blanks are dropped too, but `2 3` stays two
numbers. Separators of thousands are dropped from a number: `{,}`, `,\\!`, `\\,`, `~` or a blank between groups of
three digits, and a comma if it stands in no bracket.
"""

import re
import unicodedata
from collections.abc import Sequence

DEEPEST = 40  # levels of braces; a text with more has no tokens
TEXT = "T:"  # begins the token of a text command


def names(text: str) -> frozenset[str]:
    """The words of a table."""
    return frozenset(text.split())


_GREEK = """
    alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau upsilon phi chi psi omega
    Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega phi
"""
_UNICODE = {
    "−": "-", "–": "-", "—": "-", "×": r"\times ", "·": r"\cdot ",
    "⋅": r"\cdot ", "∙": r"\cdot ", "÷": "/", "∕": "/", "⁄": "/",
    "≤": r"\leq ", "≥": r"\geq ", "⩽": r"\leq ", "⩾": r"\geq ", "≠": r"\neq ", "≈": r"\approx ", "∞": r"\infty ",
    "π": r"\pi ", "√": r"\sqrt ", "∛": r"\sqrt[3]", "±": r"\pm ", "∓": r"\mp ", "∪": r"\cup ", "∩": r"\cap ",
    "∈": r"\in ", "∅": r"\emptyset ", "°": r"\degree ", "º": r"\degree ", "℃": r"\degree C", "℉": r"\degree F",
    "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℚ": r"\mathbb{Q}",
    "ℕ": r"\mathbb{N}", "ℂ": r"\mathbb{C}", "∠": r"\angle ",
    "′": "'", "’": "'", "…": r"\ldots ", "．": ".",
    "⟨": r"\langle ", "⟩": r"\rangle ", "∖": r"\setminus ", "％": "%", "，": ",",
    "；": ";", "：": ":", "（": "(", "）": ")", "、": ",", "。": ".", "＝": "=", "\u00a0": " ", "\u202f": r"\,",
    "\u2009": r"\,", "€": r"\euro ", "£": r"\pounds ", "¥": r"\yen ", "₹": r"\rupee ", "²": "^{2}", "³": "^{3}",
    **{letter: rf"\{name} " for letter, name in zip("αβγδεζηθικλμνξρστυφχψωΓΔΘΛΞΠΣΦΨΩϕ", _GREEK.split(), strict=True)},
    **{chr(code): chr(code - 0xFEE0) for code in range(0xFF10, 0xFF1A)},
    **{chr(code): chr(code - 0xFEE0) for code in (*range(0xFF21, 0xFF3B), *range(0xFF41, 0xFF5B))},
    **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u00ad\u2061\u2062", ""),
}  # fmt: skip
_TABLE = str.maketrans(_UNICODE)
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿ", "0123456789+-()n")
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_ABOVE = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿ]+")
_BELOW = re.compile("[₀₁₂₃₄₅₆₇₈₉]+")
_VULGAR = re.compile("[¼½¾⅐-⅞]")
_ESCAPED = re.compile(r"(?<!\\)\\\\begin|\A(?!.*\\begin).*\\\\[a-zA-Z{}$%]", re.S)

_DROPPED = names(
    r"""
    \displaystyle \textstyle \scriptstyle \limits \nolimits \left \right \middle \big \Big \bigg \Bigg \bigl
    \bigr \Bigl \Bigr \biggl \biggr \Biggl \Biggr \quad \qquad \thinspace \hfill \nonumber \! \, \; \: \> \/ \(
    \) \[ \] \hline
    """
) | {"\\ "}
_SAME_AS = {
    "\\dfrac": "\\frac", "\\tfrac": "\\frac", "\\cfrac": "\\frac",
    "\\nicefrac": "\\frac", "\\sfrac": "\\frac", "\\dbinom": "\\binom", "\\tbinom": "\\binom",
    "\\le": "\\leq", "\\leqslant": "\\leq", "\\leqq": "\\leq", "\\ge": "\\geq", "\\geqslant": "\\geq",
    "\\geqq": "\\geq",
    "\\ne": "\\neq", "\\lt": "<", "\\gt": ">", "\\ast": "\\cdot", "\\cdotp": "\\cdot", "\\times": "\\cdot",
    "\\div": "/", "\\slash": "/", "\\colon": ":", "\\ratio": ":", "\\mid": "|", "\\vert": "|", "\\lvert": "|",
    "\\rvert": "|", "\\lbrace": "\\{", "\\rbrace": "\\}", "\\lbrack": "[", "\\rbrack": "]", "\\lparen": "(",
    "\\rparen": ")", "\\langle": "(", "\\rangle": ")", "\\prime": "'", "\\varnothing": "\\emptyset", "\\imath": "i",
    "\\dots": "\\ldots", "\\cdots": "\\ldots", "\\varphi": "\\phi", "\\varepsilon": "\\epsilon",
    "\\vartheta": "\\theta",
    "\\approxeq": "\\approx", "\\simeq": "\\approx", "\\iff": "\\Leftrightarrow", "\\lor": "or", "\\vee": "or",
    "\\land": "and", "\\wedge": "and", "\\%": "%", "\\#": "#", "\\&": "&", "\\_": "_", "\\dollar": "\\$",
    "\\textdollar": "\\$", "\\percent": "%",
    "\\degrees": "\\degree", "\\textdegree": "\\degree", "\\bigcup": "\\cup",
    "\\backslash": "\\setminus", "\\smallsetminus": "\\setminus",
    "\\infin": "\\infty", "\\R": "\\mathbb{R}", "\\bar": "\\overline",
}  # fmt: skip
_WORDS_IN = names(
    r"""
    \text \mathrm \textrm \mbox \hbox \textnormal \textsf \mathsf \texttt \mathtt \operatorname \textup \unit
    \si
    """
)
_SEE_THROUGH = names(
    r"""
    \mathbf \textbf \mathit \textit \boldsymbol \bm \pmb \boxed \fbox \mathstrut \emph \underline \ensuremath
    \bold
    """
)
_ONE_ARGUMENT = names(
    r"""
    \overline \bar \hat \widehat \vec \overrightarrow \tilde \dot \mathbb \mathcal \mathfrak \overarc \sqrt ^ _
    """
)
_TWO_ARGUMENTS = frozenset({"\\frac", "\\binom"})
_FUNCTIONS = names(
    "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln exp max min gcd lcm det lim deg arg Re Im"
)
_PLAIN_NAMES = {
    **{name: f"\\{name}" for name in (*_FUNCTIONS, "pi", "sqrt", "theta", "alpha", "beta", "lambda", "omega", "infty")},
    "Pi": "\\pi",
    "infinity": "\\infty", "Infinity": "\\infty", "inf": "\\infty", "asin": "\\arcsin", "acos": "\\arccos",
    "atan": "\\arctan",
}  # fmt: skip

_GROUPS = r"(?:\{,\}|,\\!\s?|\\,|\\ |~| |\{\\,\}|\\:|\\;|'(?=\d))"
_TOKEN = re.compile(
    rf"(?P<grouped>(?<![\d.,])\d{{1,3}}(?:{_GROUPS}\d{{3}})+(?!\d)(?:\.\d+)?)"
    r"|(?P<commas>(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d]|,\s?\d)(?:\.\d+)?)"
    r"|(?P<decimal_comma>\d+\{,\}\d+)"
    r"|(?P<number>(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+(?![\w.]))?)"
    r"|(?P<row>\\\\(?:\[[^\]\[]{0,20}\])?)|(?P<command>\\q?quad|\\[a-zA-Z]+)|(?P<escaped>\\.)"
    r"|(?P<word>[^\W\d_]+)|(?P<blank>\s+|~)|(?P<sign>\*\*|<=|>=|!=|==|.)",
    re.S,
)
_SIGNS = {"**": "^", "*": "\\cdot", "<=": "\\leq", ">=": "\\geq", "!=": "\\neq", "==": "="}
_OPENING, _CLOSING = ("(", "[", "\\{"), (")", "]", "\\}")


class UnreadableError(ValueError):
    """A text has no tokens: braces do not match, or there are too many levels."""


def tokens_of(text: str, *, commas: bool = True) -> list[str]:
    """The tokens of an answer.

    Args:
        text: the answer.
        commas: whether a comma before three digits may separate thousands.

    Raises:
        UnreadableError: see there.
    """
    return _Arguments(_cut(_ascii(text), commas)).all()


def _ascii(text: str) -> str:
    """The text in ASCII as far as it is mathematics, with `\\$` for money and no other `$`."""
    if _ESCAPED.search(text):  # copied from JSON, with two backslashes for each
        text = text.replace("\\\\", "\\")
    text = _ABOVE.sub(lambda m: "^{" + m[0].translate(_SUPERSCRIPTS) + "}", text)
    text = _BELOW.sub(lambda m: "_{" + m[0].translate(_SUBSCRIPTS) + "}", text)
    text = _VULGAR.sub(lambda m: r"\frac{{{}}}{{{}}}".format(*unicodedata.normalize("NFKC", m[0]).split("⁄")), text)
    text = re.sub(r"\b([aApP])\.\s?([mM])\b\.?", r"\1\2", text)
    text = text.replace("...", r"\ldots ")
    text = re.sub(r"√(\d+)", r"\\sqrt{\1}", text).translate(_TABLE).strip()
    dollars = len(re.findall(r"(?<!\\)\$", text))
    if dollars % 2 and text.lstrip("-+ ").startswith("$"):
        text = text.replace("$", "\\$", 1)
    elif dollars % 2 and text.rstrip(". ").endswith("$"):
        at = text.rindex("$")
        text = text[:at] + "\\$" + text[at + 1 :]
    return re.sub(r"(?<!\\)\$", " ", text)


def _cut(text: str, commas: bool) -> list[str]:
    """The text in tokens, without regard to arguments. A blank before letters is part of their token."""
    found: list[str] = []
    depth, blank = 0, False
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        assert match is not None
        kind = match.lastgroup
        if kind == "commas" and (not commas or depth > 0):
            match = re.compile(r"\d+").match(text, at)
            assert match is not None
            kind = "number"
        at = match.end()
        token = match[0]
        if kind in ("grouped", "commas"):
            token = re.sub(r"[^\d.]", "", token)
        elif kind == "decimal_comma":
            token = token.replace("{,}", ".")
        elif kind == "number":
            token = "0" + token if token.startswith(".") else token
        elif kind == "blank":
            blank = True
            continue
        elif kind == "row":
            token = "\\\\"
        elif kind == "word":
            token = _PLAIN_NAMES.get(token, (" " if blank else "") + token)
        elif token == "!=" and text[at - 3 : at - 2].isdigit():
            token, at = "!", at - 1  # 5!=120
        elif kind == "sign":
            token = _SIGNS.get(token, token)
        else:
            token = _SAME_AS.get(token, token)
            if token in _DROPPED:
                blank = blank or token in ("\\ ", "\\,", "\\;", "\\:", "\\quad")
                if token == "\\left" or token == "\\right":
                    at += text.startswith(".", at)
                continue
            if token == "\\mathbb{R}":
                found += ["\\mathbb", "{", "R"]
                token = "}"
        depth += (token in _OPENING) - (token in _CLOSING)
        found.append(token)
        blank = False
    return found


def _fraction(tokens: list[str]) -> list[str]:
    """The tokens of a group, with \\frac in place of TeX's \\over."""
    if tokens.count("\\over") != 1:
        return tokens
    at = tokens.index("\\over")
    return ["\\frac", "{", *tokens[:at], "}", "{", *tokens[at + 1 :], "}"]


class _Arguments:
    """Gives every argument its braces, and makes one token of each text command."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self._left = list(reversed(tokens))

    def all(self) -> list[str]:
        """The tokens."""
        found: list[str] = []
        while self._left:
            found += self._item(0)
        return _fraction(found)

    def _item(self, depth: int) -> list[str]:
        """The next token, with its arguments."""
        if depth > DEEPEST:
            raise UnreadableError(f"more than {DEEPEST} levels")
        token = self._left.pop()
        if token == "{":
            inside = self._group(depth)
            return inside if len(inside) < 2 else ["{", *inside, "}"]
        if token == "}":
            raise UnreadableError("a brace closes nothing")
        if token in _WORDS_IN and self._next() == "{":
            return self._words(depth)
        if token in _SEE_THROUGH:
            return self._item(depth + 1) if self._left else []
        if token == "\\degree":
            return ["°"]
        if token in _TWO_ARGUMENTS:
            a, b = self._argument(depth), self._argument(depth)
            if token == "\\frac" and all(len(one) == 1 and one[0].startswith(TEXT) for one in (a, b)):
                return [f"{a[0]}/{b[0].removeprefix(TEXT)}"]
            return [token, "{", *a, "}", "{", *b, "}"]
        if token == "\\sqrt" and self._next() == "[":
            return self._root(depth)
        if token in _ONE_ARGUMENT:
            inside = self._argument(depth, behind=token)
            if token == "^" and inside in (["\\circ"], ["°"], ["o"]):
                return ["°"]
            if token == "^" and len(inside) == 1 and inside[0].removeprefix(TEXT).strip() in ("th", "st", "nd", "rd"):
                return [f"{TEXT}th"]  # the 5^{th}
            if token == "^" and inside and all(one == "'" for one in inside):
                return inside
            return [token, "{", *inside, "}"]
        return [token]

    def _next(self) -> str:
        return self._left[-1] if self._left else ""

    def _group(self, depth: int) -> list[str]:
        """The tokens up to the brace that closes the group."""
        found: list[str] = []
        while self._next() != "}":
            if not self._left:
                raise UnreadableError("a brace is not closed")
            found += self._item(depth + 1)
        self._left.pop()
        return _fraction(found)

    def _argument(self, depth: int, behind: str = "") -> list[str]:
        """The next argument, without its braces."""
        if not self._left:
            raise UnreadableError("an argument is missing")
        token = self._left.pop()
        if token == "{":
            return self._group(depth)
        if behind in ("^", "_", "\\sqrt") and token == "(":
            return self._bracket(depth)
        if behind == "^" and token in ("-", "+"):
            if self._next() in ("-", "+"):
                raise UnreadableError("two signs in an exponent")
            return [token, *self._argument(depth, behind)]
        bare = token.strip()
        if len(bare) > 1 and (bare.isalpha() or (bare[0].isdigit() and behind != "^")):
            self._left.append(bare[1:])  # one letter or digit, as in TeX
            return [bare[0]]
        self._left.append(token)
        return self._item(depth + 1)

    def _bracket(self, depth: int) -> list[str]:
        """The tokens up to the round bracket that closes; the opening one has been read. With both brackets if there
        are several tokens between them."""
        found: list[str] = []
        level = 1
        while self._left:
            level += (self._next() == "(") - (self._next() == ")")
            if level == 0:
                self._left.pop()
                return found if len(found) < 2 else ["(", *found, ")"]
            found += self._item(depth + 1)
        raise UnreadableError("a bracket is not closed")

    def _root(self, depth: int) -> list[str]:
        """The root whose degree stands in square brackets."""
        self._left.pop()
        degree: list[str] = []
        while self._next() != "]":
            if not self._left:
                raise UnreadableError("a bracket is not closed")
            degree += self._item(depth + 1)
        self._left.pop()
        inside = self._argument(depth, behind="\\sqrt")
        of = [] if degree == ["2"] else ["[", *degree, "]"]
        return ["\\sqrt", *of, "{", *inside, "}"]

    def _words(self, depth: int) -> list[str]:
        """The token of a text command; what holds no words but mathematics gives the tokens of that."""
        self._left.pop()
        inside = self._group(depth)
        words = [one.strip() for one in inside if one.strip().isalpha()]
        if inside == ["i"] or inside == ["e"] or not inside:
            return inside
        if inside[-1] == ")" and inside[0] == "(" and len(inside) == 3:
            return inside  # a choice
        if len(inside) == 1 and inside[0].startswith(("\\", TEXT)):
            return inside  # \operatorname{sin}
        if not words or inside[0][0].isdigit():
            return inside
        said = "".join(f" {one.strip()}" if one.strip().isalnum() else one for one in inside)
        return [TEXT + said.replace(TEXT, " ").strip()]
