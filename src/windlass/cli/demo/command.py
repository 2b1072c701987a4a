"""`windlass demo`: two processes, a kill between them, and the proof that nothing was done twice.

Its folder is removed at the end, even when it is interrupted.
"""

import asyncio
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click
from typing_extensions import override

from windlass.cli.demo.proof import (
    ProofCheck,
    gather_evidence,
    run_checks,
    summarize_events,
)
from windlass.cli.demo.task import CALM, FAST, JOURNAL, OUTBOX, prepare_folder, read_outbox
from windlass.cli.demo.worker import WorkerProcess
from windlass.cli.exit_codes import DONE, FAILED, INTERRUPTED
from windlass.cli.renderer import EventRenderer
from windlass.cli.screen import BAD, GOOD, QUIET, TROUBLE, Screen
from windlass.core.errors import WindlassError
from windlass.core.events import AttemptStarted, CallProgress
from windlass.core.projection.entries import PromptEntry
from windlass.core.projection.view import NestedView

HEADING = "bold"
NEXT_STEPS = (
    "With a real model: set a key or start a local server, then windlass chat.",
    "How it works, and which test proves it: docs/ and ARCHITECTURE.md.",
)


class DemoFailed(WindlassError):
    """The demo did not go as planned."""


class NestedRenderer(EventRenderer):
    """Shows the calls of a sub-agent. Its reply is shown as the result of the call."""

    @override
    def _show_text(self, text: str) -> None:
        pass

    @override
    def _show_prompt(self, prompt: PromptEntry) -> None:
        pass

    @override
    def _show_attempt(self, attempt: AttemptStarted) -> None:
        pass


class DemoRenderer(EventRenderer):
    """Shows the run of the demo, in both of its processes."""

    def __init__(self, screen: Screen) -> None:
        super().__init__(screen)
        self._nested_renderer = NestedRenderer(screen)

    @override
    def _show_recalled_notes(self, text: str) -> None:
        # The text is an introduction, the notes, each below its heading, and a closing line.
        for note in text.split("\n\n")[1:-1]:
            _, _, content = note.partition("\n")
            line = f"recalled from {JOURNAL}: {content}"
            self._screen.write_line(line, QUIET, mark=self._screen.glyphs.progress)
        if text:
            self._screen.write_line()

    @override
    def _show_nested(self, before: NestedView | None, nested: NestedView) -> None:
        if before is None:
            line = f"sub-agent {nested.agent}, in its own session: {nested.session}"
            self._screen.write_line(line, QUIET, mark=self._screen.glyphs.first)
        with self._indent_page():
            self._nested_renderer.show_view(nested.projection)

    @contextmanager
    def _indent_page(self) -> Generator[None]:
        before = self._screen.gutter
        self._screen.gutter = f"{before}{self._screen.glyphs.bar} "
        try:
            yield
        finally:
            self._screen.gutter = before


