"""The protocol between `VllmEngine` and a vLLM server: token ids in, token ids with log-probabilities out.

The route is `POST /inference/v1/generate` of vLLM 0.32 (`--enable-scale-out`). Log-probabilities are those of the
sampling distribution (`--logprobs-mode processed_logprobs`), after temperature, allowed ids, top-k and top-p.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from agentrl.engines.sampling import Sampling

ROUTE = "/inference/v1/generate"
EXCLUDED = -9000.0  # servers write -9999.0 for the log-probability of a token outside the allowed set
SPARE = 8  # log-probabilities requested beyond top_k, because tokens as probable as the k-th are allowed, too
MASS = 1e-2  # largest allowed difference between 1 and the sum of the probabilities of an allowed set
TOP = 10  # number of tokens from which an entropy is computed, see `agentrl.engines.distribution.top_entropy`
SEEDS = 2**63  # seeds are 0 to SEEDS - 1


class TokenRequest(NamedTuple):
    """One request for tokens.

    Attributes:
        ids: the prompt, followed by the tokens of the answer so far.
        allowed: the ids that the next token is restricted to; None for all ids.
        tokens: largest number of tokens to return.
        seed: seed of the server's noise.
    """

    ids: Sequence[int]
    allowed: Sequence[int] | None
    tokens: int
    seed: int


class Token(NamedTuple):
    """One sampled token.

    Attributes:
        id: the token.
        logprob: nats, under the sampling distribution.
        support: [A] int64, the ids whose log-probabilities the server returned, ascending. Under top-k or top-p these
            are all ids that could have been sampled.
        top: log-probabilities of the most probable of these ids, descending, at most TOP.
    """

    id: int
    logprob: float
    support: np.ndarray
    top: np.ndarray


class TokenReply(NamedTuple):
    """What a server returned: tokens, why the answer ended (`stop`, `length`, `abort`), and labels of the weights."""

    tokens: Sequence[Token]
    finish: str
    labels: Sequence[str]


class WrongAnswer(Exception):
    """The server's answer does not follow the protocol; the message says how."""


def body(
    asked: TokenRequest,
    sampling: Sampling,
    *,
    end_ids: Sequence[int],
    salt: str,
    model: str,
    entropies: bool,
    vocabulary: int,
) -> dict[str, Any]:
    """The JSON of a request.

    Args:
        asked: the request for tokens.
        sampling: the sampling distribution and its stop strings.
        end_ids: ids that end a free answer.
        salt: prompts with different salts share no cached keys and values.
        model: name of the adapters; empty for the served model itself.
        entropies: ask for the most probable tokens, from which an entropy is computed.
        vocabulary: number of token ids; a server refuses to return more log-probabilities per token.
    """
    greedy = sampling.temperature == 0
    free = asked.allowed is None
    params: dict[str, Any] = {
        "max_tokens": asked.tokens,
        "temperature": sampling.temperature,
        "top_k": 0 if greedy else sampling.top_k,
        "top_p": 1.0 if greedy else sampling.top_p,
        "seed": asked.seed % SEEDS,
        "logprobs": min(_returned(asked, sampling, entropies), vocabulary),
        "ignore_eos": True,  # only `stop_token_ids` end an answer, not the end tokens in the model's folder
        "stop_token_ids": list(end_ids) if free else [],
        "detokenize": False,
    }
    if asked.allowed is not None:
        params["allowed_token_ids"] = list(asked.allowed)
    elif sampling.stop:
        params |= {
            "detokenize": True,
            "stop": list(sampling.stop),
            "include_stop_str_in_output": True,
            "skip_special_tokens": False,
            "spaces_between_special_tokens": False,
        }
    named = {"model": model} if model else {}
    return {"token_ids": list(asked.ids), "sampling_params": params, "cache_salt": salt, **named}


def _returned(asked: TokenRequest, sampling: Sampling, entropies: bool) -> int:
    """How many of the most probable tokens the server returns with each token."""
    support = 0
    if sampling.truncates:
        support = sampling.top_k + SPARE if asked.allowed is None else len(asked.allowed)
    top = TOP if asked.allowed is None else min(TOP, len(asked.allowed))
    return max(support, top if entropies else 0)


def read(answer: Any, asked: TokenRequest, sampling: Sampling) -> TokenReply:
    """The tokens of an answer.

    Raises:
        WrongAnswer: the answer does not fit the request: fields are missing, there are more tokens than were asked for,
            a token has no log-probability or is not allowed, or a token comes without the label of its weights.
    """
    try:
        choice = answer["choices"][0]
        ids = [int(one) for one in choice["token_ids"] or ()]
        content = list(choice["logprobs"]["content"])
        finish = str(choice["finish_reason"])
        spans = [(str(one["version"]), int(one["start"]), int(one["end"])) for one in choice["weight_versions"] or ()]
        tokens = [_token(one, asked, sampling) for one in content]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise WrongAnswer(f"a field is missing or has a wrong value: {error}") from None
    if len(ids) != len(content) or [token.id for token in tokens] != ids:
        raise WrongAnswer(f"it has {len(ids)} tokens and {len(content)} log-probabilities")
    if len(ids) > asked.tokens:
        raise WrongAnswer(f"it has {len(ids)} tokens, and {asked.tokens} were asked for")
    if not ids and finish != "abort":
        raise WrongAnswer(f"it has no token and ended with {finish!r}")
    if sum(end - start for _, start, end in spans) != len(ids):
        raise WrongAnswer("it does not say which weights sampled every token: the server is older than vLLM 0.32")
    return TokenReply(tokens, finish, [label for label, _, _ in spans])


def _token(one: Mapping[str, Any], asked: TokenRequest, sampling: Sampling) -> Token:
    number, logprob = int(one["token_id"]), float(one["logprob"])
    if not (EXCLUDED < logprob < 1e-3) or math.isnan(logprob):
        raise WrongAnswer(f"token {number} has the log-probability {logprob}")
    if asked.allowed is not None and number not in asked.allowed:
        raise WrongAnswer(f"token {number} was not allowed")
    found = {int(each["token_id"]): float(each["logprob"]) for each in one.get("top_logprobs") or ()}
    found = {each: value for each, value in {**found, number: logprob}.items() if value > EXCLUDED}
    support = np.array(sorted(found), np.int64)  # [A]
    if sampling.truncates:
        mass = sum(map(math.exp, found.values()))
        if abs(mass - 1) > MASS:
            raise WrongAnswer(
                f"the {len(found)} tokens that it names have the probability {mass:.3f}, not 1: the server was started "
                "without --logprobs-mode processed_logprobs, or more tokens have equal probabilities than it may return"
            )
    top = np.array(sorted(found.values(), reverse=True)[:TOP])  # [at most TOP]
    return Token(number, min(logprob, 0.0), support, top)


def entropy(token: Token, vocabulary: int) -> float:
    """-sum p log p / log V over the most probable tokens, as the embedded engine computes it."""
    return float(-(np.exp(token.top) * token.top).sum() / math.log(vocabulary))
