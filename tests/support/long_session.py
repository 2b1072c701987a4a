"""A session with thousands of records, written without running anything."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

from msgspec.structs import replace

from page_service import build_agents
from windlass.agent.options import parts_of
from windlass.core.events import (
    AttemptStarted,
    CallFinished,
    CallJudged,
    CallStarted,
    Fact,
    RunEnded,
    RunStarted,
    StepProposed,
)
from windlass.core.fold.run import fold
from windlass.core.limits import Reservation
from windlass.core.messages import (
    AssistantMessage,
    Charge,
    TextPart,
    ToolCall,
    ToolResult,
    Usage,
)
from windlass.core.verdicts import Allow
from windlass.journals import SqliteJournal
from windlass.testing.journals import append_facts

MODEL = "scripted:large"
CHARGE = Charge(MODEL, "main", Usage(2_400, 60), Decimal("0.0081"))
RESERVED = Reservation(3_000, 8_192, Decimal("0.2"))
FACTS_PER_STEP = 5
BEGAN = 1_790_000_000.0


async def write_long_session(path: Path, session: str, steps: int) -> int:
    """Write a session of so many steps, and return how many records it has."""
    facts = list(_number(_make_facts(session, steps)))
    fold(session, facts)
    journal = SqliteJournal(path)
    try:
        for start in range(0, len(facts), 500):
            await append_facts(journal, session, facts[start : start + 500])
    finally:
        journal.close()
    return len(facts)


def _number(facts: Iterator[Fact]) -> Iterator[Fact]:
    for seq, fact in enumerate(facts, 1):
        yield replace(fact, seq=seq, at=BEGAN + seq * 0.2)


def _make_facts(session: str, steps: int) -> Iterator[Fact]:
    setup = parts_of(build_agents()[1]).setup
    yield RunStarted(1, (TextPart(f"read {steps} files"),), setup, agent="reader", rules=3)
    for step in range(1, steps + 1):
        call = ToolCall(f"c{step}_0", "read", f'{{"path": "file{step}.txt"}}')
        reply = AssistantMessage((TextPart(f"Step {step}."), call), MODEL)
        yield AttemptStarted(step, 1, MODEL, RESERVED)
        yield StepProposed(reply, "calls", CHARGE)
        yield CallJudged(call.id, Allow("allow_all"))
        yield CallStarted(call.id, f"{session}/{call.id}", "read")
        yield CallFinished(call.id, ToolResult.from_text("value", f"content {step}"), (), "read")
    yield AttemptStarted(steps + 1, 1, MODEL, RESERVED)
    yield StepProposed(AssistantMessage((TextPart("All files are read."),), MODEL), "end", CHARGE)
    yield RunEnded("completed")
