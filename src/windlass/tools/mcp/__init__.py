"""Tools of MCP servers, over standard input and output or streamable HTTP."""
