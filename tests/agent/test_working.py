"""Workers: what nobody drives is driven, within bounds, by whoever looks next."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

import windlass
from windlass import Agent, ConfigError, RaisedLimits, tool
from windlass.agent import work_items
from windlass.agent.work_items import WorkItem, deal_places
from windlass.agent.working import SessionWorker, WorkLimits
from windlass.core.events import RunEnded, RunResumed
from windlass.core.fold.run import fold
from windlass.core.messages import ToolResults
from windlass.core.view import Prompt
from windlass.journals import work_rules
from windlass.journals.memory import MemoryJournal
from windlass.ports import WorkLane, WorkWanted
from windlass.ports import fleet as ports_work
from windlass.testing import PowerCut, PowerCutJournal, ScriptedModel, VirtualClock, call, say


class Gauge:
    """Counts how many calls run, and how many ran at once."""

    def __init__(self, both: "Gauge | None" = None) -> None:
        self.now = 0
        self.most = 0
        self._both = both

    async def work(self) -> str:
        """Work for a while."""
        self.now += 1
        self.most = max(self.most, self.now)
        await (self._both.work() if self._both is not None else asyncio.sleep(1))
        self.now -= 1
        return "done"


def reply(prompt: Prompt) -> Any:
    """Call the tool once, whichever session asks."""
    if isinstance(prompt.messages[-1], ToolResults):
        return say("Done.")
    return call("work")


def make_agent(
    journal: Any, gauge: Gauge, name: str = "clerk", clock: VirtualClock | None = None
) -> Agent[str]:
    tools = [tool(gauge.work, name="work", effect="read")]
    model = ScriptedModel([reply] * 40)
    return Agent(model, tools=tools, journal=journal, name=name, clock=clock)


async def wait_until(is_true: Callable[[], bool]) -> None:
    while not is_true():  # noqa: ASYNC110 - on virtual time
        await asyncio.sleep(0.1)


@asynccontextmanager
async def working(*agents: Agent[Any], **limits: Any) -> AsyncGenerator[SessionWorker]:
    worker = SessionWorker(agents, WorkLimits(**limits))
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.mark.contract("F1")
async def test_a_worker_begins_what_others_left_to_it() -> None:
    """F1: with nothing but the journal between them, and each run once."""
    journal = MemoryJournal()
    gauge = Gauge()
    agent = make_agent(journal, gauge)
    async with working(make_agent(journal, gauge)):
        handles = [await agent.start(f"Go {at}.", drive=False) for at in range(5)]
        results = [await handle.result() for handle in handles]
    assert [result.text for result in results] == ["Done."] * 5
    assert gauge.most == 5


@pytest.mark.contract("F1")
async def test_a_worker_drives_no_more_than_its_limits() -> None:
    journal = MemoryJournal()
    gauge = Gauge()
    agent = make_agent(journal, gauge)
    async with working(make_agent(journal, gauge), runs=3):
        handles = [await agent.start(f"Go {at}.", drive=False) for at in range(7)]
        for handle in handles:
            await handle.result()
    assert gauge.most == 3


async def test_no_caller_and_no_agent_gets_all_of_a_worker() -> None:
    journal = MemoryJournal()
    both = Gauge()
    gauges = {name: Gauge(both) for name in ("clerk", "cook")}
    agents = {name: make_agent(journal, gauge, name) for name, gauge in gauges.items()}
    handles = [
        await agents[name].start(f"Go {at}.", caller=f"caller {at % 2}", drive=False)
        for at in range(6)
        for name in agents
    ]
    async with working(*agents.values(), runs_per_agent=3, runs_per_caller=2):
        for handle in handles:
            assert (await handle.result()).text == "Done."
    assert [gauge.most <= 3 for gauge in gauges.values()] == [True, True]
    assert both.most <= 4


async def test_no_provider_gets_more_runs_than_it_may_have() -> None:
    journal = MemoryJournal()
    gauge = Gauge()
    agents = [make_agent(journal, gauge, name) for name in ("clerk", "cook")]
    handles = [await agent.start(f"Go {at}.", drive=False) for at in range(3) for agent in agents]
    async with working(*agents, runs_per_provider=2):
        for handle in handles:
            assert (await handle.result()).text == "Done."
    assert gauge.most == 2


@pytest.mark.contract("F7")
async def test_a_caller_at_its_limit_keeps_no_other_waiting() -> None:
    """F7: however many of its runs are queued, and however urgent they are."""
    journal = MemoryJournal()
    gauge = Gauge()
    agent = make_agent(journal, gauge)
    for at in range(40):
        await agent.start(f"Go {at}.", caller="alpha", drive=False, priority=50)
    beta = await agent.start("Go.", caller="beta", drive=False)
    async with working(make_agent(journal, gauge), runs=8, runs_per_caller=4):
        assert (await beta.result()).text == "Done."
        ended = [one for one in await journal.sessions(limit=100) if one.caller == "alpha"]
        assert sum(one.outcome is not None for one in ended) <= 8


@pytest.mark.contract("F7")
async def test_an_agent_at_its_limit_keeps_no_other_waiting() -> None:
    """A look gets to know further sessions, and not always the same ones that have no room."""
    journal = MemoryJournal()
    gauge = Gauge()
    clerk = make_agent(journal, gauge)
    cook = make_agent(journal, gauge, "cook")
    for at in range(40):
        await clerk.start(f"Go {at}.", drive=False)
    last = await cook.start("Go.", drive=False)
    async with working(clerk, cook, runs=8, runs_per_agent=2):
        assert (await last.result()).text == "Done."
        done = [one for one in await journal.sessions(limit=100) if one.agent == "clerk"]
        assert sum(one.outcome is not None for one in done) <= 12


@pytest.mark.contract("F7")
def test_the_caller_with_the_fewest_runs_comes_next() -> None:
    """F7: what was begun first, then callers in turn, then the most urgent, then the oldest."""
    alpha = WorkLane("clerk", "alpha", is_begun=False, priority=9, since=1.0)
    beta = WorkLane("clerk", "beta", is_begun=False, since=2.0)
    gamma = WorkLane("clerk", "gamma", is_begun=False, since=3.0)
    left = WorkLane("clerk", "alpha", is_begun=True, since=4.0)
    driving = [WorkItem("b", "clerk", "beta")]

    def deal(*lanes: WorkLane, places: int, most: int = 99) -> dict[WorkLane, int]:
        def has_room(item: WorkItem, more: Sequence[WorkItem]) -> bool:
            return [one.caller for one in (*driving, *more)].count(item.caller) < most

        return dict(deal_places(lanes, driving, places, has_room))

    assert deal(beta, gamma, alpha, places=1) == {alpha: 1}
    assert deal(beta, gamma, alpha, places=2) == {alpha: 1, gamma: 1}
    assert deal(beta, gamma, alpha, places=5) == {alpha: 2, beta: 1, gamma: 2}
    assert deal(beta, gamma, alpha, left, places=2) == {left: 2}
    assert deal(beta, gamma, alpha, left, places=9, most=1) == {left: 1, gamma: 1}
    assert deal(places=3) == {}


@pytest.mark.contract("F7")
async def test_more_callers_than_a_look_lists_all_get_their_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """F7: the next look begins behind the callers of this one."""
    for module in (ports_work, work_rules, work_items):
        monkeypatch.setattr(module, "LANES_MAX", 3)
    journal = MemoryJournal()
    gauge = Gauge()
    agent = make_agent(journal, gauge)
    for at in range(10):
        for _ in range(3):
            await agent.start("Go.", caller=f"caller {at}", drive=False)
    async with working(make_agent(journal, gauge), runs=10, runs_per_caller=1):
        await wait_until(lambda: gauge.now == 10)
        found = await journal.sessions(state="open", limit=100)
        assert len({one.caller for one in found}) == 10


@pytest.mark.contract("F1")
async def test_a_higher_priority_is_begun_first() -> None:
    """F1: what there is no room for waits, and the most urgent of it comes next."""
    journal = MemoryJournal()
    gauge = Gauge()
    agent = make_agent(journal, gauge)
    begun: list[str] = []
    handles = [
        await agent.start("Go.", session=f"{at} of priority {rank}", drive=False, priority=rank)
        for at, rank in enumerate((0, 0, 5, -1, 5))
    ]
    async with working(make_agent(journal, gauge), runs=1) as worker:
        while len(begun) < len(handles):
            begun += [item.session for item in worker.driving if item.session not in begun]
            await asyncio.sleep(0.05)
        for handle in handles:
            await handle.result()
    assert begun == [
        "2 of priority 5",
        "4 of priority 5",
        "0 of priority 0",
        "1 of priority 0",
        "3 of priority -1",
    ]
    with pytest.raises(ConfigError, match="whole number"):
        await agent.start("Go.", drive=False, priority="high")  # type: ignore[arg-type]


@pytest.mark.contract("F1")
async def test_workers_share_what_there_is_to_do() -> None:
    """F1: the first one to look does not take all of it."""
    journal = MemoryJournal()
    gauge = Gauge()
    agent = make_agent(journal, gauge)
    for at in range(30):
        await agent.start(f"Go {at}.", drive=False)
    async with (
        working(make_agent(journal, gauge)) as one,
        working(make_agent(journal, gauge)) as two,
    ):
        await wait_until(lambda: gauge.now == 30)
        shares = sorted((len(one.driving), len(two.driving)))
    assert sum(shares) == 30
    assert shares[0] >= 8


@pytest.mark.contract("F3")
async def test_the_runs_of_a_dead_worker_are_taken_over_within_a_second(
    clock: VirtualClock,
) -> None:
    """F3: every worker looks for them; with the default pause, and on virtual time."""
    journal = MemoryJournal()
    gauge = Gauge()
    cut = PowerCutJournal(journal, at=5)
    await make_agent(journal, gauge, clock=clock).start("Go.", session="s", drive=False)
    dying = asyncio.create_task(make_agent(cut, gauge, clock=clock).drive("s"))
    await wait_until(lambda: bool(gauge.now))
    async with working(make_agent(journal, gauge, clock=clock)) as worker:
        await asyncio.wait({dying})
        died_at = clock.now()
        assert isinstance(dying.exception(), PowerCut)
        assert not worker.driving
        await wait_until(lambda: worker.is_driving("s"))
        await wait_until(lambda: not worker.driving)
    facts = await journal.read("s")
    taken_at = next(fact.at for fact in facts if isinstance(fact, RunResumed))
    assert 0 <= taken_at - died_at < 1
    assert isinstance(facts[-1], RunEnded)


@pytest.mark.contract("F1")
async def test_a_priority_deep_in_the_queue_comes_next() -> None:
    """F1: a worker that has no room gets to know what waits, the oldest first."""
    journal = MemoryJournal()
    gauge = Gauge()
    agent = make_agent(journal, gauge)
    for at in range(30):
        await agent.start(f"Go {at}.", session=f"old {at}", drive=False)
    handle = await agent.start("Go.", session="urgent", drive=False, priority=1)
    async with working(make_agent(journal, gauge), runs=1, sweep_s=0.1):
        await handle.result()
        states = [fold(f"old {at}", await journal.read(f"old {at}")) for at in range(30)]
    assert sum(bool(state.run and state.run.outcome) for state in states) <= 2


@pytest.mark.contract("F3")
async def test_a_run_that_was_begun_goes_before_a_backlog_of_new_ones() -> None:
    """F3: however many prompts wait, what a dead worker drove is taken over at the next look."""
    journal = MemoryJournal()
    gauge = Gauge()
    agent = make_agent(journal, gauge)
    for at in range(12):
        await agent.start(f"Go {at}.", session=f"new {at}", drive=False)
    handle = await agent.start("Go.", session="old", drive=False, priority=9)
    async with working(make_agent(journal, gauge), runs=1):
        await wait_until(lambda: bool(gauge.now))
    async with working(make_agent(journal, gauge), runs=1):
        assert (await handle.result()).text == "Done."
        states = [fold(f"new {at}", await journal.read(f"new {at}")) for at in range(12)]
    assert not any(state.run and state.run.outcome for state in states)


@pytest.mark.contract("F3")
async def test_what_a_worker_let_go_of_is_finished_by_the_next() -> None:
    """F3: a worker that is stopped releases its runs; the call is not made a second time."""
    journal = MemoryJournal()
    gauge = Gauge()
    agent = make_agent(journal, gauge)
    handle = await agent.start("Go.", session="s", drive=False)
    async with working(make_agent(journal, gauge)) as worker:
        await wait_until(lambda: bool(gauge.now))
        assert [item.session for item in worker.driving] == ["s"]
    state = fold("s", await journal.read("s"))
    assert state.run is not None
    assert state.run.is_released
    async with working(make_agent(journal, gauge)):
        assert (await handle.result()).text == "Done."


@pytest.mark.contract("D8")
async def test_a_message_to_a_run_that_waits_brings_a_worker() -> None:
    journal = MemoryJournal()
    gauge = Gauge()
    agent = make_agent(journal, gauge)
    async with working(make_agent(journal, gauge)) as worker:
        handle = await agent.start("Go.", session="s", drive=False)
        await wait_until(lambda: bool(gauge.now))
        await windlass.pause(journal, "s")
        await wait_until(lambda: not worker.driving)
        await windlass.raise_limits(journal, "s", RaisedLimits(steps=90))
        await windlass.resume(journal, "s")
        assert (await handle.result()).text == "Done."


@pytest.mark.contract("F3")
async def test_messages_for_other_agents_do_not_hide_those_for_this_one() -> None:
    """F3: older messages that another worker must take do not fill the list for ever."""
    journal = MemoryJournal()
    gauge = Gauge()
    for number in range(6):
        other = make_agent(journal, gauge, "other")
        await other.start("Go.", session=f"other-{number}", drive=False)
    handle = await make_agent(journal, gauge).start("Go.", session="s", drive=False)
    async with working(make_agent(journal, gauge), runs=1):
        assert (await handle.result()).text == "Done."


async def test_a_worker_waits_for_a_journal_that_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    journal = MemoryJournal()
    gauge = Gauge()
    agent = make_agent(journal, gauge)
    handle = await agent.start("Go.", session="s", drive=False)
    list_work = journal.list_work
    tries: list[float] = []

    async def fail_twice(wanted: WorkWanted) -> Any:
        tries.append(wanted.now)
        if len(tries) <= 2:
            raise windlass.JournalFailed("the server cannot be reached")
        return await list_work(wanted)

    monkeypatch.setattr(journal, "list_work", fail_twice)
    async with working(make_agent(journal, gauge)):
        assert (await handle.result()).text == "Done."
    assert len(tries) > 2


def test_a_worker_needs_one_journal() -> None:
    gauge = Gauge()
    agents = [make_agent(MemoryJournal(), gauge, name) for name in ("clerk", "cook")]
    with pytest.raises(ConfigError, match="one journal"):
        SessionWorker(agents)
    with pytest.raises(ConfigError, match="at least one agent"):
        SessionWorker([])
