"""The catalogue of refusals: from the status and the words of a server to the kind of a refusal.

`PATTERNS` has the words of the servers that people run. docs/evaluation.md lists the servers with the sources of the
words, and `tests/engines/dialects.py` has a body per server and situation. A word of the server is compared in lower
case, with its codes behind its sentences.
"""

import email.utils
import re
import time
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, get_args

from agentrl.engines.openai.words import ServerWords

Kind = Literal[
    "malformed",  # the server cannot read the tool call that the model wrote
    "quota",  # the account has no money or no requests left
    "context",  # the prompt is too long for the model, or for the server
    "length",  # the answer reached the token limit before it had a text
    "rate",  # too many requests or tokens per minute
    "filtered",  # a content filter refused the prompt or the answer
    "system",  # the server takes no message of the role that holds the system message
    "order",  # the server demands another order of roles, such as user and assistant in turn
    "empty",  # the server takes no message without a text, such as an empty answer of the model
    "tools",  # the server takes no tools as data
    "auth",  # the key is wrong, has expired, or may not use the model
    "gone",  # there is no such model or address
    "busy",  # the server is overloaded, or loads the model
    "server",  # the server itself failed
    "refused",  # any other refusal
]
KINDS: tuple[Kind, ...] = get_args(Kind)
LONGEST = 20_000  # characters of the words that are compared
PASSING = frozenset({"rate", "busy", "server"})  # kinds after which the same request may succeed later
# Statuses that say what is wrong; then words such as a model's name mean no long or filtered prompt.
PLAIN = frozenset({401, 404, 405, 410})


class Pattern(NamedTuple):
    """Words that mean a kind of refusal.

    Attributes:
        kind: the kind.
        words: the words, in lower case.
        statuses: the statuses with which the words count; empty for any.
    """

    kind: Kind
    words: re.Pattern[str]
    statuses: frozenset[int] = frozenset()


def _any(kind: Kind, *words: str, statuses: tuple[int, ...] = ()) -> Pattern:
    return Pattern(kind, re.compile("|".join(words)), frozenset(statuses))


