"""The file that the screen of a chat writes to, above a prompt that stays at the bottom.

Invariant: while there is a prompt, a line goes above it only when it is complete, and the open line
is part of the prompt's own region. Both reach the terminal in one write, so that nothing flickers.
"""

import io
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, TextIO

from prompt_toolkit.application import Application
from prompt_toolkit.application.current import set_app
from prompt_toolkit.data_structures import Size
from prompt_toolkit.output.vt100 import Vt100_Output
from typing_extensions import override

from windlass.cli.terminal import find_color_depth

RESET_TERMINAL = "\x1b[?2004l\x1b[?25h\x1b[?7h\x1b[0m"
"""Ends bracketed paste, shows the cursor, wraps lines and ends all colours."""


class HeldOutput(Vt100_Output):
    """An output that can hold back what it has to write, to write it in one piece."""

    _is_held = False

    @contextmanager
    def hold(self) -> Generator[None]:
        """Write everything of the block at its end, at once."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
            self.flush()

    @override
    def flush(self) -> None:
        if not self._is_held:
            super().flush()


class LivePage(io.StringIO):
    """A terminal to write lines on, whether or not a prompt is shown below them.

    It is a StringIO only because that is the smallest class that is a `TextIO`.
    """

    def __init__(self, terminal: TextIO) -> None:
        super().__init__()
        self._terminal = terminal
        # The terminal is not asked where its cursor is: its answer would come as typed keys.
        self.output = HeldOutput(
            terminal,
            self._measure,
            default_color_depth=find_color_depth(),
            enable_bell=False,
            enable_cpr=False,
        )
        self._prompt: Application[Any] | None = None
        self._is_live = False
        self.open_line = ""
        """What was written since the last line end, and is shown with the prompt."""

    @override
    def isatty(self) -> bool:
        return self._terminal.isatty()

    @override
    def fileno(self) -> int:
        return self._terminal.fileno()

    @override
    def write(self, text: str, /) -> int:
        if not self._is_live:
            self._terminal.write(text)
            return len(text)
        lines, end, rest = (self.open_line + text).rpartition("\n")
        self.open_line = rest
        prompt = self._prompt
        if prompt is None or not prompt.is_running or prompt.is_done:
            self._terminal.write(lines + end)
            self._terminal.flush()
        elif end:
            self._write_above(prompt, lines + end)
        else:
            prompt.invalidate()
        return len(text)

    @override
    def flush(self) -> None:
        if not self._is_live:
            self._terminal.flush()

    def use_prompt(self, prompt: Application[Any]) -> None:
        """Write above this prompt, whenever it is shown."""
        self._prompt = prompt

    def go_live(self) -> None:
        """Keep the open line for the prompt, which is shown now or in a moment."""
        self._is_live = True

    def go_plain(self) -> None:
        """Write to the terminal itself, the open line first: no prompt will be shown for now."""
        if self._is_live:
            self._is_live = False
            self._terminal.write(self.open_line)
            self._terminal.flush()
            self.open_line = ""

    def reset_terminal(self) -> None:
        """Undo what a prompt has set, for code that exits with `os._exit`."""
        if self._prompt is not None and self._prompt.is_running:
            self._prompt.renderer.erase()
        self.go_plain()
        self._terminal.write(RESET_TERMINAL)
        self._terminal.flush()

    def _measure(self) -> Size:
        columns, rows = shutil.get_terminal_size()
        return Size(rows=rows, columns=columns)

    def _write_above(self, prompt: Application[Any], lines: str) -> None:
        with self.output.hold():
            prompt.renderer.erase()
            self.output.write_raw(lines.replace("\n", "\r\n"))
            # The parts of a prompt ask for their application, which another task may have set.
            with set_app(prompt):
                prompt.renderer.render(prompt, prompt.layout)
