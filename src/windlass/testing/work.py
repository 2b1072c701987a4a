"""The conformance suite for journals whose sessions are driven by workers."""

import asyncio
from collections.abc import Iterable

from msgspec.structs import replace

from windlass.core.errors import SessionBusy
from windlass.core.events import Fact, MailRefused, RunEnded
from windlass.core.fold.run import fold
from windlass.core.mail import CancelMail, PromptMail
from windlass.core.messages import TextPart
from windlass.core.rate_limits import PRIORITY_KEY
from windlass.core.session_summary import SessionState, row_of
from windlass.ports import ClaimedWork, Journal, WorkLane, WorkShare, WorkWanted
from windlass.testing.catalog import run_facts
from windlass.testing.journals import (
    SESSION,
    JournalSuite,
    append_facts,
    error_of,
    on_a_journal,
    on_two_journals,
)

NOW = 2_000_000_000.0
CLERK = WorkWanted(["clerk"], NOW)


def queued_prompt(caller: str = "", *, agent: str = "clerk", priority: int = 0) -> PromptMail:
    """Return a prompt that waits for a worker."""
    context = {PRIORITY_KEY: priority}
    return PromptMail(prompt=(TextPart("Go."),), caller=caller, agent=agent, context=context)


async def find_lanes(journal: Journal, wanted: WorkWanted = CLERK) -> list[tuple[str, str, bool]]:
    """Return the agent and the caller of each lane, and whether its runs were begun."""
    return sorted(lane[:3] for lane in await journal.list_work(wanted))


async def claim(journal: Journal, count: int, wanted: WorkWanted = CLERK) -> list[ClaimedWork]:
    """Claim so many sessions of each lane."""
    lanes = await journal.list_work(wanted)
    return [*await journal.claim_work(wanted, [WorkShare(lane, count) for lane in lanes])]


def names_of(work: Iterable[ClaimedWork]) -> list[str]:
    """Return the names of sessions, sorted: a claim has no order."""
    return sorted(each.session for each in work)


async def put_run(
    journal: Journal, session: str, state: SessionState = "open", due: float | None = None
) -> None:
    """Write a run of the clerk for ann that is in this state."""
    facts = run_facts(agent="clerk", caller="ann", ended=False)
    row = replace(row_of(fold(session, facts)), state=state, due=due)
    await journal.append(session, facts, row)


