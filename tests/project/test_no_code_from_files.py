"""No file, model folder, server or agent makes this project run code that it brings.

Looked at (every package, by hand and by the scan below), and what each place evaluates:

| place | what | why it is safe |
| --- | --- | --- |
| envs/alfworld/textworld_backend.py | `eval` of a grammar's expressions, as TextWorld itself does | published rules, or
  `trust=true` (test_textworld.py) |
| envs/code_math/problems.py, envs/code_repair/programs.py | `eval` of expressions of our own source | not from a file |
| envs/code_repair/judge.py | `eval`, `exec`, imports in source texts | run inside the sandbox only |
| envs/code_repair/program.py, texts.py, crossing.py, operations.py; envs/code_repo/suite.py | `exec`, `eval`, `runpy`
  and imports of the tests of a row | inside the sandbox only |
| envs/code_repair/ends.py | `marshal.dumps` of our own modules, for a sandbox | nothing is read |
| tools/_sandbox/kernel.py, launch.py | `exec`, `eval`, `marshal` | inside the sandbox; launch.py: our own code |
| agentrl/env/{processes,worker}.py | `pickle` over a worker's socket | the worker runs the user's own class |
| agentrl/foreign/adapter_worker.py | `exec_module` of an adapter, in the Python that the user names | our own files |
| agentrl/foreign/openenv_app.py | `exec_module` of http/request_limits.py, in the user's Python | our file |
| agentrl/training_server/protobuf_form.py | `exec_module` of a file of the installed `tinker` package | as an import |
| agentrl/gym/env_check.py, agentrl/tool_env/instance.py | `pickle` of what it has just made | not from a file |
| agentrl/catalogue.py, settings/programs.py, tool/calls, tool_env/setup.py, envs/gymnasium_text | imports by name |
  names of the configuration or of our own classes, never of data |
| envs/alfworld/wheel.py | `runpy` on two files of the installed `alfworld` package | a tool of ours; as an import |
| agentrl/run/checkpoint.py | `torch.load` | weights_only=True |
| agentrl/model/loading.py, tools/search/dense.py | `from_pretrained` | trust_remote_code=False (test_loading.py) |
| chat templates of model folders | jinja2 | transformers' immutable sandbox |
| tools/search/cache.py, envs/webshop/store.py, envs/alfworld/wheel.py | `np.load` | allow_pickle is False by default |
| tools/_mcp_schema.py | regular expressions of a server | a linear engine (test_mcp.py) |
| `str.format` | only texts of our own source are formatted; what a file or a model says is an argument |

TextWorld's own `.json` games are compiled by Inform 7 and played by an interpreter in C; no Python of theirs is run.
envs/webshop/prepare.py unpickled the shards of an unfinished folder; shards are JSON now.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("agentrl", "algorithms", "envs", "tools")
RISKY = {"eval", "exec", "import_module", "__import__", "load:pickle", "loads:pickle", "loads:marshal"}
RISKY |= {"load:yaml", "load:torch", "run_path", "run_module", "exec_module", "spec_from_file_location"}
UNPICKLERS = {"pickle", "marshal", "yaml", "shelve", "dill", "cloudpickle", "joblib", "copyreg"}
IMPORTERS = {  # of modules that can run what a file says; their calls are on the list below
    ("agentrl/env/processes.py", "pickle"),
    ("agentrl/env/worker.py", "pickle"),
    ("agentrl/gym/env_check.py", "pickle"),
    ("agentrl/tool_env/instance.py", "pickle"),
    ("agentrl/run/checkpoint.py", "pickle"),  # for the name of an error
    ("envs/code_repair/guard.py", "yaml.constructor"),  # in the sandbox of the tests: restricts what reads YAML there
    ("envs/code_repair/ends.py", "marshal"),
    ("tools/_sandbox/kernel.py", "marshal"),
    ("tools/_sandbox/process.py", "marshal"),
}
# Files without any of these words have nothing to look at, and are not parsed.
NAMES = {"from_pretrained"} | UNPICKLERS | {name.partition(":")[0] for name in RISKY}
WORDS = re.compile(rf"\b({'|'.join(sorted(NAMES))})\b")
KNOWN = {
    ("agentrl/catalogue.py", "import_module"),
    ("agentrl/cli/__init__.py", "import_module"),
    ("agentrl/cli/_stop.py", "exec"),
    ("agentrl/cli/serve.py", "import_module"),
    ("agentrl/foreign/adapter_worker.py", "exec_module"),
    ("agentrl/foreign/adapter_worker.py", "spec_from_file_location"),
    ("agentrl/foreign/openenv_app.py", "exec_module"),
    ("agentrl/foreign/openenv_app.py", "spec_from_file_location"),
    ("agentrl/training_server/protobuf_form.py", "exec_module"),
    ("agentrl/training_server/protobuf_form.py", "spec_from_file_location"),
    ("agentrl/env/processes.py", "loads:pickle"),
    ("agentrl/env/worker.py", "loads:pickle"),
    ("agentrl/gym/env_check.py", "loads:pickle"),
    ("agentrl/run/checkpoint.py", "load:torch"),
    ("agentrl/settings/shipped.py", "import_module"),
    ("agentrl/tool_env/instance.py", "loads:pickle"),
    ("agentrl/tool_env/setup.py", "import_module"),
    ("agentrl/user_code.py", "import_module"),
    ("envs/alfworld/textworld_backend.py", "eval"),
    ("envs/alfworld/wheel.py", "run_path"),
    ("envs/code_math/problems.py", "eval"),
    ("envs/code_repair/crossing.py", "import_module"),
    ("envs/code_repair/operations.py", "import_module"),
    ("envs/code_repair/program.py", "exec"),
    ("envs/code_repair/programs.py", "eval"),
    ("envs/code_repair/programs.py", "import_module"),
    ("envs/code_repair/guard.py", "eval"),
    ("envs/code_repair/guard.py", "exec"),
    ("envs/code_repo/suite.py", "exec"),
    ("envs/code_repo/suite.py", "import_module"),
    ("envs/code_repo/suite.py", "run_module"),
    ("envs/code_repo/suite.py", "run_path"),
    ("envs/gymnasium_text/environment.py", "import_module"),
    ("tools/_sandbox/kernel.py", "eval"),
    ("tools/_sandbox/kernel.py", "exec"),
    ("tools/_sandbox/kernel.py", "loads:marshal"),
}


@cache
def nodes() -> list[tuple[Path, ast.Call | ast.Import | ast.ImportFrom]]:
    """(file, call or import) of every file of the packages that has one of the words."""
    files = sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
    texts = {path: path.read_text("utf-8") for path in files}
    kinds = (ast.Call, ast.Import, ast.ImportFrom)
    trees = [(path, ast.parse(text)) for path, text in texts.items() if WORDS.search(text)]
    return [(path, node) for path, tree in trees for node in ast.walk(tree) if isinstance(node, kinds)]


@cache
def calls() -> list[tuple[str, str, ast.Call]]:
    """(file, name of the function, call); the name with its module where the function's own says nothing."""
    found = []
    for path, node in nodes():
        if isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            if (
                isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and name in ("load", "loads")
            ):
                name = f"{name}:{node.func.value.id}"
            if isinstance(node.func, ast.Attribute) and name in ("eval", "exec"):
                continue  # `model.eval()`
            found.append((str(path.relative_to(ROOT)), name, node))
    return found


def test_whatever_evaluates_unpickles_or_imports_is_on_the_list_above():
    assert {(path, name) for path, name, _ in calls() if name in RISKY} - KNOWN == set()


def test_whatever_imports_a_reader_of_pickles_is_on_the_list_above():
    found = set()
    for path, node in nodes():
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        found |= {(str(path.relative_to(ROOT)), name) for name in names if name.split(".")[0] in UNPICKLERS}
    assert found == IMPORTERS


@pytest.mark.parametrize(
    ("function", "option", "value"),
    [("load:torch", "weights_only", True), ("from_pretrained", "trust_remote_code", False)],
)
def test_loaders_are_told_to_run_nothing(function, option, value):
    checked = [(path, node) for path, name, node in calls() if name == function]
    assert checked
    for path, node in checked:
        given = {one.arg: one.value for one in node.keywords}
        assert isinstance(given.get(option), ast.Constant) and given[option].value is value, path


def test_arrays_are_read_without_pickles():
    for path, name, node in calls():
        if name == "load:np":
            assert "allow_pickle" not in {one.arg for one in node.keywords}, path
