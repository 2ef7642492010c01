"""The HTTP retriever against real servers: every dialect, and every way a server fails."""

import sys
import threading
import time

import pytest

from agentrl.tool import Passage, ToolFault
from agentrl.tools import search
from agentrl.tools.search import dialects, http
from agentrl.tools.search.gather import Gatherer
from agentrl.tools.search.http import Http, HttpConfig
from tests.tools.search.servers import server

DEAD = "http://127.0.0.1:9/retrieve"  # the discard port: nobody listens


def client(*urls: str, **options) -> Http:
    return Http(HttpConfig(urls=urls, **{"backoff_s": 0.01, "timeout_s": 60.0, **options}))


@pytest.mark.parametrize(
    ("dialect", "speaks"),
    [
        ("search_r1", "search_r1"),
        ("search_r1", "bare"),
        ("skyrl", "skyrl"),
        ("gem", "gem"),
        ("gem", "gem_lists"),
        ("rerank", "rerank"),
        ("serp", "serp"),
    ],
)
def test_each_dialect_gives_the_same_passages(dialect, speaks):
    with server(speaks) as url:
        got = client(url, dialect=dialect).search(["who", "where"], 2)
    assert [[p.title for p in one] for one in got] == [['"who 0"', '"who 1"'], ['"where 0"', '"where 1"']]
    assert all(p.text in ("about who", "about where") for one in got for p in one)
    expected = {"bare": [None, None], "serp": [None, None], "rerank": [0.5, 0.5]}.get(speaks, [1.0, 0.5])
    assert [p.score for p in got[0]] == expected
    assert len({p.id for one in got for p in one}) == 4  # a document without an id is named by its words


@pytest.mark.parametrize(
    "body", [b"", b"\xa5ab", b"\x92\x01", b"\x01\x02", b"\xc1", b"\xdd\xff\xff\xff\xff", b"\x81\x80\x01", b"\xa1\xff"]
)
def test_broken_msgpack_is_a_garbled_answer(body):
    with pytest.raises(dialects.Garbled, match=r"not msgpack: ['\w]"):
        dialects.read("gem", body, 1, 1)


def test_only_the_dialect_gem_needs_msgpack(monkeypatch):
    monkeypatch.setitem(sys.modules, "msgpack", None)
    client(DEAD).close()
    with pytest.raises(ValueError, match=r"dialect gem needs msgpack: pip install 'agentrl-stepgraph\[search\]'"):
        client(DEAD, dialect="gem")


def test_one_query_of_several_servers_shapes():
    with server() as url:
        assert len(client(url).search(["one"], 3)[0]) == 3
        assert client(url).search([], 3) == []


@pytest.mark.fault
@pytest.mark.parametrize("how", ["500:2", "429:2"])
def test_a_status_that_may_pass_is_asked_again(how):
    with server(how=how) as url:
        assert client(url, retries=2).search(["q"], 1)[0][0].id == "q/0"


@pytest.mark.fault
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("500:99", "500 busy"),
        ("rubbish", "is not JSON"),
        ("short", "0 lists of passages for 1 queries"),
        ("slow:5", "no answer in 0.2 s"),
        ("drip:0.1", "no answer in 0.2 s"),
        ("die:1", "disconnected|reset|refused"),
    ],
)
def test_a_server_that_does_not_come_round_is_a_fault_in_words(how, words):
    with server(how=how) as url, pytest.raises(ToolFault, match=words) as fault:
        client(url, retries=1, timeout_s=0.2 if how in ("slow:5", "drip:0.1") else 60.0).search(["q", "r"], 1)
    assert url in str(fault.value) and "2 tries" in str(fault.value)


@pytest.mark.fault
def test_a_refusal_is_not_asked_again():
    with server(how="refuse") as url, pytest.raises(ToolFault, match=r"refuses: 422 .*docs.*http\.dialect"):
        client(url, retries=9, backoff_s=30.0).search(["q"], 1)


@pytest.mark.fault
def test_nobody_there_says_how_to_start_one():
    with pytest.raises(ToolFault, match=r"gave no answer in 1 tries.*agentrl serve retriever"):
        client(DEAD, retries=0).search(["q"], 1)


@pytest.mark.fault
def test_a_dead_address_is_passed_over_and_rests():
    with server() as url:
        by = client(DEAD, url, retries=0)  # each address is tried at least once
        for i in range(4):
            assert by.search([f"q{i}"], 1)[0][0].id == f"q{i}/0"
        assert DEAD in by._resting and by._order()[-1] == DEAD


