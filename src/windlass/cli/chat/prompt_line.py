"""The prompt of a chat: a line with history, search and completion, or several lines.

It is shown between runs and during them. Invariant: text that was typed and not sent is kept when
something else takes the bottom of the terminal: a question, the end of a run, or a change of mode.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import Completer
from prompt_toolkit.cursor_shapes import ModalCursorShapeConfig
from prompt_toolkit.document import Document
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples, to_formatted_text
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.shortcuts import PromptSession
from prompt_toolkit.styles import Style

from windlass.cli.chat.keys import (
    KeyActions,
    Pastes,
    TypedInput,
    build_key_bindings,
    interrupt_prompt,
)
from windlass.cli.chat.live_page import LivePage
from windlass.cli.screen import GlyphSet
from windlass.cli.terminal import receive_leave_signals
from windlass.private_files import make_private_folder

MENU_ROWS = 8
HISTORY_BYTES_MAX = 512 * 1024
REFRESH_S = 0.12
ESCAPE_S = 0.15
"""How long an Escape may be the beginning of another key."""
TYPING_S = 1.5
"""A person who typed so recently is typing still."""
STYLE = Style.from_dict(
    {
        "status": "fg:ansibrightblack",
        "mark": "bold fg:ansicyan",
        "more": "fg:ansibrightblack",
        "auto-suggestion": "fg:ansibrightblack",
        "completion-menu": "bg:default fg:default",
        "completion-menu.completion.current": "bold reverse",
        "completion-menu.meta.completion": "bg:default fg:ansibrightblack",
        "completion-menu.meta.completion.current": "bg:default fg:ansibrightblack",
        "scrollbar.background": "bg:default",
        "scrollbar.button": "bg:ansibrightblack",
    }
)


@dataclass(slots=True)
class PromptFrame:
    """What is shown around the text: set by the chat, read whenever the prompt is drawn."""

    status: Callable[[], str]
    """The line above the text."""
    waiting: Callable[[], Sequence[str]]
    """What was typed during the run and has not been taken up yet, a line each."""
    is_running: bool = False
    before_draw: Callable[[], None] = lambda: None


class PromptLine:
    """Reads what a person types, and keeps a history of it between chats.

    Without a page, the terminal can do no more than take one line after the other.
    """

    def __init__(
        self,
        page: LivePage | None,
        frame: PromptFrame,
        glyphs: GlyphSet,
        *,
        history: Path,
        completer: Completer,
        vi_keys: bool = False,
    ) -> None:
        self._page = page
        self._frame = frame
        self._glyphs = glyphs
        self._draft = Document()
        self.left_by = 0
        """The signal that ended the chat."""
        self._is_free = asyncio.Event()
        self._is_free.set()
        self._ended = asyncio.Event()
        self._ended.set()
        self.actions = KeyActions(is_running=lambda: frame.is_running)
        self._session = self._build_session(history, completer, vi_keys=vi_keys)
        self._typed_at = -TYPING_S
        self._session.default_buffer.on_text_changed += self._note_typing
        self._session.app.ttimeoutlen = ESCAPE_S
        self._session.app.timeoutlen = ESCAPE_S
        if page is not None:
            page.use_prompt(self._session.app)

    def _build_session(
        self, history: Path, completer: Completer, *, vi_keys: bool
    ) -> "PromptSession[TypedInput | str]":
        return PromptSession(
            self._show_head,
            output=self._page.output if self._page is not None else None,
            multiline=True,
            editing_mode=EditingMode.VI if vi_keys else EditingMode.EMACS,
            history=_open_history(history),
            completer=completer,
            complete_while_typing=Condition(self._is_completing),
            complete_in_thread=True,
            reserve_space_for_menu=MENU_ROWS,
            auto_suggest=AutoSuggestFromHistory(),
            enable_suspend=True,
            enable_open_in_editor=True,
            tempfile_suffix=".md",
            prompt_continuation=[("class:more", f"{self._glyphs.cut} ")],
            key_bindings=build_key_bindings(self.actions),
            style=STYLE,
            cursor=ModalCursorShapeConfig() if vi_keys else None,
            erase_when_done=True,
            search_ignore_case=True,
        )

    @property
    def pastes(self) -> Pastes:
        """The long texts that were pasted."""
        return self.actions.pastes

    def set_draft(self, text: str) -> None:
        """Put a text at the prompt, to be edited and sent."""
        self._draft = Document(text)

    async def read(self) -> TypedInput:
        """Wait until a person does something. Reading again continues with the text so far."""
        while True:
            await self._is_free.wait()
            typed = await self._read_once()
            if typed.action != "pause":
                return typed

    @asynccontextmanager
    async def hold(self) -> AsyncGenerator[Callable[[str], None] | None]:
        """Take the prompt away during the block, which has the keyboard for itself.

        Yields a function that adds to the text if a person was just typing: what they type on was
        meant for the prompt.
        """
        self._is_free.clear()
        was_typing = time.monotonic() - self._typed_at < TYPING_S
        await self.stop()
        try:
            yield self._add_text if was_typing else None
        finally:
            self._is_free.set()

    def _add_text(self, typed: str) -> None:
        text = self._draft.text + "".join(char for char in typed if char.isprintable())
        self._draft = Document(text)

    def _note_typing(self, _buffer: object) -> None:
        self._typed_at = time.monotonic()

    async def stop(self) -> None:
        """End the reading that is under way, and keep what was typed."""
        app = self._session.app
        if app.is_running and not app.is_done:
            app.exit(result=TypedInput("pause"))
        await self._ended.wait()
        if self._page is not None:
            self._page.go_plain()

    async def _read_once(self) -> TypedInput:
        self._ended.clear()
        if self._page is not None:
            self._page.go_live()
        try:
            with self._leave_on_signals():
                typed = await self._session.prompt_async(
                    default=self._draft,
                    handle_sigint=False,
                    refresh_interval=REFRESH_S if self._frame.is_running else 0,
                )
        except EOFError:
            return TypedInput("leave")
        finally:
            buffer = self._session.default_buffer
            self._draft = buffer.document
            if self._page is not None and not self._frame.is_running:
                self._page.go_plain()
            self._ended.set()
        if self.left_by:
            # The signal came as Enter was pressed: nothing begins any more.
            return TypedInput("leave")
        if isinstance(typed, TypedInput):
            return typed
        self._draft = Document()
        return TypedInput(self.actions.take_sending(), self.pastes.unfold(typed))

    @contextmanager
    def _leave_on_signals(self) -> Generator[None]:
        """End the chat in order on a signal to terminate. A run has its own handlers.

        A Ctrl-C that comes before the prompt is ready to read it as a key is a signal, and means
        the same.
        """
        if self._frame.is_running:
            yield
            return
        loop = asyncio.get_running_loop()

        def receive(number: int) -> None:
            self.left_by = number
            loop.call_soon_threadsafe(self._leave)

        loop.add_signal_handler(signal.SIGINT, self._press_interrupt)
        try:
            with receive_leave_signals(receive):
                yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    def _leave(self) -> None:
        app = self._session.app
        if app.is_running and not app.is_done:
            app.exit(result=TypedInput("leave"))

    def _press_interrupt(self) -> None:
        app = self._session.app
        if app.is_running and not app.is_done:
            interrupt_prompt(app)

    def _is_completing(self) -> bool:
        text = self._session.default_buffer.document.text_before_cursor
        if text.startswith("/"):
            return "\n" not in text
        return text.split()[-1:] != [] and text.split()[-1].startswith("@") and text[-1:] != " "

    def _show_head(self) -> StyleAndTextTuples:
        """The open line of the page, the status, and the mark before the text."""
        self._frame.before_draw()
        shown: StyleAndTextTuples = []
        if self._page is not None and self._page.open_line:
            shown += [*to_formatted_text(ANSI(self._page.open_line)), ("", "\n")]
        for text in self._frame.waiting():
            shown.append(("class:status", f"{self._glyphs.progress} {text}\n"))
        status = self._frame.status()
        if status:
            shown.append(("class:status", f"{status}\n"))
        shown.append(("class:mark", f"{self._glyphs.person} "))
        return shown


def _open_history(path: Path) -> History:
    """The history in a file that only its owner can read; one in memory if there can be no file."""
    try:
        make_private_folder(path.parent)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        _trim_file(path)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))


def _trim_file(path: Path) -> None:
    """Keep the newer half of a file that has grown too long. A prompt begins with `# time`."""
    data = path.read_bytes()
    if len(data) <= HISTORY_BYTES_MAX:
        return
    _, _, kept = data[-HISTORY_BYTES_MAX // 2 :].partition(b"\n\n#")
    path.write_bytes(b"\n#" + kept)
