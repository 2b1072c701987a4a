"""What a chat knows between two prompts, and what is still to be done before the next one."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from windlass.cli.chat.references import ExpandedPrompt, ShellNotes
from windlass.cli.command_context import CommandContext
from windlass.cli.screen import BAD, QUIET, Screen
from windlass.cli.status import format_figures
from windlass.core.errors import ConfigError
from windlass.core.messages import Ledger
from windlass.core.projection.view import Projection
from windlass.core.result import RunResult
from windlass.project.journals import ManagedJournal
from windlass.project.settings import PermissionMode

PROMPTS_KEPT = 10


@dataclass(frozen=True, slots=True)
class PromptTask:
    """A prompt to run: one that waited for the end of a run, or one that a command makes."""

    text: str
    is_typed: bool = True
    """A person wrote the words, and not a command."""


@dataclass(frozen=True, slots=True)
class ServerPromptTask:
    """A prompt of an MCP server that the person chose. Nothing in it is expanded or run."""

    prompt: ExpandedPrompt


@dataclass(frozen=True, slots=True)
class FilePromptTask:
    """A prompt from a file that the person chose. Files of the folder are attached."""

    text: str
    typed: str
    """What the person wrote of it: all of their own file, and else the arguments."""


@dataclass(frozen=True, slots=True)
class ResumeTask:
    """An open run to resume. `consent`: the person named the session themselves."""

    consent: bool = False


@dataclass(frozen=True, slots=True)
class RewindTask:
    """Return to before a message: the files by undoing runs, the conversation by a fork."""

    at: int
    """How many records come before the run of the message."""
    run: int
    text: str
    """The message, to be edited and sent again."""
    files: bool
    conversation: bool


@dataclass(frozen=True, slots=True)
class UndoTask:
    """Undo what the last run did that is not undone yet."""


ChatTask = PromptTask | ServerPromptTask | FilePromptTask | ResumeTask | UndoTask | RewindTask


class ChatUsage:
    """The steps, tokens, money and time of all runs of a chat."""

    def __init__(self) -> None:
        self.runs = 0
        self.steps = 0
        self._duration_s = 0.0
        self._ledger = Ledger()

    @property
    def usd(self) -> Decimal | None:
        return self._ledger.usd

    def add_run(self, result: RunResult[Any]) -> None:
        self.runs += 1
        self.steps += result.steps
        self._duration_s += result.duration_s
        for charge in result.ledger.charges:
            self._ledger = self._ledger.add(charge)

    def show_usage(self, screen: Screen) -> None:
        """Write the totals, and a line for each model and purpose."""
        parts = [f"{self.runs} runs, {self.steps} steps"]
        parts += format_figures(self._ledger.usage, self._ledger.usd, self._duration_s)
        screen.write_line(f" {screen.glyphs.dot} ".join(parts))
        for charge in self._ledger.charges:
            usage = charge.usage
            if usage is None:
                continue
            price = "price unknown" if charge.usd is None else f"${charge.usd:f}"
            tokens = f"{usage.input:,} in ({usage.cache_read:,} cached), {usage.output:,} out"
            line = f"{charge.model}, {charge.purpose}: {tokens}, {price}"
            screen.write_line(line, QUIET, indent=2)
        if self._ledger.usd == Decimal(0):
            screen.write_line("It cost nothing.", QUIET, indent=2)


@dataclass(slots=True)
class ChatState:
    """One conversation at one terminal. Commands change it, and the chat acts on it."""

    context: CommandContext
    journal: ManagedJournal
    session: str
    usage: ChatUsage = field(default_factory=ChatUsage)
    tasks: deque[ChatTask] = field(default_factory=deque[ChatTask])
    """To be done before the next prompt is read."""
    notes: ShellNotes = field(default_factory=ShellNotes)
    is_leaving: bool = False
    last_view: Projection = field(default_factory=Projection)
    """The session as it was shown last, for the figures in the status line."""
    typed: list[str] = field(default_factory=list[str])
    """What the person typed last, the latest first."""

    @property
    def screen(self) -> Screen:
        return self.context.terminal.screen

    @property
    def mode(self) -> PermissionMode:
        return self.context.agent.settings.permission_mode

    def require_journal(self) -> ManagedJournal:
        """The journal; raises ConfigError if it holds no other sessions."""
        if not self.journal.is_kept:
            raise ConfigError("with --no-session there are no other sessions")
        return self.journal

    def start_session(self, name: str) -> None:
        """Continue in another session, and reset the figures."""
        self.session = name
        self.usage = ChatUsage()
        self.typed = []
        self.last_view = Projection()

    def remember_typed(self, text: str) -> str:
        """Everything that was typed lately: an address in it may be looked at in a later run."""
        self.typed = [text, *self.typed][:PROMPTS_KEPT]
        return "\n".join(self.typed)

    def show_note(self, text: str) -> None:
        self.screen.write_line(text, QUIET)

    def show_error(self, text: str) -> None:
        self.screen.write_line(text, BAD, mark=self.screen.glyphs.no)

    def show_rows(self, rows: Sequence[tuple[str, str]], style: str = "") -> None:
        """Write a name and a text per line, in two columns."""
        width = max((len(name) for name, _ in rows), default=0)
        for name, text in rows:
            self.screen.write_line(text, mark=f"{name:<{width + 1}}", mark_style=style)
