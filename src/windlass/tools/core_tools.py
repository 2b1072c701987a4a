"""The tools that come with the runtime, over one folder."""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from msgspec.structs import replace as struct_replace

from windlass.core.messages import Label
from windlass.tools.files.tools import file_tools
from windlass.tools.files.workspace import Workspace
from windlass.tools.function import Tool
from windlass.tools.shell.sandbox import Sandbox
from windlass.tools.shell.tools import shell_tools
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
) -> tuple[Tool[..., Any], ...]:
    """`read`, `glob`, `grep`, `write`, `edit`, `bash` and its kin, `fetch` and `todo`.

    Args:
        root: The folder that the tools can reach, and no other.
        private: Its files are secrets or private data.
        untrusted: Its files come from strangers.
        allow: Hosts that may be fetched from although they are not public; see `fetch_tool`.
        sandbox: How `bash` is confined; by default as well as this machine can.
        environ: What `bash` may pass on of the environment; see `Sandbox.pass_env`.
    """
    workspace = Workspace(root)
    marks: tuple[tuple[Label, bool], ...] = (("untrusted", untrusted), ("private", private))
    labels: list[Label] = [label for label, held in marks if held]
    shell = shell_tools(workspace, sandbox=sandbox, environ=environ)
    return (
        *file_tools(workspace, private=private, untrusted=untrusted),
        *(_add_labels(one, labels) for one in shell),
        fetch_tool(allow=allow),
        todo_tool(),
    )


def _add_labels(tool: Tool[..., Any], labels: Sequence[Label]) -> Tool[..., Any]:
    """A shell reads what the files hold, and with a network what others say."""
    own = tool.spec.labels
    added = [*labels, *(("untrusted",) if "external" in own else ())]
    spec = struct_replace(tool.spec, labels=tuple(dict.fromkeys((*own, *added))))
    return replace(tool, spec=spec)
