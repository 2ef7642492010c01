"""Secrets: keys and passwords stay out of logs, reports, stored configurations and error messages.

A recipe names a secret as "${NAME}". This text is stored unchanged, and the code that uses the option calls `expand`. A
secret in plain text is stored as "***" if `redacted` recognises it.
"""

import os
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

HIDDEN = "***"
REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
# No look-around and no nested repetition: such patterns are slow on the long texts of servers and models.
USER = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,20}://)[^\s/@'\"<>]{1,2000}@")
QUERY = re.compile(r"(?P<name>[?&][A-Za-z0-9_.-]{1,80}=)(?P<value>[^&#\s'\"<>]{1,2000})")
NAME = re.compile(
    r"api[_-]?key|apikey|secret|passw(or)?d|credential|authori[sz]ation|bearer|private[_-]?key"
    r"|(access|auth|refresh|session|hub|hf)[_-]?token|^(token|key|sig|signature)$",
    re.IGNORECASE,
)
VARIABLE = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$")  # the end of an environment variable's name
SHORTEST = 8  # characters; shorter values are not searched for in texts, because they are often ordinary words
TABLES = ("env", "headers")  # tables of a tool (such as an MCP server) or an endpoint, whose values may be secret


def hidden_url(text: str) -> str:
    """The text, with user, password and secret query values of every URL in it hidden."""

    def query(found: re.Match[str]) -> str:
        plain = not NAME.search(found["name"][1:-1]) or REFERENCE.fullmatch(found["value"])
        return found[0] if plain else found["name"] + HIDDEN

    def user(found: re.Match[str]) -> str:
        return found[0] if REFERENCE.search(found[0]) else f"{found['scheme']}{HIDDEN}@"

    return QUERY.sub(query, USER.sub(user, text))


def address_fault(url: str, variable: str) -> str:
    """What is wrong with the address of a server that is stored and printed, as a predicate; empty if nothing is.

    Args:
        url: the address.
        variable: environment variable of the server's key.
    """
    try:
        parts = urlsplit(url)
        whole = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # brackets that do not fit, or a port that is no number or too large
        whole = False
    if not whole:
        return "is no address: write http://HOST:PORT"
    if parts.username is not None or parts.query or parts.fragment:
        return (
            "has a user, a password, a query or a fragment, and addresses are stored: leave them out, and set the key "
            f"in the environment variable {variable}"
        )
    return ""


def scrubbed(text: str, secrets: Iterable[str] = ()) -> str:
    """The text with three kinds of secrets hidden: `secrets`, values of environment variables, and secrets in URLs.

    The names of these variables end in `KEY`, `TOKEN`, ... (`VARIABLE`). Values of fewer than SHORTEST characters and
    values that begin with "/" are hidden in URLs only.
    """
    return _without(text, _searched(secrets))


def _searched(secrets: Iterable[str] = ()) -> list[str]:
    """The values that `scrubbed` searches for, the longest first: `secrets`, and those of environment variables."""
    of_environment = [value for name, value in os.environ.items() if VARIABLE.search(name.upper())]
    long = {one for one in (*secrets, *of_environment) if len(one) >= SHORTEST}
    return sorted((one for one in long if not one.startswith("/")), key=len, reverse=True)  # "/": path of a key file


def _without(text: str, searched: Iterable[str]) -> str:
    for secret in searched:
        text = text.replace(secret, HIDDEN)
    return hidden_url(text)


def scrubbed_values(value: Any, secrets: Collection[str] = ()) -> Any:
    """A JSON value with every text in it scrubbed; `secrets` as for `scrubbed`."""
    return _values_without(value, _searched(secrets))


