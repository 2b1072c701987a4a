"""An export whose facts of control, accounts and clock would loosen limits elsewhere (G5, J8)."""

import io
import time
from decimal import Decimal

import pytest
from msgspec.structs import replace

from windlass import Agent, Limits, SessionLimits, tool
from windlass.core.control_facts import LimitsRaised, RunPaused
from windlass.core.errors import JournalCorrupt
from windlass.core.events import AttemptStarted, Fact, RunStarted, StepProposed
from windlass.core.fold.run import fold
from windlass.core.limits import RaisedLimits, Reservation
from windlass.core.messages import Charge, Usage
from windlass.gates.presets import ask
from windlass.journals.archive import export_session, import_session
from windlass.journals.forking import fork
from windlass.journals.memory import MemoryJournal
from windlass.testing import ScriptedModel, call
from windlass.testing.journals import append_facts

pytestmark = pytest.mark.contract("J8")


@tool
def send(to: str) -> str:
    """Send something."""
    return f"sent to {to}"


async def waiting_session() -> list[Fact]:
    journal = MemoryJournal()
    model = ScriptedModel([[call("send", {"to": "ann"})]])
    await Agent(model, tools=[send], journal=journal, gate=ask()).run("Go.", session="s")
    return list(await journal.read("s"))


async def add_facts(*more: Fact) -> list[Fact]:
    facts = await waiting_session()
    last = facts[-1]
    added = [replace(fact, seq=last.seq + nth, at=last.at) for nth, fact in enumerate(more, 1)]
    return [*facts, *added]


async def import_facts(facts: list[Fact]) -> MemoryJournal:
    """What an attacker wrote, exported there and imported here."""
    theirs = MemoryJournal()
    await append_facts(theirs, "s", facts)
    page = io.BytesIO()
    await export_session(theirs, "s", page.write)
    ours = MemoryJournal()
    await import_session(ours, page)
    return ours


RAISED = LimitsRaised(
    RaisedLimits(steps=10**6, usd=Decimal(10**6), session_steps=10**6, session_usd=Decimal(10**6)),
    by="you",
)


@pytest.mark.contract("G5")
async def test_limits_that_a_file_raises_stay_as_they_are() -> None:
    ours = await import_facts(await add_facts(RAISED))
    state = fold("s", await ours.read("s"))
    assert state.setup == state.recorded_setup
    agent = Agent(
        ScriptedModel([]),
        tools=[send],
        journal=ours,
        gate=ask(),
        limits=Limits(steps=3),
        session_limits=SessionLimits(steps=4),
    )
    await agent.resume("s", consent=True)
    setup = fold("s", await ours.read("s")).setup
    assert setup is not None
    assert (setup.limits.steps, setup.session_limits.steps) == (3, 4)


@pytest.mark.contract("G5")
async def test_a_fork_from_before_the_import_raises_nothing_either() -> None:
    ours = await import_facts(await add_facts(RAISED))
    name = await fork(ours, "s", len(await ours.read("s")) - 1)
    state = fold(name, await ours.read(name))
    assert state.setup == state.recorded_setup


async def test_the_trace_in_a_file_is_not_continued() -> None:
    facts = await waiting_session()
    assert isinstance(facts[0], RunStarted)
    facts[0] = replace(facts[0], trace="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
    ours = await import_facts(facts)
    run = fold("s", await ours.read("s")).run
    assert run is not None
    assert run.trace == ""


NEGATIVE = [
    Charge("m", usd=Decimal(-1000)),
    Charge("m", usage=Usage(-1, 0)),
    Charge("m", usage=Usage(0, -(10**9))),
    Charge("m", usd=Decimal("1e300")),
]


@pytest.mark.contract("G5")
@pytest.mark.parametrize("charge", NEGATIVE)
async def test_a_file_cannot_pay_for_what_comes_after_it(charge: Charge) -> None:
    facts = [
        replace(fact, charge=charge) if isinstance(fact, StepProposed) else fact
        for fact in await waiting_session()
    ]
    with pytest.raises(JournalCorrupt, match="less than nothing"):
        await import_facts(facts)


@pytest.mark.contract("G5")
async def test_a_reservation_below_nothing_is_refused() -> None:
    """An attempt in flight counts as all that was reserved for it."""
    facts = [
        replace(fact, reserved=Reservation(-(10**9), -(10**9), Decimal(-1000)))
        if isinstance(fact, AttemptStarted)
        else fact
        for fact in await waiting_session()
    ]
    with pytest.raises(JournalCorrupt, match="less than nothing"):
        await import_facts(facts)


@pytest.mark.parametrize("number", [2**53 + 1, 2**63 - 1, 2**80])
async def test_a_number_of_a_message_that_no_store_can_count_on_is_refused(number: int) -> None:
    """The next message would get a number that does not fit, and nobody could post any more."""
    with pytest.raises(JournalCorrupt, match="far too much"):
        await import_facts(await add_facts(replace(RAISED, mail=number)))


@pytest.mark.contract("G5")
async def test_records_from_the_future_are_refused() -> None:
    """Time only goes forward: until then, no second would count against a limit."""
    pause = RunPaused("wait")
    facts = await add_facts(pause)
    facts[-1] = replace(facts[-1], at=time.time() + 10 * 365 * 86_400)
    with pytest.raises(JournalCorrupt, match="future"):
        await import_facts(facts)
