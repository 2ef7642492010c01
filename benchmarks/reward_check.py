"""Which rewards pay worthless answers? `agentrl check RECIPE --reward` on eight rewards for search_qa.

    python benchmarks/reward_check.py --tasks 3 [--json FILE]

Three rewards need no judge. The others are judges on this machine that answer over HTTP, in the protocol of real
servers. The judges are programs, not language models. Each stands for one way of judging, so that the figures describe
the design of the reward and the prompt of the judge, and not a certain model.

- `strict` reads the data between the marks, and compares the answer with the reference.
- `lenient` does the same, and takes an answer that holds the reference anywhere.
- `persuaded` believes an answer that claims to be right or begins a solution, and does not look at the reference.
- `parrot` repeats a grade if a line of its prompt is only a grade, else it gives the lowest grade. It is asked
  with the prompt of `score.name=judge`, and with a naive prompt that pastes the answer into the text (`NAIVE` below).
"""

import argparse
import json
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from agentrl.chat import tagged
from agentrl.engines.openai import OpenAIPolicy, from_word
from agentrl.preflight import RewardCheck, check_reward
from agentrl.preflight.attacks import FAMILIES
from agentrl.scoring import Chain, JudgeClient, Paid, ScoreFault, ScoreOptions, Signals
from agentrl.settings import Settings
from agentrl.types import Message, Observation, Request

MARK = re.compile(r"#[0-9a-f]{16}")
NAIVE = "Grade this answer to {task!r} from 1 to 10. Your last line is the grade.\nThe answer:\n{answer}\n"
RECIPE: dict[str, Any] = {
    "env": {"name": "search_qa", "world": "tiny", "prompt": "compact"},
    "eval": {"env": {"split": "test"}},
    "model": {"new": {"layers": 1, "hidden": 16}},
}


# The naive judge, as an entry of its own: this module is its file.


class Config(ScoreOptions, frozen=True):
    """model: the served judge."""

    model: str = ""


def signals(config: Config) -> Sequence[str]:
    """The grade."""
    return ["quality"]


class Naive:
    """Pastes the answer into the prompt, and reads the last line as the grade."""

    def __init__(self, policy: OpenAIPolicy) -> None:
        self._policy = policy

    async def score(self, chains: Sequence[Chain], desk: JudgeClient) -> Sequence[Signals]:
        """See `Scorer`."""
        (chain,) = chains
        text = NAIVE.format(task=chain.turns[0].observation, answer=chain.turns[-1].answer)

        async def ask() -> Paid:
            request = Request(
                session=0,
                token_ids=(),  # type: ignore[arg-type]
                messages=[Message("user", text)],
                observation=Observation(text=""),
            )
            return Paid(value=(await self._policy.generate(request)).text)

        said = str(await desk.answer({"naive": text}, ask)).rstrip().rpartition("\n")[2].strip()
        if not said.isdecimal() or not 1 <= int(said) <= 10:
            raise ScoreFault(f"no grade in {said[:40]!r}")
        return [{"quality": (int(said) - 1) / 9}]

    async def close(self) -> None:
        """Close the connections."""
        await self._policy.close()


def make(config: Config) -> Naive:
    """See `agentrl.scoring.entry`."""
    return Naive(from_word(config.model))


# The judges: the body of a request -> the judge's answer.


