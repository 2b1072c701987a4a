"""The keyboard of a terminal, read without blocking a run: one key, or one line.

The law: however a question ends, also by a cancel, the terminal gets its old mode back.
"""

import asyncio
import os
import sys
import termios
import tty
from collections.abc import Callable, Generator
from contextlib import contextmanager

CHUNK_BYTES = 4096
LOCAL_FLAGS = 3
"""The index of the local modes in the attributes of a terminal."""
END_OF_INPUT = "\x04"
"""Ctrl-D."""


class Keyboard:
    """Reads what a person types while a run is going on."""

    def __init__(self, fd: int | None = None) -> None:
        self._fd = sys.stdin.fileno() if fd is None else fd

    async def read_key(self, show: Callable[[], None]) -> str:
        """Show a question, and return one key; Ctrl-D at the end of the input.

        Keys that were pressed before the question are thrown away.
        """
        with self._preserve_mode():
            # TCSAFLUSH throws away what was typed before the question was shown.
            tty.setcbreak(self._fd, termios.TCSAFLUSH)
            show()
            typed = await self._read_typed()
        if not typed:
            return END_OF_INPUT
        # An arrow key, or a paste, is more than one character, and no answer.
        return typed if len(typed) == 1 else "?"

    async def read_line(self, show: Callable[[], None]) -> str | None:
        """Show a question, and return a line, with the terminal's editing; None at the end."""
        with self._preserve_mode():
            _set_flags(self._fd, termios.ICANON | termios.ECHO, on=True)
            show()
            typed = await self._read_typed()
        if not typed:
            return None
        return typed.rstrip("\r\n")

    @contextmanager
    def _preserve_mode(self) -> Generator[None]:
        before = termios.tcgetattr(self._fd)
        try:
            yield
        finally:
            termios.tcsetattr(self._fd, termios.TCSADRAIN, before)

    async def _read_typed(self) -> str:
        """What was typed; empty at the end of the input. A cancel ends the wait at once."""
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_reader(self._fd, lambda: ready.done() or ready.set_result(None))
        try:
            await ready
        finally:
            loop.remove_reader(self._fd)
        return os.read(self._fd, CHUNK_BYTES).decode("utf-8", "replace")


def read_stdin_line() -> str | None:
    """A line of standard input; None at its end. Blocks, so use it only between runs."""
    try:
        return input().strip()
    except EOFError:
        return None


def has_keyboard() -> bool:
    """Whether a person can be asked: at a terminal, with this process in its foreground."""
    is_seen = sys.stdout.isatty() or sys.stderr.isatty()
    return sys.stdin.isatty() and is_seen and _is_foreground(sys.stdin.fileno())


@contextmanager
def suppress_echo() -> Generator[None]:
    """Hide what is typed during the block; it is kept for the next prompt."""
    if not has_keyboard():
        yield
        return
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    _set_flags(fd, termios.ECHO, on=False)
    try:
        yield
    finally:
        # The kernel stops a background process that changes the terminal.
        if _is_foreground(fd):
            termios.tcsetattr(fd, termios.TCSADRAIN, before)


def terminal_restorer() -> Callable[[], None]:
    """A function that restores the present mode, for code that exits with `os._exit`."""
    if not has_keyboard():
        return lambda: None
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    return lambda: termios.tcsetattr(fd, termios.TCSANOW, before)


def _is_foreground(fd: int) -> bool:
    """Whether the terminal belongs to this process, and not to the shell that put it aside."""
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return False


def _set_flags(fd: int, flags: int, *, on: bool) -> None:
    attributes = termios.tcgetattr(fd)
    if on:
        attributes[LOCAL_FLAGS] |= flags
    else:
        attributes[LOCAL_FLAGS] &= ~flags
    termios.tcsetattr(fd, termios.TCSADRAIN, attributes)
