"""A store that only reads and appends facts is a whole journal, and loses nothing when killed."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

import windlass
from line_store import LineStore
from windlass import Agent, tool
from windlass.agent.working import SessionWorker
from windlass.core.errors import (
    ConfigError,
    JournalFailed,
    QuestionDecided,
)
from windlass.core.events import EntryKept
from windlass.core.session_summary import SessionSummary
from windlass.core.verdicts import Allow, Ask, Deny
from windlass.journals.completing import CompletedJournal, complete_journal
from windlass.journals.entry_stream import STREAM_PREFIX
from windlass.journals.memory import MemoryJournal
from windlass.ports import Journal
from windlass.server.service import Service
from windlass.testing import (
    AppendSignalsConformance,
    BareJournal,
    BlobStoreConformance,
    FixedGate,
    JournalConformance,
    MailboxConformance,
    ScriptedModel,
    SharedBudgetsConformance,
    SharedQuotaConformance,
    SharedRecordsConformance,
    VirtualClock,
    call,
    pause,
)
from windlass.testing.journals import append_facts
from windlass.testing.samples import note_facts

SESSION = "s"
DIGEST = "ab" * 16


@pytest.mark.slow
class TestLineStore(
    JournalConformance,
    AppendSignalsConformance,
    BlobStoreConformance,
    SharedBudgetsConformance,
    SharedQuotaConformance,
    SharedRecordsConformance,
    MailboxConformance,
):
    """A program's own store of some twenty lines."""

    lists = False

    @override
    def open(self, folder: Path) -> Journal:
        return CompletedJournal(LineStore(folder), self.now, self.mail_limits)


def test_a_whole_journal_stays_as_it_is() -> None:
    """J5."""
    journal = MemoryJournal()
    assert complete_journal(journal) is journal
    completed = complete_journal(BareJournal(journal))
    assert complete_journal(completed) is completed


def test_half_a_journal_is_refused() -> None:
    """J5: its other methods would be left unused, and its author would not learn of it."""

    class Leasing(BareJournal):
        async def lease(self, session: str) -> None: ...

    with pytest.raises(ConfigError, match="give it all of them, or only `read` and `append`"):
        complete_journal(Leasing(MemoryJournal()))


async def test_services_and_workers_refuse_it() -> None:
    """J5: it cannot list what is to be done, nor give it to one of them alone."""
    agents = [Agent(ScriptedModel([]), name=name, journal=_bare()) for name in "ab"]
    for one in (agents, agents[:1]):
        with pytest.raises(ConfigError, match="no service or worker"):
            Service(one)
    with pytest.raises(ConfigError, match="no service or worker"):
        Service(Agent(ScriptedModel([])), journal=_bare())
    with pytest.raises(ConfigError, match="no service or worker"):
        SessionWorker(agents[:1])
    with pytest.raises(ConfigError, match="cannot list its sessions"):
        await agents[0].sweep()


async def test_no_session_has_the_name_of_a_stream() -> None:
    """J1: facts of a session among entries would make both unreadable."""
    journal = complete_journal(_bare())
    with pytest.raises(JournalFailed, match="begins no name"):
        await append_facts(journal, f"{STREAM_PREFIX}mail s", note_facts(1, 1))


async def test_another_fact_in_a_stream_is_damage() -> None:
    """J2: it is said where, and nothing is made of the rest."""
    store = _bare()
    for wrong in (note_facts(1, 1), [EntryKept('{"type": "other"}', seq=1, at=1.0)]):
        store = _bare()
        await store.append(f"{STREAM_PREFIX}mail s", wrong, SessionSummary("s"))
        with pytest.raises(windlass.JournalCorrupt, match="record 1 is not an entry"):
            await complete_journal(store).read_mail("s", "control")


def _bare() -> BareJournal:
    return BareJournal(MemoryJournal())


# ── runs ─────────────────────────────────────────────────────────────────────


def _agent(store: Any, clock: VirtualClock, *script: Any, **options: Any) -> Agent[str]:
    sent: list[str] = options.pop("sent", [])

    @tool(effect="write")
    def send(what: str) -> str:
        """Send something."""
        sent.append(what)
        return "sent"

    model = ScriptedModel(list(script))
    return Agent(model, tools=[send], journal=store, clock=clock, **options)


async def test_a_message_reaches_a_driver_and_does_not_fence_it_off(clock: VirtualClock) -> None:
    """D3, D4: nothing says who drives the run, so what is said to it waits for its driver."""
    store = _bare()
    slow = _agent(store, clock, [pause(5), call("send", {"what": "x"})], [pause(5), "Done."])
    running = asyncio.create_task(slow.run("Go.", session=SESSION))
    await asyncio.sleep(1)
    steered = await windlass.steer(store, SESSION, "Hurry.", by="ann")
    assert type(await steered.taken()).__name__ == "SteeringGiven"
    cancelled = await windlass.cancel(store, SESSION, "not needed", by="ann")
    assert cancelled.fact is None
    result = await running
    assert (result.outcome, result.recorded) == ("cancelled", True)
    assert type(await cancelled.taken()).__name__ == "RunEnded"


async def test_a_run_that_waits_is_answered_and_ended_from_outside(clock: VirtualClock) -> None:
    """D3, G6: its driver is gone, so there is none to fence off."""
    store = _bare()

    def ask(request: Any) -> Ask:
        return Ask("May I?")

    wanted = call("send", {"what": "x"})
    agent = _agent(store, clock, wanted, wanted, gate=FixedGate(ask))
    assert (await agent.run("Go.", session=SESSION)).outcome == "suspended"
    (question,) = (await agent.run("Go.", session="other")).questions
    assert await windlass.answer(store, "other", question.call_id, Deny("no"), clock=clock) == ()
    with pytest.raises(QuestionDecided):
        await windlass.answer(store, "other", question.call_id, Allow("yes"), clock=clock)
    ended = await windlass.cancel(store, SESSION)
    assert type(ended.fact).__name__ == "RunEnded"
