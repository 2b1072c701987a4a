"""A run at a terminal: the page that shows it, the status line, the keyboard, and Ctrl-C.

Invariant: the first Ctrl-C stops the run, which ends and is recorded; the second one exits at once.
A Ctrl-C that comes when the run has just ended takes nothing away from its result.
Anything else that ends the process (SIGTERM, a closed terminal) leaves the run open, to be resumed:
running calls get a grace period, then the run is released. A second signal exits at once. Such a
signal is never lost, and a terminal that cannot be written to never keeps the process alive.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NoReturn, TextIO

from windlass.agent.agent import Agent
from windlass.cli.exit_codes import INTERRUPTED, OUTCOME_CODES
from windlass.cli.live_view import LiveView
from windlass.cli.notify import LONG_RUN_S, notify
from windlass.cli.output import (
    UNENDED_OUTCOMES,
    OutputFormat,
    print_event,
    print_result,
    show_answer_commands,
    show_summary,
)
from windlass.cli.question_prompt import QuestionPrompt
from windlass.cli.screen import Screen, replace_control_chars
from windlass.cli.status import StatusLine
from windlass.cli.terminal import (
    TERMINAL_GONE,
    Keyboard,
    has_keyboard,
    receive_leave_signals,
    suppress_echo,
    terminal_restorer,
)
from windlass.core.events import Event
from windlass.core.result import RunFailed, RunResult
from windlass.core.text_clip import strip_controls
from windlass.ports import Watcher
from windlass.project.settings import ThinkingMode

DRAIN_S = 10.0
"""How long the calls that run may take to finish after SIGTERM."""

RunWork = Callable[[Watcher], Awaitable[RunResult[Any]]]


@dataclass(frozen=True, slots=True)
class TerminalRun:
    """Shows the runs of one command, and lets the person act on them."""

    screen: Screen
    status: StatusLine
    live: LiveView
    question_prompt: QuestionPrompt | None
    """None if there is no person to ask; a question then suspends the run."""
    output_format: OutputFormat
    quiet: bool
    notify_by: str = "off"
    """How a person who looks elsewhere is told that a long run has ended; see `notify`."""
    before_exit: Callable[[], None] = lambda: None
    """Gives the terminal back, before a signal exits at once."""

    def show_event(self, event: Event) -> None:
        """Show an event in the output format of the command."""
        if self.output_format == "stream-json":
            print_event(event)
        if self.output_format == "text" and not self.quiet:
            self.live.show_event(event)

    async def drive_run(
        self,
        agent: Agent[Any],
        session: str,
        work: RunWork,
        *,
        is_kept: bool = True,
        is_chat: bool = False,
    ) -> RunResult[Any]:
        """Do a run with status line, questions and Ctrl-C; returns its result, even if it failed.

        `is_kept` says whether the journal outlives the process, so that the run can be resumed.
        `is_chat`: a prompt follows. Ctrl-C then does nothing after the run, until another handler
        takes over: it was meant for the run, and must not end the chat.
        """
        started = time.monotonic()
        signals = _RunSignals(self, agent, session, is_kept=is_kept)
        self.status.start_run()
        if self.question_prompt is not None:
            self.question_prompt.start_run()
        footer: asyncio.Task[None] | None = None
        if self.output_format == "text" and not self.quiet:
            footer = asyncio.create_task(self.status.refresh_until_cancelled())
        try:
            with signals.handle(is_chat=is_chat), suppress_echo():
                return await work(signals.watch)
        except RunFailed as error:
            return error.result
        finally:
            if footer is not None:
                footer.cancel()
                # A closed terminal must not take the result of the run away.
                with suppress(asyncio.CancelledError, *TERMINAL_GONE):
                    await footer
            self.live.end_run()
            if time.monotonic() - started >= LONG_RUN_S:
                notify(self.notify_by, f"windlass: the run of {session} has stopped")

    def report_result(self, result: RunResult[Any], *, show_session: bool = True) -> int:
        """Print the result of a run, and return the exit code for it."""
        code = OUTCOME_CODES[result.outcome]
        if self.output_format != "text":
            print_result(result)
            return code
        self._print_reply(result)
        if self.quiet and not result.completed and result.outcome != "suspended":
            outcome = result.outcome.replace("_", " ")
            print(f"windlass: {outcome}: {result.reason}", file=sys.stderr)
        if result.outcome == "suspended":
            show_answer_commands(self.screen, result.session_id, result.questions)
        if not self.quiet:
            if self.screen.is_terminal:
                self.screen.write_line()
            show_summary(self.screen, result, show_session=show_session)
        return code

    def _print_reply(self, result: RunResult[Any]) -> None:
        """Print the reply on standard output, unless it has streamed there already."""
        text = result.text or result.partial_text
        if result.outcome in UNENDED_OUTCOMES or not text:
            return
        if not sys.stdout.isatty():
            # A program reads it, or a pager, which would obey what a model writes to a terminal.
            print(strip_controls(text))
        elif self.quiet:
            print(replace_control_chars(text))
        elif not result.is_undo:
            # What was undone is on the page already, call by call.
            self.live.ensure_reply_shown(text)


class _RunSignals:
    """What signals do to a run at a terminal. A second one exits at once."""

    def __init__(
        self, terminal: TerminalRun, agent: Agent[Any], session: str, *, is_kept: bool
    ) -> None:
        self._terminal = terminal
        self._agent = agent
        self._session = session
        self._is_kept = is_kept
        self._loop = asyncio.get_running_loop()
        self._running = asyncio.current_task()
        self._restore = terminal_restorer()
        self._has_begun = False
        self._has_cancelled = False
        self._is_stopping = False
        self._leaving_number = 0

    @contextmanager
    def handle(self, *, is_chat: bool) -> Generator[None]:
        """Handle the signals of the block, which is the run."""
        loop = self._loop
        loop.add_signal_handler(signal.SIGINT, self.interrupt)
        loop.add_signal_handler(signal.SIGWINCH, self._terminal.screen.update_width)
        try:
            with receive_leave_signals(self._receive):
                yield
        except asyncio.CancelledError:
            if self._has_cancelled:
                # As wherever else a command is interrupted: one exit code, and no traceback.
                raise KeyboardInterrupt from None
            raise
        finally:
            self.exit_if_leaving()
            loop.remove_signal_handler(signal.SIGWINCH)
            if is_chat:
                # Replaced and not removed: in between, Ctrl-C would end the process.
                loop.add_signal_handler(signal.SIGINT, lambda: None)
            else:
                loop.remove_signal_handler(signal.SIGINT)

    def _receive(self, number: int) -> None:
        self._leaving_number = number
        self._loop.call_soon_threadsafe(self.leave, number)

    def watch(self, event: Event) -> None:
        """Show an event. The first one says that the run has begun."""
        self._has_begun = True
        self._terminal.show_event(event)

    def interrupt(self) -> None:
        """Ctrl-C ends the run, which is recorded."""
        if self._is_stopping:
            self._restore_terminal()
            os._exit(INTERRUPTED)
        self._is_stopping = True
        self._terminal.status.show_activity("stopping; press Ctrl-C again to exit at once")
        if self._agent.cancel(self._session, "interrupted"):
            return
        # Before the run has begun, there is only our own task to cancel. After its end, a cancel
        # would lose the result.
        if not self._has_begun and self._running is not None:
            self._has_cancelled = True
            self._running.cancel()

    def leave(self, number: int) -> None:
        """Release the run on SIGTERM: running calls get a grace period, and nothing new begins."""
        name = signal.Signals(number).name
        can_release = self._is_kept and not self._is_stopping
        if not can_release or not self._agent.release(self._session, name, DRAIN_S):
            self._exit(number)
        self._is_stopping = True
        with suppress(*TERMINAL_GONE):
            activity = "letting go of the run; a second signal exits at once"
            self._terminal.status.show_activity(activity)

    def exit_if_leaving(self) -> None:
        """Exit once the run is released, if a signal asked for it."""
        if self._leaving_number:
            self._exit(self._leaving_number)

    def _exit(self, number: int) -> NoReturn:
        """Exit at once, and say how to resume.

        This is not a request to end the run. It stays open in the journal, and its tools die with
        this process. A normal exit would end the run: every `finally` would run first.
        """
        self._restore_terminal()
        if self._is_kept:
            message = f"\nwindlass: to resume: windlass resume {self._session}"
            with suppress(*TERMINAL_GONE):
                print(message, file=sys.stderr, flush=True)
        os._exit(128 + number)

    def _restore_terminal(self) -> None:
        terminal = self._terminal
        for restore in (terminal.screen.clear_footer, terminal.before_exit, self._restore):
            with suppress(*TERMINAL_GONE):
                restore()


def open_terminal(
    *,
    output_format: OutputFormat = "text",
    quiet: bool = False,
    thinking: ThinkingMode = "show",
    page: TextIO | None = None,
    notify_by: str = "off",
) -> TerminalRun:
    """The terminal of this process, or the pipes that replace it.

    The page is standard output if that is a terminal. If not, standard output gets only the reply,
    and the page is standard error. `page`: a page that shows the status by itself.
    """
    on_stdout = output_format == "text" and sys.stdout.isatty()
    screen = Screen(page or (sys.stdout if on_stdout else sys.stderr), has_footer=page is None)
    status = StatusLine(screen)
    question_prompt = None
    if has_keyboard():
        question_prompt = QuestionPrompt(screen, status, Keyboard(), notify_by)
    seen = question_prompt.has_shown_diff if question_prompt is not None else None
    live = LiveView(screen, status, thinking=thinking, with_text=on_stdout, has_shown_diff=seen)
    return TerminalRun(screen, status, live, question_prompt, output_format, quiet, notify_by)
