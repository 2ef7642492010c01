"""The endpoint policy against a real HTTP server on this machine: every way an endpoint misbehaves."""

import asyncio
import gzip
import json
import re
import socketserver
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from agentrl.engines import openai as openai_engine
from agentrl.engines.openai import Endpoint, EndpointLost, OpenAIPolicy, from_word
from agentrl.env import Limits, make_pool, tasks_of
from agentrl.evaluate import evaluate
from agentrl.evaluate.evaluation import outcome
from agentrl.rollout import TooManyFaults
from agentrl.types import EnvFault, Message, Observation, Request, Status
from tests.rollout.playing import entry, play_all, player

pytest.importorskip("openai")


def completion(text: str = "right", finish: str = "stop", usage: bool = True) -> bytes:
    body: dict[str, Any] = {
        "id": "x",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text}}],
    }
    if usage:
        body["usage"] = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
    return json.dumps(body).encode()


STALL = object()  # in a plan: no answer before the server ends


class Server:
    """Answers request n with `plan[n]` (the last one for ever): (status, headers, body), STALL or a callable."""

    def __init__(self, *plan: Any) -> None:
        self.ended = threading.Event()
        self.plan, self.bodies, self.times, self.busy, self.most = plan, [], [], 0, 0
        lock, outer = threading.Lock(), self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                with lock:
                    outer.bodies.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                    outer.times.append(time.monotonic())
                    outer.busy += 1
                    outer.most = max(outer.most, outer.busy)
                    step = outer.plan[min(len(outer.bodies), len(outer.plan)) - 1]
                if step is STALL:
                    outer.ended.wait()
                    step = None
                elif isinstance(step, Callable):
                    step = step(outer.bodies[-1])
                with lock:
                    outer.busy -= 1
                if step is not None:
                    self.answer(*step)

            def answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
                self.send_response(status)
                for name, value in {
                    "content-type": "application/json",
                    "content-length": len(body),
                    **headers,
                }.items():
                    self.send_header(name, str(value))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_port}/v1"

    def policy(self, **options: Any) -> OpenAIPolicy:
        defaults = {"model": "m", "base_url": self.url, "backoff_s": 0.01, "retries": 3, "timeout_s": 60.0}
        return OpenAIPolicy(Endpoint(**{**defaults, **options}))


@pytest.fixture
def serve():
    servers = []

    def start(*plan: Any) -> Server:
        servers.append(Server(*plan))
        return servers[-1]

    yield start
    for server in servers:
        server.ended.set()
        server.http.shutdown()
        server.http.server_close()


OK = (200, {}, completion())


def refusal(status: int, message: str = "no", code: str | None = None, headers: dict[str, str] | None = None) -> Any:
    return status, headers or {}, json.dumps({"error": {"message": message, "code": code}}).encode()


def request(turn: int = 0, max_tokens: int = 64) -> Request:
    return Request(
        session=0,
        token_ids=np.zeros(0, np.int64),
        messages=[Message("system", "be brief"), Message("user", "where?")],
        observation=Observation(text="where?"),
        max_tokens=max_tokens,
        noise_key=(0, 0, 0, turn),
    )


def ask(policy: OpenAIPolicy, **options: Any) -> Any:
    return asyncio.run(policy.generate(request(**options)))


def test_what_is_sent_and_what_comes_back(serve):
    server = serve(OK)
    policy = server.policy(
        temperature=0.0, stop=("\n",), max_tokens=32, price_in=1.0, price_out=5.0, extra_body={"x": 1}
    )
    answer = ask(policy)
    (body,) = server.bodies
    seed = body.pop("seed")
    assert body == {
        "model": "m",
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "where?"}],
        "temperature": 0.0,
        "stop": ["\n"],
        "max_tokens": 32,
        "x": 1,
    }
    assert 0 <= seed < 2**31
    assert (answer.text, answer.finish, len(answer.token_ids)) == ("right", "stop", 0)
    # 10 tokens at 1 USD a million and 2 at 5: 20 millionths of a dollar
    assert answer.usage == {
        "requests": 1, "retries": 0, "prompt_tokens": 10, "completion_tokens": 2, "cost": pytest.approx(20e-6)
    }  # fmt: skip


def test_the_seed_names_the_turn_and_repeats(serve):
    server = serve(OK)
    for turn in (0, 1, 0):
        ask(server.policy(), turn=turn)
    seeds = [body["seed"] for body in server.bodies]
    assert seeds[0] == seeds[2] != seeds[1]


