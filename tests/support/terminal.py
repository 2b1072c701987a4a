"""A person at a terminal: a program in a pseudo-terminal, typed at, with its screen read back."""

import codecs
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pyte
import pyte.screens

PATIENCE_S = 30.0
TAKE = (
    "import fcntl, os, signal, sys, termios;"
    "fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    "signals = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM);"
    "[signal.signal(number, signal.SIG_DFL) for number in signals];"
    "os.execvp(sys.argv[1], sys.argv[1:])"
)
"""Makes the terminal the program's own, so that Ctrl-C reaches it, and becomes the program.

As in every terminal, no signal is ignored, although the tests themselves may run under `nohup`.
"""
ROWS = 40
SCROLLED_MAX = 10_000


class ScreenPage:
    """What a terminal shows, with the lines that have scrolled out at its top."""

    def __init__(self, width: int, rows: int = ROWS) -> None:
        self._screen = pyte.HistoryScreen(width, rows, history=SCROLLED_MAX, ratio=0.001)
        self._stream = pyte.Stream(self._screen)

    def feed(self, text: str) -> None:
        self._stream.feed(text)

    def resize(self, width: int) -> None:
        self._screen.resize(columns=width)

    @property
    def visible(self) -> list[str]:
        """The lines of the window, without blank ones at its end."""
        lines = [line.rstrip() for line in self._screen.display]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    @property
    def text(self) -> str:
        scrolled = [
            "".join(line[at].data for at in range(self._screen.columns)).rstrip()
            for line in self._screen.history.top
        ]
        return "\n".join([*scrolled, *self.visible])

    def style_of(self, words: str) -> pyte.screens.Char:
        """The first character of words in the window, with its colours."""
        for row, line in enumerate(self._screen.display):
            if words in line:
                return self._screen.buffer[row][line.index(words)]
        raise AssertionError(f"{words!r} is not in the window")


class Terminal:
    """A program in its own terminal."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        width: int = 80,
        rows: int = ROWS,
    ) -> None:
        self.page = ScreenPage(width, rows)
        self.raw = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._fd, child = pty.openpty()
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, width, 0, 0))
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
        self.close_window()

    def close_window(self) -> None:
        """Close the terminal, as a person does who closes its window."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def interrupt(self) -> None:
        self.type("\x03")

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def resize(self, width: int) -> None:
        self.page.resize(width)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, width, 0, 0))

    def input_modes(self) -> int:
        """Return how the terminal treats input: echo, line mode, signals."""
        return termios.tcgetattr(self._fd)[3]

    def wait_for_text(self, words: str, *, count: int = 1) -> str:
        """Read until the text is on the page `count` times, wrapped or not. Returns the page."""
        deadline = time.monotonic() + PATIENCE_S
        while self._count_words(words) < count:
            if time.monotonic() > deadline or not self._read():
                shown = f"{words!r} did not come. The page:\n{self.page.text}"
                raise AssertionError(shown)
        return self.page.text

    def _count_words(self, words: str) -> int:
        page = self.page.text
        return max(page.count(words), " ".join(page.split()).count(words))

    def wait_until(self, is_there: Callable[[Sequence[str]], bool]) -> str:
        """Read until the lines of the window are as they should be. Returns the page."""
        deadline = time.monotonic() + PATIENCE_S
        while len(self.page.visible) < 2 or not is_there(self.page.visible):
            if time.monotonic() > deadline or not self._read():
                raise AssertionError(f"it did not come. The page:\n{self.page.text}")
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
