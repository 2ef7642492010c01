"""Evaluations of a served model on the command line, against a stand-in server that speaks the true protocol."""

import json
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentrl.cli import _eval_session, main
from agentrl.evaluate import read_episode, stored_episodes, wilson, without_answer
from agentrl.graph import read_graph
from tests.evaluate.stand_in import StandIn, answer, error, is_probe

pytest.importorskip("openai")
SUMS, WALK = "tests.toys.sums", "tests.toys.walk"
Start = Callable[[Callable[[dict[str, Any]], Any]], StandIn]


@pytest.fixture
def serve() -> Iterator[Start]:
    servers: list[StandIn] = []

    def start(reply: Callable[[dict[str, Any]], Any]) -> StandIn:
        servers.append(StandIn(reply))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def walks(body: dict[str, Any]) -> dict[str, Any]:
    """Goes to the right, which is the way to the goal."""
    return answer("right")


def adds(body: dict[str, Any]) -> dict[str, Any]:
    """Calls the tool `add` with both numbers, then answers with its result."""
    last = body["messages"][-1]
    if is_probe(body) or last["role"] == "tool":
        return answer(last["content"])
    a, b = re.findall(r"\d+", last["content"])
    return answer(None, calls=[("add", json.dumps({"a": int(a), "b": int(b)}))], reasoning_content="a tool can add")


def evaluated(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, Any]:
    """The report that `agentrl eval` prints as JSON."""
    assert main(["eval", *words, "--json"]) == code
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


def test_tools_go_as_data_and_the_history_follows_the_protocol(serve, capsys, tmp_path):
    server, out = serve(adds), tmp_path / "r.json"
    report = evaluated(capsys, SUMS, "--policy", server.word, "--tasks", "6", "--out", str(out))
    assert report["success_rate"] == 1.0 and report["policy"]["tool_calls"] == "native" and server.broken == []
    assert "tools and calls as data (native)" in report["played"]
    first, second = (body for body in server.played if "What is 0 + 3?" in body["messages"][0]["content"])
    assert {tool["function"]["name"] for tool in first["tools"]} >= {"add", "fail", "give_up"}
    assert "add" not in first["messages"][0]["content"]  # no text describes the tools
    asked, result = second["messages"][-2:]
    assert asked["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a": 0, "b": 3}'}
    assert result == {"role": "tool", "tool_call_id": asked["tool_calls"][0]["id"], "content": "3"}
    # The stored graph has the calls as data, the reasoning and the tool's message.
    stored = read_episode(stored_episodes(tmp_path / "r.episodes")[3])
    assert json.loads(stored.graph.texts["calls"][0])[0]["name"] == "add"
    assert stored.graph.texts["thought"][0] == "a tool can add"
    assert json.loads(stored.graph.texts["asked"][1]) == [{"role": "tool", "content": "3", "name": "add"}]


def test_a_server_that_refuses_tools_gets_them_as_text(serve, capsys):
    def reply(body: dict[str, Any]) -> Any:
        if body.get("tools"):
            return 400, error('"auto" tool choice requires --enable-auto-tool-choice')
        last = body["messages"][-1]["content"]
        numbers = re.findall(r"\d+", last)
        if len(numbers) == 2:
            return answer(
                f'<tool_call>{{"name": "add", "arguments": {{"a": {numbers[0]}, "b": {numbers[1]}}}}}</tool_call>'
            )
        return answer(last)

    server = serve(reply)
    report = evaluated(capsys, SUMS, "--policy", server.word, "--tasks", "3")
    assert report["success_rate"] == 1.0 and report["policy"]["tool_calls"] == "text"
    assert "tools and calls as text (hermes)" in report["played"]
    assert all("tools" not in body for body in server.played)
    assert "<tools>" in server.played[0]["messages"][0]["content"]
    assert main(["eval", SUMS, "--policy", server.word, "--tasks", "3", "endpoint.tool_calls=native"]) == 2
    assert "refuses tools as data: set endpoint.tool_calls=text" in capsys.readouterr().err


