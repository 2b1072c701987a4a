"""An MCP server that says which trace a request belongs to."""

from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("own")


@server.tool()
async def which(ctx: Context) -> str:
    """Say which."""
    meta = ctx.request_context.meta
    return str((meta or {}).get("traceparent"))


if __name__ == "__main__":
    server.run("stdio")
