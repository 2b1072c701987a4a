"""`core_tools`: the tools that come with Windlass, for one folder."""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import replace as struct_replace

from windlass.core.messages import Label
from windlass.tools.files.file_tools import file_tools
from windlass.tools.files.workspace import Workspace
from windlass.tools.function import Tool
from windlass.tools.shell.interpreter import python_tool
from windlass.tools.shell.sandbox import Sandbox
from windlass.tools.shell.shell_tools import shell_tools
from windlass.tools.todo import todo_tool
from windlass.tools.web.fetch import fetch_tool


def core_tools(
    root: str | os.PathLike[str],
    *,
    private: bool = False,
    untrusted: bool = False,
    allow: Collection[str] = (),
    sandbox: Sandbox | None = None,
    environ: Mapping[str, str] | None = None,
    interpreter: Literal["off", "on", "tools"] = "off",
) -> tuple[Tool[..., Any], ...]:
    """Build `read`, `glob`, `grep`, `write`, `edit`, the tools of `bash`, `fetch` and `todo`.

    Args:
        root: The only folder that the tools can reach. A run that has a folder of its caller's own
            works there instead, and sees nothing of this one.
        private: Its files are secrets or private data.
        untrusted: Its files come from strangers.
        allow: Hosts that `fetch` may reach although they are not public; see `fetch_tool`.
        sandbox: How `bash` is confined; by default as well as this machine can.
        environ: The environment of which `bash` inherits a part; see `Sandbox.pass_env`.
        interpreter: `on` adds `python`, in the same sandbox; `tools` lets its code call the others.

    Raises:
        ConfigError: `root` is not a folder, or the sandbox that is required does not work here.
    """
    labels: list[Label] = []
    if untrusted:
        labels.append("untrusted")
    if private:
        labels.append("private")
    workspace = Workspace(root)
    options = _FolderOptions(tuple(labels), environ, interpreter)
    chosen = sandbox or Sandbox()
    # The folder of the agent may hold a journal, settings and keys.
    elsewhere = replace(chosen, hidden=(*chosen.hidden, workspace.root))
    others = _OtherFolders(options, elsewhere)
    tools = (others.bind(tool) for tool in options.build_tools(workspace, chosen))
    return (*tools, fetch_tool(allow=allow), todo_tool())


@dataclass(frozen=True, slots=True)
class _FolderOptions:
    """How the tools are built that work in a folder."""

    labels: tuple[Label, ...]
    environ: Mapping[str, str] | None
    interpreter: Literal["off", "on", "tools"]

    def build_tools(self, workspace: Workspace, sandbox: Sandbox) -> list[Tool[..., Any]]:
        environ = self.environ
        shell = [*shell_tools(workspace, sandbox=sandbox, environ=environ)]
        if self.interpreter != "off":
            calls = self.interpreter == "tools"
            shell.append(python_tool(workspace, sandbox=sandbox, environ=environ, call_tools=calls))
        private = "private" in self.labels
        untrusted = "untrusted" in self.labels
        return [
            *file_tools(workspace, private=private, untrusted=untrusted),
            *(_add_labels(tool, self.labels) for tool in shell),
        ]


class _OtherFolders:
    """The same tools for other folders, built once for each: background commands stay there."""

    def __init__(self, options: _FolderOptions, sandbox: Sandbox) -> None:
        self._options = options
        self._sandbox = sandbox
        self._tools: dict[Path, Mapping[str, Tool[..., Any]]] = {}

    def bind(self, tool: Tool[..., Any]) -> Tool[..., Any]:
        return replace(tool, bind_folder=partial(self._find_tool, tool.name))

    def _find_tool(self, name: str, folder: Path) -> Tool[..., Any]:
        tools = self._tools.get(folder)
        if tools is None:
            built = self._options.build_tools(Workspace(folder), self._sandbox)
            tools = self._tools[folder] = {tool.name: tool for tool in built}
        return tools[name]


def _add_labels(tool: Tool[..., Any], labels: Sequence[Label]) -> Tool[..., Any]:
    """Add labels to a tool of the shell.

    A command can read all files, so their labels apply to it. With a network it can also read what
    strangers wrote.
    """
    all_labels = [*tool.spec.labels, *labels]
    if "external" in tool.spec.labels:
        all_labels.append("untrusted")
    spec = struct_replace(tool.spec, labels=tuple(dict.fromkeys(all_labels)))
    return replace(tool, spec=spec)