def test_broken_and_several_calls_keep_the_protocol(serve, capsys):
    def reply(body: dict[str, Any]) -> Any:
        if any(message["role"] == "tool" for message in body["messages"]):
            return answer("5")
        return answer("Let me see.", calls=[("add", '{"a": 1, '), ("add", '{"a": 2, "b": 3}'), ("nope", "[1]")])

    server = serve(reply)
    report = evaluated(capsys, SUMS, "--policy", server.word, "--tasks", "1")
    assert server.broken == [] and report["invalid_share"] == 0.5  # the first of two answers has malformed calls
    results = [message["content"] for message in server.played[-1]["messages"] if message["role"] == "tool"]
    assert len(results) == 3 and "not valid" in results[0] and results[1] == "5" and "not valid" in results[2]


def test_a_server_that_ignores_tools_is_named(serve, capsys):
    report = evaluated(capsys, SUMS, "--policy", serve(walks).word, "--tasks", "2")
    assert report["failures"]["answers.no_call"]["line"] == (
        "2 of 2 answers called no tool; if the model can call tools, try endpoint.tool_calls=text; such as 'right'"
    )


@pytest.mark.parametrize(
    ("reply", "kind", "line"),
    [
        (
            answer("", reasoning_content="Let me think"),
            "answers.empty",
            "4 of 4 answers were empty; reasoning_content had text, although the answer ended by itself: the server's "
            "reasoning parser took the whole answer for reasoning",
        ),
        (
            answer("", reasoning_content="Let me think", finish="length", tokens=512),
            "answers.empty",
            "reasoning_content had text and the token limit was reached: raise limits.turn_tokens; such as 'Let me",
        ),
        (
            answer(None, finish="length", tokens=512),
            "answers.empty",
            "the token limit was reached: raise limits.turn_tokens",
        ),
        (
            answer(None, finish="length", tokens=510),
            "answers.empty",
            "the token limit was reached: the server ended an answer after 510 tokens, and the request allowed 512: "
            "raise the server's own limit, or its context length",
        ),
        (
            answer("<action> go", finish="length", tokens=511),
            "answers.cut",
            "4 of 4 answers were cut off at the token limit; raise limits.turn_tokens; such as '<action> go'",
        ),
        (
            answer("<action> go", finish="length"),
            "answers.cut",
            "4 of 4 answers were cut off at the token limit; the server ended an answer after 10 tokens, and the",
        ),
        (
            answer("I go. <action>look</action>"),
            "answers.no_format",
            "4 of 4 answers held an action, but lacked another part of the format; the missing part is <think> and "
            "</think>: the action was carried out, and the answer counts as invalid; such as 'I go. <action>look",
        ),
        (
            answer("<action>look</action>", reasoning_content="Let me think"),
            "answers.no_format",
            "the missing part is <think> and </think>; the server took the reasoning out of the text:",
        ),
        (answer("<think> a 门 </think><action>look</action>"), "answers.no_format", "without Chinese characters"),
        (answer("I would go."), "answers.no_action", "4 of 4 answers held no action that could be read"),
        (answer("I", finish="content_filter"), "answers.refused", "4 of 4 answers were refused by the model or broken"),
        (answer("I\u2019m sorry, but I can\u2019t help with that."), "answers.refused", "such as 'I\u2019m sorry, but"),
        (answer("Sorry, I would go."), "answers.no_action", "such as 'Sorry, I would go.'"),
        (answer(None, refusal="I cannot"), "answers.refused", "such as 'I cannot'"),
    ],
)
def test_failed_answers_are_told_apart(serve, capsys, reply, kind, line):
    server = serve(lambda body: reply)
    report = evaluated(capsys, "alfworld", "--policy", server.word, "--tasks", "2", "--turns", "2")
    assert list(report["failures"]) == [kind] and line in report["failures"][kind]["line"]
    assert report["failures"][kind]["share"] == 1.0 and report["invalid_share"] == 1.0
    assert main(["eval", "alfworld", "--policy", server.word, "--tasks", "2", "--turns", "2"]) == 0
    printed = capsys.readouterr()
    assert line in printed.out and "--failed" in printed.err