def test_the_turns_room_is_never_exceeded(serve):
    server = serve(OK)
    ask(server.policy(max_tokens=512), max_tokens=7)
    assert server.bodies[0]["max_tokens"] == 7


@pytest.mark.parametrize(("said", "meant"), [("stop", "stop"), ("length", "length"), ("content_filter", "abort")])
def test_finish_reasons(serve, said, meant):
    assert ask(serve((200, {}, completion(finish=said))).policy()).finish == meant


def test_the_limit_that_cut_an_answer_off_is_named(serve):
    server = serve((200, {}, completion(finish="length")), (200, {}, completion(finish="length", usage=False)))
    # The server counts 2 tokens. A request for 64 was cut by the server; a request for 2 reached its own limit.
    assert "after 2 tokens, and the request allowed 64" in ask(server.policy()).cut_by
    assert ask(server.policy()).cut_by == ""  # no count, no blame
    server = serve((200, {}, completion(finish="length")))
    assert ask(server.policy(), max_tokens=2).cut_by == ""
    assert ask(server.policy(max_tokens=2)).cut_by == "endpoint.max_tokens = 2 was reached: raise endpoint.max_tokens"
    assert ask(serve(OK).policy()).cut_by == ""


@pytest.mark.fault
def test_no_usage_is_not_invented(serve):
    usage = ask(serve((200, {}, completion(usage=False))).policy(price_in=1, price_out=1)).usage
    assert usage == {"requests": 1, "retries": 0}


@pytest.mark.fault
@pytest.mark.parametrize(
    "trouble",
    [
        refusal(429),
        refusal(500),
        refusal(503),
        refusal(408),
        (200, {}, completion()[:40]),  # JSON cut short
        (200, {"content-length": "9999"}, completion()),  # a body cut short
        (200, {}, b'{"choices": []}'),
        (200, {}, b'{"choices": null}'),
        (200, {"content-type": "text/html"}, b"<html>gateway</html>"),
        lambda body: None,  # the connection closes without a word
    ],
)
def test_trouble_that_may_pass_is_tried_again(serve, trouble):
    server = serve(trouble, trouble, OK)
    answer = ask(server.policy())
    assert answer.text == "right" and answer.usage["retries"] == 2 and len(server.bodies) == 3


def raw(*parts: bytes, stalls: bool = False, pause_s: float = 0.0, endless: bool = False) -> tuple[str, Any]:
    """The address of a server that answers each request with these bytes, and what ends the server.

    Args:
        parts: the bytes; after each part the server waits `pause_s` seconds.
        stalls: the connection stays open after the last part, until the server ends.
        endless: the server goes on with blanks after the last part.
    """
    ended = threading.Event()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                self.request.recv(1 << 16)
                for part in parts:
                    self.request.sendall(part)
                    time.sleep(pause_s)
                if stalls:
                    ended.wait()
                while endless:
                    self.request.sendall(b" " * (1 << 16))

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()

    def stop() -> None:
        ended.set()
        server.shutdown()
        server.server_close()

    return f"http://127.0.0.1:{server.server_address[1]}/v1", stop


def lost(url_and_stop: tuple[str, Any], **options: Any) -> str:
    """The sentence of a lost endpoint after one try."""
    url, stop = url_and_stop
    with pytest.raises(EndpointLost) as caught:
        ask(OpenAIPolicy(Endpoint(**{"model": "m", "base_url": url, "retries": 0, "timeout_s": 60.0, **options})))
    stop()
    return str(caught.value)


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
WHOLE = HEAD % len(completion()) + completion()


@pytest.mark.fault
def test_an_endpoint_that_stalls_anywhere_is_given_up_in_time():
    for part in (b"", b"HTTP/1.1 200 OK\r\n", WHOLE[:-30]):
        assert "the answer did not end in 0.3 s" in lost(raw(part, stalls=True), timeout_s=0.3)
    byte_by_byte = raw(*[bytes([byte]) for byte in WHOLE], pause_s=0.05)  # no pause is as long as the limit
    assert "the answer did not end in 0.3 s" in lost(byte_by_byte, timeout_s=0.3)


@pytest.mark.fault
@pytest.mark.parametrize("status", [b"200 OK", b"500 no"])
def test_a_body_without_an_end_is_given_up_after_some_megabytes(status, monkeypatch):
    monkeypatch.setattr(openai_engine, "ANSWER_BYTES", 1 << 20)
    head = (HEAD % 10**12).replace(b"200 OK", status)
    assert "the answer is larger than 1 MB" in lost(raw(head, endless=True))


