"""Finds the lines that a pattern matches, in a process of its own.

The law: a pattern that takes for ever takes nobody along. Python matches without letting another
thread run, so a model's pattern is never matched in the runtime's own process; and this one ends by
its own alarm, whatever became of whoever started it.

Started by its path, with nothing of the package: one line of JSON says what to look for, then each
file comes as its length, the matches that are still wanted and its bytes, and is answered by one
line of JSON: the lines found, each as number, whether it matches, and text.
"""

import json
import re
import signal
import sys
from typing import Any, BinaryIO

LINE_CHARS_MAX = 300
"""What is shown of a line."""
BEFORE_CHARS = 100
"""What is shown of a long line before its match."""


def main(requests: BinaryIO, answers: BinaryIO) -> None:
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
    """The lines as `read` numbers them."""
    text = data.decode("utf-8-sig", "replace")
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []


def find_matches(
    pattern: re.Pattern[str], lines: list[str], context: int, wanted: int
) -> list[tuple[int, bool, str]]:
    matched: dict[int, str] = {}
    for at, line in enumerate(lines):
        if len(matched) == wanted:
            break
        if (match := pattern.search(line)) is not None:
            matched[at] = _shorten_line(line, match.start())
    around = {
        near
        for at in matched
        for near in range(max(0, at - context), min(len(lines), at + context + 1))
    }
    return [
        (at + 1, at in matched, matched[at] if at in matched else _shorten_line(lines[at], 0))
        for at in sorted(around)
    ]


def _shorten_line(line: str, at: int) -> str:
    if len(line) <= LINE_CHARS_MAX:
        return line
    start = max(0, min(at - BEFORE_CHARS, len(line) - LINE_CHARS_MAX))
    end = start + LINE_CHARS_MAX
    return f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''}"


def _send_answer(answers: BinaryIO, answer: Any) -> None:  # noqa: ANN401 - any JSON
    answers.write(json.dumps(answer).encode() + b"\n")
    answers.flush()


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)