@pytest.mark.fault
def test_a_server_lost_between_two_queries_is_replaced_by_the_other():
    with server(how="die:2") as mortal, server() as other:
        by = client(mortal, other)
        assert [by.search([f"q{i}"], 1)[0][0].id for i in range(6)] == [f"q{i}/0" for i in range(6)]


def test_answers_are_kept_by_query_and_k():
    with server() as url:
        by = client(url)
        first = by.search(["q"], 2)
    assert by.search(["q"], 2) == first  # the server is gone
    with pytest.raises(ToolFault):
        by.search(["q"], 3)
    with server() as url:
        forgetful = client(url, cache=0, retries=0)
        forgetful.search(["q"], 2)
    with pytest.raises(ToolFault):
        forgetful.search(["q"], 2)


def test_connections_are_kept_and_concurrent_queries_travel_together():
    requests, connections = [], set()
    with server(how="slow:0.05") as url:
        by = client(url, connections=2)
        by._client.event_hooks["response"] = [
            lambda r: (requests.append(r), connections.add(r.extensions["network_stream"]))
        ]
        threads = [threading.Thread(target=by.search, args=([f"q{i}"], 1)) for i in range(24)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(by.search([f"q{i}"], 1)[0][0].id == f"q{i}/0" for i in range(24))  # from the cache: nothing asked
    assert len(requests) < 12 and len(connections) <= 2


@pytest.mark.fault
def test_one_bad_query_does_not_fail_the_others_of_its_request():
    outcome = {}

    def ask(by: Http, query: str) -> None:
        try:
            outcome[query] = by.search([query], 1)[0][0].id
        except ToolFault as fault:
            outcome[query] = fault

    with server(how="bad:poison") as url:
        by = client(url, connections=1, retries=0)
        threads = [threading.Thread(target=ask, args=(by, q)) for q in ("a", "b", "poison", "c", "d")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert isinstance(outcome.pop("poison"), ToolFault)
    assert outcome == {q: f"{q}/0" for q in "abcd"}


@pytest.mark.fault
def test_an_asker_that_is_interrupted_takes_nobody_with_it():
    """A deadline may be raised inside the request that a thread carries for others: those are asked for again."""
    entered, calls = threading.Event(), []

    class Interrupted(BaseException):
        pass

    def send(queries: list[str], k: int) -> list[list[Passage]]:
        calls.append(queries)
        if len(calls) == 2:  # the request that holds what waited meanwhile
            raise Interrupted
        entered.set()
        while len(calls) == 1 and len(gatherer._waiting) < 2:
            time.sleep(0.01)
        return [[Passage(q, q)] for q in queries]

    gatherer = Gatherer(send, most=8, lanes=1)
    got: dict[str, object] = {}

    def ask(query: str) -> None:
        try:
            got[query] = gatherer.ask([query], 1)[0][0].id
        except Interrupted as error:
            got[query] = error

    threads = [threading.Thread(target=ask, args=("first",))]
    threads[0].start()
    entered.wait()
    threads += [threading.Thread(target=ask, args=(q,)) for q in ("second", "third")]
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    interrupted = [q for q, value in got.items() if isinstance(value, Interrupted)]
    assert len(interrupted) == 1 and len(calls) == 3
    assert {q: v for q, v in got.items() if q not in interrupted} == {q: q for q in got if q not in interrupted}
    assert got["first"] == "first"


@pytest.mark.parametrize(
    ("url", "whole"),
    [("http://h:8000", "http://h:8000/retrieve"), ("https://h/", "https://h/retrieve"), ("http://h/x", "http://h/x")],
)
def test_an_address_without_a_path_gets_one(url, whole):
    assert HttpConfig(urls=(url,)).urls == (whole,)


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://h", "", "http://"])
def test_what_is_no_address_is_refused(url):
    with pytest.raises(ValueError, match=r"write http://HOST:PORT/retrieve"):
        HttpConfig(urls=(url,))


def test_the_tool_answers_a_model_in_words():
    with server() as url:
        tool = search.make(search.Config(backend="http", http=HttpConfig(urls=(url,)), top_k=2))
        assert tool("tea") == 'Doc 1(Title: "tea 0") about tea\nDoc 2(Title: "tea 1") about tea\n'


@pytest.mark.fault
def test_an_answer_too_large_is_a_fault(monkeypatch):
    monkeypatch.setattr(http, "ANSWER_BYTES", 20)
    with server() as url, pytest.raises(ToolFault, match="the answer is larger than 0 MB"):
        client(url, retries=0).search(["q"], 3)
