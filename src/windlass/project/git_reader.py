"""Ask git about a folder, without a program that the folder's repository names.

Git runs what the configuration of a repository says: filters of files, a monitor, hooks, the
program that fetches a missing object. A stranger may have written that configuration, or a command
of a model, and git runs outside the sandbox.

Invariant: git never works with a repository's own configuration. It gets a repository that is made
for one question, and that borrows the objects and the index. Submodules are not looked into: each
of them has its own configuration.
"""

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from windlass.environ import read_process_environment, read_regular_file
from windlass.tools.helper_programs import find_program, find_repository

GIT_S = 2.0
"""How long git may take to look at a folder."""
EXCLUDES_BYTES_MAX = 1_048_576
_SUBMODULE_COMMANDS = frozenset(("diff", "status"))
"""Commands that would start another git in each submodule."""
_PLACES = ("objects", "index", "info/exclude")
_KEPT_SETTINGS = frozenset(
    f"core.{name}" for name in ("filemode", "ignorecase", "precomposeunicode", "symlinks")
)
"""What git has found out about the file system of a repository. Each is true or false."""


def run_git(folder: Path, command: str, *arguments: str) -> str | None:
    """What git prints about a folder; None if there is no git, no repository, or no answer."""
    program = find_program("git", folder)
    if program is None:
        return None
    if command in _SUBMODULE_COMMANDS:
        arguments = ("--ignore-submodules=all", *arguments)
    with TemporaryDirectory(prefix="windlass-git-") as place:
        variables = _borrow_repository(program, folder, Path(place))
        if variables is None:
            return None
        output = _ask_git(program, folder, command, *arguments, variables=variables)
    return None if output is None else output.decode("utf-8", "replace")


def _borrow_repository(program: str, folder: Path, place: Path) -> Mapping[str, str] | None:
    """Make a repository at `place` with the content of the folder's; None if that has none.

    Returns the variables by which git finds it. The questions to git here start no program.
    """
    words = [word for name in _PLACES for word in ("--git-path", name)]
    about = ("--path-format=absolute", "--show-object-format", *words)
    lines = (_ask_git(program, folder, "rev-parse", *about) or b"").splitlines()
    if len(lines) != len(_PLACES) + 1:  # Also if a path has a line break in it.
        return None
    object_format, objects, index, excludes = map(os.fsdecode, lines)
    branch = (_ask_git(program, folder, "symbolic-ref", "-q", "HEAD") or b"").strip()
    commit = (_ask_git(program, folder, "rev-parse", "-q", "--verify", "HEAD") or b"").strip()
    settings = "".join(_kept_settings(program, folder))
    config = (
        f"[core]\nrepositoryformatversion = 1\nbare = false\n{settings}"
        f"[extensions]\nobjectFormat = {object_format}\n"
    )
    (place / "config").write_text(config)
    (place / "HEAD").write_bytes(b"ref: " + branch if branch else commit)
    if branch and commit:
        (place / "packed-refs").write_bytes(commit + b" " + branch + b"\n")
    (place / "refs").mkdir()
    (place / "info").mkdir()
    with suppress(OSError):
        patterns = read_regular_file(Path(excludes), bytes_max=EXCLUDES_BYTES_MAX)
        (place / "info" / "exclude").write_bytes(patterns)
    return {
        "GIT_DIR": str(place),
        # Not what the configuration calls its folder, which may be anywhere.
        "GIT_WORK_TREE": str(find_repository(folder.absolute())),
        "GIT_OBJECT_DIRECTORY": objects,
        "GIT_INDEX_FILE": index,
    }


def _kept_settings(program: str, folder: Path) -> Iterator[str]:
    """Yield the lines of a configuration that say what the file system of a repository can do."""
    listed = _ask_git(program, folder, "config", "--local", "--null", "--list") or b""
    for entry in listed.decode("utf-8", "replace").split("\0"):
        name, _, value = entry.partition("\n")
        if name in _KEPT_SETTINGS and value in ("true", "false"):
            yield f"{name.removeprefix('core.')} = {value}\n"


def _ask_git(
    program: str, folder: Path, *arguments: str, variables: Mapping[str, str] | None = None
) -> bytes | None:
    # The monitor of the person's own settings would be started for a repository that ends at once.
    options = ("--no-optional-locks", "--no-pager", "-c", "core.fsmonitor=false")
    try:
        done = subprocess.run(  # noqa: S603 - our own words, and a program from outside the folder
            [program, *options, *arguments],
            cwd=folder,
            env={**read_process_environment(), **(variables or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
