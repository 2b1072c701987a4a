"""The audit at the end of a soak: every session, every effect and every process."""

import ctypes
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from gauge import living_children
from plan import EFFECTS, MARKS, mark_name

from windlass.core.audit.replay import replay
from windlass.core.errors import WindlassError
from windlass.core.events import CallFinished, CallStarted, Fact, StepProposed
from windlass.journals.sqlite.journal import SqliteJournal

_SUBREAPER = 36
GONE_S = 10.0


class SoakAudit(msgspec.Struct):
    """The findings. All but the first few should be zero."""

    sessions: int = 0
    records: int = 0
    waiting: int = 0
    """Sessions that wait for a person. Only these may stay open."""
    effects: int = 0
    unknown: int = 0
    """Writes that were reported to the model as unknown, after a kill."""
    open: int = 0
    broken: int = 0
    """Sessions that do not verify, fold or replay."""
    twice: int = 0
    lost: int = 0
    """Effects that were reported as done but did not happen."""
    processes: int = 0
    """Processes that were left behind."""
    findings: list[str] = []

    @property
    def faults(self) -> int:
        return self.open + self.broken + self.twice + self.lost + self.processes


def adopt_orphans() -> None:
    """Make orphaned descendants children of this process, so that none can hide."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def count_leftover_processes(audit: SoakAudit) -> None:
    """Count the processes that still run."""
    until = time.monotonic() + GONE_S
    while time.monotonic() < until and living_children(os.getpid()):
        time.sleep(0.1)
    for pid in living_children(os.getpid()):
        audit.processes += 1
        with suppress(OSError):
            line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
            audit.findings.append(f"process {pid} is left: {line.decode()[:200]}")
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


class EffectBooks:
    """The effects that happened, and what the records say about them."""

    def __init__(self, marks: Path) -> None:
        self.done = Counter(marks.read_text("utf-8").split() if marks.exists() else ())
        self.begun: Counter[str] = Counter()
        self.reported: Counter[str] = Counter()
        self.unknown = 0

    def add_session(self, session: str, facts: Sequence[Fact]) -> None:
        """Add the calls of a session. For a background command only its start is recorded."""
        names: dict[str, tuple[str, bool]] = {}
        begun: set[str] = set()
        for fact in facts:
            match fact:
                case StepProposed(reply=reply):
                    for call in reply.calls:
                        if call.name in EFFECTS:
                            given = msgspec.json.decode(call.arguments)
                            name = mark_name(call.name, given, f"{session}/{call.id}")
                            names[call.id] = name, "background" in given
                case CallStarted(call_id=call_id) if call_id in names:
                    # An interrupted call may start twice, but its effect may happen only once.
                    begun.add(call_id)
                case CallFinished(call_id=call_id, result=result) if call_id in names:
                    name, in_the_back = names[call_id]
                    self.reported[name] += result.kind == "value" and not in_the_back
                    self.unknown += result.kind == "unknown"
                case _:
                    pass
        self.begun.update(names[call_id][0] for call_id in begun)


async def audit_sessions(folder: Path) -> SoakAudit:
    """Read every session and compare it with the effects."""
    audit = SoakAudit()
    books = EffectBooks(folder / MARKS)
    with SqliteJournal(folder / "sessions.db") as journal:
        for problem in await journal.check():
            audit.broken += 1
            audit.findings.append(problem)
        for summary in await journal.sessions(limit=10**9):
            audit.sessions += 1
            audit.records += summary.facts
            audit.waiting += summary.state == "waiting"
            if summary.state == "open":
                audit.open += 1
                audit.findings.append(f"session {summary.session} is open")
            for problem in await _find_problems(journal, summary.session, books):
                audit.broken += 1
                audit.findings.append(f"session {summary.session}: {problem}")
    audit.effects = books.done.total()
    audit.unknown = books.unknown
    audit.twice = _count_problem(audit, books.done - books.begun, "happened once too often")
    audit.lost = _count_problem(audit, books.reported - books.done, "was reported as done")
    return audit


def _count_problem(audit: SoakAudit, wrong: Counter[str], words: str) -> int:
    audit.findings += [f"effect {name} {words}" for name in wrong]
    return wrong.total()


async def _find_problems(journal: SqliteJournal, session: str, books: EffectBooks) -> list[str]:
    try:
        wrong = [str(problem) for problem in await journal.verify(session)]
        facts = await journal.read(session)
        again = replay(session, facts)
    except WindlassError as error:
        return [str(error)]
    books.add_session(session, facts)
    if again.is_same:
        return wrong
    return [*wrong, f"its replay differs: {again.difference or again.other_rules}"]
