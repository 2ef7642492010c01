"""Programs that play tasks through the endpoint: functions of this process, and one to be started by a command.

Run as a program, the first word says what goes wrong, if anything.
"""

import json
import os
import sys
import time
import urllib.request
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentrl.rollout import AgentTask


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


def judged(task: "AgentTask") -> dict[str, Any]:
    """Pays short answers itself."""
    text = talk(task.base_url, task.api_key, task.instruction)
    return {"answer": text, "reward": 1 / (1 + len(text)), "success": len(text) < 10, "signals": {"chars": len(text)}}


def breaks(task: "AgentTask") -> str:
    talk(task.base_url, task.api_key, task.instruction)
    raise KeyError("what the model said")


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
