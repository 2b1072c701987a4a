"""A question before a tool changes a file that decides what the next run may do.

Invariant: what writes such a file has the effect of what the file can do. `.mcp.json` starts
programs, `windlass.toml` and policies allow calls, instructions and skills steer an agent. So a
person is asked, even where other writes are allowed.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from windlass.core.verdicts import Allow, Ask, Deny, Verdict
from windlass.gates.globs import printable_text
from windlass.ports import GateRequest

SETTINGS_FILES = frozenset(
    name.casefold()
    for name in ("windlass.toml", ".env", ".mcp.json", "AGENTS.md", "CLAUDE.md", "SKILL.md")
)
"""Names of files that are read before a run, wherever they are in a project."""
WRITING_TOOLS = frozenset(("write", "edit"))
PATH_CHARS_MAX = 200


class SettingsFilesGuard:
    """A gate that asks about each `write` and `edit` of a file that holds settings."""

    judges_replies = False
    name = "settings_files"

    def __init__(self, root: Path, paths: Iterable[str] = ()) -> None:
        self._root = str(root)
        self._paths = frozenset(os.path.realpath(path) for path in paths)

    async def judge(self, request: GateRequest) -> Verdict:
        path = request.arguments.get("path")
        if request.tool.name not in WRITING_TOOLS or not isinstance(path, str):
            return Allow(self.name)
        if not self._holds_settings(path, request.folder or self._root):
            return Allow(self.name)
        shown = printable_text(path, PATH_CHARS_MAX)
        return Ask(
            f"May {request.tool.name} change {shown}? Windlass reads this file when the next run "
            "starts: it can run programs, allow calls or steer the agent.",
            self.name,
        )

    async def judge_reply(self, session: str, text: str) -> Allow | Deny:  # noqa: ARG002
        return Allow(self.name)

    def _holds_settings(self, path: str, root: str) -> bool:
        written = os.path.join(root, path)  # noqa: PTH118 - an argument of a model
        try:
            real = os.path.realpath(written)
        except (OSError, ValueError):
            return True  # Its target is not known.
        # A link may have a harmless name, and a harmless target a name that is read.
        names = {os.path.basename(place).casefold() for place in (written, real)}  # noqa: PTH119
        return not names.isdisjoint(SETTINGS_FILES) or real in self._paths


def guard_settings_files(root: Path, paths: Iterable[str] = ()) -> SettingsFilesGuard:
    """A gate that asks before `write` or `edit` changes a file that decides what runs may do.

    `root`: the folder where relative paths start. `paths`: further files, such as policies.
    """
    return SettingsFilesGuard(root, paths)
