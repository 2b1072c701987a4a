"""Commands of a chat that are files: `.windlass/commands/NAME.md`, of the user or of a project.

Invariant: a file is a prompt that a person chooses by typing its name. Nothing in it is run as a
command, and a project's files are offered only once the project is trusted. Of the files that they
name, only those of the project's folder are attached.
"""

import re
import shlex
from pathlib import Path

import msgspec

from windlass.core.errors import ConfigError
from windlass.core.text_clip import reveal_line
from windlass.environ import read_regular_file
from windlass.knowledge.front_matter import MalformedFrontMatter, split_front_matter
from windlass.project.snapshot import COMMANDS_FOLDER, FILE_BYTES_MAX
from windlass.project.trust import ProjectFolder

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_PLACE = re.compile(r"\$(?:ARGUMENTS|[1-9])")


class CommandFile(msgspec.Struct, frozen=True):
    """A prompt with a name, and places for arguments."""

    name: str
    about: str
    body: str
    problem: str = ""
    """Why the file cannot be used; empty if it can."""
    is_own: bool = False
    """The user's own file, and not one of the project."""

    def fill_in(self, typed: str) -> str:
        """Return the prompt with the arguments: `$ARGUMENTS` for all of them, `$1` for the first.

        Without such a place, what was typed is added at the end. Raises ConfigError.
        """
        if self.problem:
            raise ConfigError(f"/{self.name} cannot be used: {self.problem}")
        try:
            words = shlex.split(typed)
        except ValueError as error:
            raise ConfigError(f"{typed}: {error}") from None
        places = _PLACE.findall(self.body)
        numbered = [int(place[1:]) for place in places if place != "$ARGUMENTS"]
        if numbered and len(words) < max(numbered):
            raise ConfigError(f"/{self.name} takes {max(numbered)} arguments: {self.about}")

        def find_value(match: re.Match[str]) -> str:
            place = match.group()
            return typed if place == "$ARGUMENTS" else words[int(place[1:]) - 1]

        text = _PLACE.sub(find_value, self.body).strip()
        return text if places or not typed else f"{text}\n\n{typed}"


def load_command_files(project: ProjectFolder) -> dict[str, CommandFile]:
    """Return the commands by name: those of the user, and of the project if it is trusted.

    Of two files with one name, the user's own counts.
    """
    found: dict[str, CommandFile] = {}
    if project.is_trusted:
        for path, data in project.snapshot.command_files.items():
            _add_command(found, path, data)
    for path in sorted((Path.home() / COMMANDS_FOLDER).glob("*.md")):
        try:
            data = read_regular_file(path, bytes_max=FILE_BYTES_MAX)
            _add_command(found, path, data, is_own=True)
        except OSError as error:
            found[path.stem] = CommandFile(path.stem, "", "", f"{path}: {error.strerror}")
    return found


def _add_command(
    found: dict[str, CommandFile], path: Path, data: bytes, *, is_own: bool = False
) -> None:
    if not _NAME.fullmatch(path.stem):
        return
    try:
        values, body = split_front_matter(data.decode())
    except (UnicodeDecodeError, MalformedFrontMatter) as error:
        found[path.stem] = CommandFile(path.stem, "", "", f"{path}: {error}")
        return
    first = next((line.strip("# ") for line in body.splitlines() if line.strip()), "")
    parts = (values.get("argument-hint", ""), values.get("description") or first)
    about = reveal_line(": ".join(part for part in parts if part))
    found[path.stem] = CommandFile(path.stem, about, body, is_own=is_own)
