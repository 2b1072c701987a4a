"""The demo as its reader sees it: two processes, one kill between them, and the proof."""

import asyncio
import time
from pathlib import Path

from windlass.cli.demo.child import Child
from windlass.cli.demo.proof import Check, Evidence, checks, gather, happened
from windlass.cli.demo.script import CALM, FAST
from windlass.cli.demo.task import JOURNAL, OUTBOX, lay_out, outbox
from windlass.cli.demo.watch import Watch
from windlass.cli.renderer import BAD, GOOD, QUIET, TROUBLE
from windlass.cli.screen import Screen
from windlass.core.errors import WindlassError
from windlass.core.events import CallProgress

HEADING = "bold"
NEXT = (
    "With a real model: set a key or start a local server, then windlass chat.",
    "How it works, and which test proves it: docs/ and ARCHITECTURE.md.",
)


class StoryFailed(WindlassError):
    """The demo did not go as it should."""


class Story:
    """One showing of the demo."""

    def __init__(self, screen: Screen, folder: Path, *, fast: bool) -> None:
        self._screen = screen
        self._folder = folder
        self._fast = fast
        self._hold_s = (FAST if fast else CALM).hold_s
        self._render = Watch(screen)

    def show(self) -> bool:
        """Show it all; whether the proof holds."""
        began = time.monotonic()
        lay_out(self._folder)
        self._introduce()
        kills = self._first_life()
        self._second_life()
        found = asyncio.run(gather(self._folder, kills))
        self._sum_up(found, time.monotonic() - began)
        return self._prove(checks(found))

    def _introduce(self) -> None:
        line = self._screen.line
        line("windlass demo", HEADING)
        line()
        line("The model is a script: no key, no network. Everything else is real: the")
        line("processes, the tools, the files, the journal, the stall and the kill -9.")
        line()
        line(f"folder  {self._folder}", QUIET)
        line()

    def _first_life(self) -> int:
        """A worker starts the run, and is killed once its effect is really in flight."""
        with Child("run", self._folder, fast=self._fast) as child:
            self._begin(f"process {child.pid} starts the run")
            for event in child.events():
                self._render(event)
                if isinstance(event, CallProgress):
                    break
            else:
                raise StoryFailed(f"the first worker ended early: {child.trouble()}")
            if len(outbox(self._folder)) != 1:
                raise StoryFailed(f"the refund is not in {OUTBOX}")
            time.sleep(self._hold_s)
            if not child.kill():
                raise StoryFailed("the first worker ended before it could be killed")
            self._die(child.pid)
        return 1

    def _second_life(self) -> None:
        """Another worker finds the run in the journal, and finishes it."""
        with Child("resume", self._folder, fast=self._fast) as child:
            self._begin(f"process {child.pid} opens {JOURNAL}")
            for event in child.events():
                self._render(event)
            if trouble := child.trouble():
                raise StoryFailed(f"the second worker failed: {trouble}")
            self._end(self._screen.glyphs.last, f"process {child.pid} is done", GOOD)
        self._screen.line()

    def _begin(self, told: str) -> None:
        glyphs = self._screen.glyphs
        self._screen.line(told, QUIET, mark=glyphs.first)
        self._screen.gutter = f"{glyphs.bar} "

    def _die(self, pid: int) -> None:
        self._end(self._screen.glyphs.no, f"kill -9 {pid}", f"bold {BAD}")
        self._screen.line()
        self._screen.line(
            f"The refund is in {OUTBOX}, but the process died before it could write that down. "
            "Sending it again would pay twice.",
            TROUBLE,
        )
        self._screen.line()
        time.sleep(2 * self._hold_s)

    def _end(self, mark: str, told: str, style: str) -> None:
        self._screen.end()
        self._screen.gutter = ""
        self._screen.line(told, style, mark=mark)

    def _sum_up(self, found: Evidence, seconds: float) -> None:
        self._screen.line(f"What happened, in {seconds:.0f} s", HEADING)
        for name, told in happened(found):
            self._screen.line(told, mark=f"{name:<10}", marked=QUIET, indent=2)
        self._screen.line()

    def _prove(self, made: list[Check]) -> bool:
        holds = all(check.holds for check in made)
        glyphs, heading = self._screen.glyphs, "Proof that nothing was done twice"
        self._screen.line(heading if holds else "The proof does not hold", HEADING)
        for check in made:
            mark, style = (glyphs.yes, GOOD) if check.holds else (glyphs.no, BAD)
            told = check.told if check.holds else check.otherwise
            self._screen.line(told, mark=mark, marked=style, indent=2)
            for line in check.shown:
                self._screen.line(line, QUIET, indent=6)
        self._screen.line()
        if holds:
            self._screen.line("Next", HEADING)
            for told in NEXT:
                self._screen.line(told, mark=glyphs.call, marked=QUIET, indent=2)
        return holds