def test_answers_that_are_all_empty_are_named_last_and_in_comparisons(serve, capsys, tmp_path):
    empty, whole, other = (tmp_path / f"{name}.json" for name in ("empty", "whole", "other"))
    words = ("eval", WALK, "--tasks", "3", "--policy")
    server, good = serve(lambda body: answer("")), serve(walks)
    assert main([*words, server.word, "--out", str(empty)]) == 0
    last = capsys.readouterr().err.splitlines()[-1]
    assert (
        last.startswith("agentrl: warning: all ") and "answers were empty, so this success rate may say little" in last
    )
    assert last.endswith(f"read the answers: agentrl view {empty} --failed")
    assert main([*words, good.word, "--out", str(whole)]) == 0
    assert main([*words, good.word, "--out", str(other), "--turns", "7", "limits.retries=3"]) == 0
    assert "warning" not in capsys.readouterr().err
    assert main(["compare", str(empty), str(whole)]) == 0
    (note,) = capsys.readouterr().out.split("\nnote: ")[1:]
    assert re.match(r"in A, all \d+ answers were empty, so this success rate may say little", note)
    assert f"agentrl view {empty} --failed" in note
    assert main(["compare", str(whole), str(other), "--json"]) == 0
    (note,) = json.loads(capsys.readouterr().out)["notes"]  # limits.retries changes no episode
    assert note.startswith("limits.turns is 50 in A and 7 in B: the difference may come from these limits")


def test_the_share_of_answers_without_content():
    def found(**counts: int) -> dict[str, Any]:
        return {f"answers.{kind}": {"count": count, "of": 12} for kind, count in counts.items()}

    assert without_answer(found(empty=8, cut=4)) == (
        "all 12 answers were empty or cut off at a token limit (8 empty, 4 cut off at a token limit)"
    )
    assert without_answer(found(empty=11)) == "" and without_answer({}) == "" == without_answer(found(no_action=12))
    assert without_answer(found(empty=6), 0.5) == "6 of 12 answers were empty" and not without_answer(found(cut=5), 0.5)


@pytest.mark.parametrize(
    ("refused", "ending", "words"),
    [
        (error("This model's maximum context length is 512 tokens"), "context_limit", "serve the model with a longer"),
        (error("the request exceeds the available context size"), "context_limit", "available context size"),
        (error("The response was filtered", "content_filter"), "refused", "a content filter refused the prompt"),
    ],
)
def test_a_refused_prompt_is_an_ending_and_no_invalid_action(serve, capsys, tmp_path, refused, ending, words):
    server = serve(lambda body: answer("left") if is_probe(body) or len(body["messages"]) < 3 else (400, refused))
    out = tmp_path / "r.json"
    report = evaluated(capsys, WALK, "--policy", server.word, "--tasks", "3", "--out", str(out))
    assert report["endings"] == {ending: 3} and report["env_errors"] == 0 and report["episodes"] == 3
    assert report["invalid_share"] == 0.0 and report["mean_steps"] == 1.0
    assert words in report["failures"][f"episodes.{ending}"]["line"]
    assert main(["view", str(out), "--episode", "0"]) == 0
    (why,) = [
        line for line in capsys.readouterr().out.splitlines() if line.startswith("why it ended: Error code: 400 - ")
    ]
    assert refused["error"]["message"] in why  # openai 1.66 quotes the whole body