def _values_without(value: Any, searched: Collection[str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _values_without(one, searched) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_values_without(one, searched) for one in value]
    return _without(value, searched) if isinstance(value, str) else value


def redacted(value: Any, path: tuple[str, ...] = ()) -> Any:
    """A table of options with its secrets hidden, except secrets that are written as "${NAME}".

    These values are hidden: the values in `env` and `headers` of a tool or an endpoint; options whose name is a usual
    name of a secret; the word of a command after such an option; and, in other texts, everything that `scrubbed` hides.

    Args:
        value: a table, a list or a plain value.
        path: the keys that lead to it.
    """
    return _redacted(value, path, _searched())


def _redacted(value: Any, path: tuple[str, ...], searched: Collection[str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _redacted(one, (*path, str(key)), searched) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return _redacted_words(value, path, searched)
    if not isinstance(value, str) or not value or REFERENCE.search(value):
        return value
    of_server = len(path) > 2 and path[-2] in TABLES and any(key.startswith(("tool", "endpoint")) for key in path[:-2])
    return HIDDEN if of_server or (path and NAME.search(path[-1])) else _without(value, searched)


def restored(stored: Any, given: Any, path: tuple[str, ...] = ()) -> Any:
    """The stored table with its hidden secrets filled in from `given`, a table without hidden values.

    A value of `given` replaces the stored value at the same place if `redacted` turns the given value into the stored
    value.
    """
    if isinstance(stored, Mapping):
        others = given if isinstance(given, Mapping) else {}
        return {key: restored(one, others.get(key), (*path, str(key))) for key, one in stored.items()}
    return given if given is not None and redacted(given, path) == stored else stored


def hidden_values(value: Any, path: tuple[str, ...] = ()) -> set[str]:
    """The texts that `redacted` hides in a table of options, to search for them in other texts.

    Args:
        value: a table, a list or a plain value.
        path: the keys that lead to it.
    """
    return _hidden(value, redacted(value, path))


def _hidden(value: Any, shown: Any) -> set[str]:
    """The texts in `value` that are not in its redacted form `shown`; for `--token=SECRET` only `SECRET`."""
    if isinstance(value, Mapping):
        return {text for key, one in value.items() for text in _hidden(one, shown[key])}
    if isinstance(value, list | tuple):
        return {text for one, other in zip(value, shown, strict=True) for text in _hidden(one, other)}
    if not isinstance(value, str) or value == shown:
        return set()
    option, equals, given = value.partition("=")
    return {given if equals and shown == f"{option}={HIDDEN}" else value}


def _redacted_words(words: Iterable[Any], path: tuple[str, ...], searched: Collection[str]) -> list[Any]:
    """A redacted list. If it is a command, VALUE is hidden in `--api-key VALUE` and `--api-key=VALUE`."""
    shown: list[Any] = []
    before = ""
    for word in words:
        option, equals, given = word.partition("=") if isinstance(word, str) else ("", "", "")
        if before.startswith("-") and NAME.search(before.lstrip("-")) and isinstance(word, str):
            shown.append(_redacted(word, (*path, before.lstrip("-")), searched))
        elif equals and not REFERENCE.search(given) and NAME.search(option.lstrip("-")):
            shown.append(f"{option}={HIDDEN}")
        else:
            shown.append(_redacted(word, path, searched))
        before = word if isinstance(word, str) and not equals else ""
    return shown


def expand(text: str, what: str) -> str:
    """The text with every "${NAME}" replaced by the environment variable NAME.

    Args:
        text: the value of an option.
        what: the option's name in error messages.

    Raises:
        ValueError: the variable is not set, or the value was hidden when the configuration was stored.
    """
    if text == HIDDEN:
        raise ValueError(
            f'{what} is "{HIDDEN}", which stands for a value that is not stored: give it again, best as "${{NAME}}" '
            "with NAME set in the environment"
        )

    def value(found: re.Match[str]) -> str:
        if found[1] not in os.environ:
            raise ValueError(f"{what} asks for the environment variable {found[1]}, which is not set: set it")
        return os.environ[found[1]]

    return REFERENCE.sub(value, text)