# The first pattern that fits decides. `malformed` comes first, because its words quote what the model wrote, and no
# quoted text may choose another kind.
PATTERNS = (
    _any(
        "malformed",
        r"\btool_use_failed\b",  # Groq, also "tool call validation failed: ..."
        r"\boutput_parse_failed\b",  # Groq, gpt-oss
        r"^(?:[^/']{0,200}: )?error parsing tool call",  # Ollama, gpt-oss
        r"^(?:[^/']{0,200}: )?(?:failed to parse xml: )?xml syntax error on line",  # Ollama, Qwen3-Coder and GLM
        r"^(?:[^/']{0,200}: )?expected element type <function> but have",  # Ollama, Qwen3.5
        r"^(?:[^/']{0,200}: )?(?:\w+ )?tool call parsing failed",  # Ollama
        r"^(?:[^/']{0,200}: )?failed to parse (?:input at pos|tool call|messages? tool)",  # llama.cpp
        r"model produced output that does not match the expected",  # llama.cpp
        r"unexpected tokens remaining in message header",  # vLLM and SGLang, gpt-oss (openai_harmony)
        r"unexpected token \d+ while expecting start token",
        r"channel marker present but no channel value",
        r"\bharmonyerror\b",
        r"\bmalformed_function_call\b",  # Gemini
        r"invalid sequence as part of tooluse",  # Bedrock (modelStreamErrorException)
        r"model produced (?:an )?invalid (?:tool|function) call",
        r'"error_type": "tool_error"|\btool_error\b',  # TGI
    ),
    _any(
        "quota",
        r"\binsufficient_quota\b",  # OpenAI
        r"\bbilling_(?:hard_limit_reached|not_active|error)\b",
        r"\bbudget_exceeded\b|budget has been exceeded",  # LiteLLM
        r"exceededbudget",
        r"credit balance is too low",  # Anthropic
        r"insufficient (?:balance|credits?|funds|quota)",  # DeepSeek, OpenRouter, xAI
        r"requires more credits",  # OpenRouter
        r"out of call volume quota",  # Azure
        r"(?:requests|tokens)perday",  # Gemini: the quota of a day
        r"used all available credits|(?:its|your|the) monthly spending limit",  # xAI, Fireworks
        r"specified api usage limits",  # Anthropic
        r"key limit exceeded",  # OpenRouter
        r"(?:daily|weekly|monthly|session) usage limit",  # Ollama's cloud
        r"too many tokens per day",  # Bedrock
        # One request above the limit of tokens per minute can never be answered, and the limit is the account's, not
        # the model's: OpenAI with 429, Groq with 413.
        r"request too large for|tokens must be reduced in order to run",
        r"\barrearage\b|account is in good standing",  # DashScope
        r"exceeded your monthly included credits",  # Hugging Face
        "\u4f59\u989d\u4e0d\u8db3",  # Zhipu: the balance is not sufficient
    ),
    _any(
        "refused", r"max_(?:completion_)?tokens=\d+ cannot be greater than"
    ),  # vLLM: `limits.turn_tokens` is too large
    _any("length", r"model output limit was reached"),  # OpenAI, models that think
    _any("rate", r"throttling|too many requests|too many tokens, please wait|rate.?limit.?(?:reached|exceeded|error)"),
    _any(
        "context",
        r"context_length_exceeded|context_window_exceeded|contextwindowexceeded|exceed_context_size",
        r"context (?:length|size|window)(?: has been| was)? exceed",
        r"maximum context length",  # OpenAI, vLLM, SGLang, DeepSeek, OpenRouter, Mistral
        r"longer than the (?:model's context|maximum model) length",  # SGLang, Together, vLLM
        r"(?:longer|greater|larger) than the context (?:length|size|window)",  # LM Studio
        r"exceed(?:s|ed|ing)? (?:the |this |its |your )?(?:model'?s? |available |max(?:imum)? |\d[\d,]*[- ]token )*"
        r"context",  # llama.cpp, OpenAI, Cloudflare
        r"(?:input|prompt|tokens?|sequence)\b[^.]{0,60} exceeds? (?:the |this |its )?(?:model'?s )?(?:max(?:imum)? )?"
        r"(?:allowed (?:input )?length|(?:input )?length|maximum of \d)",  # SGLang, Bedrock, TensorRT-LLM
        r"cannot truncate prompt with n_keep",  # LM Studio
        r"\(\d+ tokens\) is too large to process",  # llama.cpp
        r"tokens in total, larger than the model input length limit",  # MLC
        r"should not exceed max_(?:num_tokens|seq_len|input_len)",  # TensorRT-LLM
        r"token count is \d+ but model only supports up to",  # Vertex
        r"expected maxlength: \d+, actual",  # Bedrock
        r"context window exceeds limit",  # MiniMax
        r"exceed(?:s|ed)? context limit",  # Anthropic
        r"context length of only",  # LM Studio
        r"reached context length of",
        r"context (?:length|window|size|limit) of \d+",
        r"prompt (?:is )?too long",  # Anthropic, Ollama
        r"input is too long",  # Bedrock
        r"input length (?:too long|exceeds)|the input length exceeds",  # Ollama
        r"token count .{0,80}exceeds the (?:maximum|limit)",  # Gemini, GitHub
        r"maximum prompt length is",  # xAI
        r"reduce the length of the (?:messages|prompt)",  # Groq
        r"`?inputs`? (?:tokens \+ `?max_new_tokens`? must be|must have less than)",  # TGI
        r"too large for model with \d+ maximum",  # Mistral
        r"exceeded model token limit",  # Moonshot
        r"current length is \d+ while limit is",  # Cerebras
        r"range of input length should be",  # DashScope
        r"prompt exceeds max",  # Zhipu
        r"input tokens exceed the configured limit",  # OpenAI
        r"invalid '(?:messages|input|prompt)[^']{0,80}': (?:string|array) too long",
        r"\brequest_too_large\b|request entity too large|payload too large|content too large",
        r"payload size exceeds the limit",  # Gemini
    ),
    _any(
        "context",  # words of several servers, which may mean a rate with other statuses
        r"too many (?:input |prompt )?tokens|more than max tokens allowed|configured context size is",
        r"(?:maximum|max) (?:allowed )?input length|\bmax_model_len\b|\bmax_seq_len\b",
        r"(?:messages?|input|prompt|conversation|request) (?:is |are )?too (?:long|large)",
        r"(?:input|prompt|total) tokens? .{0,40}exceeds? .{0,60}limit",
        statuses=(400, 422, 500),
    ),
    _any("context", r"", statuses=(413,)),
    _any(
        "filtered",
        r"\bcontent_?filter|\bcontent_policy_violation\b|responsibleaipolicyviolation|content.?management policy",
        r"contentpolicyviolation",  # LiteLLM
        r"safety system|flagged (?:as potentially violating|for|by)|\binvalid_prompt\b",  # OpenAI, OpenRouter
        r"requires moderation|input was flagged|\bflagged_input\b",  # OpenRouter
        r"blocked by content filter",  # Anthropic
        r"\bprohibited_content\b|\bblocklist\b|\bspii\b|(?:blocked|block reason).{0,40}safety",  # Gemini
        r"^safety$| safety$",
        r"content exists risk",  # DeepSeek
        r"data_?inspection_?failed|inappropriate content",  # DashScope
        r"considered high risk",  # Moonshot
        r"guardrail (?:intervened|blocked)|\bguardrail_intervened\b|blocked by (?:a |the )?guardrail",  # Bedrock
        r"violated guardrail|usage guidelines",  # LiteLLM, xAI
        r"violat\w{1,4} (?:of )?(?:our |the )?content polic|content moderation|\bcyber_policy\b",
        "\u4e0d\u5b89\u5168\u6216\u654f\u611f\u5185\u5bb9",  # Zhipu: unsafe or sensitive content
    ),
    _any("filtered", r"(?:prompt|request|input|response|content) (?:was |is )?blocked", statuses=(200, 400, 422, 424)),
    _any(
        "system",
        r"system role (?:is )?not supported|system role not allowed",  # Gemma on vLLM, TGI, llama.cpp
        r"(?:does not|doesn't) support (?:the )?'?\"?(?:system|developer)\b",  # OpenAI (o1), Bedrock
        r"(?:developer|system) instructions? (?:is|are) not (?:enabled|supported)",  # Gemini's API with Gemma
        r"use a valid role: user",  # Gemini
        r"invalid value: '(?:system|developer)'",  # OpenAI
        r"only user and assistant roles are supported",  # Mistral and Llama 2 templates
        r"only user, assistant and tool roles are supported",
        r"(?:unexpected|unknown|invalid|unsupported) (?:message )?role:? ?['\"`]?(?:system|developer)",
        r"(?:system|developer) messages? (?:is|are) not (?:supported|allowed)",
        r"system prompts? (?:is |are )?not supported",
        r"system message must be at the beginning|only one system message",  # Qwen's templates
        r"role ['\"`]?(?:system|developer)['\"`]? (?:is )?not (?:supported|allowed|valid)",
        r"'(?:system|developer)' is not one of \[",  # validators of JSON schemas
        r"input should be '[^.]{0,80}assistant'.{0,80}",  # pydantic's literal of roles
    ),
    _any(
        "order",
        r"roles must alternate|should alternate with assistant|must alternate",  # Gemma, Mistral, Anthropic, Perplexity
        r"successive user or assistant messages",  # DeepSeek
        r"expected last role user or tool",  # Mistral
        r"unexpected role '?\w+'? after role",
        r"\binvalid_request_message_order\b",
        r"conversation must start with a user|must start with (?:a )?user",  # Bedrock
        r"first message must (?:use|be|have)",  # Anthropic
        r"multiple \"?user\"? roles in a row|consecutive (?:user|assistant) messages",
        r"last message (?:of [\w./-]{1,80} )?must (?:be|have|use)",  # also DeepSeek
        r"(?:contents?|messages?) with role 'user' should alternate|multiturn requests alternate",  # Gemini
        r"function (?:call|response) turn comes immediately after",
        r"no user query found in messages",  # Qwen's templates
        r"only user, assistant and system roles|only user and assistant",
        r"(?:unexpected|unknown|invalid|unsupported) (?:message )?role:? ?['\"`]?tool",
    ),
    _any(
        "empty",
        r"must have either content or tool_calls|content or tool_calls must be set",  # Mistral, DeepSeek
        r"must (?:have|be|contain) non-(?:empty|whitespace)",  # Anthropic
        r"content field in the message object at .{0,40} is empty",  # Bedrock
        r"must have at least one content element|must have a text parameter|\bparts must not be empty",  # xAI, Gemini
    ),
    _any(
        "tools",
        r"does not support (?:tools|tool use|function)|doesn't support (?:tool use|the toolconfig)",  # Ollama, Bedrock
        r"support tool use",  # OpenRouter
        r"requires? --(?:enable-auto-tool-choice|jinja)",  # vLLM, llama.cpp
        r"\btools?['\"`]? (?:param )?(?:is|are) not supported",
        r"(?:function|tool) calling['\"`]? is not (?:enabled|supported)",  # Gemini, Mistral, Groq
    ),
    _any(
        "auth",
        r"\binvalid_api_key\b|(?:incorrect|invalid|wrong) api.?key|api.?key (?:not valid|expired|is invalid)",
        r"\bapi_key_invalid\b|authentication.?error|invalid (?:authentication|subscription key|proxy server token)",
        r"\bunauthori[sz]ed\b|permission.?denied|\bpermission_error\b|access ?denied|\baccount_deactivated\b",
        r"expired ?token|token (?:has |is )?expired|unrecognizedclient",  # Bedrock, Azure
        r"location is not supported|unsupported_country",
        r"don't have access to the model",
        statuses=(200, 400, 401, 403, 404, 407, 422),
    ),
    _any(
        "gone",
        r"\bmodel_not_found\b|\bmodel_decommissioned\b|\bdeploymentnotfound\b|\bmodel_not_available\b",
        r"model [^.]{0,120}(?:does not exist|not found|is not found|not exist|decommissioned)",
        r"invalid model(?: name)?\b|no such model|no endpoints found|is not a valid model|unknown model",
        r"model unloaded|failed to load model|no models loaded",  # LM Studio
        r"unexpected endpoint or method",  # LM Studio, with status 200
        r"model identifier is invalid|with on-demand throughput",  # Bedrock
        r"not supported by any provider",  # Hugging Face
        statuses=(200, 400, 403, 404, 410, 422, 500, 503),
    ),
    _any(
        "busy",
        r"overloaded|loading model|(?:is|are) currently loading|model is loading|server busy|engine is busy",
        r"capacity exceeded|queue is full|pending requests exceeded|try again later|insufficient_system_resource",
        r"modelnotready",
        statuses=(400, 403, 424, 425, 429, 498, 500, 502, 503, 504, 529),
    ),
    _any(
        "server",
        r"model has crashed|channel error|runner process has terminated|internal server error",  # LM Studio, Ollama
        statuses=(400, 404),
    ),
)
STATUSES: Mapping[int, Kind] = {
    **dict.fromkeys((401, 403, 407), "auth"),
    402: "quota",
    **dict.fromkeys((404, 410), "gone"),
    **dict.fromkeys((408, 409, 424, 425), "server"),
    429: "rate",
    **dict.fromkeys((498, 503, 529), "busy"),
    451: "filtered",  # Moonshot
}
# The text of the model that the server could not read, where the words quote it.
QUOTED = (
    re.compile(r"error parsing tool call: raw='(.*)', err=", re.S),  # Ollama
    re.compile(r"failed to parse input at pos \d+: (.*)", re.S | re.I),  # llama.cpp
)


