"""How the demo's run looks: as any run does, with what was recalled and what the sub-agent does."""

from collections.abc import Generator
from contextlib import contextmanager

from typing_extensions import override

from windlass.cli.demo.task import JOURNAL
from windlass.cli.renderer import QUIET, EventRenderer
from windlass.cli.screen import Screen
from windlass.core.events import (
    AttemptStarted,
    Event,
    KnowledgeRecalled,
    NestedEvent,
    RunStarted,
    TextDelta,
)


class DemoRenderer(EventRenderer):
    """Shows the run of the demo, in both its lives."""

    def __init__(self, screen: Screen) -> None:
        super().__init__(screen)
        self._nested_renderer = EventRenderer(screen)

    @override
    def __call__(self, event: Event) -> None:
        super().__call__(event)
        match event:
            case KnowledgeRecalled(text):
                self._show_recalled_notes(text)
            case NestedEvent(agent=agent, session=session, event=inner):
                self._show_nested_event(agent, session, inner)
            case _:
                pass

    def _show_recalled_notes(self, text: str) -> None:
        # A block has an introduction, the notes, each below its head, and an end.
        for note in text.split("\n\n")[1:-1]:
            _, _, said = note.partition("\n")
            told = f"recalled from {JOURNAL}: {said}"
            self._screen.write_line(told, QUIET, mark=self._screen.glyphs.progress)
        if text:
            self._screen.write_line()

    def _show_nested_event(self, agent: str, session: str, event: Event) -> None:
        """What a sub-agent does; what it says in the end is shown as the result of the call."""
        match event:
            case RunStarted():
                told = f"sub-agent {agent}, in a session of its own: {session}"
                self._screen.write_line(told, QUIET, mark=self._screen.glyphs.first)
            case TextDelta() | AttemptStarted():
                pass
            case _:
                with self._indent_page():
                    self._nested_renderer(event)

    @contextmanager
    def _indent_page(self) -> Generator[None]:
        before = self._screen.gutter
        self._screen.gutter = f"{before}{self._screen.glyphs.bar} "
        try:
            yield
        finally:
            self._screen.gutter = before
