"""Reads a run for the inspector, and makes a request to the credit worker from the query of an HTTP request."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from agentrl import catalogue
from agentrl.credit import CreditMethod
from agentrl.http import Refusal
from agentrl.report import EVALUATION, TRAINING, SearchConditions, StoredGraph, sources
from agentrl.run import read_metrics
from agentrl.runs import read_config, setting, status_of
from agentrl.secret import scrubbed
from agentrl.serve.credit_worker import STORED
from agentrl.types import Status

MOST_METHODS = 9  # the page has one key (1 to 9) per method
SEARCH_S = 3.0  # longest time of one search; the page asks for the rest by a new request, after other requests
Query = Mapping[str, list[str]]


class InspectedRun:
    """A run's folder. Each request reads the folder again; of the metrics file it reads only the new lines.

    Args:
        path: the run's folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rows: list[dict[str, Any]] = []
        self._bytes = self._file = 0
        self._lock = Lock()

    def check(self) -> None:
        """Raises ValueError if the folder holds no run, or a run without stored graphs."""
        read_config(self.path)
        if not sources(self.path):
            raise ValueError(
                f"{self.path} has no stored graphs: let the run reach its first iteration, or train with "
                "run.graphs_every of 1 or more"
            )

    def state(self) -> dict[str, Any]:
        """The run's name, state, stored graphs and credit method, and the success rates of its last iterations."""
        config, rows, found = read_config(self.path), self._read(), sources(self.path)
        status = status_of(self.path, rows)
        train = [row for row in rows if row.get("stage") == "train"]
        return {
            "name": str(setting(config, "run.name", self.path.name)),
            "state": status.state,
            "sentence": status.sentence,
            "iterations": [int(one.name) for one in found if one.kind == TRAINING],
            "evaluations": [one.name for one in found if one.kind == EVALUATION],
            "success": [[row.get("step"), row.get("success")] for row in train[-400:]],
            "credit": self._own_method(config),
        }

    def credit(self, query: Query) -> dict[str, Any]:
        """The request to the credit worker for the data of the page.

        In the query, `source` is the key of stored steps, each `method` the name of a method, and each `group` the
        number of a group. Each `option` is PLACE:key=value, where PLACE is the position of a method in the query, from
        0. Without `method`, the data of an iteration have its stored credit, and the data of an evaluation have the
        credit of the run's method (of `grpo` if the run's method is not in the catalogue).

        Raises:
            Refusal: the run has no such steps, there are too many methods, or an option or a group is not written as
                above.
        """
        source = self._source(query)
        names = query.get("method", [STORED if source.kind == TRAINING else self._any_method()])
        if not 0 < len(names) <= MOST_METHODS:
            raise Refusal(400, f"{len(names)} methods: ask for 1 to {MOST_METHODS}")
        methods: list[dict[str, Any]] = [{"name": name, "options": []} for name in names]
        for option in query.get("option", ()):
            place, _, word = option.partition(":")
            if not (place.isascii() and place.isdecimal() and len(place) < 3 and int(place) < len(methods)):
                raise Refusal(400, f"option={option!r:.80} names no method: write PLACE:key=value, PLACE from 0")
            methods[int(place)]["options"].append(word)
        where = f"iteration {source.name}" if source.kind == TRAINING else f"evaluation {source.name}"
        return {
            "do": "page",
            "file": str(source.path),
            "run": str(self.path),
            "methods": methods,
            "groups": [_number(one, "group") for one in query.get("group", ())],
            "title": self.path.resolve().name,
            "subtitle": where,
            "branch": self._branch(source),
        }

    def episodes(self, query: Query) -> dict[str, Any]:
        """The request to the credit worker for a search.

        The query may have the conditions `task`, `ending`, `success` (yes or no) and `text`. It also has either
        `source`, the key of the stored steps to search, or `within`, which is `iterations` or `evaluations`. With
        `within`, all stored graphs of this kind are searched, the newest first. If the query has `from`, the search
        begins at the graph with this key.
        """
        ending, success = _one(query, "ending"), _one(query, "success")
        endings = [status.name.lower() for status in Status]
        if ending and ending not in endings:
            raise Refusal(400, f"ending={ending!r:.40} is no ending{catalogue.nearest(ending, endings)}")
        if success not in ("", "yes", "no"):
            raise Refusal(400, f"success={success!r:.40}: write yes or no")
        succeeded = {"yes": True, "no": False}.get(success)
        asked = SearchConditions(task=_one(query, "task"), ending=ending, succeeded=succeeded, text=_one(query, "text"))
        files = [(source.key, str(source.path)) for source in self._places(query)]
        return {"do": "found", "files": files, "asked": asked._asdict(), "seconds": SEARCH_S}

    def _places(self, query: Query) -> list[StoredGraph]:
        """The stored graphs in which a search looks, in order."""
        within = _one(query, "within")
        if not within:
            return [self._source(query)]
        kind = {"iterations": TRAINING, "evaluations": EVALUATION}.get(within)
        if kind is None:
            raise Refusal(400, f"within={within!r:.40}: write iterations or evaluations, or name a source")
        found = [source for source in reversed(sources(self.path)) if source.kind == kind]
        begin = _one(query, "from")
        at = [place for place, source in enumerate(found) if source.key == begin] if begin else [0]
        if not found or not at:
            raise Refusal(404, f"from={begin!r:.80}: the run has stored no such steps")
        return found[at[0] :]

    def _branch(self, source: StoredGraph) -> str:
        """The command `agentrl branch` for an iteration, without the options that choose the step.

        Empty for an evaluation, because `agentrl branch` does not take its steps.
        """
        if source.kind != TRAINING:
            return ""
        return f"agentrl branch {shlex.quote(str(self.path))} --iteration {source.name}"

    def _source(self, query: Query) -> StoredGraph:
        """The stored graph whose key a request names. No text from a request becomes a part of a path."""
        key = _one(query, "source")
        by_key = {source.key: source for source in sources(self.path)}
        if key not in by_key:
            raise Refusal(404, f"source={key!r:.80}: the run has stored no such steps")
        return by_key[key]

    def _any_method(self) -> str:
        own = self._own_method(read_config(self.path))
        return str(own["name"]) if own["known"] else "grpo"

    def _own_method(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The method of the run's section [credit]; `known` says whether the catalogue has the method."""
        table = dict(setting(config, "credit", {}))
        name = str(table.pop("name", ""))
        return {"name": scrubbed(name), "options": table, "known": name in catalogue.names("credit")}

    def _read(self) -> Sequence[dict[str, Any]]:
        """Every undamaged line of metrics.jsonl so far. If --resume has replaced the file, all lines are read again."""
        path = self.path / "metrics.jsonl"
        with self._lock:
            file = path.stat().st_ino if path.is_file() else 0
            if file != self._file:
                self._rows, self._bytes, self._file = [], 0, file
            new = read_metrics(path, damaged="skip", after=self._bytes)
            self._rows, self._bytes = [*self._rows, *new.rows], new.end
            return self._rows


def method_forms() -> list[dict[str, Any]]:
    """One entry per credit method of the catalogue: name, paper, needed columns, and options as fields of a form."""
    forms = []
    for name in catalogue.names("credit"):
        method = catalogue.load(CreditMethod, name)
        schema = method.config.model_json_schema().get("properties", {})
        defaults = {key: one.get_default(call_default_factory=True) for key, one in method.config.model_fields.items()}
        forms.append(
            {
                "name": name,
                "paper": method.paper,
                "needs": [*method.needs, *method.reads],
                "options": [_field(key, schema.get(key, {}), defaults.get(key)) for key in method.config.model_fields],
            }
        )
    return forms


def _field(key: str, schema: Mapping[str, Any], default: Any) -> dict[str, Any]:
    """The form field of one option; its `kind` is choice, switch, number or text."""
    choices = schema.get("enum")
    kinds = {"boolean": "switch", "number": "number", "integer": "number"}
    kind = "choice" if choices else kinds.get(str(schema.get("type")), "text")
    text = "" if default is None else str(default).lower() if isinstance(default, bool) else _as_text(default)
    return {"key": key, "kind": kind, "choices": choices or [], "default": text, "note": schema.get("description", "")}


def _as_text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    if isinstance(value, Mapping):
        return "" if not value else str(dict(value))
    return str(value)


def _one(query: Query, name: str) -> str:
    values = query.get(name, [""])
    if len(values) > 1:
        raise Refusal(400, f"{name} is given {len(values)} times: give it once")
    return values[0]


def _number(text: str, what: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 16):
        raise Refusal(400, f"{what}={text!r:.40} is no number")
    return int(text)
