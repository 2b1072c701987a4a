"""A server whose messages hold more than anybody needs, on standard output or over HTTP.

`crowded_server.py KIND` speaks the protocol by itself; a test serves `answer` over HTTP.
"""

import json
import sys
from typing import Any

OPEN = {"type": "object", "properties": {}}
TOOL = {"name": "dump", "inputSchema": OPEN}
UNKNOWN_PARTS = 300_000
KEYS = 300_000
TEXT_CHARS = 14 * UNKNOWN_PARTS
"""As long as the message with the parts."""
PAGE_CHARS = 3_000_000


def call_tool(kind: str) -> dict[str, Any]:
    match kind:
        case "parts":
            return {"content": [{"type": "a"}] * UNKNOWN_PARTS}
        case "nan":
            # Not every reader of JSON takes this word, but the SDK's does.
            return {"content": [{"type": "a"}] * UNKNOWN_PARTS, "x": float("nan")}
        case "keys":
            return {"content": [], "structuredContent": {f"k{at}": at for at in range(KEYS)}}
        case "deep":
            return {"content": [], "_meta": {"a": [[]] * 1_000_000}}
        case "text values":
            text = "[" + ",".join(["[]"] * UNKNOWN_PARTS) + "]"
            return {"content": [{"type": "text", "text": text}] * 4, "structuredContent": {"a": 1}}
        case "few values":
            return {
                "content": [{"type": "text", "text": '{"a": 1}'}],
                "structuredContent": {"a": 1},
            }
        case "few parts":
            return {"content": [{"type": "a"}] * 3_000}
        case "table":
            rows = [{"id": at, "name": f"n{at}"} for at in range(10_000)]
            return {"content": [], "structuredContent": {"rows": rows}}
        case _:
            return {"content": [{"type": "text", "text": "x" * TEXT_CHARS}]}


def list_tools(kind: str, cursor: str | None) -> dict[str, Any]:
    if kind == "tools":
        return {"tools": [{}] * 50_000}
    if kind == "pages":
        page = int(cursor or 0) + 1
        tool = {**TOOL, "name": f"tool{page}", "_meta": {"about": "x" * PAGE_CHARS}}
        return {"tools": [tool], "nextCursor": str(page)}
    return {"tools": [TOOL]}


def answer(kind: str, message: dict[str, Any]) -> dict[str, Any]:
    match message["method"]:
        case "initialize":
            version = message["params"]["protocolVersion"]
            info = {"name": "crowded", "version": "1"}
            capabilities = {"tools": {}}
            result = {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info}
        case "tools/list":
            result = list_tools(kind, (message.get("params") or {}).get("cursor"))
        case "tools/call":
            result = call_tool(kind)
        case method:
            error = {"code": -32601, "message": f"no {method}"}
            return {"jsonrpc": "2.0", "id": message["id"], "error": error}
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def ask_for_a_reply() -> str:
    """Ask with 300,000 messages, and return what the client says."""
    content = {"type": "text", "text": "x"}
    params = {"messages": [{"role": "user", "content": content}] * UNKNOWN_PARTS, "maxTokens": 9}
    method = "sampling/createMessage"
    send({"jsonrpc": "2.0", "id": "q1", "method": method, "params": params})
    return json.dumps(json.loads(sys.stdin.readline()))


def main(kind: str) -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        if kind == "lines" and message["method"] == "tools/call":
            sys.stdout.write("\n{}\n" * 100_000)
        if kind == "asks" and message["method"] == "tools/call":
            text = ask_for_a_reply()
            content = [{"type": "text", "text": text}]
            send({"jsonrpc": "2.0", "id": message["id"], "result": {"content": content}})
        else:
            send(answer(kind, message))


if __name__ == "__main__":
    main(sys.argv[1])