def test_a_prompt_that_never_fits_leaves_an_episode_without_steps(serve, capsys, tmp_path):
    server = serve(lambda body: answer("ready") if is_probe(body) else (400, error("maximum context length is 5")))
    words = (WALK, "--policy", server.word, "--tasks", "2", "--out", str(tmp_path / "r.json"))
    report = evaluated(capsys, *words)
    assert report["endings"] == {"context_limit": 2} and report["mean_steps"] == 0.0
    assert len(stored_episodes(tmp_path / "r.episodes")) == 2
    assert main(["view", str(tmp_path / "r.json"), "--episode", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["turns"] == []


def test_options_of_the_endpoint_reach_the_request_and_secrets_stay_out(serve, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("TEAM_SECRET", "planted-4711-secret")
    server, out = serve(walks), tmp_path / "r.json"
    (tmp_path / "served.toml").write_text(
        '[env]\ncount = 2\n[limits]\nturn_tokens = 77\n[endpoint]\nreasoning_effort = "low"\ntop_p = 0.5\n'
        'temperature = 0.25\nheaders = {X-Team = "${TEAM_SECRET}", X-Plain = "planted-in-plain"}\n'
    )
    report = evaluated(
        capsys, WALK, "--policy", server.word, "--recipe", str(tmp_path / "served.toml"), "--out", str(out),
        "endpoint.token_parameter=max_completion_tokens", "endpoint.extra_body.top_k=20", "endpoint.temperature=0.75",
        "endpoint.seeded=false", "endpoint.price_in=2", "endpoint.price_out=5", 'endpoint.api_key="${TEAM_SECRET}"',
    )  # fmt: skip
    body, headers = server.played[0], {name.lower(): value for name, value in server.headers[-1].items()}
    assert {key: body.get(key) for key in ("max_completion_tokens", "top_k", "top_p", "temperature", "seed")} == {
        "max_completion_tokens": 77, "top_k": 20, "top_p": 0.5, "temperature": 0.75, "seed": None
    }  # fmt: skip
    assert body["reasoning_effort"] == "low" and "max_tokens" not in body
    assert (headers["x-team"], headers["x-plain"]) == ("planted-4711-secret", "planted-in-plain")
    assert headers["authorization"] == "Bearer planted-4711-secret"
    files = [out, *(tmp_path / "r.episodes").iterdir()]
    assert not any(b"planted" in file.read_bytes() for file in files) and "planted" not in str(report)
    assert report["policy"]["headers"] == {"X-Team": "${TEAM_SECRET}", "X-Plain": "***"}
    # walk/0 takes one answer and walk/1 two: three answers of 100 and 10 tokens, at 2 and 5 USD per million
    assert report["usage"]["cost"] == pytest.approx(3 * (100 * 2 + 10 * 5) / 1e6) and report["tokens"] == 30


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["endpoint.timeout=3"], "unknown key endpoint.timeout: did you mean timeout_s"),
        (["endpoint.concurrency=0"], "endpoint.concurrency = 0"),
        (["endpoint.api_key=${NOT_SET_ANYWHERE}"], "endpoint.api_key asks for the environment variable NOT_SET"),
        (["endpoint.tool_calls=json"], "endpoint.tool_calls = 'json'"),
        (["endpoint.price_in=2"], "endpoint.price_in is set and endpoint.price_out is not"),
        (["endpoint.price_out=2"], "endpoint.price_out is set and endpoint.price_in is not"),
        (["--resume"], "--resume continues a stored evaluation: name its report with --out"),
        (["--recipe", "absent.toml"], "no such file: absent.toml"),
        (["--recipe", "odd.toml"], "odd.toml: unknown section [endpont]: did you mean endpoint?"),
        (["--samples", "0"], "argument --samples"),
        (["--out", "/proc/r.json"], "cannot write /proc/r.json"),
    ],
)
def test_mistakes_are_one_sentence_and_nothing_is_sent(serve, capsys, monkeypatch, tmp_path, words, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd.toml").write_text("[endpont]\nseeded = true\n")
    server = serve(walks)
    assert main(["eval", WALK, "--policy", server.word, *words]) == 2
    said = capsys.readouterr().err
    assert sentence in said and said.count("\n") == 1 and server.bodies == []
    assert [path.name for path in tmp_path.iterdir()] == ["odd.toml"]


def test_options_of_an_endpoint_belong_to_endpoints(capsys):
    assert main(["eval", WALK, "--policy", "random", "endpoint.timeout_s=3"]) == 2
    assert "endpoint.timeout_s is an option of openai: policies" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("refusal", "advice"),
    [
        ("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens'", "endpoint.token_parameter=max_completion"),
        ("Unrecognized request argument: reasoning_effort", "drop endpoint.reasoning_effort"),
        ("Unknown field: seed", "set endpoint.seeded=false"),
    ],
)
def test_a_refused_option_is_named_before_any_episode(serve, capsys, refusal, advice):
    server = serve(lambda body: (400, error(refusal)))
    assert main(["eval", WALK, "--policy", server.word]) == 2
    assert advice in capsys.readouterr().err and server.played == []


def test_nobody_at_the_address_is_told_at_once(serve, capsys):
    server = serve(walks)
    server.close()
    assert main(["eval", WALK, "--policy", server.word]) == 2
    assert re.search(
        r"no server answers at http://127.0.0.1:\d+/v1: .*refused.*start the server", capsys.readouterr().err
    )


def test_a_server_that_closes_the_connection_is_not_called_absent(serve, capsys):
    server = serve(lambda body: None)
    assert main(["eval", WALK, "--policy", server.word]) == 2
    said = capsys.readouterr().err
    assert "closed the connection without a whole answer" in said and "read the server's log" in said


def test_a_page_in_place_of_an_answer_is_refused_at_once(serve, capsys):
    server = serve(lambda body: (200, "<html>gateway" + "x" * 90))
    assert main(["eval", WALK, "--policy", server.word]) == 2
    said = capsys.readouterr().err
    assert "is no JSON (content type text/html), it begins with '<html>gateway" in said and "look for a proxy" in said
    assert len(server.bodies) == 1 and said.count("x" * 67) == 1 and "x" * 68 not in said


