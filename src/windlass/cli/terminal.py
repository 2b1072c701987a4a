"""The keyboard of a terminal, read without blocking a run: one key, or one line.

The law: however a question ends, also by a cancel, the terminal is left as it was found.
"""

import asyncio
import os
import sys
import termios
import tty
from collections.abc import Callable, Generator
from contextlib import contextmanager

CHUNK_BYTES = 4096


class Keyboard:
    """What a person types while a run goes on."""

    def __init__(self, fd: int | None = None) -> None:
        self._fd = sys.stdin.fileno() if fd is None else fd

    async def read_key(self, show: Callable[[], None]) -> str:
        """Show a question, and take one key. What was typed before it does not answer it."""
        with self._preserve_mode():
            tty.setcbreak(self._fd, termios.TCSAFLUSH)
            show()
            typed = await self._read_typed()
        # An arrow, or a paste, begins like a key and is none.
        return typed if len(typed) == 1 else ("\x04" if not typed else "?")

    async def read_line(self, show: Callable[[], None]) -> str | None:
        """Show a question, and take a line, as the terminal lets one edit it; None at the end."""
        with self._preserve_mode():
            _set_flags(self._fd, termios.ICANON | termios.ECHO, on=True)
            show()
            typed = await self._read_typed()
        return typed.rstrip("\r\n") if typed else None

    @contextmanager
    def _preserve_mode(self) -> Generator[None]:
        before = termios.tcgetattr(self._fd)
        try:
            yield
        finally:
            termios.tcsetattr(self._fd, termios.TCSADRAIN, before)

    async def _read_typed(self) -> str:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_reader(self._fd, lambda: ready.done() or ready.set_result(None))
        try:
            await ready
        finally:
            loop.remove_reader(self._fd)
        return os.read(self._fd, CHUNK_BYTES).decode("utf-8", "replace")


def read_stdin_line() -> str | None:
    """A line, where no run goes on that could be held up; None at the end of the input."""
    try:
        return input().strip()
    except EOFError:
        return None


def has_keyboard() -> bool:
    """Whether somebody can be asked: there is a terminal at both ends, and it is ours for now."""
    shown = sys.stdout.isatty() or sys.stderr.isatty()
    return sys.stdin.isatty() and shown and _is_foreground(sys.stdin.fileno())


@contextmanager
def suppress_echo() -> Generator[None]:
    """While a run is shown, what is typed does not go in between: it waits for the next prompt."""
    if not has_keyboard():
        yield
        return
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    _set_flags(fd, termios.ECHO, on=False)
    try:
        yield
    finally:
        # A program in the background that touches the terminal is stopped.
        if _is_foreground(fd):
            termios.tcsetattr(fd, termios.TCSADRAIN, before)


def terminal_restorer() -> Callable[[], None]:
    """Puts the terminal back as it is now, for those who leave without saying goodbye."""
    if not has_keyboard():
        return lambda: None
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    return lambda: termios.tcsetattr(fd, termios.TCSANOW, before)


def _is_foreground(fd: int) -> bool:
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return False


def _set_flags(fd: int, flags: int, *, on: bool) -> None:
    attributes = termios.tcgetattr(fd)
    attributes[3] = attributes[3] | flags if on else attributes[3] & ~flags
    termios.tcsetattr(fd, termios.TCSADRAIN, attributes)