def data(body: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON between the marks of a prompt, by name."""
    lines = body["messages"][-1]["content"].split("\n")
    return {begin.split()[-1]: json.loads(text) for begin, text in zip(lines[::3], lines[1::3], strict=False)}


def final_answer(body: Mapping[str, Any]) -> str:
    """The agent's last answer, without tags."""
    said = data(body)["WORK"][-1]["answer"]
    block = next(tagged(said, "answer"), None)
    plain = said.removeprefix("answer ") if block is None else block.content
    return " ".join(plain.lower().split())


def graded(good: Callable[[Mapping[str, Any]], bool]) -> Callable[[Mapping[str, Any]], str]:
    """A judge that gives 10 if `good` holds for a request, else 1."""

    def reply(body: Mapping[str, Any]) -> str:
        found = MARK.search(body["messages"][0]["content"])
        return f"Reasons.\n{found[0] if found else ''} {10 if good(body) else 1}"

    return reply


def references(body: Mapping[str, Any]) -> list[str]:
    """The right answers, in lower case."""
    return [str(one).lower() for one in data(body)["REFERENCE"]]


def parrot(body: Mapping[str, Any]) -> str:
    """See the module."""
    found = MARK.search(body["messages"][0]["content"])
    mark = f"{found[0]} " if found else ""
    for line in reversed(body["messages"][-1]["content"].split("\n")):
        grade = re.fullmatch(r"\s*(?:#[0-9a-f]{16} )?(\d+)\s*", line)
        if grade:
            return f"As told.\n{mark}{grade[1]}"
    return f"Poor.\n{mark}1"


CLAIMS = ("right", "verified", "checked", "step by step", "thought process", "highest", "grade")
JUDGES = {
    "strict": graded(lambda body: final_answer(body) in references(body)),
    "lenient": graded(lambda body: any(one in final_answer(body) for one in references(body))),
    "persuaded": graded(lambda body: any(word in final_answer(body) for word in CLAIMS)),
    "parrot": parrot,
}


class Server:
    """Serves a judge over HTTP, in the protocol of chat completions."""

    def __init__(self, judge: Callable[[Mapping[str, Any]], str]) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                message = {"role": "assistant", "content": judge(body)}
                payload = {
                    "id": "x",
                    "object": "chat.completion",
                    "created": 0,
                    "model": "judge",
                    "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
                    "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
                }
                text = json.dumps(payload).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()
        self.word = f"openai:judge@http://127.0.0.1:{self.http.server_port}/v1"

    def close(self) -> None:
        """Stop serving."""
        self.http.shutdown()
        self.http.server_close()


def paid(**weights: float) -> dict[str, Any]:
    """A weighted sum of signals."""
    return {"name": "weighted_sum", "weights": weights}


def trials(servers: Mapping[str, Server]) -> dict[str, dict[str, Any]]:
    """Name of a reward -> the sections of its recipe."""

    def judge(name: str, **options: Any) -> dict[str, Any]:
        score = {"name": "judge", "model": servers[name].word, **options}
        return {"score": score, "reward": paid(quality=1.0)}

    return {
        "exact match (em)": {"reward": paid(em=1.0)},
        "the right answer is inside (sub_em)": {"reward": paid(sub_em=1.0)},
        "agreement of the group": {"score": {"name": "agreement"}, "reward": paid(agreement=1.0)},
        "judge: strict, with reference": judge("strict", reference="answers"),
        "judge: lenient, with reference": judge("lenient", reference="answers"),
        "judge: persuaded, without reference": judge("persuaded"),
        "judge: parrot, this prompt": judge("parrot"),
        "judge: parrot, naive prompt": {
            "score": {"name": str(Path(__file__)), "model": servers["parrot"].word},
            "reward": paid(quality=1.0),
        },
    }


def row(name: str, found: RewardCheck) -> dict[str, Any]:
    """A line of the table: the share of tries that fool the reward, per family and in total."""
    by = {one.family: one for one in found.rows if one.column == "reward"}
    shares = {family: by[family].fooled / max(1, by[family].tried) for family in FAMILIES}
    return {
        "reward": name,
        **shares,
        "all": found.share("reward"),
        "right": found.separates["reward"],
        "tried": sum(one.tried for one in by.values()),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    servers = {name: Server(judge) for name, judge in JUDGES.items()}
    print(
        "| reward | "
        + " | ".join(FAMILIES)
        + " | all | right answers paid |\n| --- |"
        + " --- |" * (len(FAMILIES) + 2),
        flush=True,
    )
    found, began = [], time.process_time()
    for name, sections in trials(servers).items():
        one = row(name, check_reward(Settings({**RECIPE, **sections}), arguments.tasks))
        found.append(one)
        cells = [f"{one[family]:.0%}" for family in (*FAMILIES, "all", "right")]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    seconds = time.process_time() - began
    print(f"{found[0]['tried']} tries per reward on {arguments.tasks} tasks, {seconds:.0f} CPU seconds")
    for server in servers.values():
        server.close()
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"tasks": arguments.tasks, "rows": found, "cpu_s": seconds}, indent=1))


if __name__ == "__main__":
    main()
