"""The process that drives the demo's agent, from both sides.

`WorkerProcess` is the parent's side: it starts the process, reads its events, and kills it. `main`
is the process itself: `python -m … run|resume FOLDER calm|fast`. It prints each event as a line of
JSON for its parent, and ends when its parent does.
"""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import msgspec
from msgspec.structs import replace

from windlass.cli.demo.task import CALM, FAST, JOURNAL, PROMPT, SESSION, DemoPace, build_agent
from windlass.core.errors import WindlassError
from windlass.core.events import Event, NestedEvent
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.knowledge.sqlite import SqliteKnowledge

LOG_FILE = "worker.log"
END_S = 10.0
"""How long a worker may take to exit after its last event, in seconds."""
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_decode = msgspec.json.Decoder[Event](Event).decode
_encode = msgspec.json.Encoder().encode


class WorkerProcess:
    """One worker process. Leaving the block kills it, if it still runs."""

    def __init__(self, what: Literal["run", "resume"], folder: Path, *, fast: bool) -> None:
        self._log = folder / LOG_FILE
        pace = "fast" if fast else "calm"
        # `-P`: a file in the current folder must not be imported instead of one of our modules.
        self._command = [sys.executable, "-P", "-m", __name__, what, str(folder), pace]

    def __enter__(self) -> Self:
        # A signal in the middle of the start would leave an orphaned process.
        held = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        try:
            self._process = self._start()
        except BaseException:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
            raise
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)  # This runs the handler, if one came.
        except BaseException:
            self._end()
            raise
        return self

    def _start(self) -> "subprocess.Popen[bytes]":
        # Its own process group: Ctrl-C reaches only the parent, which then ends the worker.
        with self._log.open("ab") as log:
            return subprocess.Popen(  # noqa: S603 - this very Python, our own module
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                process_group=0,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def read_events(self) -> Iterator[Event]:
        """The events as they arrive, until the process ends."""
        for line in self._process.stdout or ():
            event = _decode(line)
            if isinstance(event, NestedEvent):
                # The inner event is typed as any value, so it is decoded to plain JSON at first.
                event = replace(event, event=msgspec.convert(event.event, Event))
            yield event

    def kill(self) -> bool:
        """Kill it with SIGKILL; False if it had ended before that."""
        self._process.kill()
        return self._process.wait() == -signal.SIGKILL

    def failure_reason(self) -> str | None:
        """Why it ended, with the last line of its log; None if it ended well."""
        if (code := self._process.wait(END_S)) == 0:
            return None
        lines = self._log.read_text("utf-8", "replace").strip().splitlines() or ["no output"]
        return f"exit code {code}: {lines[-1]}"

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def print_event(event: Event) -> None:
    """Print an event for the parent, and flush it: the next line may never come."""
    sys.stdout.buffer.write(_encode(event) + b"\n")
    sys.stdout.buffer.flush()


async def drive_agent(what: str, folder: Path, pace: DemoPace) -> None:
    """Start the run, or resume it if `what` is `resume`."""
    # The notes are in the same file as the journal.
    with SqliteJournal(folder / JOURNAL) as journal, SqliteKnowledge(folder / JOURNAL) as notes:
        agent = build_agent(folder, journal, notes, pace)
        if what == "resume":
            await agent.resume(SESSION, on_event=print_event)
        else:
            await agent.run(PROMPT, session=SESSION, on_event=print_event)
        await agent.aclose()


def _end_with_parent() -> None:
    """Exit when the parent ends. It holds the other end of stdin, so the read then returns."""
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


def main() -> None:
    # The parent blocked them while it started us, and a command of the agent must not inherit that.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    what, folder, pace = sys.argv[1:]
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        asyncio.run(drive_agent(what, Path(folder), FAST if pace == "fast" else CALM))
    except WindlassError as error:
        sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
