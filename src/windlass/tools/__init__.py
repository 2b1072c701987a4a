"""Tools: what a model may do, from a Python function to a call with limits, retries and a record.

`tool`, `Tool`, `Toolbox` and `RunContext` can also be imported from `windlass` itself. A name is
loaded when it is first used, so a program without a shell or MCP servers does not import them.
"""

from typing import TYPE_CHECKING

from windlass.lazy_modules import LazyModules, lazy_attributes

if TYPE_CHECKING:
    from windlass.tools.artifacts import (
        ArtifactStore as ArtifactStore,
        MemoryArtifacts as MemoryArtifacts,
    )
    from windlass.tools.breaker import (
        CircuitBreaker as CircuitBreaker,
        ToolUnavailable as ToolUnavailable,
    )
    from windlass.tools.browser.browser_tools import browser_tools as browser_tools
    from windlass.tools.browser.page_secrets import PageSecret as PageSecret
    from windlass.tools.browser.session import BrowserLimits as BrowserLimits
    from windlass.tools.core_toolset import core_tools as core_tools
    from windlass.tools.declared.manifest import load_tools as load_tools
    from windlass.tools.files.file_tools import file_tools as file_tools
    from windlass.tools.files.workspace import Workspace as Workspace
    from windlass.tools.function import (
        NOT_DONE as NOT_DONE,
        UNKNOWN as UNKNOWN,
        Tool as Tool,
        ToolOptions as ToolOptions,
        tool as tool,
    )
    from windlass.tools.mcp.config import (
        McpHttp as McpHttp,
        McpOverride as McpOverride,
        McpSettings as McpSettings,
        McpStdio as McpStdio,
        mcp_settings as mcp_settings,
    )
    from windlass.tools.mcp.extras import (
        McpPrompt as McpPrompt,
        resource_references as resource_references,
    )
    from windlass.tools.mcp.oauth.settings import (
        McpCredentials as McpCredentials,
        McpSignIn as McpSignIn,
    )
    from windlass.tools.mcp.oauth.tokens import (
        McpToken as McpToken,
        McpTokenStore as McpTokenStore,
        MemoryTokens as MemoryTokens,
    )
    from windlass.tools.mcp.servers import McpServer as McpServer, McpServers as McpServers
    from windlass.tools.search import Profile as Profile
    from windlass.tools.qwen_tools import adapt_qwen_tool as adapt_qwen_tool
    from windlass.tools.run_context import RunContext as RunContext
    from windlass.tools.shell.interpreter import (
        PythonLimits as PythonLimits,
        python_tool as python_tool,
    )
    from windlass.tools.shell.sandbox import Sandbox as Sandbox
    from windlass.tools.shell.shell_tools import (
        ShellLimits as ShellLimits,
        WorkspaceShell as WorkspaceShell,
        open_shell as open_shell,
        shell_tools as shell_tools,
    )
    from windlass.tools.shell.tiers import Container as Container, RemoteMachine as RemoteMachine
    from windlass.tools.todo import todo_tool as todo_tool
    from windlass.tools.toolbox import Toolbox as Toolbox
    from windlass.tools.web.fetch import fetch_tool as fetch_tool
    from windlass.tools.web.web_search import (
        SearchEndpoint as SearchEndpoint,
        SearchHit as SearchHit,
        WebSearch as WebSearch,
        web_search_tool as web_search_tool,
    )

LAZY_MODULES: LazyModules = {
    "windlass.tools.artifacts": "ArtifactStore MemoryArtifacts",
    "windlass.tools.breaker": "CircuitBreaker ToolUnavailable",
    "windlass.tools.browser.browser_tools": "browser_tools",
    "windlass.tools.browser.page_secrets": "PageSecret",
    "windlass.tools.browser.session": "BrowserLimits",
    "windlass.tools.core_toolset": "core_tools",
    "windlass.tools.declared.manifest": "load_tools",
    "windlass.tools.files.file_tools": "file_tools",
    "windlass.tools.files.workspace": "Workspace",
    "windlass.tools.function": "NOT_DONE Tool ToolOptions UNKNOWN tool",
    "windlass.tools.mcp.config": "McpHttp McpOverride McpSettings McpStdio mcp_settings",
    "windlass.tools.mcp.extras": "McpPrompt resource_references",
    "windlass.tools.mcp.oauth.settings": "McpCredentials McpSignIn",
    "windlass.tools.mcp.oauth.tokens": "McpToken McpTokenStore MemoryTokens",
    "windlass.tools.mcp.servers": "McpServer McpServers",
    "windlass.tools.qwen_tools": "adapt_qwen_tool",
    "windlass.tools.run_context": "RunContext",
    "windlass.tools.search": "Profile",
    "windlass.tools.shell.interpreter": "PythonLimits python_tool",
    "windlass.tools.shell.sandbox": "Sandbox",
    "windlass.tools.shell.shell_tools": "ShellLimits WorkspaceShell open_shell shell_tools",
    "windlass.tools.shell.tiers": "Container RemoteMachine",
    "windlass.tools.todo": "todo_tool",
    "windlass.tools.toolbox": "Toolbox",
    "windlass.tools.web.fetch": "fetch_tool",
    "windlass.tools.web.web_search": "SearchEndpoint SearchHit WebSearch web_search_tool",
}
if not TYPE_CHECKING:  # To a type checker, `__getattr__` would make every name a valid one.
    __getattr__ = lazy_attributes(__name__, LAZY_MODULES)
