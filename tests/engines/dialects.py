"""What the servers that people run say when they refuse a request: one table of bodies, played by one stub server.

The texts are those of the servers' own sources, documentation and issue trackers, shortened where they repeat
themselves; docs/evaluation.md names the sources. `words` is a part of the server's own sentence, which must reach the
user.
"""

import json
from typing import Any, NamedTuple


class Case(NamedTuple):
    """A refusal: which server, its status and body, the kind that it means, and words that the user must read."""

    server: str
    status: int
    body: Any
    kind: str
    words: str

    @property
    def data(self) -> bytes:
        """The body as bytes; a text is sent as it is."""
        return (self.body if isinstance(self.body, str) else json.dumps(self.body)).encode()

    def __str__(self) -> str:
        return f"{self.server} {self.kind} {self.status}"


def openai(message: str, code: Any = None, kind: str = "invalid_request_error", **more: Any) -> dict[str, Any]:
    """OpenAI's body of an error, which most servers copy."""
    return {"error": {"message": message, "type": kind, "param": None, "code": code, **more}}


def old_vllm(message: str, code: int = 400, kind: str = "BadRequestError") -> dict[str, Any]:
    """The body of vLLM before 0.10 and of SGLang, without the object `error`."""
    return {"object": "error", "message": message, "type": kind, "param": None, "code": code}


def google(message: str, status: str = "INVALID_ARGUMENT", code: int = 400, **more: Any) -> list[Any]:
    """Gemini's list with one error."""
    return [{"error": {"code": code, "message": message, "status": status, **more}}]


def page(title: str) -> str:
    """The page of a proxy."""
    return f"<html>\r\n<head><title>{title}</title></head>\r\n<body>\r\n<center><h1>{title}</h1></center>\r\n</body></html>"


VLLM_LONG = (
    "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4488 in the messages, 512 "
    "in the completion). Please reduce the length of the messages or completion."
)
AZURE_FILTER = (
    "The response was filtered due to the prompt triggering Azure OpenAI's content management policy. Please modify "
    "your prompt and retry."
)
GEMINI_QUOTA = "You exceeded your current quota, please check your plan and billing details."
LM_LONG = (
    "Trying to keep the first 5154 tokens when context the overflows. However, the model is loaded with context length "
    "of only 4096 tokens, which is not enough. Try to load the model with a larger context length"
)
HARMONY = 'unexpected tokens remaining in message header: Some("to=functions.count")'
TGI_LONG = "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 and 512"
BEDROCK = "An error occurred (ValidationException) when calling the Converse operation: "

