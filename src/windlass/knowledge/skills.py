"""Skills: what an agent can read up on when it needs it.

The law: the catalogue holds a line for each, in an order that never changes by itself; a body is
read when it is asked for, and nothing outside a skill's folder is ever read.
"""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from windlass.core.errors import ConfigError, ModelRetry
from windlass.core.suggestions import suggest_names
from windlass.knowledge.front_matter import MalformedFrontMatter, split_front_matter
from windlass.knowledge.instructions import read_file_inside
from windlass.logs import get_logger

SKILL_FILE = "SKILL.md"
SKILL_FOLDERS = ("skills", ".agents/skills", ".claude/skills")
"""Where a project keeps its skills; of two with one name, the first wins."""
BODY_BYTES_MAX = 131_072
DESCRIPTION_CHARS_MAX = 1_024
FILES_MAX = 100

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SKIPPED_FOLDERS = frozenset(("__pycache__", "node_modules"))
_log = get_logger(__name__)


class Skill(msgspec.Struct, frozen=True):
    """What is known of a skill before it is read."""

    name: str
    description: str
    folder: Path


class Skills:
    """The skills in some folders, each in a folder of its own with a `SKILL.md`."""

    def __init__(self, folders: Sequence[str | os.PathLike[str]]) -> None:
        self.problems: list[str] = []
        """What could not be used, in a line each; these were warnings, too."""
        found: dict[str, Skill] = {}
        for skill in self._find_skills([Path(folder) for folder in folders]):
            first = found.setdefault(skill.name, skill)
            if first.folder != skill.folder:
                self._add_problem(
                    skill.folder / SKILL_FILE, f"{first.folder / SKILL_FILE} has its name already"
                )
        self._skills = dict(sorted(found.items()))

    @classmethod
    def from_project(cls, root: str | os.PathLike[str]) -> "Skills":
        """The skills of a project, in the usual places."""
        return cls([Path(root) / place for place in SKILL_FOLDERS])

    def __len__(self) -> int:
        return len(self._skills)

    def __iter__(self) -> Iterator[Skill]:
        return iter(self._skills.values())

    @property
    def catalogue(self) -> str:
        """A line for each skill, for the instructions; nothing if there are none."""
        if not self._skills:
            return ""
        lines = [f"- {skill.name}: {skill.description}" for skill in self]
        told = "Skills. Read one with the tool `skill`, by its name, before you do what it is for:"
        return "\n".join([told, *lines])

    def skill(self, name: str) -> str:
        """Read a skill: how to do what it is for, and which files it brings."""
        found = self._skills.get(name)
        if found is None:
            raise ModelRetry(f"there is no skill {name!r}.{suggest_names(name, self._skills)}")
        try:
            _, body = _read_skill_file(found.folder, found.folder)
        except ConfigError as error:
            raise ModelRetry(str(error)) from None
        files = list(_list_files(found.folder))
        listed = [f"- {file}" for file in files[:FILES_MAX]]
        if len(files) > FILES_MAX:
            listed.append("- and more")
        told = [f"Files of this skill, in {found.folder}:", *listed] if listed else []
        return "\n".join([body.strip(), *([""] if told else []), *told])

    def _find_skills(self, folders: Sequence[Path]) -> Iterator[Skill]:
        for root in folders:
            try:
                inside = sorted(root.resolve(strict=True).iterdir())
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                self._add_problem(root, error.strerror or "it cannot be read")
                continue
            for folder in inside:
                if os.path.lexists(folder / SKILL_FILE):
                    yield from self._load_skill(root.resolve(), folder)

    def _load_skill(self, root: Path, folder: Path) -> Iterator[Skill]:
        try:
            head, _ = _read_skill_file(root, folder)
            yield _make_skill(folder.resolve(), head)
        except ConfigError as error:
            self._add_problem(None, str(error))

    def _add_problem(self, path: Path | None, what: str) -> None:
        line = f"{path}: {what}" if path else what
        self.problems.append(line)
        _log.warning("%s", line)


def _make_skill(folder: Path, head: dict[str, str]) -> Skill:
    name, words = head.get("name", "").strip(), " ".join(head.get("description", "").split())
    if not _NAME.fullmatch(name):
        fix = "letters, digits, '-', '_' and '.', 64 at most"
        raise ConfigError(f"{folder / SKILL_FILE}: its `name` is {name!r}: it must be {fix}")
    if not words:
        raise ConfigError(
            f"{folder / SKILL_FILE}: it has no `description` that says what it is for"
        )
    return Skill(name, words[:DESCRIPTION_CHARS_MAX], folder)


def _read_skill_file(root: Path, folder: Path) -> tuple[dict[str, str], str]:
    """The head and the body of a skill; raises ConfigError, in one line with the file."""
    path = folder / SKILL_FILE
    data = read_file_inside(root, path, BODY_BYTES_MAX + 1)
    if data is None:
        raise ConfigError(f"{path}: it cannot be read")
    if len(data) > BODY_BYTES_MAX:
        raise ConfigError(f"{path}: it is larger than {BODY_BYTES_MAX // 1024} KiB")
    try:
        return split_front_matter(data.decode())
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: it is not UTF-8") from None
    except MalformedFrontMatter as error:
        raise ConfigError(f"{path}: {error}") from None


def _list_files(folder: Path) -> Iterator[str]:
    """The other files of a skill, in order; links and what is hidden are left out."""
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(
            name for name in folders if name not in _SKIPPED_FOLDERS and not name.startswith(".")
        )
        for name in sorted(files):
            path = Path(place, name)
            if not name.startswith(".") and path != folder / SKILL_FILE and not path.is_symlink():
                yield path.relative_to(folder).as_posix()
