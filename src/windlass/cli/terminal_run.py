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
from windlass.cli.exit_codes import INTERRUPTED, OUTCOMES
from windlass.cli.live_view import Live
from windlass.cli.output import Format, event_line, how_to_answer, result_line, summary
from windlass.cli.question_prompt import Asker
from windlass.cli.screen import Screen, safe
from windlass.cli.status import Status
from windlass.cli.terminal import Keyboard, has_keyboard, restorer, unechoed
from windlass.core.errors import RunFailed
from windlass.core.events import Event
from windlass.core.result import RunResult
from windlass.ports import Watcher
from windlass.project.settings import ThinkingMode

LEAVE = (signal.SIGTERM, signal.SIGHUP)

Work = Callable[[Watcher], Awaitable[RunResult[Any]]]


@dataclass(frozen=True, slots=True)
class Stage:
    """How the runs of one command are shown."""

    screen: Screen
    status: Status
    live: Live
    asker: Asker | None
    """None: nobody can be asked, and a question suspends the run."""
    form: Format
    quiet: bool

    def watch(self, event: Event) -> None:
        if self.form == "stream-json":
            event_line(event)
        if self.form == "text" and not self.quiet:
            self.live(event)

    async def drive(
        self, agent: Agent[Any], session: str, work: Work, *, kept: bool = True
    ) -> RunResult[Any]:
        """See a run through, with its footer, its questions and Ctrl-C."""
        self.status.begin()
        if self.asker is not None:
            self.asker.begin()
        shown = self.form == "text" and not self.quiet
        footer = asyncio.create_task(self.status.keep()) if shown else None
        try:
            with self._signals(agent, session, kept=kept), unechoed():
                return await work(self.watch)
        except RunFailed as error:
            return error.result
        finally:
            if footer is not None:
                footer.cancel()
                with suppress(asyncio.CancelledError):
                    await footer
            self.live.finish()

    @contextmanager
    def _signals(self, agent: Agent[Any], session: str, *, kept: bool) -> Generator[None]:
        loop, running = asyncio.get_running_loop(), asyncio.current_task()
        told: list[signal.Signals] = []
        restore = restorer()

        def interrupt() -> None:
            if told:
                self.screen.clear()
                restore()
                os._exit(INTERRUPTED)
            told.append(signal.SIGINT)
            self.status.say("stopping; once more leaves at once")
            if not agent.cancel(session, "interrupted") and running is not None:
                running.cancel()

        def leave(number: int) -> None:
            # Nobody wanted the run to end: it stays open, and what it had started dies with us.
            self.screen.clear()
            restore()
            if kept:
                told = f"\nwindlass: to go on: windlass resume {session}"
                print(told, file=sys.stderr, flush=True)
            os._exit(128 + number)

        # What whoever started us has us ignore (nohup) stays ignored.
        leaving = [one for one in LEAVE if signal.getsignal(one) is not signal.SIG_IGN]
        loop.add_signal_handler(signal.SIGINT, interrupt)
        for number in leaving:
            loop.add_signal_handler(number, leave, number)
        loop.add_signal_handler(signal.SIGWINCH, self.screen.resize)
        try:
            yield
        finally:
            for number in (signal.SIGINT, *leaving, signal.SIGWINCH):
                loop.remove_signal_handler(number)

    def close(self, result: RunResult[Any], model: str, *, named: bool = True) -> int:
        """Tell what the run came to; the exit code for it."""
        code = OUTCOMES[result.outcome]
        if self.form != "text":
            result_line(result, model)
            return code
        self._say_text(result)
        if self.quiet and result.outcome not in ("completed", "suspended"):
            told = f"{result.outcome.replace('_', ' ')}: {result.reason}"
            print(f"windlass: {told}", file=sys.stderr)
        if result.outcome == "suspended":
            how_to_answer(self.screen, result.session_id, result.questions)
        if not self.quiet:
            if self.screen.is_terminal:
                self.screen.line()
            summary(self.screen, result, named=named)
        return code

    def _say_text(self, result: RunResult[Any]) -> None:
        """The reply on standard output, where it did not stream there already."""
        text = result.text or result.partial_text
        if result.outcome == "suspended" or not text:
            return
        if not sys.stdout.isatty():
            print(text)
        elif self.quiet:
            print(safe(text))
        else:
            self.live.conclude(text)


def staged(*, form: Format = "text", quiet: bool = False, thinking: ThinkingMode = "show") -> Stage:
    """The stage for this terminal, or for whatever stands in its place.

    The page is standard output if that is a terminal; else what is said there is the reply alone,
    and the page is standard error.
    """
    on_stdout = form == "text" and sys.stdout.isatty()
    screen = Screen(sys.stdout if on_stdout else sys.stderr)
    status = Status(screen)
    live = Live(screen, status, thinking=thinking, with_text=on_stdout)
    asker = Asker(screen, status, Keyboard()) if has_keyboard() else None
    return Stage(screen, status, live, asker, form, quiet)
