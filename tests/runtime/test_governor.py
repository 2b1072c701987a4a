"""F1: requests are held back by what their providers say, before their attempts are recorded."""

import asyncio
from collections.abc import Sequence

import pytest
from typing_extensions import override

from proof.limited_provider import LimitDialect, LimitedProvider
from windlass import Agent, Limits, RetryPolicy, RunResult
from windlass.agent.options import parts_of
from windlass.core.errors import ConfigError, Fault, JournalFailed
from windlass.core.events import AttemptFailed, AttemptStarted, SteeringGiven
from windlass.core.rate_limits import LimitReport, RateLimits
from windlass.journals.memory import MemoryJournal
from windlass.ports import RequestPermit, SharedRecord
from windlass.runtime.governor import ProviderGovernor
from windlass.testing import FaultServer, ScriptedModel, VirtualClock
from windlass.testing.chat_wire import call_chunks, chat_answer, text_answer

pytestmark = [pytest.mark.slow, pytest.mark.contract("F1")]
KEY = "sk-test-0123456789abcdef"
RUNS = 45
REFUSED = Fault("rate_limit", "too many requests", retryable=True, retry_after_s=5.0)


def agent_at(
    server: FaultServer,
    clock: VirtualClock,
    journal: MemoryJournal,
    governor: ProviderGovernor | None = None,
) -> Agent[str]:
    return Agent(
        "openai-compatible:m",
        base_url=server.url,
        key=KEY,
        journal=journal,
        clock=clock,
        governor=governor,
        retries=RetryPolicy(retry_after_max_s=60),
        limits=Limits(seconds=None),
    )


async def run_many(agent: Agent[str], count: int, prefix: str = "s") -> Sequence[RunResult[str]]:
    return await asyncio.gather(
        *(agent.run("Hello", session=f"{prefix}{nth}") for nth in range(count))
    )


@pytest.mark.parametrize("dialect", ["openai", "anthropic", "silent"])
async def test_many_runs_keep_to_a_limit_without_a_storm(
    dialect: LimitDialect, clock: VirtualClock
) -> None:
    """F1: of many runs at once hardly one is refused, and all of them end."""
    journal = MemoryJournal()
    provider = LimitedProvider(
        text_answer("Hi"), requests_per_s=10, burst=20, dialect=dialect, now=clock.now
    )
    async with FaultServer(always=provider) as server:
        results = await run_many(agent_at(server, clock, journal), RUNS)
    assert {result.text for result in results} == {"Hi"}
    assert provider.accepted == RUNS
    # Whoever says nothing about limits has to refuse now and then, for the rate to be found.
    assert provider.rejected <= (RUNS if dialect == "silent" else 2)


async def test_agents_that_share_a_journal_share_the_quota(clock: VirtualClock) -> None:
    """F1: two agents, as in two processes: each borrows its part."""
    journal = MemoryJournal()
    provider = LimitedProvider(text_answer("Hi"), requests_per_s=10, burst=20, now=clock.now)
    async with FaultServer(always=provider) as server:
        agents = [agent_at(server, clock, journal) for _ in range(3)]
        await asyncio.gather(
            *(run_many(agent, 15, f"agent {nth} ") for nth, agent in enumerate(agents))
        )
    assert provider.accepted == RUNS
    # At the very first, each of them asks without knowing of the others.
    assert provider.rejected <= RUNS // 2
    assert (await journal.list_records("provider-quota")) != []


async def test_a_request_that_waits_has_recorded_nothing(clock: VirtualClock) -> None:
    """F1: its attempt is recorded when it is made, so waiting costs no attempt and no money."""
    journal = MemoryJournal()
    governor = ProviderGovernor(journal, requests_at_once=1, clock=clock)
    async with FaultServer(text_answer("First"), text_answer("Second")) as server:
        agent = agent_at(server, clock, journal, governor)
        key = parts_of(agent).world.models["openai-compatible:m"].quota_key  # type: ignore[attr-defined]
        permit = governor.try_admit(key, 10)
        assert permit is not None
        running = asyncio.create_task(agent.run("Hello", session="s"))
        await asyncio.sleep(5)
        assert not any(isinstance(fact, AttemptStarted) for fact in await journal.read("s"))
        assert server.requests == []
        permit.close(None)
        assert (await running).text == "First"


async def test_what_is_said_to_a_run_that_waits_is_in_its_request(clock: VirtualClock) -> None:
    """F1, D5: a person speaks while the run waits for its turn; the request has the words."""
    journal = MemoryJournal()
    governor = ProviderGovernor(journal, requests_at_once=1, clock=clock)
    async with FaultServer(text_answer("Done")) as server:
        agent = agent_at(server, clock, journal, governor)
        key = parts_of(agent).world.models["openai-compatible:m"].quota_key  # type: ignore[attr-defined]
        permit = governor.try_admit(key, 10)
        assert permit is not None
        running = asyncio.create_task(agent.run("Hello", session="s"))
        await asyncio.sleep(1)
        await agent.steer("s", "In French, please.")
        await asyncio.sleep(1)
        permit.close(None)
        await running
        assert "In French" in str(server.requests[0].json)
    assert any(isinstance(fact, SteeringGiven) for fact in await journal.read("s"))


