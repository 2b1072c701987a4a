"""Signing in at MCP servers that want a token: discovery, authorization, renewal, storage.

`keeper.py` is the way in. The SDK has its own client (`mcp.client.auth`), which is not used:
it asks a person again whenever a server refuses a token or a process has restarted, instead of
renewing the token; its errors and its log contain codes and secrets; and it signs in without PKCE,
and at guessed addresses, if a server does not describe itself.
"""
