"""An MCP server with one tool and no library: it starts fast and ends with its input."""

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
    request = json.loads(line)
    if "id" not in request or "method" not in request:
        continue
    answer: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
    result = answer_method(request["method"], request.get("params") or {})
    if result is None:
        answer["error"] = {"code": -32601, "message": "unknown method"}
    else:
        answer["result"] = result
    print(json.dumps(answer), flush=True)