async def test_a_run_that_waits_can_be_cancelled(clock: VirtualClock) -> None:
    """F1, L4: a cancel ends the wait at once, and its place is free again."""
    journal = MemoryJournal()
    governor = ProviderGovernor(journal, requests_at_once=1, clock=clock)
    async with FaultServer(text_answer("Other")) as server:
        agent = agent_at(server, clock, journal, governor)
        key = parts_of(agent).world.models["openai-compatible:m"].quota_key  # type: ignore[attr-defined]
        permit = governor.try_admit(key, 10)
        assert permit is not None
        running = asyncio.create_task(agent.run("Hello", session="s"))
        await asyncio.sleep(1)
        before_s = clock.elapsed_s
        agent.cancel("s", "enough")
        assert (await running).outcome == "cancelled"
        assert clock.elapsed_s - before_s < 0.1
        permit.close(None)
        assert (await agent.run("Hello", session="other")).text == "Other"


async def test_after_a_refusal_nobody_asks_before_its_time(clock: VirtualClock) -> None:
    """F1, S2: what the provider asks of one request holds for all, in all processes."""
    journal = MemoryJournal()
    first = ProviderGovernor(journal, clock=clock)
    second = ProviderGovernor(journal, clock=clock)
    permit = first.try_admit("p", 10)
    assert permit is not None
    await asyncio.sleep(0.01)
    permit.close(REFUSED)
    await asyncio.sleep(0.01)
    assert first.try_admit("p", 10) is None
    assert second.try_admit("p", 10) is not None  # It has not heard of it yet, and looks.
    await asyncio.sleep(0.01)
    assert second.try_admit("p", 10) is None
    await second.admit("p", 10)
    assert clock.elapsed_s == pytest.approx(5.0, abs=0.1)


async def test_the_sub_agents_of_one_run_get_no_more_than_another_run(clock: VirtualClock) -> None:
    """F1: those who wait are served in turns, by the run at the top."""
    governor = ProviderGovernor(requests_at_once=1, clock=clock)
    first = governor.try_admit("p", 1)
    assert first is not None
    served: list[str] = []

    async def ask(group: str, name: str) -> None:
        permit = await governor.admit("p", 1, group=group)
        served.append(name)
        await asyncio.sleep(0.1)
        permit.close(None)

    crowd = [asyncio.create_task(ask("root", f"child {nth}")) for nth in range(6)]
    await asyncio.sleep(0)
    lone = asyncio.create_task(ask("other", "lone"))
    await asyncio.sleep(0.1)
    first.close(None)
    await asyncio.gather(*crowd, lone)
    assert served.index("lone") == 1


async def test_agents_that_shared_a_governor_share_it_on_another_journal() -> None:
    """A worker gives all its agents one journal; a limit of theirs still holds for all of them."""
    governor = ProviderGovernor(requests_at_once=2)
    agents = [Agent(ScriptedModel(["Hi"]), governor=governor) for _ in range(2)]
    journal = MemoryJournal()
    moved = [parts_of(agent.with_journal(journal)).world.governor for agent in agents]
    assert moved[0] is moved[1]
    assert moved[0] is not governor


async def test_a_record_that_cannot_be_read_stops_nobody(clock: VirtualClock) -> None:
    """F1: a newer version may have written it, or anybody."""
    journal = MemoryJournal()
    await journal.put_record("provider-quota", "p", b"no quota", 0)
    governor = ProviderGovernor(journal, clock=clock)
    permits = [await governor.admit("p", 10) for _ in range(3)]
    permits[0].note_opened(RateLimits(LimitReport(10, 5, reset_s=10)))
    await governor.admit("p", 10)


class AwayRecords(MemoryJournal):
    """A store of records that fails, or never answers."""

    is_silent = False

    @override
    async def get_record(self, kind: str, name: str) -> SharedRecord | None:
        if self.is_silent:
            await asyncio.sleep(3_600)
        raise JournalFailed("the database is away")


@pytest.mark.parametrize("is_silent", [False, True])
async def test_without_its_store_a_process_goes_on_by_itself(
    is_silent: bool,  # noqa: FBT001 - a parameter of the test
    clock: VirtualClock,
) -> None:
    """F1: the governor fails open, and still keeps to what its own responses say."""
    journal = AwayRecords()
    journal.is_silent = is_silent
    provider = LimitedProvider(text_answer("Hi"), requests_per_s=10, burst=20, now=clock.now)
    async with FaultServer(always=provider) as server:
        agent = agent_at(server, clock, journal)
        results = await run_many(agent, RUNS)
    assert {result.text for result in results} == {"Hi"}
    assert provider.rejected <= 2


