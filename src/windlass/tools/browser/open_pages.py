"""The pages of a session that are open, and what they try besides being read.

Invariant: a page opens others only right after something was clicked or typed, and only a limited
number. Downloads are refused and dialogs dismissed, and the model gets a note about each.
"""

import asyncio
import math
import time
from contextlib import suppress
from typing import TYPE_CHECKING, final

from windlass.core.text_clip import printable_line

if TYPE_CHECKING:
    from playwright.async_api import Dialog, Download, Page, Request

NOTES_MAX = 12
NOTE_CHARS_MAX = 300
ACT_LASTS_S = 3.0
"""A page that opens later than this after a click was not asked for."""


@final
class OpenPages:
    """The pages of one profile; the last one is in front."""

    def __init__(self, pages_max: int) -> None:
        self.document = 0
        """Grows with each document that is shown: references to the one before are void."""
        self._pages_max = pages_max
        self._pages: list[Page] = []
        self._notes: dict[str, None] = {}
        self._last_act = -math.inf
        """When something was clicked or typed last: what opens right after that was asked for."""
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def front(self) -> "Page | None":
        return self._pages[-1] if self._pages else None

    @property
    def count(self) -> int:
        return len(self._pages)

    def begin_act(self) -> None:
        """Let pages open others, until some time after `end_act`."""
        self._last_act = math.inf

    def end_act(self) -> None:
        self._last_act = time.monotonic()

    def add_note(self, note: str) -> None:
        """Keep a note for the model, for the next result."""
        if len(self._notes) < NOTES_MAX:
            self._notes[printable_line(note)[:NOTE_CHARS_MAX]] = None

    def take_notes(self) -> list[str]:
        """Return the notes for the model, once."""
        notes = list(self._notes)
        self._notes.clear()
        return notes

    def on_page(self, page: "Page") -> None:
        is_asked_for = time.monotonic() - self._last_act < ACT_LASTS_S
        if self._pages and (not is_asked_for or len(self._pages) >= self._pages_max):
            self.add_note("the page tried to open another page, which was closed")
            self._close_soon(page)
            return
        self._pages.append(page)
        self.document += 1
        page.on("request", lambda request: self._on_request(page, request))
        page.on("close", self._on_close)
        page.on("crash", self._on_crash)
        page.on("download", self._on_download)

    def _on_request(self, page: "Page", request: "Request") -> None:
        """Count a new document. A script that only changes the address makes none."""
        if not request.is_navigation_request():
            return
        try:
            is_main = request.frame == page.main_frame
        except browser_error():
            is_main = True  # The frame of a page that has just been opened.
        if is_main:
            self.document += 1

    def _on_close(self, page: "Page") -> None:
        if page in self._pages:
            self._pages.remove(page)
            self.document += 1

    def _on_crash(self, page: "Page") -> None:
        self.add_note("a page crashed, and was closed")
        self._close_soon(page)

    def _on_download(self, download: "Download") -> None:
        self.add_note(f"a download was refused: {download.suggested_filename}")

    async def on_dialog(self, dialog: "Dialog") -> None:
        with suppress(browser_error()):
            if dialog.type == "beforeunload":
                await dialog.accept()  # A page cannot keep the browser from leaving it.
                return
            self.add_note(f"the page showed a dialog, which was dismissed: {dialog.message}")
            await dialog.dismiss()

    def _close_soon(self, page: "Page") -> None:
        async def close() -> None:
            with suppress(browser_error()):
                await page.close()

        task = asyncio.ensure_future(close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def browser_error() -> type[Exception]:
    """Return the class of the browser's errors."""
    from playwright.async_api import Error  # noqa: PLC0415 - an extra, which is there by now

    return Error


def timeout_error() -> type[Exception]:
    """Return the class of the browser's time-outs, which are errors of it as well."""
    from playwright.async_api import TimeoutError as BrowserTimeout  # noqa: PLC0415 - as above

    return BrowserTimeout
