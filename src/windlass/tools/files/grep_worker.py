"""Finds the lines that match a pattern, in its own process.

Invariant: a pattern that takes forever does not block the runtime. Python's `re` does not let other
threads run while it matches, so a pattern from a model is never matched in the process of the
runtime. This process also ends by its own alarm, even if the process that started it is gone.

It runs without the rest of the package (see `helper_programs`), and in a sandbox without files and
network where there is one: it needs nothing but its standard input and output. The first line on
standard input is JSON that says what to look for. Each file follows as its length, the number of
matches still wanted, and its bytes. The answer to each file is one line of JSON: the lines found,
each as number, whether it matches, and text.
"""

import json
import re
import signal
import sys
from typing import Any, BinaryIO

LINE_CHARS_MAX = 300
"""Characters of a line that are shown."""
BEFORE_CHARS = 100
"""Characters of a long line that are shown before its match."""


def main() -> None:
    answer_requests(sys.stdin.buffer, sys.stdout.buffer)


def answer_requests(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer one request after another, until the input ends."""
    request = json.loads(requests.readline())
    signal.alarm(request["seconds"])
    try:
        flags = re.IGNORECASE if request["ignore_case"] else 0
        pattern = re.compile(request["pattern"], flags)
    except (re.error, OverflowError, RecursionError) as error:
        _send_answer(answers, str(error))
        return
    _send_answer(answers, None)
    while head := requests.read(16):
        data = requests.read(int.from_bytes(head[:8], "big"))
        wanted = int.from_bytes(head[8:], "big")
        _send_answer(answers, find_matches(pattern, split_lines(data), request["context"], wanted))


def split_lines(data: bytes) -> list[str]:
    """Split a file into the lines that `read` numbers."""
    text = data.decode("utf-8-sig", "replace")
    if not text:
        return []
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


def find_matches(
    pattern: re.Pattern[str], lines: list[str], context: int, wanted: int
) -> list[tuple[int, bool, str]]:
    """Return number, whether it matches, and text of each match and each line around it."""
    matched: dict[int, str] = {}
    for index, line in enumerate(lines):
        if len(matched) == wanted:
            break
        if (match := pattern.search(line)) is not None:
            matched[index] = _shorten_line(line, match.start())
    shown = {
        near
        for index in matched
        for near in range(max(0, index - context), min(len(lines), index + context + 1))
    }
    return [
        (index + 1, index in matched, matched.get(index) or _shorten_line(lines[index], 0))
        for index in sorted(shown)
    ]


def _shorten_line(line: str, match_start: int) -> str:
    if len(line) <= LINE_CHARS_MAX:
        return line
    start = max(0, min(match_start - BEFORE_CHARS, len(line) - LINE_CHARS_MAX))
    end = start + LINE_CHARS_MAX
    before = "…" if start else ""
    after = "…" if end < len(line) else ""
    return f"{before}{line[start:end]}{after}"


def _send_answer(answers: BinaryIO, answer: Any) -> None:  # noqa: ANN401 - any JSON
    answers.write(json.dumps(answer).encode() + b"\n")
    answers.flush()