def test_a_server_that_fails_at_the_first_request_is_named_at_once(serve, capsys, monkeypatch):
    monkeypatch.setattr("agentrl.engines.openai.AGAIN_S", 0.01)
    server = serve(lambda body: (500, error("out of memory")))
    assert main(["eval", WALK, "--policy", server.word]) == 2
    said = capsys.readouterr().err
    assert "failed twice at a first short request: Error code: 500 - " in said and "out of memory" in said
    assert said.count("\n") == 1 and len(server.bodies) == 2 and server.played == []
    again = serve(lambda body: (503, error("loading")) if len(again.bodies) == 1 else walks(body))
    assert main(["eval", WALK, "--policy", again.word, "--tasks", "1"]) == 0


def test_a_model_that_is_lost_later_leaves_the_episodes_stored(serve, capsys, tmp_path):
    lost = error("The model `m` does not exist.")
    server = serve(lambda body: (404, lost) if len(server.played) > 4 else walks(body))
    words = [WALK, "--policy", server.word, "endpoint.concurrency=1", "--out", str(tmp_path / "r.json")]
    assert main(["eval", *words]) == 2
    said, stored = capsys.readouterr().err, len(stored_episodes(tmp_path / "r.episodes"))
    assert "openai:m refuses the request: Error code: 404" in said and said.count("\n") == 1
    assert f"; {stored} of 4 episodes are stored in {tmp_path}/r.episodes; continue with: agentrl eval" in said
    assert stored == 2  # walk/0 takes one answer and walk/1 two; the fifth answer is walk/2's second


def test_a_silent_server_is_named_with_its_limit(serve, capsys):
    server = serve(lambda body: server.stall())
    assert main(["eval", WALK, "--policy", server.word, "endpoint.probe_s=0.3"]) == 2
    assert "no answer to a first short request in 0.3 s (endpoint.probe_s)" in capsys.readouterr().err
    assert server.played == []


def test_limits_seconds_hold_while_a_server_is_silent_and_the_silence_is_told(serve, capsys, monkeypatch):
    monkeypatch.setattr(_eval_session, "LOOK_S", 0.05)
    monkeypatch.setattr(_eval_session, "SILENT_S", 0.2)
    server = serve(lambda body: walks(body) if is_probe(body) else server.stall())
    assert main(["eval", WALK, "--policy", server.word, "limits.seconds=2", "--json"]) == 0
    printed = capsys.readouterr()
    report = json.loads(printed.out)
    assert report["endings"] == {"time_limit": 4} and report["success_rate"] == 0.0
    assert "limits.seconds = 2 s had passed before the policy answered" in str(report["failures"])
    assert re.search(r"openai:m: no answer for \d+ s, 4 requests wait; .*endpoint.timeout_s = 120 s", printed.err)


def without_times(path: Path) -> dict[str, Any]:
    """A report without what may differ between two evaluations of the same tasks."""
    report: dict[str, Any] = json.loads(path.read_text())
    for outcome in report["outcomes"]:
        del outcome["seconds"]
    return {key: value for key, value in report.items() if key not in ("wall_seconds", "episode_files")}


