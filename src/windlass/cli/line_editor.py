"""The prompt of a chat: a line with history and completion, or several lines.

For several lines: paste them, end a line with a backslash, or put triple quotes around them.
"""

import contextlib
import re
import select
import signal
import sys
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

HISTORY_MAX = 2_000
PASTE_S = 0.03
"""Lines that arrive faster than this were pasted."""
TRIPLE_QUOTES = '"""'


class LineEditor:
    """Reads what a person types, and keeps a history of it between chats."""

    def __init__(self, mark: str, more: str, *, history: Path | None = None) -> None:
        self._mark = _hide_escapes(mark)
        self._more = _hide_escapes(more)
        self._history = history

    @contextlib.contextmanager
    def enable_readline(self, complete: Callable[[str], Sequence[str]]) -> Generator[None]:
        """Provide history and completion for as long as the block lasts."""
        # Not every Python has readline. Without it, lines are plain, and all else is the same.
        with contextlib.suppress(ImportError):
            import readline  # noqa: PLC0415 - it takes over the terminal when it is imported

            readline.set_completer_delims("")
            readline.set_completer(lambda text, index: _nth_or_none(complete(text), index))
            readline.parse_and_bind("tab: complete")
            readline.set_history_length(HISTORY_MAX)
            if self._history is not None:
                with contextlib.suppress(OSError):
                    readline.read_history_file(self._history)
        try:
            yield
        finally:
            self._save_history()

    def read_prompt(self) -> str | None:
        """The next prompt; None at the end of the input. Raises KeyboardInterrupt on Ctrl-C."""
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return self._read_lines()
        except EOFError:
            return None
        finally:
            signal.signal(signal.SIGINT, before)

    def _read_lines(self) -> str:
        line = input(self._mark)
        if line.strip() == TRIPLE_QUOTES:
            return "\n".join(iter(lambda: input(self._more), TRIPLE_QUOTES))
        lines = [line]
        while lines[-1].endswith("\\") or _has_pasted_input():
            lines[-1] = lines[-1].removesuffix("\\")
            lines.append(input(self._more))
        return "\n".join(lines)

    def _save_history(self) -> None:
        with contextlib.suppress(ImportError, OSError):
            import readline  # noqa: PLC0415 - as above

            readline.set_completer(None)
            if self._history is not None:
                self._history.parent.mkdir(parents=True, exist_ok=True)
                readline.write_history_file(self._history)


def _has_pasted_input() -> bool:
    """Whether more input is waiting: nobody types that fast.

    With GNU readline there is nothing to guess: the terminal marks what was pasted.
    """
    readline = sys.modules.get("readline")
    if readline is not None and "libedit" not in (readline.__doc__ or ""):
        return False
    try:
        return bool(select.select([sys.stdin], [], [], PASTE_S)[0])
    except (OSError, ValueError):
        return False


def _hide_escapes(mark: str) -> str:
    """The prompt with its colours marked, so that readline does not count them as characters."""
    return re.sub(r"(\x1b\[[0-9;]*m)", "\x01\\1\x02", mark)


def _nth_or_none(found: Sequence[str], index: int) -> str | None:
    return found[index] if index < len(found) else None
