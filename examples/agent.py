"""An agent written with the OpenAI SDK, unchanged: it does not know that it is trained.

    agentrl train agent.toml model.path=DIR    # in this folder; DIR: a model folder (agentrl model fetch smollm2)

agentrl starts this file once per episode. OPENAI_BASE_URL and OPENAI_API_KEY lead to the model in training,
AGENTRL_TASK is the task. What it prints is its answer, which the environment scores.
"""

import ast
import json
import operator
import os

import openai

TOOL = {
    "type": "function",
    "function": {
        "name": "calculate",
        "description": "Work out an expression such as (3+4)*2.",
        "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]},
    },
}
OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}


def calculate(arguments: str) -> str:
    """The value of the expression in a call's arguments, or what is wrong with it."""

    def value(node: ast.expr) -> int:
        if isinstance(node, ast.Constant) and isinstance(node.value, int) and abs(node.value) < 10**9:
            return node.value
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            return int(OPERATORS[type(node.op)](value(node.left), value(node.right)))
        raise ValueError("use whole numbers, +, - and *")

    try:
        return str(value(ast.parse(json.loads(arguments)["expression"][:200], mode="eval").body))
    except (ValueError, KeyError, TypeError, SyntaxError, RecursionError) as error:
        return f"error: {error}"


def main() -> None:
    """A loop of model and tool, as in any tutorial."""
    client = openai.OpenAI()  # reads OPENAI_BASE_URL and OPENAI_API_KEY
    messages = [
        {"role": "system", "content": "Solve the task. Give the number alone as your last answer."},
        {"role": "user", "content": os.environ["AGENTRL_TASK"]},
    ]
    for _ in range(4):
        reply = client.chat.completions.create(model="any", messages=messages, tools=[TOOL]).choices[0].message
        messages.append(reply.model_dump(exclude_none=True))
        if not reply.tool_calls:
            break
        for call in reply.tool_calls:
            result = calculate(call.function.arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    print(messages[-1].get("content") or "")


if __name__ == "__main__":
    main()
