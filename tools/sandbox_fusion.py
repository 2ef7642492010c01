"""Run model-written Python on a SandboxFusion server (https://github.com/bytedance/SandboxFusion), over HTTP.

Source: its `POST /run_code`: `{code, language, run_timeout, memory_limit_MB, stdin, files {path: base64}, fetch_files}`
gives `{status: Success | Failed | SandboxError, message, run_result: {status: Finished | Error | TimeLimitExceeded,
execution_time, return_code, stdout, stderr} or null, files}`. Every run is a fresh sandbox: the server keeps no state,
so sessions are stateless, unless `replay` repeats the earlier cells before each new cell. A cell is the code of one
run; failed cells are not repeated.
"""

import base64
import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, Field

from agentrl.chat import shorten
from agentrl.tool import CodeResult, CodeRunner, CodeSession, Convention, describe_code, without_infra_error

BACKEND = "sandbox_fusion"
RETRIED = (429, 502, 503, 504)
ANSWER_BYTES = 64 << 20  # largest size of one answer, which holds what the code printed and the requested files
WRONG = (  # errors if there is no answer, or if the answer is cut short or has values of other types
    OSError,
    http.client.HTTPException,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    OverflowError,
    RecursionError,
)
MARK = "agentrl-replayed-until-here"


class Config(BaseModel, frozen=True, extra="forbid"):
    """Options of a SandboxFusion server.

    Attributes:
        url: address of the server, such as http://localhost:8080.
        timeout_s: largest number of seconds of a run; a longer run is stopped.
        memory_mb: largest memory of a run in MB; -1 for the server's own limit.
        retries: largest number of further requests to a lost or busy server before a run fails.
        replay: if true, a stateful session repeats its earlier cells that ran without an error before each new cell; if
            false, sessions cannot be stateful. A cell is the code of one run.
        output_kb: largest number of characters kept of stdout and of stderr (each), in units of 1024; the rest is cut
            off.
        convention: form of the text in which the model reads a result: plain (output, last value, traceback), torl
            or retool (as the published code writes them).
    """

    url: str
    timeout_s: float = Field(10.0, gt=0)
    memory_mb: int = -1
    retries: int = Field(2, ge=0)
    replay: bool = False
    output_kb: int = Field(64, ge=1)
    convention: Convention = "plain"


class AnswerFlood(Exception):
    """The answer has more than ANSWER_BYTES bytes: the code printed too much, or the files asked for are too large."""


class FusionSession:
    """A `CodeSession` on the server."""

    backend = BACKEND

    def __init__(
        self, config: Config, *, stateful: bool = False, files: Mapping[str, str | bytes] | None = None
    ) -> None:
        """Raises ValueError for a stateful session without `replay`."""
        if stateful and not config.replay:
            raise ValueError(
                "sandbox_fusion keeps no variables between runs: set stateful = false, or replay = true to repeat the"
                " earlier cells before each new one"
            )
        self._config, self._stateful, self._cells = config, stateful, list[str]()
        raw = {path: data.encode() if isinstance(data, str) else bytes(data) for path, data in (files or {}).items()}
        self._files = {path: base64.b64encode(data).decode() for path, data in raw.items()}

    def run(
        self, code: str, timeout_s: float | None = None, *, stdin: str = "", fetch: Sequence[str] = ()
    ) -> CodeResult:
        """See CodeSession. The server does not name exceptions, so the name is read from the last line of stderr."""
        seconds, started = timeout_s or self._config.timeout_s, time.monotonic()
        marked = f"import sys as _s\nfor _f in (_s.stdout, _s.stderr):\n    print({MARK!r}, file=_f, flush=True)\n"
        program = "\n".join([*self._cells, marked, code]) if self._cells else code
        asked = {
            "code": program,
            "language": "python",
            "compile_timeout": seconds,
            "run_timeout": seconds,
            "memory_limit_MB": self._config.memory_mb,
            "stdin": stdin,
            "files": self._files,
            "fetch_files": list(fetch),
        }
        try:
            result = self._converted(self._post(asked, seconds), seconds)
        except AnswerFlood as flood:
            result = CodeResult(exit_code=None, error_name="OutputLimit", error_value=str(flood))
        except WRONG as error:
            result = CodeResult(exit_code=None, infra_error=f"{type(error).__name__}: {error}"[:300])
        if self._stateful and result.ok:
            self._cells.append(code)
        return replace(result, wall_s=time.monotonic() - started, backend=BACKEND)

    def _post(self, asked: Mapping[str, Any], seconds: float) -> Mapping[str, Any]:
        """The server's answer; AnswerFlood if it is too large, one of `WRONG` if no try gives a whole answer."""
        patience = 2 * seconds + 10
        request = urllib.request.Request(
            self._config.url.rstrip("/") + "/run_code",
            data=json.dumps(asked).encode(),
            headers={"Content-Type": "application/json"},
        )
        for attempt in range(self._config.retries + 1):
            try:
                with urllib.request.urlopen(request, timeout=patience) as response:
                    answer: Mapping[str, Any] = json.loads(_body(response, patience))
                    return answer
            except urllib.error.HTTPError as error:
                if error.code not in RETRIED or attempt == self._config.retries:
                    raise
            except (urllib.error.URLError, http.client.HTTPException, ValueError, RecursionError):
                if attempt == self._config.retries:
                    raise
            time.sleep(0.1 * 2**attempt)
        raise OSError("no answer")

    def _converted(self, answer: Mapping[str, Any], seconds: float) -> CodeResult:
        ran = answer.get("run_result")
        if answer["status"] == "SandboxError" or ran is None:
            return CodeResult(exit_code=None, infra_error=str(answer.get("message") or "the server ran nothing")[:300])
        limit = self._config.output_kb * 1024
        stdout, stderr = (_text(ran.get(name), limit) for name in ("stdout", "stderr"))
        files = {path: base64.b64decode(data) for path, data in (answer.get("files") or {}).items()}
        if ran["status"] == "TimeLimitExceeded":
            words = f"stopped after {seconds:g} s."
            return CodeResult(stdout=stdout, stderr=stderr, timed_out=True, exit_code=None, error_value=words)
        name, value, trace, before = _error(stderr) if ran.get("return_code") else ("", "", "", stderr)
        return CodeResult(
            stdout=stdout,
            stderr=before,
            error_name=name,
            error_value=value,
            traceback=trace,
            exit_code=int(ran.get("return_code") or 0),
            artifacts=files,
        )

    def close(self) -> None:
        """Forget the earlier cells; the server keeps nothing."""
        self._cells.clear()


