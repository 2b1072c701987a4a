"""Skills: instructions that an agent reads when it needs them.

Invariant: the catalogue has one line for each skill, in a fixed order, so that prompt caches hold.
A skill is read when the model asks for it, and nothing outside its folder is ever read.
"""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from windlass.core.errors import ConfigError, ModelRetry
from windlass.core.suggestions import suggest_names
from windlass.knowledge.front_matter import MalformedFrontMatter, split_front_matter
from windlass.knowledge.instructions import FileReader, read_file_inside
from windlass.logs import get_logger

SKILL_FILE = "SKILL.md"
SKILL_FOLDERS = ("skills", ".agents/skills", ".claude/skills")
"""Where a project keeps its skills. Of two skills with the same name, the first wins."""
BODY_BYTES_MAX = 131_072
DESCRIPTION_CHARS_MAX = 1_024
FILES_MAX = 100
SKILLS_MAX = 500
"""In one folder of skills. Each is read before the first request."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SKIPPED_FOLDERS = frozenset(("__pycache__", "node_modules"))
_log = get_logger(__name__)


class Skill(msgspec.Struct, frozen=True):
    """A skill as the catalogue lists it."""

    name: str
    description: str
    folder: Path


class Skills:
    """The skills in some folders; each skill is a folder with a `SKILL.md`.

    A skill that cannot be used is a warning, and a line in `problems`. `read` says where the bytes
    of a skill come from, by default from the disk.
    """

    def __init__(
        self,
        folders: Sequence[str | os.PathLike[str]],
        *,
        within: str | os.PathLike[str] | None = None,
        read: FileReader | None = None,
    ) -> None:
        """Find the skills in these folders; with `within`, none that leads out of that folder."""
        self._read = read or read_file_inside
        self._within = None if within is None else Path(within).resolve()
        self.problems: list[str] = []
        """What could not be used and why, one line each."""
        found: dict[str, Skill] = {}
        for skill in self._find_skills([Path(folder) for folder in folders]):
            first = found.setdefault(skill.name, skill)
            if first.folder != skill.folder:
                self._add_problem(
                    skill.folder / SKILL_FILE, f"{first.folder / SKILL_FILE} has the same name"
                )
        self._skills = dict(sorted(found.items()))

    @classmethod
    def from_project(cls, root: str | os.PathLike[str]) -> "Skills":
        """The skills of a project, in the usual folders."""
        return cls([Path(root) / place for place in SKILL_FOLDERS], within=root)

    def __len__(self) -> int:
        return len(self._skills)

    def __iter__(self) -> Iterator[Skill]:
        return iter(self._skills.values())

    @property
    def catalogue(self) -> str:
        """One line for each skill, for the instructions; empty if there are none."""
        if not self._skills:
            return ""
        lines = [f"- {skill.name}: {skill.description}" for skill in self]
        intro = "Skills. Before a task that one of these is for, read it with the tool `skill`:"
        return "\n".join([intro, *lines])

    def skill(self, name: str) -> str:
        """Read a skill: how to do its task, and which files belong to it."""
        found = self._skills.get(name)
        if found is None:
            raise ModelRetry(f"there is no skill {name!r}.{suggest_names(name, self._skills)}")
        try:
            _, body = _read_skill_file(found.folder, found.folder, self._read)
        except ConfigError as error:
            raise ModelRetry(str(error)) from None
        files = list(_list_files(found.folder))
        lines = [body.strip()]
        if files:
            lines += ["", f"Files of this skill, in {found.folder}:"]
            lines += [f"- {file}" for file in files[:FILES_MAX]]
        if len(files) > FILES_MAX:
            lines.append("- and more")
        return "\n".join(lines)

    def _find_skills(self, folders: Sequence[Path]) -> Iterator[Skill]:
        for root in folders:
            try:
                real = root.resolve(strict=True)
                if self._within is not None and not real.is_relative_to(self._within):
                    self._add_problem(root, f"it leads out of {self._within}")
                    continue
                inside = sorted(real.iterdir())
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                self._add_problem(root, error.strerror or "it cannot be read")
                continue
            skills = [folder for folder in inside if os.path.lexists(folder / SKILL_FILE)]
            if len(skills) > SKILLS_MAX:
                self._add_problem(root, f"only the first {SKILLS_MAX} skills are read")
            for folder in skills[:SKILLS_MAX]:
                yield from self._load_skill(root.resolve(), folder)

    def _load_skill(self, root: Path, folder: Path) -> Iterator[Skill]:
        try:
            head, _ = _read_skill_file(root, folder, self._read)
            yield _make_skill(folder.resolve(), head)
        except ConfigError as error:
            self._add_problem(None, str(error))

    def _add_problem(self, path: Path | None, what: str) -> None:
        line = f"{path}: {what}" if path else what
        self.problems.append(line)
        _log.warning("%s", line)


def _make_skill(folder: Path, head: dict[str, str]) -> Skill:
    name = head.get("name", "").strip()
    words = " ".join(head.get("description", "").split())
    if not _NAME.fullmatch(name):
        rule = "1 to 64 letters, digits, '-', '_' and '.'"
        raise ConfigError(f"{folder / SKILL_FILE}: its `name` is {name!r}, but must be {rule}")
    if not words:
        raise ConfigError(
            f"{folder / SKILL_FILE}: it needs a `description` that says what it is for"
        )
    return Skill(name, words[:DESCRIPTION_CHARS_MAX], folder)


def _read_skill_file(root: Path, folder: Path, read: FileReader) -> tuple[dict[str, str], str]:
    """The front matter and the body of a skill. Raises ConfigError, in one line with the file."""
    path = folder / SKILL_FILE
    data = read(root, path, BODY_BYTES_MAX + 1)
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
    """The other files of a skill, in order, without links and hidden files."""
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(
            name for name in folders if name not in _SKIPPED_FOLDERS and not name.startswith(".")
        )
        for name in sorted(files):
            path = Path(place, name)
            if not name.startswith(".") and path != folder / SKILL_FILE and not path.is_symlink():
                yield path.relative_to(folder).as_posix()
