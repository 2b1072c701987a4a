"""Search for lines that match a pattern in the files of a workspace.

Invariant: every line shown was read through the workspace and matched by `grep_worker`. ripgrep
only narrows down which files to read, and only if it is installed and understands the pattern as
Python does. So the answer is the same with and without it.
"""

import json
import re
import subprocess
import threading
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from windlass.core.errors import ModelRetry
from windlass.tools.files.file_globs import FileGlob
from windlass.tools.files.grep_worker import answer_requests
from windlass.tools.files.reading import is_binary, printable_name
from windlass.tools.files.workspace import SKIPPED_FOLDERS, Workspace
from windlass.tools.helper_programs import build_program, find_program, python_command
from windlass.tools.run_context import RunContext
from windlass.tools.shell.sandbox import confine_helper

SEARCHED_BYTES_MAX = 10 * 2**20
"""Only this much of a file is searched."""
SEARCH_S_MAX = 30
"""Seconds for one search over all files."""

_WORKER = build_program(answer_requests.__module__)
# Patterns that mean the same to ripgrep and to Python. `$` is left out, because for ripgrep a
# carriage return at the end of a line is a part of the line.
_RIPGREP_SAFE = re.compile(
    r"(?!.*(?:&&|~~|--|\[\[|\[:|\(\?|\{,))(?:[^\\$\n]|\\[wWdDsSb.*+?()|^$\[\]{}\\/-])+", re.ASCII
)


@dataclass(frozen=True, slots=True)
class GrepQuery:
    """What to search for, and where."""

    pattern: str
    path: str
    glob: FileGlob | None
    ignore_case: bool
    context: int
    """Lines to show before and after each match."""
    matches_max: int


def search_files(workspace: Workspace, query: GrepQuery, context: RunContext) -> str:
    """Return matching lines as `path:number:line`, and the lines around as `path-number-line`.

    Raises ModelRetry if the pattern is invalid, or if nothing was found within SEARCH_S_MAX.
    """
    output: list[str] = []
    matches_left = query.matches_max
    try:
        with _start_worker(query, workspace.root) as worker:
            for path, data in _candidate_files(workspace, query):
                if context.cancelled:
                    break
                lines = worker.find_lines(data, matches_left)
                matches_left -= sum(matches for _, matches, _ in lines)
                output += _format_lines(path, lines, query.context)
                if matches_left <= 0:
                    output.append(f"[stopped at {query.matches_max} matches: narrow the search]")
                    break
    except _SearchTimeoutError:
        if not output:
            raise ModelRetry(
                f"The search took more than {SEARCH_S_MAX} s. Narrow `path` or simplify `pattern`."
            ) from None
        output.append(f"[stopped after {SEARCH_S_MAX} s: narrow `path` or simplify `pattern`]")
    return "\n".join(output) or "No line matches."


_FoundLine = tuple[int, bool, str]
"""Line number, whether the line matches, and its text."""


def _format_lines(path: str, lines: Iterable[_FoundLine], context: int) -> Iterator[str]:
    name = printable_name(path)
    previous = None
    for number, matches, text in lines:
        if context and previous != number - 1:
            yield "--"
        previous = number
        mark = ":" if matches else "-"
        yield f"{name}{mark}{number}{mark}{text}"


class _SearchTimeoutError(Exception):
    """The worker was killed because its time was up."""


class _GrepWorker:
    """The process that matches; see `grep_worker` for what is sent."""

    def __init__(self, requests: IO[bytes], answers: IO[bytes]) -> None:
        self._requests = requests
        self._answers = answers

    def send_request(self, request: bytes) -> Any:  # noqa: ANN401 - JSON of our own
        with suppress(BrokenPipeError):  # It was killed: there is no answer either.
            self._requests.write(request)
            self._requests.flush()
        answer = self._answers.readline()
        if not answer:
            raise _SearchTimeoutError
        return json.loads(answer)

    def find_lines(self, data: bytes, wanted: int) -> list[_FoundLine]:
        return self.send_request(len(data).to_bytes(8, "big") + wanted.to_bytes(8, "big") + data)


@contextmanager
def _start_worker(query: GrepQuery, root: Path) -> Generator[_GrepWorker]:
    process = subprocess.Popen(  # noqa: S603 - our own program
        confine_helper(python_command(_WORKER), root),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={},
        cwd="/",
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
        pattern_error = worker.send_request(json.dumps(request).encode() + b"\n")
        if pattern_error is not None:
            raise ModelRetry(f"`pattern` is not a valid regular expression: {pattern_error}.")
        yield worker
    finally:
        alarm.cancel()
        process.kill()
        process.wait()
        for pipe in filter(None, (process.stdin, process.stdout)):
            with suppress(BrokenPipeError):  # Closing flushes what the dead worker never read.
                pipe.close()


def _candidate_files(workspace: Workspace, query: GrepQuery) -> Iterator[tuple[str, bytes]]:
    """Yield path and content of the text files to search, in order."""
    base = workspace.locate_path(query.path)
    if not workspace.is_folder(base):
        yield base, workspace.read_file(base, SEARCHED_BYTES_MAX).data
        return
    paths: Iterable[str] | None = _list_with_ripgrep(workspace, base, query)
    if paths is None:
        paths = workspace.walk_files(base)
    prefix = "" if base == "." else f"{base}/"
    for path in paths:
        if query.glob is not None and not query.glob.matches_path(path.removeprefix(prefix)):
            continue
        with suppress(ModelRetry, OSError):  # It was removed meanwhile, or may not be read.
            data = workspace.read_file(path, SEARCHED_BYTES_MAX).data
            if not is_binary(data):
                yield path, data


def _list_with_ripgrep(workspace: Workspace, base: str, query: GrepQuery) -> list[str] | None:
    """List the files in which ripgrep finds a match; None if ripgrep cannot be used."""
    program = find_program("rg", workspace.root)
    if program is None or not _RIPGREP_SAFE.fullmatch(query.pattern) or not query.pattern.isascii():
        return None
    skipped = [f"--glob=!{name}/" for name in sorted(SKIPPED_FOLDERS)]
    case = "--ignore-case" if query.ignore_case else "--case-sensitive"
    options = ["--no-config", "--no-ignore", "--hidden", "--text", "--no-messages", case]
    command = [program, *options, *skipped, "--files-with-matches", "--null", "-e", query.pattern]
    try:
        done = subprocess.run(  # noqa: S603 - a program that was found, without a shell
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
    prefix = "" if base == "." else f"{base}/"
    names = done.stdout.decode("utf-8", "surrogateescape").split("\0")
    found = [prefix + name.removeprefix("./") for name in names if name]
    return sorted(found, key=lambda path: path.split("/"))
