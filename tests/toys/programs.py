"""Programs that play tasks through the endpoint: functions of this process, and one to be started by a command.

Run as a program, the first word says what goes wrong, if anything.
"""

import asyncio
import json
import os
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentrl.programs import AgentTask


def ask(url: str, key: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
    request = urllib.request.Request(f"{url}/chat/completions", json.dumps({"messages": messages}).encode())
    request.add_header("authorization", f"Bearer {key}")
    with urllib.request.urlopen(request) as answer:
        message: dict[str, Any] = json.loads(answer.read())["choices"][0]["message"]
    return message


def talk(url: str, key: str, task: str) -> str:
    """Two turns of one conversation, and a question of a conversation beside it."""
    messages = [{"role": "user", "content": task}]
    messages.append(ask(url, key, messages))
    ask(url, key, [{"role": "user", "content": "Is it hard?"}])
    messages.append({"role": "user", "content": "Say it again."})
    return str(ask(url, key, messages)["content"])


def plain(task: "AgentTask") -> str:
    return talk(task.base_url, task.api_key, task.instruction)


def gathers(task: "AgentTask") -> dict[str, Any]:
    """A plan, two sub-agents at the same time of which the second asks twice, and an answer made of what they found."""
    messages = [{"role": "user", "content": task.instruction}]
    messages.append(ask(task.base_url, task.api_key, messages))

    def sub_agent(number: int) -> str:
        own = [{"role": "user", "content": f"Part {number} of {task.instruction}"}]
        for _ in range(number):
            own.append(ask(task.base_url, task.api_key, own))
            own.append({"role": "user", "content": "Are you sure?"})
        return str(own[-2]["content"])

    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(sub_agent, (1, 2)))
    messages.append({"role": "user", "content": " ".join(found)})
    text = str(ask(task.base_url, task.api_key, messages)["content"])
    return {"answer": text, "reward": 1 / (1 + len(text))}


async def votes(task: "AgentTask") -> dict[str, Any]:
    """Two answers to one request of the OpenAI SDK, and two questions at the same time about the second answer."""
    import openai

    async with openai.AsyncOpenAI(base_url=task.base_url, api_key=task.api_key) as client:
        ask_model = client.chat.completions.create
        messages: list[Any] = [{"role": "user", "content": task.instruction}]
        both = await ask_model(model="any", messages=messages, n=2)
        messages.append({"role": "assistant", "content": both.choices[1].message.content})
        questions = [[*messages, {"role": "user", "content": words}] for words in ("Why?", "Is it?")]
        said = await asyncio.gather(*(ask_model(model="any", messages=asked) for asked in questions))
    texts = [one.choices[0].message.content or "" for one in said]
    return {"answer": texts[0], "reward": 1 / (1 + sum(map(len, texts)))}


def judged(task: "AgentTask") -> dict[str, Any]:
    """Pays short answers itself."""
    text = talk(task.base_url, task.api_key, task.instruction)
    return {"answer": text, "reward": 1 / (1 + len(text)), "success": len(text) < 10, "signals": {"chars": len(text)}}


def breaks(task: "AgentTask") -> str:
    talk(task.base_url, task.api_key, task.instruction)
    raise KeyError("what the model said")


def act(task: "AgentTask", **body: Any) -> tuple[int, dict[str, Any]]:
    """The HTTP status of an action in the episode's environment, and what it gives."""
    request = urllib.request.Request(f"{task.base_url}/agentrl/act", json.dumps(body).encode())
    request.add_header("authorization", f"Bearer {task.api_key}")
    try:
        with urllib.request.urlopen(request) as answer:
            return 200, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def adds(task: "AgentTask") -> dict[str, Any]:
    """Asks, has the environment's tool add, and answers; what was refused is told as signals."""
    early, _ = act(task, name="add", arguments={"a": 1, "b": 1})
    ask(task.base_url, task.api_key, [{"role": "user", "content": task.instruction}])
    wrong, _ = act(task, name="add", arguments=[1])
    a, b = (int(word) for word in task.instruction.rstrip("?").split() if word.isdecimal())
    status, seen = act(task, name="add", arguments={"a": a, "b": b})
    assert status == 200 and seen["over"] is False
    return {"answer": seen["observation"], "signals": {"early": early, "wrong": wrong}}


def says_nothing(task: "AgentTask") -> str:
    """Has the environment's tool add, and ends without an answer."""
    ask(task.base_url, task.api_key, [{"role": "user", "content": task.instruction}])
    act(task, name="add", arguments={"a": 1, "b": 1})
    return ""


def gives_up(task: "AgentTask") -> dict[str, Any]:
    """Ends the task by a tool, and then goes on asking and acting."""
    talk(task.base_url, task.api_key, task.instruction)
    _, seen = act(task, action='{"calls": [{"name": "give_up", "arguments": {}}]}')
    again, _ = act(task, name="add", arguments={"a": 1, "b": 1})
    try:
        ask(task.base_url, task.api_key, [{"role": "user", "content": "And now?"}])
    except urllib.error.HTTPError as error:
        return {"answer": "9", "signals": {"over": float(seen["over"]), "again": again, "asked": error.code}}
    return {"answer": "it was answered"}


def adds_and_breaks(task: "AgentTask") -> str:
    adds(task)
    raise KeyError("after the action")


def loses(task: "AgentTask") -> str:
    """Its action meets a fault of the environment."""
    ask(task.base_url, task.api_key, [{"role": "user", "content": task.instruction}])
    status, told = act(task, name="fail", arguments={"how": "lost"})
    return f"{status} {told}"


def main(how: str) -> int:
    url, key, task = (os.environ[name] for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "AGENTRL_TASK"))
    if how == "early":
        raise RuntimeError("no such library")
    text = talk(url, key, task)
    if how == "hangs":
        time.sleep(600)
    if how == "late":
        raise RuntimeError("cannot read this answer")
    if how == "garbage":
        with open(os.environ["AGENTRL_RESULT"], "w") as file:
            file.write("{" if int(os.environ["AGENTRL_SEED"]) >= 0 else "")
    elif how == "file":
        with open(os.environ["AGENTRL_RESULT"], "w") as file:
            json.dump({"answer": text, "reward": 0.25}, file)
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
