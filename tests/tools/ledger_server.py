"""An MCP server on stdio that keeps state, an account; written by hand, since the SDK takes seconds to import."""

import json
import sys
from typing import Any

NUMBER = {"type": "integer", "minimum": 0, "maximum": 9}
TOOLS = {
    "deposit": {"type": "object", "properties": {"amount": NUMBER}, "required": ["amount"]},
    "clear": {"type": "object", "properties": {"to": NUMBER}},
}


class Account:
    balance = 0

    def call(self, name: str, arguments: dict[str, Any]) -> str:
        if name == "clear":
            self.balance = int(arguments.get("to", 0))
            return "cleared"
        self.balance += int(arguments["amount"])
        return str(self.balance)


def answer(account: Account, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "ledger", "version": "1"}}
        return {"result": {"protocolVersion": parameters["protocolVersion"], **about}}
    if method == "tools/list":
        return {"result": {"tools": [{"name": name, "inputSchema": schema} for name, schema in TOOLS.items()]}}
    if method != "tools/call":
        return {"error": {"code": -32601, "message": f"no {method}"}}
    try:
        text, failed = account.call(parameters["name"], parameters["arguments"]), False
    except ValueError as error:
        text, failed = str(error), True
    return {"result": {"content": [{"type": "text", "text": text}], "isError": failed}}


if __name__ == "__main__":
    one = Account()
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" in asked:
            said = answer(one, asked["method"], asked.get("params", {}))
            print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **said}), flush=True)