class WorkConformance(JournalSuite):
    """A session that needs a driver is found, by one worker, until it needs none."""

    @on_two_journals
    async def test_a_prompt_is_work_until_its_run_has_ended(
        self, one: Journal, two: Journal
    ) -> None:
        """F1: from the transaction of its post to the transaction of its end."""
        assert await find_lanes(one) == []
        await one.post_mail(SESSION, queued_prompt("ann"))
        assert await find_lanes(two) == [("clerk", "ann", False)]
        assert await find_lanes(two, WorkWanted(["cook"], NOW)) == []
        lease = await one.lease(SESSION)
        assert await find_lanes(two) == []
        (start,) = run_facts(agent="clerk", caller="ann", ended=False)
        taken = _take_prompts(1, 1, first=1)
        await append_facts(one, SESSION, [*taken, replace(start, seq=2)])
        lease.release()
        assert await find_lanes(two) == [("clerk", "ann", True)]
        await append_facts(two, SESSION, [RunEnded("completed", seq=3, at=1e9)])
        for journal in (one, two):
            assert await find_lanes(journal) == []

    @on_two_journals
    async def test_mail_that_comes_as_its_driver_leaves_is_work(
        self, one: Journal, two: Journal
    ) -> None:
        """F8, D4: the end of a run removes its work only if nothing was posted meanwhile."""
        await put_run(one, SESSION)
        lease = await one.lease(SESSION)
        await two.post_mail(SESSION, queued_prompt("bob", agent="cook"))
        await append_facts(one, SESSION, [RunEnded("completed", seq=2, at=1e9)])
        lease.release()
        assert await find_lanes(two) == []
        assert await find_lanes(two, WorkWanted(["cook"], NOW)) == [("cook", "bob", False)]

    @on_a_journal
    async def test_a_run_that_waits_needs_a_driver_for_messages_alone(
        self, journal: Journal
    ) -> None:
        """F8: a prompt behind it waits as well, and nothing of it is read."""
        states: tuple[SessionState, ...] = ("waiting", "awaiting_budget", "paused")
        for state in states:
            await put_run(journal, state, state)
            await journal.post_mail(state, queued_prompt("bob"))
        assert await find_lanes(journal) == []
        await journal.post_mail("paused", CancelMail(run=1))
        assert names_of(await claim(journal, 9)) == ["paused"]

    @on_a_journal
    async def test_a_run_is_work_when_its_time_has_come(self, journal: Journal) -> None:
        """F8: not before, however often a worker looks."""
        await put_run(journal, SESSION, "waiting", due=NOW + 1)
        await put_run(journal, "dry", "awaiting_budget", due=NOW + 1)
        await put_run(journal, "other", "waiting", due=NOW + 2)
        assert await find_lanes(journal) == []
        later = CLERK._replace(now=NOW + 1)
        assert await find_lanes(journal, later) == [("clerk", "ann", True)]
        assert names_of(await claim(journal, 9, later)) == sorted([SESSION, "dry"])

    @on_two_journals
    async def test_a_claim_is_one_worker_s(self, one: Journal, two: Journal) -> None:
        """F1: however many claim at once, and until it is released."""
        names = [f"s{at}" for at in range(20)]
        for name in names:
            await one.post_mail(name, queued_prompt())
        lane = WorkLane("clerk", "", is_begun=False)
        claims = (journal.claim_work(CLERK, [WorkShare(lane, 5)]) for journal in (one, two) * 4)
        found = [work for each in await asyncio.gather(*claims) for work in each]
        assert len(names_of(found)) == len({*names_of(found)})
        for journal in (one, two):
            found += await claim(journal, 20)
        assert len({*names_of(found)}) == len(found) == len(names)
        assert await find_lanes(one) == []
        for journal in (one, two):
            for work in found:
                journal.release_work(work.session)
        await asyncio.sleep(0.05)
        assert names_of(await claim(two, 20)) == sorted(names)

    @on_two_journals
    async def test_who_claimed_has_the_lease(self, one: Journal, two: Journal) -> None:
        """F3: the next driver of this process gets it, and that of no other one."""
        await one.post_mail(SESSION, queued_prompt())
        await claim(one, 1)
        if two is not one:
            assert isinstance(await error_of(two.lease(SESSION)), SessionBusy)
        lease = await one.lease(SESSION)
        assert lease.is_certain()
        one.release_work(SESSION)
        assert await lease.confirm()
        assert isinstance(await error_of(one.lease(SESSION)), SessionBusy)
        lease.release()
        assert names_of(await claim(two, 1)) == [SESSION]

    @on_a_journal
    async def test_each_caller_has_a_lane(self, journal: Journal) -> None:
        """F7: a queue of one hides no other, and of each the most urgent come first."""
        for at in range(40):
            self.moment += 1
            await journal.post_mail(f"alpha {at}", queued_prompt("alpha", priority=at % 4))
        await journal.post_mail("beta 0", queued_prompt("beta"))
        lanes = await journal.list_work(CLERK)
        assert sorted((lane.caller, lane.priority) for lane in lanes) == [("alpha", 3), ("beta", 0)]
        claimed = await claim(journal, 3)
        assert names_of(claimed) == ["alpha 11", "alpha 3", "alpha 7", "beta 0"]
        wanted = CLERK._replace(without=["alpha 15", "alpha 19"], behind="aloha")
        assert names_of(await claim(journal, 1, wanted)) == ["alpha 23"]
        assert await find_lanes(journal, CLERK._replace(behind="alpha")) == []

    @on_a_journal
    async def test_a_sub_agent_is_work_for_its_messages_alone(self, journal: Journal) -> None:
        """D8: the run that it works for drives it. What is left behind, any agent may settle."""
        facts = run_facts(agent="clerk", parent=f"{SESSION}/c1", ended=False)
        await append_facts(journal, "below", facts)
        assert await find_lanes(journal) == []
        await journal.post_mail("below", CancelMail(run=1))
        assert await find_lanes(journal, WorkWanted(["cook"], NOW)) == [("", "", False)]

    @on_a_journal
    async def test_a_deleted_session_is_no_work(self, journal: Journal) -> None:
        """D9."""
        await put_run(journal, SESSION)
        await journal.post_mail("other", queued_prompt())
        for name in (SESSION, "other"):
            assert await journal.delete(name)
        assert await find_lanes(journal) == []


def _take_prompts(first_mail: int, count: int, first: int) -> list[Fact]:
    """Return facts that take prompts: refusing one is legal in every state of a session."""
    return [
        MailRefused(
            mail=first_mail + nth, kind="prompt", reason="", lane="prompts", seq=first + nth, at=1e9
        )
        for nth in range(count)
    ]
