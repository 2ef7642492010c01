"""What the servers that people run say when they refuse a request: `dialects.jsonl`, which one stub server plays.

The texts are those of the servers' own sources, documentation and issue trackers, shortened where they repeat
themselves; docs/evaluation.md names the sources.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple


class Case(NamedTuple):
    """A refusal.

    Attributes:
        server: name of the server.
        status: status of the answer.
        kind: kind of the refusal that the answer means.
        words: a part of the server's own words, which must reach the user.
        body: the body, as a JSON value; a text is sent as it is.
    """

    server: str
    status: int
    kind: str
    words: str
    body: Any

    @property
    def data(self) -> bytes:
        """The body as bytes."""
        return (self.body if isinstance(self.body, str) else json.dumps(self.body)).encode()

    def __str__(self) -> str:
        return f"{self.server} {self.kind} {self.status}"


REFUSALS = tuple(
    Case(**json.loads(line)) for line in (Path(__file__).parent / "dialects.jsonl").read_text().splitlines()
)


def openai(message: str, code: Any = None, kind: str = "invalid_request_error", **more: Any) -> dict[str, Any]:
    """OpenAI's body of an error, which most servers copy."""
    return {"error": {"message": message, "type": kind, "param": None, "code": code, **more}}


def page(title: str) -> str:
    """The page of a proxy."""
    return f"<html>\r\n<head><title>{title}</title></head>\r\n<body>\r\n<h1>{title}</h1>\r\n</body></html>"
