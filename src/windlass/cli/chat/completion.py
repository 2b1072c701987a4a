"""Completion at a chat's prompt: commands after `/`, their arguments, and files after `@`."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from typing_extensions import override

from windlass.project.git_reader import run_git
from windlass.tools.files.workspace import Workspace

FILES_MAX = 20_000
SHOWN_MAX = 50
FILES_KEPT_S = 5.0


class ChatCompleter(Completer):
    """Completes the text before the cursor."""

    def __init__(
        self, commands: Mapping[str, str], arguments: Callable[[str], Sequence[str]], folder: Path
    ) -> None:
        self._commands = commands
        self._arguments = arguments
        """The words that may follow a command."""
        self._files = FolderFiles(folder)

    @override
    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        text = document.text_before_cursor
        if text.startswith("/") and "\n" not in text:
            yield from self._complete_command(text[1:])
            return
        word = document.get_word_before_cursor(WORD=True)
        if word.startswith("@"):
            for path in islice(find_matches(word[1:], self._files.list()), SHOWN_MAX):
                shown = f'"{path}"' if " " in path else path
                yield Completion(f"@{shown}", start_position=-len(word), display=path)

    def _complete_command(self, text: str) -> Iterator[Completion]:
        name, space, argument = text.partition(" ")
        if not space:
            for command, about in self._commands.items():
                if command.startswith(name):
                    yield Completion(
                        f"/{command}",
                        start_position=-len(text) - 1,
                        display=f"/{command}",
                        display_meta=about,
                    )
            return
        for value in self._arguments(name):
            if value.startswith(argument):
                yield Completion(value, start_position=-len(argument))


class FolderFiles:
    """The files of a folder, without those that git ignores."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._listed: list[str] = []
        self._listed_at = -FILES_KEPT_S

    def list(self) -> Sequence[str]:
        now = time.monotonic()
        if now - self._listed_at >= FILES_KEPT_S:
            self._listed = self._read()
            self._listed_at = now
        return self._listed

    def _read(self) -> "list[str]":
        output = run_git(self._folder, "ls-files", "-z", "-co", "--exclude-standard")
        if output is not None:
            names = (name for name in output.split("\0") if name.isprintable() and name)
        else:
            names = Workspace(self._folder).walk_files()
        return list(islice(names, FILES_MAX))


def find_matches(typed: str, paths: Iterable[str]) -> Iterator[str]:
    """The paths that contain the letters in this order, the nearest first."""
    wanted = typed.lower()
    ranked: list[tuple[int, int, str]] = []
    for path in paths:
        rank = _rank_path(wanted, path.lower())
        if rank is not None:
            ranked.append((rank, len(path), path))
    ranked.sort()
    return (path for _, _, path in ranked)


def _rank_path(wanted: str, path: str) -> int | None:
    """How near a path is to what was typed, 0 being the nearest; None if it does not match."""
    name = path.rpartition("/")[2]
    for rank, is_near in enumerate(
        (path.startswith(wanted), name.startswith(wanted), wanted in name, wanted in path)
    ):
        if is_near:
            return rank
    letters = iter(path)
    return 4 if all(letter in letters for letter in wanted) else None
