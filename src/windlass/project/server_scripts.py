"""The servers of an `.mcp.json`, and the files of the project that their commands name.

Such files are part of the digest of a project: who trusts a command trusts what it runs. What those
files load in turn is not looked up.
"""

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import msgspec

from windlass.tools.mcp.entry_reader import VARIABLE

WORDS_MAX = 2_000
"""Words of all commands that are looked up as files."""
FOLDERS_MAX = 8
"""Folders of the project that one command may name."""
ENTRY_FILES = (
    *("__main__.py", "__init__.py", "package.json"),
    *("index.js", "index.mjs", "index.cjs", "index.ts"),
)
"""What a program runs that is given a folder."""
MODULE_ENDINGS = (".js", ".mjs", ".cjs", ".ts", ".json", ".node", ".py")
"""What a program may add to the name of a module."""
RUNNER_FILES: Mapping[str, tuple[str, ...]] = {
    "bun": ("package.json",),
    "bunx": ("package.json",),
    "cargo": ("Cargo.toml",),
    "deno": ("deno.json", "deno.jsonc"),
    "docker": ("compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml"),
    "hatch": ("pyproject.toml",),
    "just": ("justfile", "Justfile", ".justfile"),
    "make": ("GNUmakefile", "makefile", "Makefile"),
    "node": ("package.json",),
    "npm": ("package.json", ".npmrc"),
    "npx": ("package.json", ".npmrc"),
    "pdm": ("pyproject.toml",),
    "pnpm": ("package.json", ".npmrc"),
    "poetry": ("pyproject.toml",),
    "uv": ("pyproject.toml", "uv.toml"),
    "uvx": ("uv.toml",),
    "yarn": ("package.json", ".yarnrc", ".yarnrc.yml"),
}
"""The files in which programs that run other programs look up what to run."""

_NODE_PROGRAMS = ("node_modules/.bin",)
_PYTHON_PROGRAMS = (".venv/bin",)
RUNNER_FOLDERS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("bun", "bunx", "npm", "npx", "pnpm", "yarn"), _NODE_PROGRAMS),
    **dict.fromkeys(("hatch", "pdm", "poetry", "uv"), _PYTHON_PROGRAMS),
}
"""The folders of a project in which such programs look for what they run, before any other."""

_MODULE_OPTION = re.compile(r"-[A-Za-z]*?m([A-Za-z_][\w.]*)?")
_WORD_BREAKS = re.compile(r"[\s;&|<>()'\"`=,:]+")


class ScriptFinder:
    """Finds the files that the commands of servers name, up to a bound."""

    def __init__(self, folder: Path, root: Path, variables: Mapping[str, str]) -> None:
        self._folder = folder
        self._root = root
        self._variables = variables
        """What a command would be expanded with."""
        self._words_left = WORDS_MAX
        self.problems: list[str] = []
        """Why not all files could be looked up, one line each."""

    def find_scripts(self, data: bytes) -> Iterator[Path]:
        """The files in the project that the commands of servers name."""
        for entry in read_server_entries(data).values():
            yield from self._find_named(entry)
            if self._words_left < 0:
                self.problems.append(
                    f"the commands of the MCP servers have more than {WORDS_MAX:,} words: too many "
                    "to look up the files that they name"
                )
                return

    def _find_named(self, entry: Mapping[str, Any]) -> Iterator[Path]:
        command = [self._expand(word) for word in server_command(entry)]
        if not command:
            return
        # A folder of the project may be on our PATH. One on the server's own PATH is found below.
        program = shutil.which(command[0], path=self._variables.get("PATH"))
        if program is not None:
            yield Path(program)
        given = self._expand(str(entry.get("cwd") or "."))
        place = Path(os.path.normpath(self._folder / given))
        # A value may name a library that is loaded, or a folder in which modules are found.
        variables = [self._expand(value) for value in _server_variables(entry).values()]
        words = list(self._split_words([*command, *variables]))
        named = self._find_folders(place, words)
        yield from (folder / name for folder in named for name in ENTRY_FILES)
        for folder in dict.fromkeys((place, *named)):
            yield from _find_entry_files(folder, command)
            for word in words:
                path = os.path.normpath(folder / word)
                yield from (Path(f"{path}{ending}") for ending in ("", *MODULE_ENDINGS))

    def _split_words(self, values: Sequence[str]) -> Iterator[str]:
        """The words of commands, and the parts of each, that may be the name of a file."""
        longest = os.pathconf("/", "PC_PATH_MAX")
        for value in values:
            for part in dict.fromkeys((value, *_WORD_BREAKS.split(value))):
                self._words_left -= 1
                if part and self._words_left >= 0 and len(part) < longest and "\0" not in part:
                    yield part

    def _find_folders(self, place: Path, words: Sequence[str]) -> list[Path]:
        """The folders in the project that a command names: it may look for files in them."""
        found: dict[Path, None] = {}
        for word in words:
            path = Path(os.path.normpath(place / word))
            with suppress(OSError):
                if path.is_relative_to(self._root) and path.is_dir():
                    found[path] = None
            if len(found) > FOLDERS_MAX:
                self.problems.append(
                    f"the command of an MCP server names more than {FOLDERS_MAX} folders"
                )
                break
        return list(found)

    def _expand(self, text: str) -> str:
        """The text with its variables as they would be, so that files are found behind them."""
        return VARIABLE.sub(lambda found: self._variables.get(found[1], found[2] or ""), text)


def read_server_entries(data: bytes) -> dict[str, dict[str, Any]]:
    """The servers of an `.mcp.json` as they are written; empty if it cannot be understood.

    Only to show and to look up what is named: starting a server reads them strictly.
    """
    try:
        found = msgspec.json.decode(data, type=dict[str, dict[str, Any]]).get("mcpServers", {})
    except (msgspec.MsgspecError, RecursionError):
        return {}
    return {name: entry for name, entry in found.items() if isinstance(entry, dict)}


def server_command(entry: Mapping[str, Any]) -> list[str]:
    """The words of the command that starts a server; empty if there is none."""
    given = entry.get("args")
    args = cast("list[object]", given) if isinstance(given, list) else []
    words = [entry.get("command"), *args]
    return [str(word) for word in words] if words[0] else []


def _server_variables(entry: Mapping[str, Any]) -> dict[str, str]:
    """The variables that an entry sets for its server."""
    given = entry.get("env")
    pairs = cast("dict[str, object]", given) if isinstance(given, dict) else {}
    return {name: value for name, value in pairs.items() if isinstance(value, str)}


def _find_entry_files(folder: Path, command: Sequence[str]) -> Iterator[Path]:
    """The files in a folder with which a command may begin, though it does not name them."""
    runner = Path(command[0]).name
    for name in RUNNER_FILES.get(runner, ()):
        yield folder / name
    for programs in RUNNER_FOLDERS.get(runner, ()):
        yield from (folder / programs / word for word in command[1:] if "/" not in word)
    for option, word in zip(command, [*command[1:], ""], strict=True):
        # `-m module`, also as `-mmodule` or behind other letters: `-um module`.
        if found := _MODULE_OPTION.fullmatch(option):
            names = (found[1] or word).split(".")
            packages = ["/".join(names[:count]) for count in range(1, len(names) + 1)]
            yield from (folder / package / "__init__.py" for package in packages)
            yield folder / packages[-1] / "__main__.py"
            yield folder / f"{packages[-1]}.py"
