"""What must be true when all is over: of every session, of every effect, of every process."""

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
    """What was found. All but the first few should be zero."""

    sessions: int = 0
    records: int = 0
    waiting: int = 0
    """For a person: the only ones that may stay open."""
    effects: int = 0
    unknown: int = 0
    """Told to the model as such, after a kill."""
    open: int = 0
    broken: int = 0
    """Do not verify, fold or replay."""
    twice: int = 0
    lost: int = 0
    """Told as done, and not done."""
    processes: int = 0
    """Left behind."""
    told: list[str] = []

    @property
    def faults(self) -> int:
        return self.open + self.broken + self.twice + self.lost + self.processes


def adopt_orphans() -> None:
    """What loses its parent below this process becomes its child, so that none can hide."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def count_leftover_processes(audit: SoakAudit) -> None:
    """Count the processes that are still there."""
    until = time.monotonic() + GONE_S
    while time.monotonic() < until and living_children(os.getpid()):
        time.sleep(0.1)
    for pid in living_children(os.getpid()):
        audit.processes += 1
        with suppress(OSError):
            line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
            audit.told.append(f"process {pid} is left: {line.decode()[:200]}")
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


class EffectBooks:
    """What was done, against what the records say of it."""

    def __init__(self, marks: Path) -> None:
        self.done = Counter(marks.read_text("utf-8").split() if marks.exists() else ())
        self.begun: Counter[str] = Counter()
        self.told: Counter[str] = Counter()
        self.unknown = 0

    def add_session(self, session: str, facts: Sequence[Fact]) -> None:
        """Take in the calls of a session. A command in the back is only said to have begun."""
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
                    # One that a crash interrupted may begin twice; its effect may not be twice.
                    begun.add(call_id)
                case CallFinished(call_id=call_id, result=result) if call_id in names:
                    name, in_the_back = names[call_id]
                    self.told[name] += result.kind == "value" and not in_the_back
                    self.unknown += result.kind == "unknown"
                case _:
                    pass
        self.begun.update(names[call_id][0] for call_id in begun)


async def audit_sessions(folder: Path) -> SoakAudit:
    """Read every session back."""
    audit, books = SoakAudit(), EffectBooks(folder / MARKS)
    with SqliteJournal(folder / "sessions.db") as journal:
        for wrong in await journal.check():
            audit.broken += 1
            audit.told.append(wrong)
        for one in await journal.sessions(limit=10**9):
            audit.sessions += 1
            audit.records += one.facts
            audit.waiting += one.state == "waiting"
            if one.state == "open":
                audit.open += 1
                audit.told.append(f"session {one.session} is open")
            for wrong in await _find_problems(journal, one.session, books):
                audit.broken += 1
                audit.told.append(f"session {one.session}: {wrong}")
    audit.effects, audit.unknown = books.done.total(), books.unknown
    audit.twice = _count_problem(audit, books.done - books.begun, "was done once too often")
    audit.lost = _count_problem(audit, books.told - books.done, "was told as done")
    return audit


def _count_problem(audit: SoakAudit, wrong: Counter[str], words: str) -> int:
    audit.told += [f"effect {name} {words}" for name in wrong]
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
    return [*wrong, f"it replays otherwise: {again.difference or again.other_rules}"]
