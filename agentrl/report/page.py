"""Writes the credit page and the page of a run. Each is one HTML file that holds its data and needs no network.

The file holds the data as gzipped JSON in base64, and the page's script writes texts by `textContent`. So a browser
never parses a text of a model or an environment as HTML. A content security policy allows this one script, the
styles in the file, and no request. The page of `agentrl report --serve` has no data; its policy also allows requests to
the server that sent it.
"""

import base64
import gzip
import hashlib
import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

from agentrl.files import write_atomically
from agentrl.report.credit_schema import CreditData
from agentrl.report.run_schema import RunData


def credit_page(data: CreditData) -> str:
    """The text of the credit page; the same data gives the same bytes."""
    packed = base64.b64encode(gzip.compress(data.model_dump_json().encode(), mtime=0)).decode()
    stored = f'<script type="application/octet-stream" id="data">{packed}</script>\n'
    return _page(data.title, scripts=("credit.js", "words.js", "graph.js"), styles=("credit.css",), data=stored)


def inspector_page(title: str) -> str:
    """The page of `agentrl report --serve`: the credit page without data; its script fetches the data from the server
    that sent the page."""
    above = (files("agentrl.report") / "static" / "inspector.html").read_text()
    scripts, styles = ("credit.js", "words.js", "graph.js", "inspector.js"), ("credit.css", "inspector.css")
    return _page(title, scripts=scripts, styles=styles, above=above, policy="; connect-src 'self'")


def run_page(data: RunData) -> str:
    """The page of a run; the same data gives the same bytes."""
    packed = base64.b64encode(gzip.compress(data.model_dump_json().encode(), mtime=0)).decode()
    stored = f'<script type="application/octet-stream" id="run-data">{packed}</script>\n'
    scripts, styles = ("credit.js", "words.js", "graph.js", "report.js"), ("credit.css", "report.css")
    return _page(data.name, scripts=scripts, styles=styles, data=stored, shell="report.html")


def _page(
    title: str,
    *,
    scripts: Sequence[str],
    styles: Sequence[str],
    data: str = "",
    above: str = "",
    policy: str = "",
    shell: str = "credit.html",
) -> str:
    """The HTML file `shell` with its parts filled in. The page's security policy allows only `scripts`, and the sources
    that `policy` adds."""
    static = files("agentrl.report") / "static"
    script = "".join((static / name).read_text() for name in scripts)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    values = {
        "title": escape(title),
        "style": "".join((static / name).read_text() for name in styles),
        "policy": f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'{policy}",
        "above": above,
        "data": data,
        "script": script,
    }
    text = (static / shell).read_text()
    return re.sub(r"{{ (\w+) }}", lambda slot: values[slot[1]], text)  # one pass, so marks in a value stay


def write_credit_page(data: CreditData, path: Path) -> int:
    """Write the page, whole or not at all; returns its size in bytes."""
    page = credit_page(data).encode()
    write_atomically(path, page)
    return len(page)
