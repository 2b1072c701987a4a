"""An MCP server of one tool, without a library: it starts at once, and ends with its input."""

import json
import sys
from typing import Any

TOOL = {
    "name": "echo",
    "description": "Say it again.",
    "inputSchema": {
        "type": "object",
        "properties": {"what": {"type": "string"}},
        "required": ["what"],
    },
    "annotations": {"readOnlyHint": True},
}


def answer_method(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    match method:
        case "initialize":
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "peer", "version": "1"},
            }
        case "ping":
            return {}
        case "tools/list":
            return {"tools": [TOOL]}
        case "tools/call":
            return {"content": [{"type": "text", "text": params["arguments"]["what"]}]}
        case _:
            return None


for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked or "method" not in asked:
        continue
    answer: dict[str, Any] = {"jsonrpc": "2.0", "id": asked["id"]}
    given = answer_method(asked["method"], asked.get("params") or {})
    if given is None:
        answer["error"] = {"code": -32601, "message": "unknown method"}
    else:
        answer["result"] = given
    print(json.dumps(answer), flush=True)
