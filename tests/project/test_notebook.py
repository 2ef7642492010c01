"""The notebook prints what it says it prints."""

import ast
import asyncio
import contextlib
import inspect
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.other_pythons import python_with

NOTEBOOK = Path(__file__).parents[2] / "examples" / "step_graph.ipynb"


def outputs(notebook: dict[str, Any]) -> list[str]:
    """What each cell of code printed."""
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return ["".join("".join(part["text"]) for part in cell["outputs"]) for cell in cells]


async def played(cells: list[str]) -> list[str]:
    """What the cells print, with top-level `await` as in Jupyter."""
    names: dict[str, Any] = {"__name__": "__main__"}
    printed = []
    for cell in cells:
        code = compile(cell, NOTEBOOK.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            result = eval(code, names)
            if inspect.isawaitable(result):
                await result
        printed.append(out.getvalue())
    return printed


def test_its_cells_print_what_is_stored():
    notebook = json.loads(NOTEBOOK.read_text("utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(cells) == 4 and asyncio.run(played(cells)) == outputs(notebook)


@pytest.mark.slow
def test_jupyter_runs_it(tmp_path):
    """With the tests' packages beside a real Jupyter kernel."""
    python = python_with("nbclient==0.11.0", "ipykernel==7.4.0")
    (site,) = python.parents[1].glob("lib/python*/site-packages")
    places = [path for path in sys.path if path and path != str(NOTEBOOK.parent)]
    (site / "beside.pth").write_text("\n".join([*places, str(NOTEBOOK.parents[1])]))
    code = f"""
import nbformat, nbclient
notebook = nbformat.read({str(NOTEBOOK)!r}, 4)
nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
nbformat.write(notebook, {str(tmp_path / "run.ipynb")!r})
"""
    done = subprocess.run([python, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert outputs(json.loads((tmp_path / "run.ipynb").read_text())) == outputs(json.loads(NOTEBOOK.read_text("utf-8")))
