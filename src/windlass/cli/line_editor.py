"""The prompt of a chat: a line with history, or several.

Many lines: paste them, end a line with a backslash, or put them between two lines of three quotes.
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
"""Lines that come so quickly were not typed."""
TRIPLE_QUOTES = '"""'


class LineEditor:
    """Reads what a person types; keeps what they typed for the next time."""

    def __init__(self, mark: str, more: str, *, history: Path | None = None) -> None:
        self._mark, self._more = _hide_escapes(mark), _hide_escapes(more)
        self._history = history

    @contextlib.contextmanager
    def enable_readline(self, complete: Callable[[str], Sequence[str]]) -> Generator[None]:
        """History and completion, for as long as the block lasts."""
        # Not every Python has it; then lines are plain, and all else is the same.
        with contextlib.suppress(ImportError):
            import readline  # noqa: PLC0415 - it takes over the terminal when it is imported

            readline.set_completer_delims("")
            readline.set_completer(lambda text, at: _nth_or_none(complete(text), at))
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
        """The next prompt; None at the end of the input. Ctrl-C raises KeyboardInterrupt."""
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
    """Whether more is there already: nobody types that fast.

    GNU's readline is told by the terminal what was pasted, and needs no guess.
    """
    readline = sys.modules.get("readline")
    if readline is not None and "libedit" not in (readline.__doc__ or ""):
        return False
    try:
        return bool(select.select([sys.stdin], [], [], PASTE_S)[0])
    except (OSError, ValueError):
        return False


def _hide_escapes(mark: str) -> str:
    """A prompt whose colours readline does not count as letters."""
    return re.sub(r"(\x1b\[[0-9;]*m)", "\x01\\1\x02", mark)


def _nth_or_none(found: Sequence[str], at: int) -> str | None:
    return found[at] if at < len(found) else None