@pytest.fixture
def interruptible():
    """Ctrl-C raises KeyboardInterrupt, also in a process that was started in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_stopped_evaluation_resumes_to_the_same_report(serve, capsys, tmp_path, interruptible):
    stop_at: list[int] = [4]

    def reply(body: dict[str, Any]) -> Any:
        if len(server.played) == stop_at[0]:
            raise_interrupt()
            time.sleep(0.5)
        return answer("right" if body["seed"] % 3 else "left")

    def raise_interrupt() -> None:
        import _thread

        _thread.interrupt_main()

    server = serve(reply)
    words = ["eval", WALK, "--policy", server.word, "--samples", "2", "--turns", "3", "endpoint.concurrency=1"]
    cut, whole = tmp_path / "cut.json", tmp_path / "whole.json"
    assert main([*words, "--out", str(cut)]) == 130
    said = capsys.readouterr().err
    stored = stored_episodes(tmp_path / "cut.episodes")
    assert 1 <= len(stored) < 8 and not cut.exists() and "Traceback" not in said
    assert f"stopped; {len(stored)} of 8 episodes are stored in {tmp_path}/cut.episodes; continue with: " in said
    stop_at[0] = -1
    assert main(["view", str(cut)]) == 2
    said = capsys.readouterr().err
    assert f"agentrl view {tmp_path}/cut.episodes shows the {len(stored)} episodes that are stored" in said
    assert main([*words, "--out", str(cut)]) == 2
    assert "add --resume to continue it, or remove the folder" in capsys.readouterr().err
    assert main([*words, "--seed", "1", "--out", str(cut), "--resume"]) == 2
    assert "holds the episodes of another evaluation (seed differs)" in capsys.readouterr().err
    before = len(server.played)
    assert main([*words, "--out", str(cut), "--resume"]) == 0
    resumed = len(server.played) - before
    assert main([*words, "--out", str(whole)]) == 0
    assert len(server.played) - before - resumed > resumed  # stored episodes are not paid for again
    assert without_times(cut) == without_times(whole)
    for one, other in zip(*(stored_episodes(tmp_path / f"{name}.episodes") for name in ("cut", "whole")), strict=True):
        assert read_graph(one).texts == read_graph(other).texts
    before = len(server.played)
    assert main([*words, "--out", str(whole), "--resume"]) == 0  # nothing is left to play
    assert len(server.played) == before
    shutil.rmtree(tmp_path / "whole.episodes")
    stored_report = whole.read_bytes()
    assert main([*words, "--out", str(whole), "--resume"]) == 2
    assert "so --resume has nothing to continue: leave --resume out" in capsys.readouterr().err
    assert whole.read_bytes() == stored_report and len(server.played) == before


def test_samples_of_a_task_differ_in_their_seeds_and_count_as_one_task(serve, capsys, tmp_path):
    server, out = serve(lambda body: answer("right" if body["seed"] % 2 else "left")), tmp_path / "r.json"
    words = (WALK, "--policy", server.word, "--tasks", "3", "--samples", "3", "--turns", "1", "goal=1")
    report = evaluated(capsys, *words, "--out", str(out))
    outcomes = json.loads(out.read_text())["outcomes"]
    assert [(o["task"], o["sample"]) for o in outcomes] == [(f"walk/{t}", s) for t in range(3) for s in range(3)]
    seeds = [body["seed"] for body in server.played]
    assert len(set(seeds)) == 9 and report["samples"] == 3 and report["episodes"] == 9
    won = [o["success"] for o in outcomes]
    assert report["per_sample"] == [sum(won[s::3]) / 3 for s in range(3)]
    assert report["per_task"] == {f"walk/{t}": sum(won[3 * t : 3 * t + 3]) / 3 for t in range(3)}
    assert evaluated(capsys, *words)["per_task"] == report["per_task"]  # the seeds repeat
    assert report["interval"] == list(wilson(sum(report["per_task"].values()), 3))  # three tasks, not nine


def test_view_lists_failures_first_and_shows_what_was_said(serve, capsys, tmp_path):
    server, out = serve(lambda body: answer("right")), tmp_path / "r.json"
    evaluated(capsys, WALK, "--policy", server.word, "--turns", "2", "--out", str(out))
    # Goals 1, 2, 3, 1 within two steps to the right: episode 2 fails.
    assert main(["view", str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:2] == ["2", "no"] and [line.split()[1] for line in lines[2:]] == ["yes"] * 3
    assert main(["view", str(out), "--failed", "--json"]) == 0
    (failed,) = json.loads(capsys.readouterr().out)
    assert failed["episode"] == 2 and failed["ending"] == "turn_limit"
    assert main(["view", str(out), "--episode", "2"]) == 0
    text = capsys.readouterr().out
    assert "[user]\nYou are at 0, the goal is 3.\nActions: left, right\n" in text and "[turn 1: agent]\nright\n" in text
    assert text.endswith("[the end]\nYou are at 2, the goal is 3.\n")
    assert main(["view", str(out), "--episode", "9"]) == 2
    assert "has no episode 9: its episodes are 0 to 3" in capsys.readouterr().err
    assert main(["view", str(tmp_path / "r.episodes")]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 5


def test_wall_time_is_named_so(serve, capsys):
    server = serve(lambda body: (time.sleep(0.2), answer("right"))[1])
    began = time.monotonic()
    report = evaluated(capsys, WALK, "--policy", server.word, "goal=1")
    assert 0.2 <= report["wall_seconds"] < time.monotonic() - began and "seconds" not in report
