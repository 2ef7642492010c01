"""The teacher, which computes log-probs of the tokens that the policy sampled.

A teacher is a model, an endpoint, or the policy with another prompt; see `agentrl.rollout.Teaching`. The log-probs
become the column `teacher_logprob` [S] in nats, NaN for tokens that the teacher does not score. The teacher scores only
sampled tokens of steps that train the main policy and were sampled in this batch. Demonstrations and replayed steps are
not scored.
"""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from agentrl.graph import CANDIDATE, PLAYED, StepGraph, Tokens
from agentrl.model import ModelConfig, load_model, network
from agentrl.rollout import Taught, Teaching, rows_of
from agentrl.run.policies import Policies
from agentrl.secret import expand, hidden_url
from agentrl.settings import Settings
from agentrl.trainer import logprobs, step_temperatures

TRIES, PAUSE_S = 4, 1.0  # tries per request to an endpoint; seconds before the second try, doubled for each later try
PROBE = (0, 1)  # token ids of a short first request, so that a wrong address is reported before files are written


class Teacher:
    """The teacher of a run.

    Args:
        teaching: the source of the log-probs.
        settings: settings of the run.
        policies: the policies that learn. If the teacher is a model, it must have the tokenizer of the main policy.

    Raises:
        ValueError: the teacher's model cannot be loaded or has another tokenizer, or the endpoint does not answer or
            returns no log-probs.
    """

    def __init__(self, teaching: Teaching, settings: Settings, policies: Policies) -> None:
        self.settings, self.policies = settings, policies
        self._model: Any = None
        self._endpoint: TeacherServer | None = None
        if teaching.source == "folder":
            config = ModelConfig.model_validate(
                {"path": teaching.path, "dtype": teaching.dtype, "device": teaching.device}
            )
            loaded = load_model(config, 0)
            check_tokenizers(loaded.tokenizer, policies.tokenizers[policies.main], teaching.path)
            loaded.model.requires_grad_(False)
            self._model = network(loaded.model)
        elif teaching.source == "endpoint":
            self._endpoint = TeacherServer(teaching)

    def read(self, graph: StepGraph, taught: Taught | None) -> StepGraph:
        """The annotated graph of a batch with the column `teacher_logprob` [S] added.

        If the teacher is the policy with another prompt, `taught` holds the tokens with that other prompt.
        """
        assert graph.tokens is not None, "a teacher needs tokens"
        own = np.isin(graph.kind, (PLAYED, CANDIDATE)) & ~graph.failed()  # [N]
        own &= ~graph.column("replayed").astype(bool) if graph.has("replayed") else True
        rows = np.flatnonzero(own & rows_of(graph, self.policies.agents, self.policies.main, True))
        tables = self.settings.tables
        hot = step_temperatures(graph, tables.sampling.temperature)
        most = tables.update.max_tokens
        if self._endpoint is not None:
            said = self._endpoint.logprobs(graph.tokens, rows)
        elif self._model is not None:
            said = logprobs(self._model, graph, rows, temperature=hot, max_tokens=most)
        else:
            said = self._own(graph.tokens, taught, rows, hot if isinstance(hot, float) else hot[: _size(taught)], most)
        return graph.with_token_columns(teacher_logprob=said)

    def _own(
        self, tokens: Tokens, taught: Taught | None, rows: np.ndarray, hot: float | np.ndarray, most: int
    ) -> np.ndarray:
        """[S] log-probs of the policy itself with the prompts of `taught`; NaN for other tokens."""
        said = np.full(len(tokens.ids), np.nan)  # [S]
        if taught is None:
            return said
        learner = self.policies.learners[self.policies.main]
        asked = np.intersect1d(taught.rows, rows)
        there = learner.passes.read(taught.tokens, asked, temperature=hot, max_tokens=most).logprob
        # Tokens that were sampled in this batch come first; replayed steps and demonstrations were joined after them.
        first = np.flatnonzero(tokens.sampled)[: int(taught.tokens.sampled.sum())]
        said[first] = there[taught.tokens.sampled]
        return said


