"""The credit page: one HTML file that needs no network, from `CreditData`.

The data is gzipped JSON in base64 inside the file, so that no text of a model or an environment is ever parsed as HTML;
the page's script writes texts by `textContent`. A content security policy admits this one script and nothing from
outside.
"""

import base64
import gzip
import hashlib
import re
from html import escape
from importlib.resources import files
from pathlib import Path

from agentrl.files import write_atomically
from agentrl.report.data import CreditData


def credit_page(data: CreditData) -> str:
    """The page; the same data gives the same bytes."""
    static = files("agentrl.report") / "static"
    script = (static / "credit.js").read_text()
    packed = gzip.compress(data.model_dump_json().encode(), mtime=0)
    values = {
        "title": escape(data.title),
        "style": (static / "credit.css").read_text(),
        "script_hash": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        "data": base64.b64encode(packed).decode(),
    }
    values["script"] = script
    shell = (static / "credit.html").read_text()
    return re.sub(r"{{ (\w+) }}", lambda slot: values[slot[1]], shell)  # one pass: no value is looked at again


def write_credit_page(data: CreditData, path: Path) -> int:
    """Write the page, whole or not at all; returns its size in bytes."""
    page = credit_page(data).encode()
    write_atomically(path, page)
    return len(page)
