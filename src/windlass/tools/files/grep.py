"""Lines that match a pattern, in the files of a workspace.

The law: what is shown was read through the workspace, and matched by `grep_worker`. ripgrep, where
it is there and where it understands a pattern as Python does, only says which files are worth
reading, so that the answer is the same with it and without.
"""

import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from windlass.core.errors import ModelRetry
from windlass.tools.files.globs import Glob
from windlass.tools.files.reading import is_binary, visible
from windlass.tools.files.workspace import SKIPPED, Workspace
from windlass.tools.run_context import RunContext

FILE_BYTES_MAX = 10 * 2**20
"""Of a longer file, only the beginning is searched."""
SECONDS_MAX = 30
"""For one search, all files together."""

_WORKER = Path(__file__).with_name("grep_worker.py")
# What ripgrep may be asked: where its dialect and Python's differ, it is left out. A carriage
# return at the end of a line is a part of it to ripgrep, so `$` is left out, too.
_SHARED = re.compile(
    r"(?!.*(?:&&|~~|--|\[\[|\[:|\(\?|\{,))(?:[^\\$\n]|\\[wWdDsSb.*+?()|^$\[\]{}\\/-])+", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Search:
    """What to look for, and where."""

    pattern: str
    path: str
    glob: Glob | None
    ignore_case: bool
    context: int
    matches_max: int


def search(workspace: Workspace, asked: Search, run: RunContext) -> str:
    """The lines that match, as `path:number:line`, and those around as `path-number-line`."""
    shown: list[str] = []
    left = asked.matches_max
    try:
        with _worker(asked) as worker:
            for path, data in _files(workspace, asked):
                if run.cancelled:
                    break
                lines = worker.find(data, left)
                left -= sum(matches for _, matches, _ in lines)
                shown += _lines(path, lines, asked.context)
                if left <= 0:
                    shown.append(f"[stopped at {asked.matches_max} matches: narrow the search]")
                    break
    except _TooLongError:
        if not shown:
            raise ModelRetry(
                f"The search took more than {SECONDS_MAX} s: narrow `path`, or simplify `pattern`."
            ) from None
        shown.append(f"[stopped after {SECONDS_MAX} s: narrow `path`, or simplify `pattern`]")
    return "\n".join(shown) or "No line matches."


_Line = tuple[int, bool, str]


def _lines(path: str, lines: Iterable[_Line], context: int) -> Iterator[str]:
    name, before = visible(path), None
    for number, matches, text in lines:
        if context and before != number - 1:
            yield "--"
        before = number
        mark = ":" if matches else "-"
        yield f"{name}{mark}{number}{mark}{text}"


class _TooLongError(Exception):
    """The worker's time was up."""


class _Worker:
    """The process that matches."""

    def __init__(self, sent: IO[bytes], answers: IO[bytes]) -> None:
        self._sent = sent
        self._answers = answers

    def ask(self, request: bytes) -> Any:  # noqa: ANN401 - JSON of our own
        with suppress(BrokenPipeError):
            self._sent.write(request)
            self._sent.flush()
        answer = self._answers.readline()
        if not answer:
            raise _TooLongError
        return json.loads(answer)

    def find(self, data: bytes, wanted: int) -> list[_Line]:
        return self.ask(len(data).to_bytes(8, "big") + wanted.to_bytes(8, "big") + data)


@contextmanager
def _worker(asked: Search) -> Generator[_Worker]:
    command = [sys.executable, "-I", "-S", "-W", "ignore", str(_WORKER)]
    process = subprocess.Popen(  # noqa: S603 - our own program
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    alarm = threading.Timer(SECONDS_MAX, process.kill)
    alarm.daemon = True
    alarm.start()
    try:
        if process.stdin is None or process.stdout is None:
            raise _TooLongError
        worker = _Worker(process.stdin, process.stdout)
        request = {
            "pattern": asked.pattern,
            "ignore_case": asked.ignore_case,
            "context": asked.context,
            "seconds": SECONDS_MAX + 5,
        }
        wrong = worker.ask(json.dumps(request).encode() + b"\n")
        if wrong is not None:
            raise ModelRetry(f"`pattern` is not a regular expression: {wrong}.")
        yield worker
    finally:
        alarm.cancel()
        process.kill()
        process.wait()
        for pipe in filter(None, (process.stdin, process.stdout)):
            with suppress(BrokenPipeError):  # What was not sent is not missed.
                pipe.close()


def _files(workspace: Workspace, asked: Search) -> Iterator[tuple[str, bytes]]:
    """The text files that are worth a look, in order."""
    base = workspace.locate(asked.path)
    if not workspace.is_folder(base):
        yield base, workspace.read(base, FILE_BYTES_MAX).data
        return
    candidates = _by_ripgrep(workspace, base, asked)
    below = "" if base == "." else f"{base}/"
    for path in workspace.walk(base) if candidates is None else candidates:
        if asked.glob is not None and not asked.glob.fits(path.removeprefix(below)):
            continue
        with suppress(ModelRetry, OSError):  # It went away, or may not be read.
            data = workspace.read(path, FILE_BYTES_MAX).data
            if not is_binary(data):
                yield path, data


def _by_ripgrep(workspace: Workspace, base: str, asked: Search) -> list[str] | None:
    """The files in which ripgrep sees a match, or None if it cannot be asked."""
    program = shutil.which("rg")
    if program is None or not _SHARED.fullmatch(asked.pattern) or not asked.pattern.isascii():
        return None
    skipped = [f"--glob=!{name}/" for name in sorted(SKIPPED)]
    case = "--ignore-case" if asked.ignore_case else "--case-sensitive"
    options = ["--no-config", "--no-ignore", "--hidden", "--text", "--no-messages", case]
    command = [program, *options, *skipped, "--files-with-matches", "--null", "-e", asked.pattern]
    try:
        done = subprocess.run(  # noqa: S603 - a program that was found, and no shell
            [*command, "."],
            cwd=workspace.root / base,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode not in {0, 1}:
        return None
    below = "" if base == "." else f"{base}/"
    names = done.stdout.decode("utf-8", "surrogateescape").split("\0")
    found = [below + name.removeprefix("./") for name in names if name]
    return sorted(found, key=lambda path: path.split("/"))
