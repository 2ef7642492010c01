"""A server of the MCP SDK on stdio: tools with output schemas that some of their results do not fit, on two pages."""

import asyncio
import os
from typing import Any

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

COUNT = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
TEXT = [types.TextContent(type="text", text="3 files")]
RESULTS: dict[str, dict[str, Any]] = {
    "fits": {"content": TEXT, "structured_content": {"count": 3}},
    "alone": {"content": [], "structured_content": {"count": 3}},
    "other shape": {"content": TEXT, "structured_content": {"total": 3}},
    "wrong type": {"content": [], "structured_content": {"count": "three"}},
    "text alone": {"content": TEXT},
    "fails": {"content": [types.TextContent(type="text", text="no disk")], "is_error": True, "structured_content": {}},
    "fails at a place": {"content": [], "is_error": True, "structured_content": {"at": 3}},
    "links": {
        "content": [types.ResourceLink(type="resource_link", uri="file:///a.txt", name="a")],
        "structured_content": {"count": 1},
    },
    "no object": {"content": TEXT, "structured_content": [3]},
    "long": {"content": [], "structured_content": {"count": "y" * 100_000}},
    "dies": {},
}


async def listed(context: Any, parameters: Any) -> Any:
    names = list(RESULTS)[:1] if parameters is None or not parameters.cursor else list(RESULTS)[1:]
    tools = [types.Tool(name=name, input_schema={"type": "object"}, output_schema=COUNT) for name in names]
    return types.ListToolsResult(tools=tools, next_cursor="2" if len(names) == 1 else None)


async def called(context: Any, parameters: Any) -> Any:
    if parameters.name == "dies":
        os._exit(3)
    return types.CallToolResult(**RESULTS[parameters.name])


async def main() -> None:
    server: Any = Server("structured", on_list_tools=listed, on_call_tool=called)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(main())
