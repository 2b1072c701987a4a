"""The MCP server: agents as tools, over streamable HTTP and over standard input and output.

Invariant: a tool call starts a run, and the run belongs to the service. A client that goes away, or
that cannot wait, finds the run again by its session or as a task. A person answers the questions
of a run, by elicitation or as the input of a task; no tool does.

The names here need the extra `mcp`, which is imported when one of them is first used.
"""

from typing import TYPE_CHECKING

from windlass.lazy_modules import LazyModules, lazy_attributes

if TYPE_CHECKING:
    from windlass.server.mcp.endpoint import McpEndpoint
    from windlass.server.mcp.server import build_server, serve_stdio

__all__ = ["McpEndpoint", "build_server", "serve_stdio"]

LAZY_MODULES: LazyModules = {
    "McpEndpoint": "windlass.server.mcp.endpoint",
    "build_server": "windlass.server.mcp.server",
    "serve_stdio": "windlass.server.mcp.server",
}
if not TYPE_CHECKING:  # To a type checker, `__getattr__` would make every name a valid one.
    __getattr__ = lazy_attributes(__name__, LAZY_MODULES)