async def test_tokens_are_limited_like_requests(clock: VirtualClock) -> None:
    governor = ProviderGovernor(clock=clock)
    first = governor.try_admit("p", 10)
    assert first is not None
    first.note_opened(RateLimits(tokens=LimitReport(1_000, 100, reset_s=90)))
    first.close(None)
    assert governor.try_admit("p", 300) is None
    await governor.admit("p", 300)
    assert clock.elapsed_s == pytest.approx(20, rel=0.25)


async def test_a_limit_that_is_far_away_costs_no_look_at_the_store(clock: VirtualClock) -> None:
    """F1: while much is left, requests are made at once and the store is told once a second."""

    class CountedRecords(MemoryJournal):
        reads = 0

        @override
        async def get_record(self, kind: str, name: str) -> SharedRecord | None:
            self.reads += 1
            return await super().get_record(kind, name)

    records = CountedRecords()
    governor = ProviderGovernor(records, clock=clock)
    for _ in range(100):
        permit = governor.try_admit("p", 10)
        assert permit is not None
        permit.note_opened(RateLimits(LimitReport(1_000, 900, reset_s=10)))
        permit.close(None)
        await asyncio.sleep(0.03)
    assert records.reads <= 5


async def test_a_slow_clock_elsewhere_holds_nobody_for_longer_than_was_asked(
    clock: VirtualClock,
) -> None:
    """F3: one process has a clock an hour ahead; the others wait 5 s all the same."""
    journal = MemoryJournal()
    ahead = VirtualClock(epoch=clock.now() + 3_600)
    other = ProviderGovernor(journal, clock=ahead)
    permit = other.try_admit("p", 10)
    assert permit is not None
    await asyncio.sleep(0.01)
    permit.note_opened(RateLimits(LimitReport(10, 8, reset_s=1)))
    permit.close(REFUSED)
    await asyncio.sleep(0.01)
    governor = ProviderGovernor(journal, clock=clock)
    governor.try_admit("p", 10)
    await asyncio.sleep(0.01)
    await governor.admit("p", 10)
    assert clock.elapsed_s == pytest.approx(5.0, abs=0.2)


async def test_a_refused_attempt_is_on_record_and_made_again(clock: VirtualClock) -> None:
    """S2: the governor changes when a request is made, not what is recorded of it."""
    journal = MemoryJournal()
    provider = LimitedProvider(text_answer("Hi"), requests_per_s=1, burst=1, now=clock.now)
    async with FaultServer(chat_answer(*call_chunks("none", "{}")), always=provider) as server:
        agent = agent_at(server, clock, journal)
        provider.rejected = 0
        assert (await agent.run("Hello", session="s")).text == "Hi"
    facts = await journal.read("s")
    assert sum(isinstance(fact, AttemptFailed) for fact in facts) == provider.rejected


def admit_all(governor: ProviderGovernor, count: int) -> list[RequestPermit]:
    """Return the permits of as many requests as are admitted at once."""
    permits = [governor.try_admit(KEY, 10) for _ in range(count)]
    return [permit for permit in permits if permit is not None]


async def test_a_reported_quota_opens_the_window_at_once(clock: VirtualClock) -> None:
    """F1: a provider that has 9,999 requests left is not asked by eight at a time."""
    governor = ProviderGovernor(clock=clock)
    first, *_ = admit_all(governor, 100)
    assert len(_) == 7
    first.note_opened(RateLimits(requests=LimitReport(10_000, 9_999)))
    assert len(admit_all(governor, 500)) == 500
    few = ProviderGovernor(requests_at_once=20, clock=clock)
    admit_all(few, 1)[0].note_opened(RateLimits(requests=LimitReport(10_000, 9_999)))
    assert len(admit_all(few, 100)) == 19


async def test_the_first_requests_at_once_can_be_set(clock: VirtualClock) -> None:
    governor = ProviderGovernor(requests_at_start=50, clock=clock)
    assert len(admit_all(governor.share_through(MemoryJournal()), 100)) == 50
    with pytest.raises(ConfigError, match="at least 1"):
        ProviderGovernor(requests_at_start=0)


async def test_what_was_learned_is_shared_with_the_next_process(clock: VirtualClock) -> None:
    """F1: also of a provider that reports nothing; a refusal of one lowers it for the next."""
    journal = MemoryJournal()
    first = ProviderGovernor(journal, clock=clock)
    for _ in range(3):
        for permit in admit_all(first, 100):
            permit.note_opened(None)
    await asyncio.sleep(2)
    learned = len(admit_all(first, 100)) + 8 + 16 + 32
    second = ProviderGovernor(journal, clock=clock)
    second_first = admit_all(second, 100)
    assert len(second_first) == 8
    await asyncio.sleep(2)
    assert len(admit_all(second, 200)) + 8 >= learned // 2
    second_first[0].close(REFUSED)
    await asyncio.sleep(7)
    third = ProviderGovernor(journal, clock=clock)
    admit_all(third, 1)
    await asyncio.sleep(2)
    assert len(admit_all(third, 200)) < learned
