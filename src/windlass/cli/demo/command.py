"""`windlass demo`: its options, its folder, and how it ends, also when it is interrupted."""

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

from windlass.cli.demo.story import DemoFailed, DemoStory
from windlass.cli.exit_codes import DONE, FAILED, INTERRUPTED
from windlass.cli.screen import BAD, TROUBLE, Screen

Handler = Callable[[int, FrameType | None], None] | signal.Handlers

REMOVE_TRIES = 20
REMOVE_WAIT_S = 0.05


@click.command()
@click.option("--keep", is_flag=True, help="Keep the folder, with the journal and all files.")
@click.option("--fast", is_flag=True, help="Without the pauses for reading.")
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
