"""Signing in at MCP servers that want a token: discovery, authorization, renewal, storage."""
