"""The MCP server: agents as tools, over streamable HTTP and over standard input and output.

Invariant: a tool call starts a run, and the run belongs to the service. A client that goes away, or
that cannot wait, finds the run again by its session or as a task. A person answers the questions
of a run, by elicitation or as the input of a task; no tool does.

The names here need the extra `mcp`, which is imported when one of them is first used.
"""

from typing import TYPE_CHECKING

from windlass.lazy_modules import LazyModules, lazy_attributes

if TYPE_CHECKING:
    from windlass.server.mcp.endpoint import McpEndpoint as McpEndpoint
    from windlass.server.mcp.server import build_server as build_server, serve_stdio as serve_stdio

LAZY_MODULES: LazyModules = {
    "windlass.server.mcp.endpoint": "McpEndpoint",
    "windlass.server.mcp.server": "build_server serve_stdio",
}
if not TYPE_CHECKING:  # To a type checker, `__getattr__` would make every name a valid one.
    __getattr__ = lazy_attributes(__name__, LAZY_MODULES)
