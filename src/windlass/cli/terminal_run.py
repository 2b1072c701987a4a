"""Where a run is shown and a person can act on it: the page, its footer, the keyboard, Ctrl-C.

The law: the first Ctrl-C stops the run, which ends and is recorded; the second one leaves at once.
Whatever else ends the process (SIGTERM, a terminal that is closed) leaves the run open.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from windlass.agent.agent import Agent
from windlass.cli.exit_codes import INTERRUPTED, OUTCOME_CODES
from windlass.cli.live_view import LiveView
from windlass.cli.output import (
    OutputFormat,
    print_event,
    print_result,
    show_answer_commands,
    show_summary,
)
from windlass.cli.question_prompt import QuestionPrompt
from windlass.cli.screen import Screen, replace_control_chars
from windlass.cli.status import StatusLine
from windlass.cli.terminal import Keyboard, has_keyboard, suppress_echo, terminal_restorer
from windlass.core.errors import RunFailed
from windlass.core.events import Event
from windlass.core.result import RunResult
from windlass.ports import Watcher
from windlass.project.settings import ThinkingMode

LEAVE_SIGNALS = (signal.SIGTERM, signal.SIGHUP)

RunWork = Callable[[Watcher], Awaitable[RunResult[Any]]]


@dataclass(frozen=True, slots=True)
class TerminalRun:
    """How the runs of one command are shown."""

    screen: Screen
    status: StatusLine
    live: LiveView
    question_prompt: QuestionPrompt | None
    """None: nobody can be asked, and a question suspends the run."""
    output_format: OutputFormat
    quiet: bool

    def show_event(self, event: Event) -> None:
        if self.output_format == "stream-json":
            print_event(event)
        if self.output_format == "text" and not self.quiet:
            self.live(event)

    async def drive_run(
        self, agent: Agent[Any], session: str, work: RunWork, *, kept: bool = True
    ) -> RunResult[Any]:
        """See a run through, with its footer, its questions and Ctrl-C."""
        self.status.start_run()
        if self.question_prompt is not None:
            self.question_prompt.start_run()
        shown = self.output_format == "text" and not self.quiet
        footer = asyncio.create_task(self.status.refresh_until_cancelled()) if shown else None
        try:
            with self._handle_signals(agent, session, kept=kept), suppress_echo():
                return await work(self.show_event)
        except RunFailed as error:
            return error.result
        finally:
            if footer is not None:
                footer.cancel()
                with suppress(asyncio.CancelledError):
                    await footer
            self.live.end_stream()

    @contextmanager
    def _handle_signals(self, agent: Agent[Any], session: str, *, kept: bool) -> Generator[None]:
        loop, running = asyncio.get_running_loop(), asyncio.current_task()
        told: list[signal.Signals] = []
        restore = terminal_restorer()

        def interrupt() -> None:
            if told:
                self.screen.clear_footer()
                restore()
                os._exit(INTERRUPTED)
            told.append(signal.SIGINT)
            self.status.show_activity("stopping; once more leaves at once")
            if not agent.cancel(session, "interrupted") and running is not None:
                running.cancel()

        def leave(number: int) -> None:
            # Nobody wanted the run to end: it stays open, and what it had started dies with us.
            self.screen.clear_footer()
            restore()
            if kept:
                told = f"\nwindlass: to go on: windlass resume {session}"
                print(told, file=sys.stderr, flush=True)
            os._exit(128 + number)

        # What whoever started us has us ignore (nohup) stays ignored.
        leaving = [one for one in LEAVE_SIGNALS if signal.getsignal(one) is not signal.SIG_IGN]
        loop.add_signal_handler(signal.SIGINT, interrupt)
        for number in leaving:
            loop.add_signal_handler(number, leave, number)
        loop.add_signal_handler(signal.SIGWINCH, self.screen.update_width)
        try:
            yield
        finally:
            for number in (signal.SIGINT, *leaving, signal.SIGWINCH):
                loop.remove_signal_handler(number)

    def report_result(
        self, result: RunResult[Any], model: str, *, show_session: bool = True
    ) -> int:
        """Tell what the run came to; the exit code for it."""
        code = OUTCOME_CODES[result.outcome]
        if self.output_format != "text":
            print_result(result, model)
            return code
        self._print_reply(result)
        if self.quiet and result.outcome not in ("completed", "suspended"):
            told = f"{result.outcome.replace('_', ' ')}: {result.reason}"
            print(f"windlass: {told}", file=sys.stderr)
        if result.outcome == "suspended":
            show_answer_commands(self.screen, result.session_id, result.questions)
        if not self.quiet:
            if self.screen.is_terminal:
                self.screen.write_line()
            show_summary(self.screen, result, show_session=show_session)
        return code

    def _print_reply(self, result: RunResult[Any]) -> None:
        """The reply on standard output, where it did not stream there already."""
        text = result.text or result.partial_text
        if result.outcome == "suspended" or not text:
            return
        if not sys.stdout.isatty():
            print(text)
        elif self.quiet:
            print(replace_control_chars(text))
        else:
            self.live.ensure_reply_shown(text)


def open_terminal(
    *, output_format: OutputFormat = "text", quiet: bool = False, thinking: ThinkingMode = "show"
) -> TerminalRun:
    """The stage for this terminal, or for whatever stands in its place.

    The page is standard output if that is a terminal; else what is said there is the reply alone,
    and the page is standard error.
    """
    on_stdout = output_format == "text" and sys.stdout.isatty()
    screen = Screen(sys.stdout if on_stdout else sys.stderr)
    status = StatusLine(screen)
    live = LiveView(screen, status, thinking=thinking, with_text=on_stdout)
    asker = QuestionPrompt(screen, status, Keyboard()) if has_keyboard() else None
    return TerminalRun(screen, status, live, asker, output_format, quiet)
