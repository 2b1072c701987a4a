"""MCP: tools of other servers, over stdio and streamable HTTP."""
