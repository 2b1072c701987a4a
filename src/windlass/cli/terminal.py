"""The keyboard of a terminal, read without blocking a run, and the signals that close it.

Invariant: however a question ends, also by a cancel, the terminal gets its old mode back. But a
terminal that was closed, or that belongs to another process by now, is left alone: the kernel stops
a background process that changes it.
"""

import asyncio
import os
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from windlass.lazy_modules import LazyModules, lazy_attributes


if TYPE_CHECKING:
    from prompt_toolkit.output import ColorDepth as ColorDepth, Output as Output
    from windlass.cli.list_picker import pick_from_list as pick_from_list

LAZY_MODULES: LazyModules = {
    "windlass.cli.list_picker": "pick_from_list",
}
"""Only a person who chooses from a list needs it, and it takes long to load."""
if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(__name__, LAZY_MODULES)

CHUNK_BYTES = 4096
INPUT_FLAGS = 0
LOCAL_FLAGS = 3
"""The indices of the input modes and the local modes in the attributes of a terminal."""
TERMINAL_GONE: tuple[type[Exception], ...] = (OSError, termios.error)
"""What reading, writing and changing modes raises once a terminal is closed."""
END_OF_INPUT = "\x04"
"""Ctrl-D."""
LEAVE_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
"""They end the process; SIGHUP comes when a terminal is closed."""
QUIET_S = 0.7
"""A person who has not typed for this long has seen the question."""


class Keyboard:
    """Reads what a person types during a run."""

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

    async def read_line(self, label: str, default: str = "") -> str | None:
        """A line that a person types or edits; None at the end of the input, or after Ctrl-C."""
        # Imported here, because only a person who types a line needs it.
        from prompt_toolkit import PromptSession  # noqa: PLC0415

        session: PromptSession[str] = PromptSession(label, output=make_line_output())
        try:
            return await session.prompt_async(default=default, handle_sigint=False)
        except EOFError:
            return None
        except KeyboardInterrupt:
            # Here Ctrl-C is a key. It means the same as everywhere else in a run.
            os.kill(os.getpid(), signal.SIGINT)
            return None

    async def wait_for_quiet(self, quiet_s: float = QUIET_S) -> str:
        """Wait until the person stops typing. Returns what was typed until then."""
        typed = ""
        with self._preserve_mode():
            tty.setcbreak(self._fd, termios.TCSADRAIN)
            while True:
                try:
                    async with asyncio.timeout(quiet_s):
                        more = await self._read_typed()
                except TimeoutError:
                    return typed
                if not more:
                    return typed
                typed += more

    @contextmanager
    def _preserve_mode(self) -> Generator[None]:
        before = termios.tcgetattr(self._fd)
        try:
            yield
        finally:
            _restore_mode(self._fd, before)

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


def make_line_output() -> "Output | None":
    """Standard output for a line editor, which must not ask the terminal where its cursor is.

    None where the terminal can do nothing but print.
    """
    from prompt_toolkit.data_structures import Size  # noqa: PLC0415 - as above
    from prompt_toolkit.output.vt100 import Vt100_Output  # noqa: PLC0415
    from prompt_toolkit.utils import is_dumb_terminal  # noqa: PLC0415

    if is_dumb_terminal():
        return None

    def measure() -> Size:
        columns, rows = shutil.get_terminal_size()
        return Size(rows=rows, columns=columns)

    return Vt100_Output(
        sys.stdout,
        measure,
        default_color_depth=find_color_depth(),
        enable_bell=False,
        enable_cpr=False,
    )


def find_color_depth() -> "ColorDepth | None":
    """No colours with `NO_COLOR`, and otherwise those that the terminal has."""
    from prompt_toolkit.output import ColorDepth  # noqa: PLC0415 - as above
    from rich.console import Console  # noqa: PLC0415

    return ColorDepth.DEPTH_1_BIT if Console().no_color else None


async def choose_from_list(question: str, rows: Sequence[str]) -> int | None:
    """The index of the row that a person chooses from a list; None if they leave."""
    this_module: Any = sys.modules[__name__]
    return await this_module.pick_from_list(question, rows, make_line_output())


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
    quiet = termios.tcgetattr(fd)
    quiet[LOCAL_FLAGS] &= ~termios.ECHO
    termios.tcsetattr(fd, termios.TCSADRAIN, quiet)
    try:
        yield
    finally:
        _restore_mode(fd, before)


@contextmanager
def keep_typed_keys() -> Generator[None]:
    """Keep what is typed during the block for the next prompt, as the keys that were pressed.

    Without this, the terminal would show them wherever its cursor is, turn Enter into the key for a
    new line, and swallow Ctrl-D.
    """
    if not has_keyboard():
        yield
        return
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    quiet = termios.tcgetattr(fd)
    quiet[INPUT_FLAGS] &= ~termios.ICRNL
    quiet[LOCAL_FLAGS] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(fd, termios.TCSADRAIN, quiet)
    try:
        yield
    finally:
        _restore_mode(fd, before)


def terminal_restorer() -> Callable[[], None]:
    """A function that restores the present mode, for code that exits with `os._exit`."""
    if not has_keyboard():
        return lambda: None
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    return lambda: _restore_mode(fd, before, termios.TCSANOW)


def _restore_mode(fd: int, mode: list[Any], when: int = termios.TCSADRAIN) -> None:
    if _is_foreground(fd):
        # The terminal can be closed in between.
        with suppress(termios.error):
            termios.tcsetattr(fd, when, mode)


def _is_foreground(fd: int) -> bool:
    """Whether the terminal belongs to this process, and not to the shell that put it aside."""
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return False


@contextmanager
def receive_leave_signals(receive: Callable[[int], None]) -> Generator[None]:
    """Call a function with each signal to end the process that comes during the block.

    None is lost, whenever it comes. A handler of the event loop would run one turn later, so a
    signal that comes just before the handler is removed would have no effect. Python runs the
    handlers here at once, and always before it replaces one of them.

    It may only note the signal, and act on it by `call_soon_threadsafe`. When the block is left,
    every signal that came in it has been noted.
    """
    before: dict[int, Any] = {}
    for number in LEAVE_SIGNALS:
        # Signals that our parent process made us ignore (nohup) stay ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, lambda number, _frame: receive(number))
            # System calls that Python cannot repeat, such as those for terminal modes, continue.
            signal.siginterrupt(number, False)  # noqa: FBT003 - it takes no keyword
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
