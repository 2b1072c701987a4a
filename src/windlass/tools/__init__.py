"""Tools: what a model may do, from a Python function to a call with limits, retries and a record.

`tool`, `Tool`, `Toolbox` and `RunContext` can also be imported from `windlass` itself. A name is
loaded when it is first used, so a program without a shell or MCP servers does not import them.
"""

from typing import TYPE_CHECKING

from windlass.lazy_modules import LazyModules, lazy_attributes

if TYPE_CHECKING:
    from windlass.tools.artifacts import ArtifactStore, MemoryArtifacts
    from windlass.tools.breaker import CircuitBreaker
    from windlass.tools.browser.browser_tools import browser_tools
    from windlass.tools.browser.page_secrets import PageSecret
    from windlass.tools.browser.session import BrowserLimits
    from windlass.tools.core_toolset import core_tools
    from windlass.tools.declared.manifest import load_tools
    from windlass.tools.files.file_tools import file_tools
    from windlass.tools.files.workspace import Workspace
    from windlass.tools.function import NOT_DONE, UNKNOWN, Tool, ToolOptions, tool
    from windlass.tools.mcp.config import (
        McpHttp,
        McpOverride,
        McpSettings,
        McpStdio,
        mcp_settings,
    )
    from windlass.tools.mcp.extras import McpPrompt
    from windlass.tools.mcp.oauth.settings import McpCredentials, McpSignIn
    from windlass.tools.mcp.oauth.tokens import McpToken, McpTokenStore, MemoryTokens
    from windlass.tools.mcp.servers import McpServer, McpServers
    from windlass.tools.profile import Profile
    from windlass.tools.qwen_tools import adapt_qwen_tool
    from windlass.tools.run_context import RunContext
    from windlass.tools.shell.interpreter import PythonLimits, python_tool
    from windlass.tools.shell.sandbox import Sandbox
    from windlass.tools.shell.shell_tools import (
        ShellLimits,
        WorkspaceShell,
        open_shell,
        shell_tools,
    )
    from windlass.tools.todo import todo_tool
    from windlass.tools.toolbox import Toolbox
    from windlass.tools.unavailable import ToolUnavailable
    from windlass.tools.web.fetch import fetch_tool

__all__ = [
    "NOT_DONE",
    "UNKNOWN",
    "ArtifactStore",
    "BrowserLimits",
    "CircuitBreaker",
    "McpCredentials",
    "McpHttp",
    "McpOverride",
    "McpPrompt",
    "McpServer",
    "McpServers",
    "McpSettings",
    "McpSignIn",
    "McpStdio",
    "McpToken",
    "McpTokenStore",
    "MemoryArtifacts",
    "MemoryTokens",
    "PageSecret",
    "Profile",
    "PythonLimits",
    "RunContext",
    "Sandbox",
    "ShellLimits",
    "Tool",
    "ToolOptions",
    "ToolUnavailable",
    "Toolbox",
    "Workspace",
    "WorkspaceShell",
    "adapt_qwen_tool",
    "browser_tools",
    "core_tools",
    "fetch_tool",
    "file_tools",
    "load_tools",
    "mcp_settings",
    "open_shell",
    "python_tool",
    "shell_tools",
    "todo_tool",
    "tool",
]

LAZY_MODULES: LazyModules = {
    "NOT_DONE": "windlass.tools.function",
    "UNKNOWN": "windlass.tools.function",
    "ArtifactStore": "windlass.tools.artifacts",
    "BrowserLimits": "windlass.tools.browser.session",
    "CircuitBreaker": "windlass.tools.breaker",
    "McpCredentials": "windlass.tools.mcp.oauth.settings",
    "McpHttp": "windlass.tools.mcp.config",
    "McpOverride": "windlass.tools.mcp.config",
    "McpPrompt": "windlass.tools.mcp.extras",
    "McpServer": "windlass.tools.mcp.servers",
    "McpServers": "windlass.tools.mcp.servers",
    "McpSettings": "windlass.tools.mcp.config",
    "McpSignIn": "windlass.tools.mcp.oauth.settings",
    "McpStdio": "windlass.tools.mcp.config",
    "McpToken": "windlass.tools.mcp.oauth.tokens",
    "McpTokenStore": "windlass.tools.mcp.oauth.tokens",
    "MemoryArtifacts": "windlass.tools.artifacts",
    "MemoryTokens": "windlass.tools.mcp.oauth.tokens",
    "PageSecret": "windlass.tools.browser.page_secrets",
    "Profile": "windlass.tools.profile",
    "PythonLimits": "windlass.tools.shell.interpreter",
    "RunContext": "windlass.tools.run_context",
    "Sandbox": "windlass.tools.shell.sandbox",
    "ShellLimits": "windlass.tools.shell.shell_tools",
    "Tool": "windlass.tools.function",
    "ToolOptions": "windlass.tools.function",
    "ToolUnavailable": "windlass.tools.unavailable",
    "Toolbox": "windlass.tools.toolbox",
    "Workspace": "windlass.tools.files.workspace",
    "WorkspaceShell": "windlass.tools.shell.shell_tools",
    "adapt_qwen_tool": "windlass.tools.qwen_tools",
    "browser_tools": "windlass.tools.browser.browser_tools",
    "core_tools": "windlass.tools.core_toolset",
    "fetch_tool": "windlass.tools.web.fetch",
    "file_tools": "windlass.tools.files.file_tools",
    "load_tools": "windlass.tools.declared.manifest",
    "mcp_settings": "windlass.tools.mcp.config",
    "open_shell": "windlass.tools.shell.shell_tools",
    "python_tool": "windlass.tools.shell.interpreter",
    "shell_tools": "windlass.tools.shell.shell_tools",
    "todo_tool": "windlass.tools.todo",
    "tool": "windlass.tools.function",
}
if not TYPE_CHECKING:  # To a type checker, `__getattr__` would make every name a valid one.
    __getattr__ = lazy_attributes(__name__, LAZY_MODULES)