REFUSALS = (
    Case("OpenAI", 400, openai(VLLM_LONG, "context_length_exceeded"), "context", "4096 tokens"),
    Case("OpenAI", 400, openai("Your input exceeds the context window of this model."), "context", "context window"),
    Case("OpenAI", 400, openai("Input tokens exceed the configured limit of 272000 tokens."), "context", "272000"),
    Case(
        "OpenAI",
        429,
        openai(
            "Request too large for gpt-x on tokens per min (TPM): Limit 30000, Requested 62000. The input or output "
            "tokens must be reduced in order to run successfully.",
            "rate_limit_exceeded",
            "tokens",
        ),
        "context",
        "Requested 62000",
    ),
    Case("OpenAI", 429, openai("Rate limit reached for gpt-x on requests per min (RPM): Limit 3. Please try again in 20s.", "rate_limit_exceeded", "requests"), "rate", "Limit 3"),
    Case("OpenAI", 429, openai(GEMINI_QUOTA, "insufficient_quota", "insufficient_quota"), "quota", "current quota"),
    Case("OpenAI", 429, openai("Your account is not active, please check your billing details on our website.", "billing_not_active"), "quota", "billing details"),
    Case("OpenAI", 401, openai("Incorrect API key provided: sk-no.", "invalid_api_key"), "auth", "Incorrect API key"),
    Case("OpenAI", 403, openai("Country, region, or territory not supported", "unsupported_country_region_territory"), "auth", "not supported"),
    Case("OpenAI", 404, openai("The model `m` does not exist or you do not have access to it.", "model_not_found"), "gone", "does not exist"),
    Case("OpenAI", 400, openai("Invalid prompt: your prompt was flagged as potentially violating our usage policy.", "invalid_prompt"), "filtered", "was flagged"),
    Case("OpenAI", 500, openai("The server had an error while processing your request. Sorry about that!", None, "server_error"), "server", "Sorry about that"),
    Case("OpenAI", 503, openai("The engine is currently overloaded, please try again later", None, "server_error"), "busy", "overloaded"),
    Case("OpenAI", 400, openai("Unsupported value: 'messages[0].role' does not support 'system' with this model.", "unsupported_value"), "system", "messages[0].role"),
    Case("OpenAI", 400, openai("Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.", "unsupported_parameter"), "refused", "max_completion_tokens"),
    Case("Azure", 400, openai(AZURE_FILTER, "content_filter", status=400, innererror={"code": "ResponsibleAIPolicyViolation", "content_filter_result": {"hate": {"filtered": True, "severity": "high"}}}), "filtered", "content management policy"),
    Case("Azure", 429, {"error": {"code": "429", "message": "Requests to the ChatCompletions_Create Operation have exceeded token rate limit. Please retry after 6 seconds."}}, "rate", "retry after 6 seconds"),
    Case("Azure", 404, {"error": {"code": "DeploymentNotFound", "message": "The API deployment for this resource does not exist."}}, "gone", "deployment"),
    Case("Azure", 401, {"error": {"code": "401", "message": "Access denied due to invalid subscription key or wrong API endpoint."}}, "auth", "subscription key"),
    Case("Azure", 403, {"error": {"code": "403", "message": "Out of call volume quota. Quota will be replenished in 02:12:59."}}, "quota", "Out of call volume"),
    Case("vLLM", 400, old_vllm(VLLM_LONG), "context", "4488 in the messages"),
    Case("vLLM", 400, {"error": {"message": VLLM_LONG, "type": "BadRequestError", "param": "input_tokens", "code": 400}}, "context", "4488 in the messages"),
    Case("vLLM", 400, {"error": {"message": "'max_tokens' or 'max_completion_tokens' is too large: 512. This model's maximum context length is 4096 tokens and your request has 4000 input tokens (512 > 4096 - 4000).", "type": "BadRequestError", "code": 400}}, "context", "4000 input tokens"),
    Case("vLLM", 400, {"error": {"message": "The decoder prompt (length 5000) is longer than the maximum model length of 4096.", "type": "BadRequestError", "code": 400}}, "context", "maximum model length"),
    Case("vLLM", 401, {"error": "Unauthorized"}, "auth", "Unauthorized"),
    Case("vLLM", 404, {"error": {"message": "The model `m` does not exist.", "type": "NotFoundError", "param": "model", "code": 404}}, "gone", "does not exist"),
    Case("vLLM", 500, {"error": {"message": HARMONY, "type": "InternalServerError", "code": 500}}, "malformed", "message header"),
    Case("vLLM", 200, {"error": {"message": "Unexpected token 12606 while expecting start token 200006", "type": "BadRequestError", "code": 400}}, "malformed", "start token"),
    Case("vLLM", 400, {"error": {"message": "System role not supported", "type": "BadRequestError", "code": 400}}, "system", "System role"),
    Case("vLLM", 400, old_vllm("Conversation roles must alternate user/assistant/user/assistant/..."), "order", "must alternate"),
    Case("vLLM", 400, {"error": {"message": "Unexpected role 'user' after role 'tool'", "type": "BadRequestError", "code": 400}}, "order", "after role 'tool'"),
    Case("vLLM", 400, {"error": {"message": '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set', "code": 400}}, "tools", "tool-call-parser"),
    Case("SGLang", 400, old_vllm("The input (5000 tokens) is longer than the model's context length (4096 tokens)."), "context", "5000 tokens"),
    Case("SGLang", 400, old_vllm("Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of 5000 tokens"), "context", "total of 5000"),
    Case("SGLang", 400, old_vllm("Input length (5000 tokens) exceeds the maximum allowed length (4096 tokens). Use a shorter input or enable --allow-auto-truncate."), "context", "shorter input"),
    Case("SGLang", 503, old_vllm("The request queue is full.", 503, "ServiceUnavailable"), "busy", "queue is full"),
    Case("TGI", 422, {"error": TGI_LONG, "error_type": "validation"}, "context", "max_new_tokens"),
    Case("TGI", 422, {"error": "Input validation error: `inputs` must have less than 1024 tokens. Given: 2000", "error_type": "validation"}, "context", "Given: 2000"),
    Case("TGI", 422, {"error": "Template error: invalid operation: System role not supported (in <string>:1)", "error_type": "template_error"}, "system", "Template error"),
    Case("TGI", 422, {"error": "Tool error: Failed to parse generated text: EOF while parsing a string", "error_type": "tool_error"}, "malformed", "generated text"),
    Case("TGI", 429, {"error": "Model is overloaded", "error_type": "overloaded"}, "busy", "Model is overloaded"),
    Case("TGI", 424, {"error": "Request failed during generation: Server error: CUDA error", "error_type": "generation"}, "server", "CUDA error"),
    Case("Hugging Face", 503, {"error": "Model m is currently loading", "estimated_time": 20.0}, "busy", "currently loading"),
    Case("llama.cpp", 400, {"error": {"code": 400, "message": "request (9412 tokens) exceeds the available context size (8192 tokens), try increasing it", "type": "exceed_context_size_error", "n_prompt_tokens": 9412, "n_ctx": 8192}}, "context", "9412 tokens"),
    Case("llama.cpp", 500, {"error": {"code": 500, "message": "Context size has been exceeded.", "type": "server_error"}}, "context", "has been exceeded"),
    Case("llama.cpp", 503, {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}, "busy", "Loading model"),
    Case("llama.cpp", 500, {"error": {"code": 500, "message": 'Failed to parse input at pos 13: <tool_call>{"name": "count", "arguments": {"word": ', "type": "server_error"}}, "malformed", "at pos 13"),
    Case("llama.cpp", 401, {"error": {"code": 401, "message": "Invalid API Key", "type": "authentication_error"}}, "auth", "Invalid API Key"),
    Case("llama.cpp", 500, {"error": {"code": 500, "message": "Jinja Exception: Conversation roles must alternate user/assistant/user/assistant/...", "type": "server_error"}}, "order", "Jinja Exception"),
    Case("llama.cpp", 500, {"error": {"code": 500, "message": "tools param requires --jinja flag", "type": "server_error"}}, "tools", "--jinja"),
    Case("Ollama", 500, openai("error parsing tool call: raw='{\"word\":\"\"a\"}', err=invalid character 'a' after object key:value pair", None, "api_error"), "malformed", "invalid character"),
    Case("Ollama", 500, openai("XML syntax error on line 7: element <parameter> closed by </function>", None, "api_error"), "malformed", "line 7"),
    Case("Ollama", 500, {"error": "failed to parse XML: XML syntax error on line 1: element <tool_call> closed by </arg_value>"}, "malformed", "arg_value"),
    Case("Ollama", 400, openai("the input length exceeds the context length"), "context", "input length"),
    Case("Ollama", 404, openai("model 'm' not found", None, "not_found_error"), "gone", "not found"),
    Case("Ollama", 400, openai("registry.ollama.ai/library/m:latest does not support tools"), "tools", "support tools"),
    Case("Ollama", 503, openai("server busy, please try again.  maximum pending requests exceeded", None, "api_error"), "busy", "server busy"),
    Case("Ollama", 500, openai("llama runner process has terminated: exit status 2", None, "api_error"), "server", "exit status 2"),
    Case("LM Studio", 400, {"error": LM_LONG}, "context", "5154 tokens"),
    Case("LM Studio", 400, {"error": "The number of tokens to keep from the initial prompt is greater than the context length."}, "context", "tokens to keep"),
    Case("LM Studio", 400, {"error": 'Error rendering prompt with jinja template: "Only user and assistant roles are supported!".'}, "system", "jinja template"),
    Case("LM Studio", 400, {"error": "The model has crashed without additional information. (Exit code: 18446744072635812000)"}, "server", "has crashed"),
    Case("LM Studio", 400, {"error": {"message": 'Failed to load model "m". Error: insufficient memory', "type": "invalid_request_error", "param": "model", "code": "model_not_found"}}, "gone", "Failed to load"),
    Case("Groq", 400, openai("Failed to call a function. Please adjust your prompt. See 'failed_generation' for more details.", "tool_use_failed", failed_generation='<function=count{"word": "strawberry"}</function>'), "malformed", "Failed to call"),
    Case("Groq", 400, openai("tool call validation failed: attempted to call tool 'json' which was not in request.tools", "tool_use_failed"), "malformed", "request.tools"),
    Case("Groq", 400, openai("Parsing failed. The model generated output that could not be parsed.", "output_parse_failed"), "malformed", "Parsing failed"),
    Case("Groq", 400, openai("Please reduce the length of the messages or completion.", "context_length_exceeded"), "context", "reduce the length"),
    Case("Groq", 413, openai("Request too large for model `m` on tokens per minute (TPM): Limit 6000, Requested 7000, please reduce your message size and try again.", "rate_limit_exceeded", "tokens"), "context", "Requested 7000"),
    Case("Groq", 429, openai("Rate limit reached for model `m` on tokens per day (TPD): Limit 100000. Please try again in 7m12.5s.", "rate_limit_exceeded", "tokens"), "rate", "tokens per day"),
    Case("Groq", 400, openai("The model `m` has been decommissioned and is no longer supported.", "model_decommissioned"), "gone", "decommissioned"),
    Case("Groq", 498, openai("Flex tier capacity exceeded for model", "capacity_exceeded"), "busy", "capacity exceeded"),
    Case("xAI", 400, {"code": "Client specified an invalid argument", "error": "This model's maximum prompt length is 131072 but the request contains 537812 tokens."}, "context", "537812 tokens"),
    Case("xAI", 400, {"code": "Client specified an invalid argument", "error": "Incorrect API key provided: xx. You can obtain an API key from https://console.x.ai."}, "auth", "console.x.ai"),
    Case("xAI", 404, {"code": "Some requested entity was not found", "error": "The model m does not exist or your team does not have access to it."}, "gone", "does not exist"),
    Case("xAI", 429, {"code": "Some resource has been exhausted", "error": "Your team has either used all available credits or reached its monthly spending limit."}, "quota", "available credits"),
    Case("xAI", 403, {"code": "The caller does not have permission to execute the specified operation", "error": "Content violates usage guidelines. Team: x"}, "filtered", "usage guidelines"),
    Case("Gemini", 400, google("The input token count (40000) exceeds the maximum number of tokens allowed (32768)."), "context", "40000"),
    Case("Gemini", 400, google("API key not valid. Please pass a valid API key.", details=[{"reason": "API_KEY_INVALID"}]), "auth", "API key not valid"),
    Case("Gemini", 400, google("User location is not supported for the API use.", "FAILED_PRECONDITION"), "auth", "User location"),
    Case("Gemini", 404, google("models/m is not found for API version v1main", "NOT_FOUND", 404), "gone", "is not found"),
    Case("Gemini", 429, google(f"{GEMINI_QUOTA} Please retry in 34.07s.", "RESOURCE_EXHAUSTED", 429, details=[{"quotaId": "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"}, {"retryDelay": "34s"}]), "rate", "retry in 34.07s"),
    Case("Gemini", 429, google(GEMINI_QUOTA, "RESOURCE_EXHAUSTED", 429, details=[{"violations": [], "@type": "QuotaFailure"}, {"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]), "quota", "current quota"),
    Case("Gemini", 503, google("The model is overloaded. Please try again later.", "UNAVAILABLE", 503), "busy", "overloaded"),
    Case("Gemini", 400, google("Developer instruction is not enabled for models/gemma-3-27b-it"), "system", "Developer instruction"),
    Case("Gemini", 400, google("Please ensure that function call turn comes immediately after a user turn or after a function response turn."), "order", "function call turn"),
    Case("Gemini", 200, {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 9}}, "filtered", "PROHIBITED_CONTENT"),
    Case("Bedrock", 400, {"message": f"{BEDROCK}Input is too long for requested model."}, "context", "Input is too long"),
    Case("Bedrock", 429, {"message": "Too many tokens, please wait before trying again.", "__type": "ThrottlingException"}, "rate", "Too many tokens"),
    Case("Bedrock", 400, {"message": f"{BEDROCK}This model doesn't support system messages. Try again without a system message or use a model that supports system messages."}, "system", "system messages"),
    Case("Bedrock", 400, {"message": f"{BEDROCK}This model doesn't support tool use."}, "tools", "tool use"),
    Case("Bedrock", 400, {"message": f"{BEDROCK}A conversation must start with a user message."}, "order", "start with a user"),
    Case("Bedrock", 403, {"message": "The security token included in the request is expired"}, "auth", "is expired"),
    Case("Bedrock", 403, {"message": "You don't have access to the model with the specified model ID."}, "auth", "specified model ID"),
    Case("LiteLLM", 400, openai(f"litellm.ContextWindowExceededError: litellm.BadRequestError: ContextWindowExceededError: OpenAIException - {VLLM_LONG}\nModel: m", "400"), "context", "4488 in the messages"),
    Case("LiteLLM", 400, openai("litellm.BadRequestError: GeminiException - " + json.dumps(google("The input token count (40000) exceeds the maximum number of tokens allowed (32768).")[0]) + "\nModel: m", "400"), "context", "40000"),
    Case("LiteLLM", 400, openai("litellm.ContentPolicyViolationError: AzureException - " + AZURE_FILTER, "400"), "filtered", "content management policy"),
    Case("LiteLLM", 401, openai("Authentication Error, Invalid proxy server token passed.", "401", "auth_error"), "auth", "proxy server token"),
    Case("LiteLLM", 400, openai("Budget has been exceeded! Current cost: 0.12, Max budget: 0.1", "400", "budget_exceeded"), "quota", "Max budget"),
    Case("LiteLLM", 400, {"error": {"message": "/chat/completions: Invalid model name passed in model=m. Call `/v1/models` to view available models for your key.", "code": "400"}}, "gone", "Invalid model name"),
    Case("LiteLLM", 429, openai("No deployments available for selected model, Try again in 5 seconds.", "429"), "rate", "No deployments"),
    Case("OpenRouter", 402, {"error": {"message": "This request requires more credits, or fewer max_tokens. You requested up to 512 tokens, but can only afford 2", "code": 402}}, "quota", "only afford 2"),
    Case("OpenRouter", 403, {"error": {"message": "openai/m requires moderation on OpenAI. Your input was flagged for \"violence\".", "code": 403, "metadata": {"reasons": ["violence"], "flagged_input": "x"}}}, "filtered", "was flagged"),
    Case("OpenRouter", 404, {"error": {"message": "No endpoints found that support tool use.", "code": 404}}, "tools", "No endpoints"),
    Case("OpenRouter", 404, {"error": {"message": "No endpoints found for x/m.", "code": 404}}, "gone", "No endpoints"),
    Case("OpenRouter", 400, {"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": json.dumps(openai(VLLM_LONG)), "provider_name": "X"}}}, "context", "4488 in the messages"),
    Case("OpenRouter", 200, {"error": {"message": "Provider returned error", "code": 502, "metadata": {"raw": "upstream broke", "provider_name": "X"}}}, "server", "upstream broke"),
    Case("OpenRouter", 200, {"error": {"message": "Rate limit exceeded: free-models-per-min", "code": 429}}, "rate", "free-models-per-min"),
    Case("Mistral", 400, {"object": "error", "message": "Prompt contains 65673 tokens and 0 draft tokens, too large for model with 32768 maximum context length", "type": "invalid_request_prompt", "code": "3051"}, "context", "65673 tokens"),
    Case("Mistral", 401, {"detail": "Unauthorized"}, "auth", "Unauthorized"),
    Case("Mistral", 422, {"object": "error", "message": {"detail": [{"type": "extra_forbidden", "loc": ["body", "seed"], "msg": "Extra inputs are not permitted", "input": 7}]}, "type": "invalid_request_error", "code": None}, "refused", "Extra inputs are not permitted / body.seed"),
    Case("Mistral", 400, {"object": "error", "message": "Invalid model: m", "type": "invalid_model", "code": "1500"}, "gone", "Invalid model"),
    Case("Mistral", 400, {"object": "error", "message": "Expected last role User or Tool (or Assistant with prefix True) for serving but got assistant", "type": "invalid_request_message_order", "code": "3230"}, "order", "Expected last role"),
    Case("Mistral", 429, {"object": "error", "message": "Service tier capacity exceeded for this model.", "type": "service_tier_capacity_exceeded", "code": "3505"}, "busy", "capacity exceeded"),
    Case("DeepSeek", 400, openai("This model's maximum context length is 65536 tokens. However, you requested 70000 tokens"), "context", "70000 tokens"),
    Case("DeepSeek", 402, openai("Insufficient Balance", "invalid_request_error", "unknown_error"), "quota", "Insufficient Balance"),
    Case("DeepSeek", 400, openai("Content Exists Risk", "invalid_request_error"), "filtered", "Content Exists Risk"),
    Case("DeepSeek", 400, openai("deepseek-reasoner does not support successive user or assistant messages (messages[1] and messages[2] in your input). You should interleave the user/assistant messages in the message sequence."), "order", "interleave"),
    Case("Anthropic", 400, {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 213462 tokens > 200000 maximum"}}, "context", "213462 tokens"),
    Case("Anthropic", 400, {"type": "error", "error": {"type": "invalid_request_error", "message": "input length and `max_tokens` exceed context limit: 199000 + 8000 > 200000"}}, "context", "199000"),
    Case("Anthropic", 413, {"type": "error", "error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}}, "context", "maximum size"),
    Case("Anthropic", 400, {"type": "error", "error": {"type": "invalid_request_error", "message": "Your credit balance is too low to access the Anthropic API."}}, "quota", "credit balance"),
    Case("Anthropic", 400, {"type": "error", "error": {"type": "invalid_request_error", "message": 'messages: roles must alternate between "user" and "assistant", but found multiple "user" roles in a row'}}, "order", "must alternate"),
    Case("Anthropic", 400, {"type": "error", "error": {"type": "invalid_request_error", "message": "Output blocked by content filtering policy"}}, "filtered", "Output blocked"),
    Case("Anthropic", 529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "busy", "Overloaded"),
    Case("Moonshot", 400, openai("Your request exceeded model token limit: 8192 (requested: 9000)"), "context", "requested: 9000"),
    Case("Moonshot", 400, openai("The request was rejected because it was considered high risk", None, "content_filter"), "filtered", "high risk"),
    Case("DashScope", 400, openai("Range of input length should be [1, 30720]"), "context", "30720"),
    Case("DashScope", 400, openai("Input data may contain inappropriate content.", "data_inspection_failed"), "filtered", "inappropriate content"),
    Case("Perplexity", 400, openai("After the (optional) system message(s), user or tool message(s) should alternate with assistant message(s).", 400, "invalid_message"), "order", "should alternate"),
    Case("Cerebras", 400, {"message": "Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192", "type": "invalid_request_error", "code": "context_length_exceeded"}, "context", "limit is 8192"),
    Case("Cerebras", 413, "", "context", "413"),
    Case("Cloudflare", 400, {"errors": [{"message": "AiError: No such model m or task", "code": 5007}], "success": False, "result": {}}, "gone", "No such model"),
    Case("FastAPI", 422, {"detail": [{"type": "missing", "loc": ["body", "messages"], "msg": "Field required", "input": {}}]}, "refused", "Field required / body.messages"),
    Case("FastAPI", 400, {"detail": "input is too long: 9000 tokens"}, "context", "9000 tokens"),
    Case("FastAPI", 500, "Internal Server Error", "server", "Internal Server Error"),
    Case("a gateway", 400, {"detail": json.dumps({"error": {"message": VLLM_LONG, "code": 400}})}, "context", "4488 in the messages"),
    Case("a gateway", 400, {"error": json.dumps({"error": {"message": VLLM_LONG, "code": 400}})}, "context", "4488 in the messages"),
    Case("a gateway", 400, {"message": "context window exceeded for m"}, "context", "for m"),
    Case("nginx", 413, page("413 Request Entity Too Large"), "context", "413 Request Entity Too Large"),
    Case("nginx", 502, page("502 Bad Gateway"), "server", "502 Bad Gateway"),
    Case("nginx", 401, page("401 Authorization Required"), "auth", "401 Authorization Required"),
    Case("a proxy", 403, "", "auth", "403, without a word"),
    Case("a proxy", 400, "", "refused", "400, without a word"),
    Case("a proxy", 400, "no JSON {", "refused", "no JSON {"),
    Case("a proxy", 400, "[]", "refused", "400, without a word"),
    Case("a proxy", 400, "null", "refused", "null"),
)  # fmt: skip
