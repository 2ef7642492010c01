"""Retrieval: passages, the protocol of every search tool, and the texts in which a model reads results."""

import json
from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol, runtime_checkable

Form = Literal["search_r1", "verl", "verl_agent", "brief"]


class Passage(NamedTuple):
    """One result of a search.

    `contents` is the title (often in double quotes), a newline and the text. `score` is None if the service gives no
    score.
    """

    id: str
    contents: str
    score: float | None = None

    @property
    def title(self) -> str:
        """The first line, quotes included."""
        return self.contents.partition("\n")[0]

    @property
    def text(self) -> str:
        """All but the first line."""
        return self.contents.partition("\n")[2]


@runtime_checkable
class Retriever(Protocol):
    """Finds passages. Several threads may call it at the same time."""

    def search(self, queries: list[str], k: int) -> list[list[Passage]]:
        """Up to `k` passages per query, best first; an empty list if no passage fits.

        Raises:
            agentrl.tool.ToolFault: the service is lost.
        """
        ...


def write_passages(passages: Sequence[Passage], form: Form) -> str:
    """Search results as text. A trained model expects the form that it saw in its training.

    Args:
        passages: the results, best first.
        form: `search_r1`: `Doc i(Title: t) text`, one per line (Search-R1, arXiv:2503.09516).
            `verl`: a JSON object whose entry `result` has `Doc i (Title: t)`, the text and a blank line per passage.
            `verl_agent`: a JSON object whose entry `result` has `Doc i: contents`, one per line.
            `brief`: `# title: text`, one per line, for small models.
    """
    if form == "brief":
        return "\n".join(f"# {p.title.strip(chr(34))}: {p.text}" for p in passages) or "# nothing found"
    if form == "search_r1":
        return "".join(f"Doc {i}(Title: {p.title}) {p.text}\n" for i, p in enumerate(passages, 1))
    if form == "verl":
        text = "".join(f"Doc {i} (Title: {p.title})\n{p.text}\n\n" for i, p in enumerate(passages, 1)).strip()
    else:
        text = "".join(f"Doc {i}: {p.contents.strip()}\n" for i, p in enumerate(passages, 1))
    return json.dumps({"result": text}, ensure_ascii=False)