class TeacherServer:
    """A server that returns log-probs of the tokens of a prompt: POST URL/completions with echo and logprobs."""

    def __init__(self, teaching: Teaching) -> None:
        try:
            import httpx
        except ImportError:
            raise ValueError(
                "guide.source=endpoint needs the httpx package: pip install 'agentrl-stepgraph[vllm]'"
            ) from None
        self._teaching, self._httpx = teaching, httpx
        self._url = f"{teaching.url.rstrip('/')}/completions"
        key = expand(teaching.api_key, "guide.api_key")
        headers = {"authorization": f"Bearer {key}"} if key else {}
        secure = self._url.startswith("https:")
        self._client = httpx.Client(headers=headers, timeout=teaching.timeout_s, trust_env=False, verify=secure)
        self.path_logprobs(PROBE)

    def logprobs(self, tokens: Tokens, rows: np.ndarray) -> np.ndarray:
        """[S] log-probs of the sampled tokens of `rows`, NaN elsewhere.

        Paths share tokens. A path gets a request only if some of its wanted tokens were in no earlier request.
        """
        wanted = np.zeros(len(tokens.ids), bool)  # [S]
        for row in rows.tolist():
            wanted[tokens.offsets[row] : tokens.offsets[row + 1]] = True
        wanted &= tokens.sampled
        left, paths = wanted.copy(), list[np.ndarray]()
        for row in rows[::-1].tolist():  # later rows first: their paths contain the tokens of earlier rows
            index = tokens.path_index(row)
            if left[index].any():
                left[index] = False
                paths.append(index)
        with ThreadPoolExecutor(self._teaching.concurrency) as pool:
            answers = list(pool.map(lambda index: self.path_logprobs(tokens.ids[index].tolist()), paths))
        said = np.full(len(tokens.ids), np.nan)  # [S]
        for index, answer in zip(paths, answers, strict=True):
            said[index] = answer
        return np.where(wanted, said, np.nan)

    def path_logprobs(self, ids: Sequence[int]) -> np.ndarray:
        """[L] log-prob in nats of each token given the tokens before it; NaN for the first token.

        Raises:
            ValueError: the server does not answer, refuses the request, or does not return one log-prob for each token.
        """
        body = {"model": self._teaching.model, "prompt": list(ids), "max_tokens": 1, "echo": True, "logprobs": 1}
        why = ""
        for attempt in range(TRIES):
            if attempt:
                time.sleep(PAUSE_S * 2 ** (attempt - 1))
            try:
                answer = self._client.post(self._url, json={**body, "temperature": 1.0})
            except self._httpx.HTTPError as error:
                why = str(error) or type(error).__name__
                continue
            if answer.status_code < 400:
                return self._read(answer, len(ids))
            why = f"status {answer.status_code}: {answer.text[:200]}"
            if answer.status_code < 500 and answer.status_code not in (408, 425, 429):
                raise ValueError(f"guide.url: the teacher at {hidden_url(self._url)} refuses the request ({why})")
        raise ValueError(
            f"guide.url: the teacher at {hidden_url(self._url)} did not answer in {TRIES} tries ({why}): start it, "
            "then continue with --resume"
        )

    def _read(self, answer: Any, length: int) -> np.ndarray:
        try:
            said = np.array(answer.json()["choices"][0]["logprobs"]["token_logprobs"][:length], float)  # null is NaN
            fits = len(said) == length and np.isfinite(said[1:]).all()
        except (ValueError, LookupError, TypeError):
            fits = False
        if not fits:
            raise ValueError(
                f"guide.url: the teacher at {hidden_url(self._url)} did not return one log-prob per token of the "
                "prompt: it must answer echo=true with logprobs, as the completions of a vLLM server do"
            )
        said[0] = np.nan
        return said


def check_tokenizers(teacher: Any, own: Any, path: str) -> None:
    """Raises ValueError if the teacher's tokenizer and the policy's tokenizer have different vocabularies."""
    theirs, ours = teacher.get_vocab(), own.get_vocab()
    if theirs == ours:
        return
    token = min((t for t in {**theirs, **ours} if theirs.get(t) != ours.get(t)), key=lambda t: ours.get(t, len(ours)))
    raise ValueError(
        f"guide.path: the teacher in {path} has another tokenizer than the policy (the id of token {token!r} is "
        f"{theirs.get(token, 'unknown')} in the teacher and {ours.get(token, 'unknown')} in the policy): take a "
        "teacher of the same family"
    )


def teacher_of(settings: Settings, policies: Policies) -> Teacher | None:
    """The teacher that the guide of a recipe names; None if there is none."""
    guide = settings.guide
    if guide is None or guide.hooks.teaches is None:
        return None
    return Teacher(guide.hooks.teaches(guide.config), settings, policies)


def _size(taught: Taught | None) -> int:
    return 0 if taught is None else len(taught.tokens.context)
