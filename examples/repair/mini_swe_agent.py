"""mini-swe-agent repairs repositories in agentrl's sandbox, with its own loop, prompts and model class.

    agentrl train mini_swe_agent.toml agents.main.command="PYTHON mini_swe_agent.py" model.path=DIR

in this folder. PYTHON: a Python with `pip install mini-swe-agent mcp`; it needs no agentrl. One class below stands in
for mini-swe-agent's own `LocalEnvironment`: a command goes to the episode's environment, which runs it in the sandbox.
"""

import json
import os
import platform
import re
import urllib.request

os.environ.setdefault("MSWEA_SILENT_STARTUP", "1")
os.environ.setdefault("MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT", "1")  # a refusal is the end of the episode
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # no network

import litellm
import yaml
from minisweagent.agents.default import DefaultAgent
from minisweagent.config import builtin_config_dir
from minisweagent.exceptions import Submitted
from minisweagent.models.litellm_model import LitellmModel

WHERE = {"api_base": os.environ["OPENAI_BASE_URL"], "api_key": os.environ["OPENAI_API_KEY"]}
DONE = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
litellm.suppress_debug_info = True  # it would print to stdout, and what this program prints is the episode's answer


class Sandbox:
    """Runs commands by the tool `shell` of the episode's environment."""

    def execute(self, action: dict, cwd: str = "") -> dict:
        """What a command printed, and its exit code; a command that prints `DONE` ends the agent."""
        body = json.dumps({"name": "shell", "arguments": {"command": action.get("command", "")}}).encode()
        request = urllib.request.Request(f"{WHERE['api_base']}/agentrl/act", body)
        request.add_header("authorization", f"Bearer {WHERE['api_key']}")
        with urllib.request.urlopen(request) as answer:
            output = json.loads(answer.read())["observation"]
        head, _, last = output.rpartition("\n")
        ended = re.fullmatch(r"exit code (-?\d+)", last)  # the last line of a command that failed
        code = int(ended[1]) if ended else 0
        if code == 0 and output.split("\n")[0].strip() == DONE:
            raise Submitted({"role": "exit", "content": "", "extra": {"exit_status": "Submitted", "submission": ""}})
        return {"output": head if code else output, "returncode": code, "exception_info": ""}

    def get_template_vars(self, **more: object) -> dict:
        """What mini-swe-agent's prompts say about the machine."""
        return {"system": "Linux", "release": "", "version": "", "machine": platform.machine(), **more}

    def serialize(self) -> dict:
        """Nothing is kept in a trajectory file."""
        return {}


def main() -> None:
    """mini-swe-agent's loop, until it submits or the model in training refuses to go on."""
    settings = yaml.safe_load((builtin_config_dir / "mini.yaml").read_text("utf-8"))
    model = LitellmModel(
        model_name="openai/any", cost_tracking="ignore_errors", **{**settings["model"], "model_kwargs": WHERE}
    )
    templates = {name: text for name, text in settings["agent"].items() if name.endswith("_template")}
    agent = DefaultAgent(model, Sandbox(), **templates)
    try:
        ended = agent.run(os.environ["AGENTRL_TASK"])
        print(f"ended: {ended.get('exit_status')}")  # the episode's answer, by which the repository is handed in
    except litellm.exceptions.BadRequestError as refusal:  # a limit of the episode or the context is used up
        print(f"stopped: {refusal.message[:200]}")


if __name__ == "__main__":
    main()
