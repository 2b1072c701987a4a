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
from windlass.tools.files.globs import FileGlob
from windlass.tools.files.reading import is_binary, printable_name
from windlass.tools.files.workspace import SKIPPED_FOLDERS, Workspace
from windlass.tools.run_context import RunContext

SEARCHED_BYTES_MAX = 10 * 2**20
"""Of a longer file, only the beginning is searched."""
SEARCH_S_MAX = 30
"""For one search, all files together."""

_WORKER_PATH = Path(__file__).with_name("grep_worker.py")
# What ripgrep may be asked: where its dialect and Python's differ, it is left out. A carriage
# return at the end of a line is a part of it to ripgrep, so `$` is left out, too.
_RIPGREP_SAFE = re.compile(
    r"(?!.*(?:&&|~~|--|\[\[|\[:|\(\?|\{,))(?:[^\\$\n]|\\[wWdDsSb.*+?()|^$\[\]{}\\/-])+", re.ASCII
)


@dataclass(frozen=True, slots=True)
class GrepQuery:
    """What to look for, and where."""

    pattern: str
    path: str
    glob: FileGlob | None
    ignore_case: bool
    context: int
    matches_max: int


def search_files(workspace: Workspace, query: GrepQuery, context: RunContext) -> str:
    """The lines that match, as `path:number:line`, and those around as `path-number-line`."""
    output: list[str] = []
    left = query.matches_max
    try:
        with _start_worker(query) as worker:
            for path, data in _candidate_files(workspace, query):
                if context.cancelled:
                    break
                lines = worker.find_lines(data, left)
                left -= sum(matches for _, matches, _ in lines)
                output += _format_lines(path, lines, query.context)
                if left <= 0:
                    output.append(f"[stopped at {query.matches_max} matches: narrow the search]")
                    break
    except _SearchTimeoutError:
        if not output:
            raise ModelRetry(
                f"The search took more than {SEARCH_S_MAX} s: narrow `path`, or simplify `pattern`."
            ) from None
        output.append(f"[stopped after {SEARCH_S_MAX} s: narrow `path`, or simplify `pattern`]")
    return "\n".join(output) or "No line matches."


_FoundLine = tuple[int, bool, str]


def _format_lines(path: str, lines: Iterable[_FoundLine], context: int) -> Iterator[str]:
    name, before = printable_name(path), None
    for number, matches, text in lines:
        if context and before != number - 1:
            yield "--"
        before = number
        mark = ":" if matches else "-"
        yield f"{name}{mark}{number}{mark}{text}"


class _SearchTimeoutError(Exception):
    """The worker's time was up."""


class _GrepWorker:
    """The process that matches."""

    def __init__(self, sent: IO[bytes], answers: IO[bytes]) -> None:
        self._sent = sent
        self._answers = answers

    def send_request(self, request: bytes) -> Any:  # noqa: ANN401 - JSON of our own
        with suppress(BrokenPipeError):
            self._sent.write(request)
            self._sent.flush()
        answer = self._answers.readline()
        if not answer:
            raise _SearchTimeoutError
        return json.loads(answer)

    def find_lines(self, data: bytes, wanted: int) -> list[_FoundLine]:
        return self.send_request(len(data).to_bytes(8, "big") + wanted.to_bytes(8, "big") + data)


@contextmanager
def _start_worker(query: GrepQuery) -> Generator[_GrepWorker]:
    command = [sys.executable, "-I", "-S", "-W", "ignore", str(_WORKER_PATH)]
    process = subprocess.Popen(  # noqa: S603 - our own program
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    alarm = threading.Timer(SEARCH_S_MAX, process.kill)
    alarm.daemon = True
    alarm.start()
    try:
        if process.stdin is None or process.stdout is None:
            raise _SearchTimeoutError
        worker = _GrepWorker(process.stdin, process.stdout)
        request = {
            "pattern": query.pattern,
            "ignore_case": query.ignore_case,
            "context": query.context,
            "seconds": SEARCH_S_MAX + 5,
        }
        wrong = worker.send_request(json.dumps(request).encode() + b"\n")
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


def _candidate_files(workspace: Workspace, query: GrepQuery) -> Iterator[tuple[str, bytes]]:
    """The text files that are worth a look, in order."""
    base = workspace.locate_path(query.path)
    if not workspace.is_folder(base):
        yield base, workspace.read_file(base, SEARCHED_BYTES_MAX).data
        return
    candidates = _list_with_ripgrep(workspace, base, query)
    below = "" if base == "." else f"{base}/"
    for path in workspace.walk_files(base) if candidates is None else candidates:
        if query.glob is not None and not query.glob.matches_path(path.removeprefix(below)):
            continue
        with suppress(ModelRetry, OSError):  # It went away, or may not be read.
            data = workspace.read_file(path, SEARCHED_BYTES_MAX).data
            if not is_binary(data):
                yield path, data


def _list_with_ripgrep(workspace: Workspace, base: str, query: GrepQuery) -> list[str] | None:
    """The files in which ripgrep sees a match, or None if it cannot be asked."""
    program = shutil.which("rg")
    if program is None or not _RIPGREP_SAFE.fullmatch(query.pattern) or not query.pattern.isascii():
        return None
    skipped = [f"--glob=!{name}/" for name in sorted(SKIPPED_FOLDERS)]
    case = "--ignore-case" if query.ignore_case else "--case-sensitive"
    options = ["--no-config", "--no-ignore", "--hidden", "--text", "--no-messages", case]
    command = [program, *options, *skipped, "--files-with-matches", "--null", "-e", query.pattern]
    try:
        done = subprocess.run(  # noqa: S603 - a program that was found, and no shell
            [*command, "."],
            cwd=workspace.root / base,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SEARCH_S_MAX,
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