@pytest.mark.fault
@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"[" * 100_000, "recursion depth"),
        (b"[]", "not a chat completion"),
        (b"12", "not a chat completion"),
        (b"null", "not a chat completion"),
        (b'"right"', "not a chat completion"),
        (b"", "Expecting value"),
        (b"\xff\xfe\x00", "utf-8|Expecting value|decode"),
        (gzip.compress(completion()), "is compressed"),
    ],
)
def test_a_body_that_is_no_completion_loses_the_endpoint_in_words(body, said):
    head = HEAD % len(body)
    if "compressed" in said:
        head = head.replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n")
    assert re.search(said, lost(raw(head + body)))


@pytest.mark.fault
def test_what_is_no_http_loses_the_endpoint_in_words():
    assert "Connection error. illegal status line" in lost(raw(b"\x00\xff garbage\r\n\r\n"))


@pytest.mark.fault
def test_half_a_surrogate_pair_becomes_a_question_mark(serve):
    """No file can hold one, so the answer could not be stored."""
    assert ask(serve((200, {}, completion("a\ud800b"))).policy()).text == "a?b"


@pytest.mark.fault
@pytest.mark.parametrize("count", [10**400, -1, "ten", 1.5, None])
def test_counts_of_tokens_that_are_none_are_left_out(serve, count):
    odd = json.loads(completion())
    odd["usage"]["prompt_tokens"] = count
    usage = ask(serve((200, {}, json.dumps(odd).encode())).policy(price_in=1, price_out=1)).usage
    assert usage == {"requests": 1, "retries": 0}


@pytest.mark.fault
def test_an_answer_of_another_content_type_is_read(serve):
    assert ask(serve((200, {"content-type": "text/plain"}, completion())).policy()).text == "right"


@pytest.mark.fault
def test_a_time_out_is_tried_again(serve):
    server = serve(STALL, OK)
    usage = ask(server.policy(timeout_s=0.5, retries=9)).usage  # on a busy machine OK may come too late as well
    assert usage["retries"] >= 1 and usage["requests"] == len(server.bodies)


@pytest.mark.fault
def test_retry_after_is_obeyed_and_bounded(serve, monkeypatch):
    waits, wait = [], OpenAIPolicy._wait
    monkeypatch.setattr(OpenAIPolicy, "_wait", lambda *of: waits.append(wait(*of)) or waits[-1])
    server = serve(refusal(429, headers={"retry-after": "0.3"}), OK)
    ask(server.policy())
    assert server.times[1] - server.times[0] >= 0.3
    bounded = serve(refusal(429, headers={"retry-after": "3600"}), OK)
    ask(bounded.policy(max_wait_s=0.1))
    assert bounded.times[1] - bounded.times[0] >= 0.1 and waits == [0.3, 0.1]


@pytest.mark.fault
def test_a_lost_endpoint_is_a_fault_not_an_answer(serve):
    server = serve(refusal(500, "on fire"))
    with pytest.raises(EndpointLost, match=r"no answer in 4 tries.*on fire") as caught:
        ask(server.policy())
    assert isinstance(caught.value, EnvFault) and len(server.bodies) == 4


@pytest.mark.fault
@pytest.mark.parametrize(
    "refused",
    [refusal(401), refusal(404, "no such model"), refusal(400), refusal(429, code="insufficient_quota")],
)
def test_what_can_never_work_stops_at_once(serve, refused):
    server = serve(refused)
    with pytest.raises(ValueError, match="openai:m refuses"):
        ask(server.policy())
    assert len(server.bodies) == 1


@pytest.mark.fault
def test_a_prompt_beyond_the_context_gets_no_answer_and_is_no_fault(serve):
    server = serve(refusal(400, "This model's maximum context length is 4096 tokens", "context_length_exceeded"))
    answer = ask(server.policy())
    assert (answer.text, answer.finish) == ("", "context") and len(server.bodies) == 1
    assert "4096 tokens" in answer.refusal


def test_no_more_than_concurrency_at_once(serve):
    three = threading.Barrier(3)  # each answer waits for two others
    server = serve(lambda body: (three.wait(60), OK)[1])
    policy = server.policy(concurrency=3)

    async def many():
        return await asyncio.gather(*[policy.generate(request(turn)) for turn in range(12)])

    assert len(asyncio.run(many())) == 12
    assert server.most == 3


def test_a_policy_outlives_an_event_loop(serve):
    policy = serve(OK).policy()
    assert [ask(policy).text for _ in range(2)] == ["right", "right"]