class DemoStory:
    """One run of the demo."""

    def __init__(self, screen: Screen, folder: Path, *, fast: bool) -> None:
        self._screen = screen
        self._folder = folder
        self._fast = fast
        self._hold_s = (FAST if fast else CALM).hold_s
        self._renderer = DemoRenderer(screen)

    def show(self) -> bool:
        """Show everything; returns whether the proof holds."""
        began = time.monotonic()
        prepare_folder(self._folder)
        self._show_introduction()
        kills = self._run_until_killed()
        self._resume_and_finish()
        found = asyncio.run(gather_evidence(self._folder, kills))
        seconds = time.monotonic() - began
        self._screen.write_line(f"What happened, in {seconds:.0f} s", HEADING)
        for name, text in summarize_events(found):
            self._screen.write_line(text, mark=f"{name:<10}", mark_style=QUIET, indent=2)
        self._screen.write_line()
        return self._show_proof(run_checks(found))

    def _show_introduction(self) -> None:
        line = self._screen.write_line
        line("windlass demo", HEADING)
        line()
        line("The model is a script: no key, no network. Everything else is real: the")
        line("processes, the tools, the files, the journal, the stall and the kill -9.")
        line()
        line(f"folder  {self._folder}", QUIET)
        line()

    def _run_until_killed(self) -> int:
        """Start the run in a worker, and kill it in the middle of the refund; returns the kills."""
        with WorkerProcess("run", self._folder, fast=self._fast) as child:
            self._open_frame(f"process {child.pid} starts the run")
            for event in child.read_events():
                self._renderer.show_event(event)
                if isinstance(event, CallProgress):
                    break
            else:
                raise DemoFailed(f"the first worker ended early: {child.failure_reason()}")
            # The tool reports progress after it has written the refund, so it must be there now.
            if len(read_outbox(self._folder)) != 1:
                raise DemoFailed(f"the refund is not in {OUTBOX}")
            time.sleep(self._hold_s)
            if not child.kill():
                raise DemoFailed("the first worker ended before it could be killed")
            self._show_kill(child.pid)
        return 1

    def _resume_and_finish(self) -> None:
        """Let another worker find the run in the journal, and finish it."""
        with WorkerProcess("resume", self._folder, fast=self._fast) as child:
            self._open_frame(f"process {child.pid} opens {JOURNAL}")
            for event in child.read_events():
                self._renderer.show_event(event)
            if reason := child.failure_reason():
                raise DemoFailed(f"the second worker failed: {reason}")
            self._close_frame(self._screen.glyphs.last, f"process {child.pid} is done", GOOD)
        self._screen.write_line()

    def _open_frame(self, text: str) -> None:
        glyphs = self._screen.glyphs
        self._screen.write_line(text, QUIET, mark=glyphs.first)
        self._screen.gutter = f"{glyphs.bar} "

    def _show_kill(self, pid: int) -> None:
        self._close_frame(self._screen.glyphs.no, f"kill -9 {pid}", f"bold {BAD}")
        self._screen.write_line()
        self._screen.write_line(
            f"The refund is in {OUTBOX}, but the process died before it could record that. "
            "Sending it again would pay twice.",
            TROUBLE,
        )
        self._screen.write_line()
        time.sleep(2 * self._hold_s)

    def _close_frame(self, mark: str, text: str, style: str) -> None:
        self._screen.end_line()
        self._screen.gutter = ""
        self._screen.write_line(text, style, mark=mark)

    def _show_proof(self, checks: list[ProofCheck]) -> bool:
        holds = all(check.holds for check in checks)
        heading = "Proof that nothing was done twice" if holds else "The proof does not hold"
        self._screen.write_line(heading, HEADING)
        for check in checks:
            glyphs = self._screen.glyphs
            if check.holds:
                self._screen.write_line(check.success, mark=glyphs.yes, mark_style=GOOD, indent=2)
            else:
                self._screen.write_line(check.failure, mark=glyphs.no, mark_style=BAD, indent=2)
            for line in check.details:
                self._screen.write_line(line, QUIET, indent=6)
        self._screen.write_line()
        if holds:
            self._screen.write_line("Next", HEADING)
            for text in NEXT_STEPS:
                mark = self._screen.glyphs.call
                self._screen.write_line(text, mark=mark, mark_style=QUIET, indent=2)
        return holds


Handler = Callable[[int, FrameType | None], None] | signal.Handlers

REMOVE_TRIES = 20
REMOVE_WAIT_S = 0.05


@click.command()
@click.option("--keep", is_flag=True, help="Keep the folder, with the journal and all files.")
@click.option("--fast", is_flag=True, help="Skip the pauses for reading.")
def demo(keep: bool, fast: bool) -> None:
    """Watch an agent stall, be denied, be killed with SIGKILL, and finish.

    On the way it recalls a note, reads a skill and asks a sub-agent. It takes about 15 seconds and
    needs no key and no network: the model is a script, and everything else is real. The exit code
    is 0 only if the proof holds that nothing was done twice.
    """
    screen = Screen()
    try:
        with _temporary_folder(screen, keep=keep) as folder:
            holds = DemoStory(screen, folder, fast=fast).show()
    except DemoFailed as error:
        screen.write_line(str(error), BAD, mark=screen.glyphs.no)
        screen.write_line("To keep its files and look into it: windlass demo --keep")
        sys.exit(FAILED)
    except KeyboardInterrupt:
        screen.write_line("Stopped. Nothing is left running.", TROUBLE)
        sys.exit(INTERRUPTED)
    sys.exit(DONE if holds else FAILED)


@contextmanager
def _temporary_folder(screen: Screen, *, keep: bool) -> Generator[Path]:
    """A folder for the demo. It is removed afterwards, however the demo ends, unless `keep`."""
    with _handle_signals(_exit_on_signal, signal.SIGTERM, signal.SIGHUP):
        folder = Path(tempfile.mkdtemp(prefix="windlass-demo-"))
        try:
            yield folder
        finally:
            # Removing the folder is quick and must not be interrupted.
            with _handle_signals(signal.SIG_IGN, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if not keep:
                    _remove_folder(folder)
            screen.end_line()
            screen.gutter = ""
            if keep:
                screen.write_line()
                screen.write_line(f"Kept: {folder}")


def _remove_folder(folder: Path) -> None:
    """Remove a folder in which a child that was just killed may still create its last file."""
    for _ in range(REMOVE_TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(REMOVE_WAIT_S)


@contextmanager
def _handle_signals(handler: Handler, *numbers: signal.Signals) -> Generator[None]:
    before = [(number, signal.signal(number, handler)) for number in numbers]
    try:
        yield
    finally:
        for number, old in before:
            signal.signal(number, old)


def _exit_on_signal(number: int, _frame: FrameType | None) -> None:
    """Exit with the code of a program that this signal ended, but clean up first."""
    sys.exit(128 + number)
