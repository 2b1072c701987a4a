"""A person at a terminal: a program in a pseudo-terminal, typed at, with its screen read back."""

import codecs
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

PATIENCE_S = 30.0
TAKE = (
    "import fcntl, os, sys, termios;"
    "fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    "os.execvp(sys.argv[1], sys.argv[1:])"
)
"""Makes the terminal the program's own, so that Ctrl-C reaches it, and becomes the program."""
CONTROL = re.compile(
    r"\x1b\[(?P<args>[0-9;?]*)(?P<end>[A-Za-z])|\x1b\][^\x07]*\x07|\x1b[()][A-Z0-9]|\x1b[=>78]"
)


class ScreenPage:
    """What a terminal shows, for the few controls that our programs and readline use."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.rows: list[list[str]] = [[]]
        self.row = self.column = 0
        self._rest = ""

    def feed(self, text: str) -> None:
        text = self._rest + text
        at = 0
        while at < len(text):
            if text[at] == "\x1b":
                found = CONTROL.match(text, at)
                if found is None:
                    break
                self._apply_control(found["end"] or "", found["args"] or "")
                at = found.end()
                continue
            self._put_char(text[at])
            at += 1
        self._rest = text[at:]

    def _put_char(self, char: str) -> None:
        if char == "\r":
            self.column = 0
        elif char == "\n":
            self.row += 1
            if self.row == len(self.rows):
                self.rows.append([])
        elif char == "\b":
            self.column = max(0, self.column - 1)
        elif char >= " ":
            if self.column == self.width:
                self._put_char("\r")
                self._put_char("\n")
            line = self.rows[self.row]
            line.extend(" " * (self.column + 1 - len(line)))
            line[self.column] = char
            self.column += 1

    def _apply_control(self, end: str, args: str) -> None:
        count = int(args) if args.isdecimal() else 1
        match end:
            case "K":
                del self.rows[self.row][self.column :]
            case "C":
                self.column += count
            case "D":
                self.column = max(0, self.column - count)
            case "A":
                self.row = max(0, self.row - count)
            case "J":
                del self.rows[self.row][self.column :]
                del self.rows[self.row + 1 :]
            case "H":
                self.rows = [[]]
                self.row = 0
                self.column = 0
            case _:
                pass

    @property
    def text(self) -> str:
        return "\n".join("".join(row).rstrip() for row in self.rows)


class Terminal:
    """A program in its own terminal."""

    def __init__(
        self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, width: int = 80
    ) -> None:
        self.page = ScreenPage(width)
        self.raw = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._fd, child = pty.openpty()
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-c", TAKE, *argv],
            stdin=child,
            stdout=child,
            stderr=child,
            cwd=cwd,
            env={**env, "TERM": "xterm-256color"},
            start_new_session=True,
        )
        os.close(child)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._fd)

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def interrupt(self) -> None:
        self.type("\x03")

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def resize(self, width: int) -> None:
        self.page.width = width
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))

    def input_modes(self) -> int:
        """Return how the terminal treats input: echo, line mode, signals."""
        return termios.tcgetattr(self._fd)[3]

    def wait_for_text(self, words: str, *, count: int = 1) -> str:
        """Read until the text is on the page `count` times. Returns the page."""
        deadline = time.monotonic() + PATIENCE_S
        while self.page.text.count(words) < count:
            if time.monotonic() > deadline or not self._read():
                shown = f"{words!r} did not come. The page:\n{self.page.text}"
                raise AssertionError(shown)
        return self.page.text

    def wait_for_exit(self) -> int:
        """Read until the program ends; its exit code."""
        deadline = time.monotonic() + PATIENCE_S
        while self._read():
            if time.monotonic() > deadline:
                raise AssertionError(f"it did not end. The page:\n{self.page.text}")
        return self.process.wait(PATIENCE_S)

    def _read(self) -> bool:
        """Take in what there is, or wait a moment; whether more may come."""
        ready, _, _ = select.select([self._fd], [], [], 0.1)
        if not ready:
            return self.process.poll() is None
        try:
            data = os.read(self._fd, 65536)
        except OSError:
            return False
        text = self._decoder.decode(data)
        self.raw += text
        self.page.feed(text)
        return bool(data)
