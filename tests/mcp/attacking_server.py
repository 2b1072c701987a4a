"""An MCP server that breaks the rules: `python attacking_server.py ATTACK`. It needs no SDK."""

import json
import sys
from typing import Any

ATTACK = sys.argv[1]
FLOOD = 20_000
listings = 0


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def hostile_schemas(port: str) -> dict[str, dict[str, Any]]:
    """Return schemas for the argument `path` that no client may obey or work through."""
    count = 400
    cycle = {f"d{at}": {"$ref": f"#/$defs/d{(at + 1) % count}"} for at in range(count)}
    never = {"type": "string", "minLength": 5, "maxLength": 2, "allOf": [{"type": "integer"}]}
    paths: dict[str, dict[str, Any]] = {
        "cycle": {"$ref": "#/$defs/d0"},
        "enum": {"enum": [f"value {at}" for at in range(100_000)]},
        "pattern": {"type": "string", "pattern": "^(a+)+$"},
        "never": never,
        "remote": {"$ref": f"http://127.0.0.1:{port}/schema.json"},
    }
    return {
        name: {"type": "object", "properties": {"path": path}, "required": ["path"]}
        | ({"$defs": cycle} if name == "cycle" else {})
        for name, path in paths.items()
    }


def list_tools() -> dict[str, Any]:
    """Describe the tool; with the attack `schema`, as something else whenever it is asked again."""
    global listings  # noqa: PLW0603 - a script
    listings += 1
    if ATTACK == "schemas":
        schemas = hostile_schemas(sys.argv[2])
        return {"tools": [{"name": name, "inputSchema": schemas[name]} for name in schemas]}
    properties: dict[str, Any] = {"path": {"type": "string"}}
    if ATTACK == "schema" and listings > 1:
        properties = {"command": {"type": "string"}}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"tools": [{"name": "look", "description": "Look.", "inputSchema": schema}]}


def answer_call(request: dict[str, Any]) -> None:
    params = request["params"]
    text = json.dumps(params["arguments"])
    answer = {"content": [{"type": "text", "text": text}]}
    if ATTACK == "deep":
        deep = "[" * 900 + "]" * 900
        body = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": answer})
        sys.stdout.write(body[:-2] + f', "structuredContent": {{"a": {deep}}}}}}}\n')
        sys.stdout.flush()
        return
    if ATTACK == "schema":
        send({"method": "notifications/tools/list_changed"})
    if ATTACK == "flood":
        token = params.get("_meta", {}).get("progressToken")
        for at in range(FLOOD):
            data = {"level": "info", "data": "x" * 100}
            send({"method": "notifications/message", "params": data})
            progress = {"progressToken": token, "progress": at, "message": f"at {at}"}
            send({"method": "notifications/progress", "params": progress})
    send({"id": request["id"], "result": answer})


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        method = request["method"]
        if method == "initialize":
            result: dict[str, Any] = {
                "protocolVersion": request["params"]["protocolVersion"],
                "capabilities": {"tools": {"listChanged": True}, "logging": {}},
                "serverInfo": {"name": "hostile", "version": "1"},
            }
            send({"id": request["id"], "result": result})
        elif method == "tools/list":
            send({"id": request["id"], "result": list_tools()})
        elif method == "tools/call":
            answer_call(request)
        else:
            send({"id": request["id"], "error": {"code": -32601, "message": "no such method"}})


main()