def kind_of(words: ServerWords, status: int) -> Kind:
    """The kind of a refusal.

    Args:
        words: the server's words.
        status: the status of the answer; 200 if the body of a successful answer holds an error.
    """
    # A gateway may answer with the status 200 or 400 and name the status of the server behind it in the body.
    meant = words.status if words.status and status in (200, 400) else status
    text = f"{words.text[:LONGEST]} {words.codes[:LONGEST]}".lower()
    for pattern in PATTERNS:
        if meant in PLAIN and pattern.kind in ("context", "filtered"):
            continue
        if (not pattern.statuses or meant in pattern.statuses) and pattern.words.search(text):
            return pattern.kind
    known = STATUSES.get(meant)
    if known is not None:
        return known
    return "server" if meant >= 500 or meant < 400 else "refused"


def unread(words: ServerWords) -> str:
    """The text of the model that the server could not read; empty if the server does not quote it."""
    if words.failed:
        return words.failed
    found = (pattern.search(words.text) for pattern in QUOTED)
    return next((one[1] for one in found if one), "")


def wait_s(headers: Mapping[str, str], words: ServerWords) -> float | None:
    """Seconds that a server asks to wait before the next try; None if it names no time.

    The headers are `retry-after-ms` and `x-ms-retry-after-ms` (milliseconds) and `retry-after` (seconds or a date).
    Without them, the words count, such as "Please try again in 7m12.5s" or Gemini's `retryDelay`.
    """
    readers: tuple[tuple[str, Callable[[str], float | None]], ...] = (
        ("retry-after-ms", _milliseconds),
        ("x-ms-retry-after-ms", _milliseconds),
        ("retry-after", _seconds_or_date),
    )
    for name, read in readers:
        if (given := headers.get(name)) and (seconds := read(given)) is not None:
            return seconds
    said = AGAIN.search(words.text) or DELAY.search(words.codes)
    return None if said is None else sum(float(number) * UNITS[unit] for number, unit in PART.findall(said[1].lower()))


UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}
AGAIN = re.compile(
    r"(?:again|retry) (?:in|after) ((?:\d{1,9}(?:\.\d{1,9})? ?(?:ms|seconds?|minutes?|hours?|[hms])){1,3})\b", re.I
)
DELAY = re.compile(r"(?:^| )(\d{1,9}(?:\.\d{1,9})?s)(?: |$)")  # the code `retryDelay`
PART = re.compile(r"(\d+(?:\.\d+)?) ?(ms|[hms])")


def _milliseconds(header: str) -> float | None:
    try:
        return max(0.0, float(header) / 1000)
    except ValueError:
        return None


def _seconds_or_date(header: str) -> float | None:
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(header).timestamp() - time.time())
    except ValueError:
        return None
