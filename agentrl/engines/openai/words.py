"""The words of a server in the body of an answer, whatever the form of the body."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

LONGEST = 1 << 20  # characters of a body that are searched for words
SHOWN = 300  # characters of the words that an error message quotes
DEEPEST = 8  # levels of JSON, and of JSON text inside JSON, that are searched
# Fields with the words, the most telling first. `error` may be a text, an object or a list; `raw` is OpenRouter's copy
# of another server's body, `innererror` is Azure's, `detail` FastAPI's and `errors` Cloudflare's.
WORDS = (
    *("error", "errors", "message", "msg", "detail", "details", "error_description", "error_message", "title"),
    *("metadata", "raw", "innererror", "promptFeedback", "blockReasonMessage"),
    *("error_msg", "base_resp", "status_msg"),  # Baidu, MiniMax
)
# Fields with a word for programs. They are not shown if the words themselves have them.
CODES = ("code", "type", "status", "error_type", "reason", "blockReason", "quotaId", "retryDelay")
FAILED = "failed_generation"  # Groq's field for the answer that its parser refused
PAGE = re.compile(r"\s*(?:<!doctype html|<html|<head|<\?xml)", re.I)
TITLE = re.compile(r"<title[^<>]{0,80}>([^<]{0,400})</title>", re.I)
TAG = re.compile(r"<[^<>]{0,400}>")


class ServerWords(NamedTuple):
    """What a server says.

    Attributes:
        text: the server's sentences in one line; empty if the body has none.
        codes: its words for programs, such as `context_length_exceeded`, joined by blanks.
        status: the status that the body names, which may differ from the status of the answer; 0 if it names none.
        failed: the text of the model that the server could not read, if the body holds it.
    """

    text: str
    codes: str = ""
    status: int = 0
    failed: str = ""

    def shown(self, status: int) -> str:
        """The words for an error message, with the status of the answer (0 for none) in front."""
        text = self.text if len(self.text) <= SHOWN else self.text[: SHOWN - 3] + "..."
        known = text.lower()
        told = [code for code in self.codes.split() if not code.isdigit() and code.lower() not in known]
        text += f" ({' '.join(told)[:SHOWN]})" if told else ""
        if not status:
            return text
        return f"Error code: {status}" + (f" - {text.strip()}" if text else ", without a word")


def words_of(body: Any) -> ServerWords:
    """The words in a body: JSON text, the value of such a text, the text of an HTML page, or any other text.

    Texts that hold a JSON value themselves, as gateways nest them, are read in the same way.
    """
    text = body if isinstance(body, str) else None
    if text is not None:
        value = _json(text[:LONGEST])
        if value is None:
            return ServerWords(one_line(_page(text[:LONGEST]) if PAGE.match(text) else text[:LONGEST]))
        body = value
    found = list(_fields(body, DEEPEST))
    texts, codes, status, failed = [], [], 0, ""
    for name, value in found:
        if name == FAILED:
            failed = failed or value
        elif name in CODES:
            codes.append(value)
            status = status or (int(value) if value.isdigit() and len(value) == 3 and value >= "400" else 0)
        else:
            texts.append(value)
    if text is not None and body and not texts and not codes:  # a form that no known server has
        texts = [text[:LONGEST]]
    return ServerWords(" / ".join(dict.fromkeys(map(one_line, texts))), " ".join(dict.fromkeys(codes)), status, failed)


def one_line(text: str) -> str:
    """The text with every run of blanks and line ends as one blank."""
    return " ".join(text.split())


def _json(text: str) -> Any:
    """The JSON object or list in a text, perhaps between a few words; None if there is none."""
    begin = _begin(text)
    if begin < 0:
        return None
    try:
        value, _ = json.JSONDecoder().raw_decode(text, begin)
    except (ValueError, RecursionError):
        return None
    return value if not text[:begin].strip() or _has_words(value) else None


def _begin(text: str) -> int:
    """The position of the first sign that may begin a JSON object or list; -1 if there is none."""
    return min((at for sign in "{[" if (at := text.find(sign)) >= 0), default=-1)


def _has_words(value: Any) -> bool:
    """Does a JSON value look like the body of an error? Others are a part of the words, such as a quoted argument."""
    if isinstance(value, list):
        return bool(value) and _has_words(value[0])
    return isinstance(value, dict) and any(name in value for name in ("error", "errors", "message", "detail"))


def _fields(value: Any, depth: int, name: str = "error") -> Iterator[tuple[str, str]]:
    """(field, text) for each field of a body that holds words or codes, the most telling first."""
    if depth == 0:
        return
    if isinstance(value, Mapping):
        for field in (*WORDS, *CODES, FAILED):
            if value.get(field) is not None:
                yield from _fields(value[field], depth - 1, field)
        if name == "detail" and isinstance(value.get("loc"), list):  # FastAPI: the field of the request that is wrong
            yield "msg", ".".join(map(str, value["loc"]))
    elif isinstance(value, list | tuple):
        for one in value[:8]:
            yield from _fields(one, depth - 1, name)
    elif name in CODES:
        if isinstance(value, str | int) and not isinstance(value, bool) and (code := str(value)[:200].strip()):
            yield (name, code) if " " not in code else ("title", code)  # a code of several words is a sentence
    elif isinstance(value, str) and value.strip():
        inner = _json(value) if name != FAILED else None
        if inner is None:
            yield name, value
            return
        if before := value[: _begin(value)].strip(" -:\n"):
            yield name, before
        yield from _fields(inner, depth - 1, name)


def _page(text: str) -> str:
    """The title of a page, or its text without tags."""
    title = TITLE.search(text)
    return f"{title[1]} (a page in HTML)" if title and title[1].strip() else TAG.sub(" ", text)
