"""What a typed prompt brings along: files that it names with `@`, and commands that were run.

Invariant: a person types the name of each file and each command, but for files of the folder that a
prompt of the project names. Their content may still come from a stranger, so a prompt that includes
them is labelled like any other text from a file.
"""

import re
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from windlass.agent.attachments import attach
from windlass.core.errors import ConfigError
from windlass.core.messages import ContentPart, Label, TextPart
from windlass.core.text_clip import strip_escapes

FILE_CHARS_MAX = 60_000
OUTPUT_CHARS_MAX = 20_000
FILES_MAX = 20
ATTACHED_SUFFIXES = frozenset((".gif", ".jpeg", ".jpg", ".pdf", ".png", ".webp"))
OUTSIDE_LABELS: tuple[Label, ...] = ("untrusted", "private")

_DROPPED = re.compile(r"(?<!\S)(?:['\"](/[^'\"\n]+)['\"]|((?:/|~/|file://)(?:\\ |\S)+))")
_MENTION = re.compile(r"(?<!\S)@(\"[^\"]+\"|\S+)")


@dataclass(frozen=True, slots=True)
class ExpandedPrompt:
    """A prompt with all that it brings along."""

    parts: tuple[ContentPart, ...]
    labels: tuple[Label, ...] = ()
    names: tuple[str, ...] = ()
    """What was attached, for the person to see."""
    problems: tuple[str, ...] = ()
    """What was named and could not be attached."""


@dataclass(slots=True)
class ShellNotes:
    """The commands that a person ran, with their output, until the next prompt takes them."""

    texts: list[str] = field(default_factory=list[str])

    def add(self, command: str, output: str, code: int) -> None:
        shown = strip_escapes(output).strip()
        if len(shown) > OUTPUT_CHARS_MAX:
            shown = f"[…]\n{shown[-OUTPUT_CHARS_MAX:]}"
        self.texts.append(f"The person ran `{command}` (exit code {code}):\n{shown}")

    def take(self) -> list[str]:
        texts = self.texts
        self.texts = []
        return texts


def expand_prompt(
    text: str, folder: Path, notes: ShellNotes, typed: str | None = None
) -> ExpandedPrompt:
    """A prompt with the files that it names, and with the commands that were run before it.

    `typed`: what of it a person typed, if that is not all of it. Only that names files elsewhere.
    """
    parts: list[ContentPart] = [TextPart(text)]
    names: list[str] = []
    problems: list[str] = []
    typed_names = {*_find_mentions(typed or ""), *(typed or "").split()}
    for mention in _find_mentions(text):
        if len(names) == FILES_MAX:
            problems.append(f"only the first {FILES_MAX} files were attached")
            break
        found = _find_file(mention.strip('"'), folder)
        if found is None:
            continue
        path, name = found
        is_here = path.is_relative_to(folder.resolve())
        if typed is not None and mention not in typed_names and not is_here:
            problems.append(f"{name} is not attached: it is outside of the folder. Type its name.")
            continue
        try:
            parts.append(_read_part(path, name))
            names.append(name)
        except ConfigError as error:
            problems.append(str(error))
    taken = notes.take()
    parts += [TextPart(f"\n\n{note}", by_program=True) for note in taken]
    labels = OUTSIDE_LABELS if names or taken else ()
    return ExpandedPrompt(tuple(parts), labels, tuple(names), tuple(problems))


def _find_mentions(text: str) -> list[str]:
    return list(dict.fromkeys((*_MENTION.findall(text), *_find_dropped(text))))


def _find_dropped(text: str) -> list[str]:
    """The paths of pictures that were dropped on the terminal, which pastes them: quoted or not."""
    words = [a or b for a, b in _DROPPED.findall(text)]
    paths = [word.removeprefix("file://").replace("\\ ", " ") for word in words]
    return [path for path in paths if Path(path).suffix.lower() in ATTACHED_SUFFIXES]


def names_file(text: str) -> bool:
    """Whether a line begins with the path of a picture, and not with a command."""
    dropped = _find_dropped(text)
    return bool(dropped) and text.startswith(dropped[0].replace(" ", "\\ "))


def _find_file(mention: str, folder: Path) -> tuple[Path, str] | None:
    """The file that a word names; None if it names none, such as `@someone` in a sentence."""
    for name in (mention, mention.rstrip(".,;:!?)")):
        try:
            path = (folder / Path(name).expanduser()).resolve()
            if path.is_file():
                return path, name
        except (OSError, RuntimeError, ValueError):
            return None
    return None


def _read_part(path: Path, name: str) -> ContentPart:
    """A file as a part of a prompt; raises ConfigError if it cannot be one."""
    if path.suffix.lower() in ATTACHED_SUFFIXES:
        return attach(path)
    try:
        with path.open(encoding="utf-8") as file:
            content = file.read(FILE_CHARS_MAX + 1)
    except UnicodeDecodeError:
        raise ConfigError(f"{name} is neither text, a picture nor a PDF") from None
    except OSError as error:
        raise ConfigError(f"{name} cannot be read: {error.strerror}") from None
    if len(content) > FILE_CHARS_MAX:
        content = f"{content[:FILE_CHARS_MAX]}\n[only the first {FILE_CHARS_MAX:,} characters]"
    return TextPart(f'\n\n<file path="{name}">\n{content}\n</file>', by_program=True)


def run_shell_command(command: str, folder: Path, show: Callable[[str], None]) -> tuple[str, int]:
    """Run what a person typed after `!`, in their own shell; its output and exit code.

    It is the person's own command: it has their rights, their environment and no sandbox. `show`
    gets each line as it comes. Ctrl-C ends the command and not the chat.
    """
    lines: list[str] = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(  # noqa: S602 - a person typed it to be run
        command,
        shell=True,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    )
    try:
        for line in process.stdout or ():
            lines.append(line)
            show(strip_escapes(line).rstrip())
        return "".join(lines), process.wait()
    except KeyboardInterrupt:
        # The command is in the foreground too, and has got the same signal.
        return "".join(lines), process.wait()
    finally:
        signal.signal(signal.SIGINT, before)