@pytest.mark.fault
def test_episodes_lost_with_the_endpoint_are_reported_never_scored(serve):
    """Episodes of walk/0 take one turn; the server dies for good after two answers."""
    server = serve(OK, OK, refusal(500))
    on = entry(count=6, goal=1)
    by = player(on, make_pool(on, "inline"), policy=server.policy(retries=0, concurrency=1))
    report = asyncio.run(evaluate(by, on, tasks_of(on), {}))
    assert [o.ending for o in report.outcomes].count("env_error") == 4
    assert report.summary()["episodes"] == 2 and report.summary()["success_rate"] == 1.0
    assert report.summary()["usage"]["prompt_tokens"] == 20
    strict = player(on, make_pool(on, "inline"), policy=server.policy(retries=0), limits=Limits(fault_share=0.5))
    with pytest.raises(TooManyFaults, match=r"on task walk/.*openai:m gave no answer"):
        play_all(strict, tasks_of(on))
    with pytest.raises(TooManyFaults, match=r"lost to the environment or to the policy's endpoint, .*gave no answer"):
        asyncio.run(evaluate(strict, on, tasks_of(on), {}))


@pytest.mark.fault
def test_an_episode_is_tried_again_after_a_lost_answer(serve):
    server = serve(OK, refusal(500), OK)
    on = entry(count=1, goal=2)
    by = player(on, make_pool(on, "inline"), policy=server.policy(retries=0), limits=Limits(retries=1))
    (record,) = play_all(by, tasks_of(on))
    assert (record.ending, record.attempts, len(record.steps)) == (Status.DONE, 2, 2)
    # one answer before the loss and two after it, each of 10 prompt and 2 completion tokens: all three are paid for
    assert (record.usage["prompt_tokens"], record.usage["completion_tokens"]) == (30, 6)
    assert outcome(record, "walk").usage == record.usage


def test_words_of_the_command_line(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    plain = from_word("openai:gpt-x", temperature=0.5, max_tokens=9)
    assert plain.endpoint == Endpoint(model="gpt-x", temperature=0.5, max_tokens=9)
    placed = from_word("openai:@cf/meta/llama@http://localhost:8000/v1")
    assert (placed.endpoint.model, placed.endpoint.base_url) == ("@cf/meta/llama", "http://localhost:8000/v1")
    assert placed.describe()["base_url"] == "http://localhost:8000/v1" and placed.name == "openai:@cf/meta/llama"
    for word in ("openai:", "gpt-x"):
        with pytest.raises(ValueError, match="write openai:MODEL"):
            from_word(word)


def test_a_missing_key_is_one_sentence(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ValueError, match="set OPENAI_API_KEY"):
        from_word("openai:gpt-x")


def test_a_missing_package_is_one_sentence(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "openai", None)
    with pytest.raises(ValueError, match=r"pip install 'agentrl-stepgraph\[openai\]'"):
        from_word("openai:m@http://localhost/v1")


def test_a_description_holds_no_password(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://me:planted@host/v1?api_key=planted")
    for policy in (from_word("openai:m@http://me:planted@host/v1"), from_word("openai:m")):
        assert "planted" not in str(policy.describe()) and "host/v1" in str(policy.describe())


@pytest.mark.fault
def test_a_refusal_does_not_repeat_the_key(serve, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-planted-123456")
    body = b'{"error": {"message": "Incorrect API key provided: sk-planted-123456"}}'
    with pytest.raises(ValueError, match=r"refuses the request: .*Incorrect API key provided: ") as refused:
        ask(serve((401, {}, body)).policy())
    assert "planted" not in str(refused.value)


@pytest.mark.fault
@pytest.mark.parametrize("content", [{"answer": "right"}, [5], 5])
def test_an_answer_that_is_no_text_is_asked_for_again(serve, content):
    odd = json.loads(completion())
    odd["choices"][0]["message"]["content"] = content
    server = serve((200, {}, json.dumps(odd).encode()), (200, {}, completion()))
    assert ask(server.policy()).text == "right" and len(server.bodies) == 2


@pytest.mark.fault
@pytest.mark.parametrize("change", [{"choices": {"a": 1}}, {"choices": "abc"}, {"choices": [3]}, {"choices": []}])
def test_a_body_of_other_types_is_asked_for_again(serve, change):
    odd = {**json.loads(completion()), **change}
    server = serve((200, {}, json.dumps(odd).encode()), (200, {}, completion()))
    assert ask(server.policy()).text == "right"


@pytest.mark.fault
def test_an_answer_beyond_max_tokens_is_cut(serve):
    huge = serve((200, {}, completion("a" * 30_000_000)))
    answer = ask(huge.policy(max_tokens=10))
    assert len(answer.text) == 640 and answer.finish == "length"
