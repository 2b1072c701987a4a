"""Scorers of what a trial left behind: files in its workspace, and what a command says of them.

Invariant: nothing outside the workspace is read, also not through a link that the agent made,
and a command runs in the sandbox.
"""

import asyncio
import filecmp
import os
from fnmatch import fnmatch
from pathlib import Path

from windlass.core.errors import ConfigError
from windlass.core.text_clip import clip_line
from windlass.evaluation.records import TrialRecord
from windlass.evaluation.scorers import FactScorer
from windlass.evaluation.scores import SHOWN_CHARS
from windlass.tools.run_context import RunContext
from windlass.tools.shell.sandbox import Sandbox
from windlass.tools.shell.shell_tools import STATE_FOLDER, ShellLimits, open_shell

COMMAND_S = 120.0
FILES_SHOWN = 5


def file_contains(path: str, text: str) -> FactScorer:
    """A file of the workspace contains a text afterwards."""

    def check(trial: TrialRecord) -> str | None:
        content = _read_file(trial, path)
        if content is None:
            return f"there is no file {path}"
        return None if text in content else f"{path} does not contain {text!r}"

    return FactScorer(clip_line(f"file_contains({path!r}, {text!r})", SHOWN_CHARS), check)


def file_equals(path: str, text: str) -> FactScorer:
    """A file of the workspace has exactly this text afterwards."""

    def check(trial: TrialRecord) -> str | None:
        content = _read_file(trial, path)
        if content == text:
            return None
        return f"{path} is {clip_line(repr(content), SHOWN_CHARS)}"

    return FactScorer(clip_line(f"file_equals({path!r}, {text!r})", SHOWN_CHARS), check)


def no_file(path: str) -> FactScorer:
    """The workspace has no file of this name afterwards."""

    def check(trial: TrialRecord) -> str | None:
        return None if _read_file(trial, path) is None else f"there is a file {path}"

    return FactScorer(f"no_file({path!r})", check)


def only_changed(*patterns: str) -> FactScorer:
    """No file was added, changed or removed but those that match one of the patterns."""

    def check(trial: TrialRecord) -> str | None:
        before = Path(trial.case.workspace)
        after = require_workspace(trial)
        changed = [
            path
            for path in sorted(_list_files(before) | _list_files(after))
            if not any(fnmatch(path, pattern) for pattern in patterns)
            if not _is_same(before / path, after / path)
        ]
        if not changed:
            return None
        more = f" and {len(changed) - FILES_SHOWN} more" if len(changed) > FILES_SHOWN else ""
        return f"changed as well: {', '.join(changed[:FILES_SHOWN])}{more}"

    return FactScorer(f"only_changed({', '.join(map(repr, patterns))})", check)


def command_passes(
    command: str, *, code: int = 0, timeout_s: float = COMMAND_S, sandbox: Sandbox | None = None
) -> FactScorer:
    """A command ends with an exit code in the trial's workspace, such as the project's tests.

    It runs in the sandbox, because it runs what the agent wrote.
    """

    async def check(trial: TrialRecord) -> str | None:
        return await _run_command(require_workspace(trial), command, code, timeout_s, sandbox)

    return FactScorer(clip_line(f"command_passes({command!r})", SHOWN_CHARS), check)


def require_workspace(trial: TrialRecord) -> Path:
    """Return the workspace of a trial. Raises ConfigError if it has none, or it is gone."""
    if trial.workspace is None:
        raise ConfigError(f"case {trial.case.id} has no workspace")
    if not trial.workspace.is_dir():
        raise ConfigError(f"the workspace {trial.workspace} of the trial was deleted")
    return trial.workspace


def _read_file(trial: TrialRecord, path: str) -> str | None:
    """Return the text of a file of the workspace; None if there is none."""
    root = require_workspace(trial).resolve()
    file = (root / path).resolve()
    if not file.is_relative_to(root):
        raise ConfigError(f"{path} is not in the workspace")
    try:
        return file.read_text("utf-8", errors="replace")
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None


def _list_files(folder: Path) -> set[str]:
    found = set[str]()
    for place, folders, files in os.walk(folder):
        here = Path(place).relative_to(folder)
        # What the runtime itself keeps of running commands is not the agent's work.
        folders[:] = [name for name in folders if here / name != STATE_FOLDER]
        found |= {(here / name).as_posix() for name in files}
    return found


def _is_same(left: Path, right: Path) -> bool:
    if left.is_symlink() or right.is_symlink():
        is_link = left.is_symlink() and right.is_symlink()
        return is_link and left.readlink() == right.readlink()
    return left.is_file() and right.is_file() and filecmp.cmp(left, right, shallow=False)


async def _run_command(
    folder: Path, command: str, code: int, timeout_s: float, sandbox: Sandbox | None
) -> str | None:
    """Run a command in a folder, and return what is wrong with its end; None if nothing is."""
    limits = ShellLimits(timeout_s=timeout_s, timeout_s_max=timeout_s)
    shell = await asyncio.to_thread(open_shell, folder, sandbox=sandbox, limits=limits)
    try:
        job = shell.start_job(RunContext(deps=None), command, timeout_s, background=False)
        try:
            end = await asyncio.shield(asyncio.wrap_future(job.end_future))
        finally:
            job.stop()
    finally:
        await asyncio.to_thread(shell.close)
    if end.cause == "exited" and end.code == code:
        return None
    output, _ = job.output.read_text()
    return f"{job.state_text}: {clip_line(output[-SHOWN_CHARS:], SHOWN_CHARS)}"
