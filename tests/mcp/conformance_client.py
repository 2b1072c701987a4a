"""What the official conformance suite starts: `conformance_client.py SOCKET URL`.

It passes the scenario on to the process that plays the client (`mcp_scenarios.py`).
"""

import json
import os
import socket
import sys


def main(place: str, url: str) -> int:
    asked = {
        "url": url,
        "scenario": os.environ["MCP_CONFORMANCE_SCENARIO"],
        "context": json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}")),
    }
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(place)
        client.sendall(json.dumps(asked).encode() + b"\n")
        said = client.makefile().readline().strip()
    if said:
        sys.stderr.write(f"{said}\n")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[-2], sys.argv[-1]))
