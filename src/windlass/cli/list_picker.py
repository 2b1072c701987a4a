"""A list to choose from at a terminal: type to search, arrows to move, Enter to choose."""

import shutil
from collections.abc import Sequence
from functools import partial

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import BufferControl, FormattedTextControl, HSplit, Layout, Window
from prompt_toolkit.layout.processors import BeforeInput
from prompt_toolkit.output import Output
from rich.cells import set_cell_size

from windlass.core.text_clip import printable_chars

ROWS_SHOWN = 10
HELP = "type to search, arrows to move, Enter to choose, Esc to leave"


async def pick_from_list(question: str, rows: Sequence[str], output: Output | None) -> int | None:
    """The index of the row that a person chooses; None if they leave."""
    picker = ListPicker(question, rows).build_application(output)
    return await picker.run_async(handle_sigint=False)


class ListPicker:
    """What is typed, which rows match it, and which one is marked."""

    def __init__(self, question: str, rows: Sequence[str]) -> None:
        self._question = question
        self._rows = [printable_chars(row) for row in rows]
        self._marked = 0
        self._search = Buffer(multiline=False, on_text_changed=self._mark_first)

    @property
    def matches(self) -> list[int]:
        """The indices of the rows with all the words that were typed, in any case."""
        words = self._search.text.casefold().split()
        return [
            at for at, row in enumerate(self._rows) if all(word in row.casefold() for word in words)
        ]

    def build_application(self, output: Output | None) -> Application[int | None]:
        keys = KeyBindings()
        for key in ("up", "c-p"):
            keys.add(key)(partial(self._move, -1))
        for key in ("down", "c-n"):
            keys.add(key)(partial(self._move, 1))
        keys.add("enter")(self._choose)
        for key in ("escape", "c-c", "c-d"):
            keys.add(key, eager=True)(_leave)
        prompt = BufferControl(self._search, [BeforeInput(f"{self._question} ")])
        layout = Layout(
            HSplit(
                [
                    Window(prompt, height=1),
                    Window(FormattedTextControl(self._show_rows), dont_extend_height=True),
                ]
            )
        )
        return Application(layout, key_bindings=keys, output=output, erase_when_done=True)

    def _mark_first(self, _buffer: Buffer) -> None:
        self._marked = 0

    def _move(self, step: int, _event: KeyPressEvent) -> None:
        last = max(0, len(self.matches) - 1)
        self._marked = min(last, max(0, self._marked + step))

    def _choose(self, event: KeyPressEvent) -> None:
        matches = self.matches
        if matches:
            event.app.exit(result=matches[self._marked])

    def _show_rows(self) -> StyleAndTextTuples:
        matches = self.matches
        first = max(0, self._marked - ROWS_SHOWN + 1)
        width = shutil.get_terminal_size().columns - 1
        shown: StyleAndTextTuples = []
        for place, at in enumerate(matches[first : first + ROWS_SHOWN], first):
            is_marked = place == self._marked
            row = set_cell_size(f"{'>' if is_marked else ' '} {self._rows[at]}", width).rstrip()
            shown.append(("reverse" if is_marked else "", f"{row}\n"))
        count = f"{len(matches)} of {len(self._rows)}" if matches else "nothing matches"
        shown.append(("fg:ansibrightblack", f"  {count}: {HELP}"[:width]))
        return shown


def _leave(event: KeyPressEvent) -> None:
    event.app.exit(result=None)
