"""The keys of a chat's prompt that differ from those of a line editor.

Enter sends, Alt-Enter or Ctrl-J begins a new line, and Tab completes. During a run, Enter speaks to
the run, Tab queues the text for afterwards, and Escape or Ctrl-C stops the run.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import Condition, emacs_mode, has_completions, has_focus
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

TRIPLE_QUOTES = '"""'

PASTE_LINES = 10
"""A paste of more lines is shown as their number, and sent whole."""

Action = Literal["send", "queue", "interrupt", "leave", "mode", "transcript", "pause"]
"""What a person did: sent the text, queued it, pressed Ctrl-C or Ctrl-D, or asked for another mode.

`pause`: the prompt was taken away without an action of the person.
"""


@dataclass(frozen=True, slots=True)
class TypedInput:
    """What a person did at the prompt, and the text of it."""

    action: Action
    text: str = ""


@dataclass(slots=True)
class Pastes:
    """Long texts that were pasted, by the mark that stands for each at the prompt."""

    texts: dict[str, str] = field(default_factory=dict[str, str])

    def add(self, text: str) -> str:
        """Return what stands at the prompt for a pasted text: itself, or its number of lines."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.count("\n") + (not text.endswith("\n"))
        if lines <= PASTE_LINES:
            return text
        mark = f"[{lines} lines]"
        while self.texts.get(mark, text) != text:
            mark = f"{mark[:-1]}, another]"
        self.texts[mark] = text
        return mark

    def unfold(self, text: str) -> str:
        """Return a prompt with the texts that its marks stand for."""
        for mark, pasted in self.texts.items():
            text = text.replace(mark, pasted)
        return text

    def fold(self, text: str) -> str:
        """Return a prompt with marks in place of the long texts."""
        for mark, pasted in self.texts.items():
            text = text.replace(pasted, mark)
        return text


@dataclass(slots=True)
class KeyActions:
    """What keys do beyond editing: set by the chat."""

    is_running: Callable[[], bool]
    interrupt: Callable[[], None] = lambda: None
    """Stops the current run."""
    sending: Literal["send", "queue"] = "send"
    pastes: Pastes = field(default_factory=Pastes)

    def take_sending(self) -> Literal["send", "queue"]:
        """How the text was sent; the next one is sent plainly again."""
        sending = self.sending
        self.sending = "send"
        return sending


def build_key_bindings(actions: KeyActions) -> KeyBindings:
    """The bindings, to be added to those of the line editor."""
    keys = KeyBindings()
    running = Condition(actions.is_running)
    at_prompt = has_focus(DEFAULT_BUFFER)
    add = partial(keys.add, filter=at_prompt)
    add("enter")(_send)
    add("escape", "enter")(_break_line)
    add("c-j")(_break_line)
    add("c-g")(partial(_open_editor, actions))
    add("<bracketed-paste>")(partial(_paste, actions))
    keys.add("c-o", filter=at_prompt & ~running)(_show_transcript)
    add("c-c")(partial(_interrupt, actions))
    keys.add("tab", filter=at_prompt & running & ~has_completions)(partial(_queue, actions))
    keys.add("s-tab", filter=at_prompt & ~running & ~has_completions)(_change_mode)
    keys.add("c-d", filter=at_prompt & running)(_stay)
    stops = running & emacs_mode & ~has_completions
    keys.add("escape", filter=stops)(partial(_stop, actions))
    return keys


def _send(event: KeyPressEvent) -> None:
    buffer = event.current_buffer
    if not _takes_enter(buffer):
        buffer.validate_and_handle()


def _break_line(event: KeyPressEvent) -> None:
    event.current_buffer.newline(copy_margin=False)


def _open_editor(actions: KeyActions, event: KeyPressEvent) -> None:
    buffer = event.current_buffer
    buffer.text = actions.pastes.unfold(buffer.text)
    buffer.open_in_editor()


def _paste(actions: KeyActions, event: KeyPressEvent) -> None:
    event.current_buffer.insert_text(actions.pastes.add(event.data))


def _show_transcript(event: KeyPressEvent) -> None:
    event.app.exit(result=TypedInput("transcript"))


def _change_mode(event: KeyPressEvent) -> None:
    event.app.exit(result=TypedInput("mode"))


def _queue(actions: KeyActions, event: KeyPressEvent) -> None:
    buffer = event.current_buffer
    word = buffer.document.get_word_before_cursor(WORD=True)
    if word.startswith("@") or buffer.text.startswith("/"):
        buffer.start_completion(insert_common_part=True)
    elif buffer.text.strip():
        actions.sending = "queue"
        buffer.validate_and_handle()


def _stop(actions: KeyActions, _event: KeyPressEvent) -> None:
    actions.interrupt()


def _interrupt(actions: KeyActions, event: KeyPressEvent) -> None:
    if actions.is_running():
        actions.interrupt()
    else:
        interrupt_prompt(event.app)


def interrupt_prompt(app: Application[Any]) -> None:
    """Do what Ctrl-C does between runs: empty the prompt, or leave an empty one."""
    if app.current_buffer.text:
        app.current_buffer.reset()
    else:
        app.exit(result=TypedInput("interrupt"))


def _stay(_event: KeyPressEvent) -> None:
    """Keep a person from leaving a run by accident: Ctrl-C stops it."""


def _takes_enter(buffer: Buffer) -> bool:
    """Whether Enter belongs to the text or to a completion, and does not send."""
    state = buffer.complete_state
    if state is not None and state.current_completion is not None:
        buffer.complete_state = None
        return not buffer.text.startswith("/")
    if buffer.text.startswith(TRIPLE_QUOTES) and buffer.text.count(TRIPLE_QUOTES) == 1:
        buffer.newline(copy_margin=False)
        return True
    if buffer.document.text_before_cursor.endswith("\\"):
        buffer.delete_before_cursor()
        buffer.newline(copy_margin=False)
        return True
    return False


def strip_quotes(text: str) -> str:
    """Return the text between triple quotes, if it is quoted like that."""
    stripped = text.strip()
    if len(stripped) >= 2 * len(TRIPLE_QUOTES) and stripped.startswith(TRIPLE_QUOTES):
        return stripped.removeprefix(TRIPLE_QUOTES).removesuffix(TRIPLE_QUOTES).strip("\n")
    return text