def _body(response: Any, patience: float) -> bytes:
    """The bytes of an answer. Their number and the whole time are limited; urllib only limits the time of each read.

    Raises:
        AnswerFlood: the answer has more than ANSWER_BYTES bytes.
        TimeoutError: the answer has not ended after `patience` seconds.
    """
    ends = time.monotonic() + patience
    body = bytearray()
    while part := response.read1(1 << 16):
        body += part
        if len(body) > ANSWER_BYTES:
            raise AnswerFlood(f"the code's output and files were more than {ANSWER_BYTES >> 20} MB, the limit.")
        if time.monotonic() > ends:
            raise TimeoutError(f"the answer did not end in {patience:g} s")
    return bytes(body)


def _text(value: object, limit: int) -> str:
    """The text of a stream without what replayed cells wrote, cut off after `limit` characters."""
    text = str(value or "").rpartition(f"{MARK}\n")[2].encode("utf-8", "replace").decode()
    return shorten(text, limit, "stream")


def _error(stderr: str) -> tuple[str, str, str, str]:
    """(name, message, traceback, text before the traceback) of an uncaught exception.

    The first three are empty if the last line of `stderr` names no exception.
    """
    before, found, trace = stderr.rpartition("Traceback (most recent call last):")
    if not found:
        before, trace = "", stderr
    last = (trace.rstrip("\n").splitlines() or [""])[-1]
    name, _, value = last.partition(": ")
    if not name.replace(".", "").isidentifier():
        return "", "", "", stderr
    return name, value, found + trace, before


class Runner:
    """Opens sessions of one configuration; see `agentrl.tool.code.CodeRunner`."""

    backend = BACKEND

    def __init__(self, config: Config) -> None:
        self.config = config

    def session(self, files: Mapping[str, str | bytes] | None = None, *, stateful: bool = True) -> CodeSession:
        """See CodeRunner; ValueError for a stateful session without `replay`."""
        return FusionSession(self.config, stateful=stateful, files=files)


def runner(config: Config) -> CodeRunner:
    """The runner with which an environment opens sessions."""
    return Runner(config)


class FusionTool:
    """The tool; with `replay`, an episode keeps its variables."""

    name = "python"

    def __init__(self, config: Config) -> None:
        self._config = config
        self._session = FusionSession(config, stateful=config.replay)

    def __call__(self, code: str) -> str:
        """Run Python code and read what it prints.

        Args:
            code: the whole program.
        """
        return describe_code(without_infra_error(self._session.run(code)), self._config.convention)

    def reset(self) -> None:
        """Forget the earlier cells."""
        self._session.close()

    def close(self) -> None:
        """Forget the earlier cells; the server keeps nothing."""
        self._session.close()


def make(config: Config) -> FusionTool:
    """The tool."""
    return FusionTool(config)
