"""The demo as its reader sees it: two processes, one kill between them, and the proof."""

import asyncio
import time
from pathlib import Path

from windlass.cli.demo.child import WorkerProcess
from windlass.cli.demo.proof import (
    ProofCheck,
    RunEvidence,
    gather_evidence,
    run_checks,
    summarize_events,
)
from windlass.cli.demo.script import CALM, FAST
from windlass.cli.demo.task import JOURNAL, OUTBOX, prepare_folder, read_outbox
from windlass.cli.demo.watch import DemoRenderer
from windlass.cli.renderer import BAD, GOOD, QUIET, TROUBLE
from windlass.cli.screen import Screen
from windlass.core.errors import WindlassError
from windlass.core.events import CallProgress

HEADING = "bold"
NEXT_STEPS = (
    "With a real model: set a key or start a local server, then windlass chat.",
    "How it works, and which test proves it: docs/ and ARCHITECTURE.md.",
)


class DemoFailed(WindlassError):
    """The demo did not go as it should."""


class DemoStory:
    """One showing of the demo."""

    def __init__(self, screen: Screen, folder: Path, *, fast: bool) -> None:
        self._screen = screen
        self._folder = folder
        self._fast = fast
        self._hold_s = (FAST if fast else CALM).hold_s
        self._render = DemoRenderer(screen)

    def show(self) -> bool:
        """Show it all; whether the proof holds."""
        began = time.monotonic()
        prepare_folder(self._folder)
        self._show_introduction()
        kills = self._run_until_killed()
        self._resume_and_finish()
        found = asyncio.run(gather_evidence(self._folder, kills))
        self._show_summary(found, time.monotonic() - began)
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
        """A worker starts the run, and is killed once its effect is really in flight."""
        with WorkerProcess("run", self._folder, fast=self._fast) as child:
            self._open_frame(f"process {child.pid} starts the run")
            for event in child.read_events():
                self._render(event)
                if isinstance(event, CallProgress):
                    break
            else:
                raise DemoFailed(f"the first worker ended early: {child.failure_reason()}")
            if len(read_outbox(self._folder)) != 1:
                raise DemoFailed(f"the refund is not in {OUTBOX}")
            time.sleep(self._hold_s)
            if not child.kill():
                raise DemoFailed("the first worker ended before it could be killed")
            self._show_kill(child.pid)
        return 1

    def _resume_and_finish(self) -> None:
        """Another worker finds the run in the journal, and finishes it."""
        with WorkerProcess("resume", self._folder, fast=self._fast) as child:
            self._open_frame(f"process {child.pid} opens {JOURNAL}")
            for event in child.read_events():
                self._render(event)
            if trouble := child.failure_reason():
                raise DemoFailed(f"the second worker failed: {trouble}")
            self._close_frame(self._screen.glyphs.last, f"process {child.pid} is done", GOOD)
        self._screen.write_line()

    def _open_frame(self, told: str) -> None:
        glyphs = self._screen.glyphs
        self._screen.write_line(told, QUIET, mark=glyphs.first)
        self._screen.gutter = f"{glyphs.bar} "

    def _show_kill(self, pid: int) -> None:
        self._close_frame(self._screen.glyphs.no, f"kill -9 {pid}", f"bold {BAD}")
        self._screen.write_line()
        self._screen.write_line(
            f"The refund is in {OUTBOX}, but the process died before it could write that down. "
            "Sending it again would pay twice.",
            TROUBLE,
        )
        self._screen.write_line()
        time.sleep(2 * self._hold_s)

    def _close_frame(self, mark: str, told: str, style: str) -> None:
        self._screen.end_line()
        self._screen.gutter = ""
        self._screen.write_line(told, style, mark=mark)

    def _show_summary(self, found: RunEvidence, seconds: float) -> None:
        self._screen.write_line(f"What happened, in {seconds:.0f} s", HEADING)
        for name, told in summarize_events(found):
            self._screen.write_line(told, mark=f"{name:<10}", mark_style=QUIET, indent=2)
        self._screen.write_line()

    def _show_proof(self, made: list[ProofCheck]) -> bool:
        holds = all(check.holds for check in made)
        glyphs, heading = self._screen.glyphs, "Proof that nothing was done twice"
        self._screen.write_line(heading if holds else "The proof does not hold", HEADING)
        for check in made:
            mark, style = (glyphs.yes, GOOD) if check.holds else (glyphs.no, BAD)
            told = check.success if check.holds else check.failure
            self._screen.write_line(told, mark=mark, mark_style=style, indent=2)
            for line in check.details:
                self._screen.write_line(line, QUIET, indent=6)
        self._screen.write_line()
        if holds:
            self._screen.write_line("Next", HEADING)
            for told in NEXT_STEPS:
                self._screen.write_line(told, mark=glyphs.call, mark_style=QUIET, indent=2)
        return holds
