"""A server of ours, for what no other one does when it is asked to: `own_server.py FOLDER [PORT]`.

It keeps a log of what happens in FOLDER, so that a test can see what reached it.
"""

import asyncio
import base64
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)

FOLDER = Path(sys.argv[1])
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n, or the beginning of one").decode()
READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)

server = MCPServer("own")


def note(line: str) -> None:
    with (FOLDER / "log").open("a") as log:
        log.write(f"{line}\n")


@server.tool(annotations=READS)
def pid() -> int:
    """The number of this process."""
    return os.getpid()


@server.tool(annotations=ToolAnnotations(idempotent_hint=True))
def put(key: str) -> str:
    """Put."""
    return key


@server.tool(annotations=READS, structured_output=False)
def fail() -> CallToolResult:
    """Fail."""
    return CallToolResult(content=[TextContent(text="it cannot be done")], is_error=True)


@server.tool(annotations=READS, structured_output=False)
def parts() -> CallToolResult:
    """One of each kind of part."""
    text = TextResourceContents(uri="note://one", mime_type="text/plain", text="of a resource")
    blob = base64.b64encode(b"\x00\x01").decode()
    data = BlobResourceContents(uri="file:///a/b.bin", mime_type="application/x-thing", blob=blob)
    picture = BlobResourceContents(uri="file:///a/b.png", mime_type="image/png", blob=PIXEL)
    return CallToolResult(
        content=[
            TextContent(text="plain"),
            ImageContent(data=PIXEL, mime_type="image/png"),
            AudioContent(data=blob, mime_type="audio/wav"),
            EmbeddedResource(resource=text),
            EmbeddedResource(resource=data),
            EmbeddedResource(resource=picture),
            ResourceLink(name="two", uri="note://two"),
        ],
        structured_content={"n": 1},
    )


@server.tool(annotations=READS)
def table() -> dict[str, Any]:
    """A value with a structure."""
    return {"rows": [1, 2], "name": "x"}


@server.tool(annotations=READS)
async def steps(context: Context[Any]) -> str:
    """Work in steps."""
    for step in (1, 2):
        await context.report_progress(step, 2, f"step {step}")
    return "done"


@server.tool()
async def slow(seconds: float) -> str:
    """Work for long."""
    note("began")
    try:
        await asyncio.sleep(seconds)
    except BaseException:
        note("cancelled")
        raise
    note("ended")
    return "slept"


@server.tool(annotations=READS)
async def slow_read(seconds: float) -> str:
    """Read for long, the first time."""
    first = not (FOLDER / "log").exists()
    note("read")
    await asyncio.sleep(seconds if first else 0)
    return f"read by {os.getpid()}"


@server.tool()
def spawn(*, detached: bool) -> int:
    """Start a process, and leave it."""
    pipe = subprocess.DEVNULL
    child = subprocess.Popen(
        ["sleep", "600"], start_new_session=detached, stdin=pipe, stdout=pipe, stderr=pipe
    )
    return child.pid


@server.tool(annotations=READS)
async def grow() -> str:
    """Have one tool more."""

    def grown() -> str:
        return "I am new"

    server.add_tool(grown)
    return "grown"


@server.tool(name="an odd name, with ünlike letters/and more than there is room for, really")
def odd() -> str:
    """Have an odd name."""
    return "odd"


@server.tool(annotations=READS)
def read_resource() -> str:
    """Have a name that ours has too."""
    return "mine"


@server.resource("note://one", mime_type="text/plain")
def one() -> str:
    """A note."""
    return "the first note"


@server.prompt()
def review(code: str) -> str:
    """Review code."""
    return f"Please review: {code}"


if __name__ == "__main__":
    if len(sys.argv) > 2:
        server.run("streamable-http", port=int(sys.argv[2]))
    else:
        server.run()
