"""Where and when a run begins: date, system, folder and the state of git, for its first message.

It is part of a message and never of the instructions: these stay the same, so that providers can
cache them and a run can be resumed. What strangers wrote is left out: no file names, no messages of
commits, and of a branch only a name that looks like one.
"""

import platform
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from windlass.core.messages import TextPart
from windlass.models.reply_cache import FOLDER_VARIABLE
from windlass.project.git_reader import run_git

_BRANCH = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,79}")


def describe_surroundings(
    folder: Path, environ: Mapping[str, str], now: datetime | None = None
) -> TextPart:
    """The part for the first message of a session that works in a folder.

    With a cache of replies there is no date in it: the same prompt would be another one each time.
    """
    here = now or datetime.now().astimezone()
    date = f"Date: {here:%A, %Y-%m-%d %H:%M %z}".rstrip()
    lines = [
        *(() if environ.get(FOLDER_VARIABLE) else (date,)),
        f"System: {platform.system()} {platform.release()} ({platform.machine()})",
        f"Folder: {folder}",
        f"Git: {describe_git(folder)}",
    ]
    text = "\n".join(lines)
    return TextPart(f"\n\n<surroundings>\n{text}\n</surroundings>", by_program=True)


def describe_git(folder: Path) -> str:
    """The branch of a folder's repository and how many files differ from its last commit."""
    output = run_git(folder, "status", "--porcelain=v2", "--branch")
    if output is None:
        return "no repository"
    branch = "unknown branch"
    changed = 0
    untracked = 0
    for line in output.splitlines():
        if line.startswith("# branch.head "):
            name = line.removeprefix("# branch.head ")
            if name == "(detached)":
                branch = "no branch"
            elif _BRANCH.fullmatch(name):
                branch = f"branch {name}"
        elif line.startswith("?"):
            untracked += 1
        elif not line.startswith("#"):
            changed += 1
    if not changed and not untracked:
        return f"{branch}, nothing changed"
    return f"{branch}, {changed} changed and {untracked} new files"
