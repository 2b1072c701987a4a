"""Every fault of the table, over real HTTP on loopback, with a whole agent.

For each: how often the server was asked, what a watcher saw, how the run ended, what is on record.
"""

import asyncio

import pytest

from proof.wire_faults import BREAKS, PING, REFUSALS, STALLS, WireFault
from proof.wire_oddities import ODDITIES, WireOddity
from windlass import (
    Agent,
    FailedByModel,
    Limits,
    RetryPolicy,
    RunFailed,
    RunResult,
    Timeouts,
)
from windlass.core.events import AttemptFailed, AttemptStarted, Event
from windlass.core.fold.run import fold
from windlass.journals.memory import MemoryJournal
from windlass.testing import Trace, VirtualClock
from windlass.testing.chat_wire import (
    call_chunks,
    chat_answer,
    chat_chunk,
    sse_event,
    text_answer,
    text_chunk,
)
from windlass.testing.fault_server import FaultServer
from windlass.testing.wire import WireAnswer, drop, hang_up, refuse_with, stall, stream_answer, wait

pytestmark = pytest.mark.slow

KEY = "sk-test-0123456789abcdef"
FAULTS = [*REFUSALS, *BREAKS, *STALLS]
RETRY_AFTER_MAX_S = RetryPolicy().retry_after_max_s


def agent_at(server: FaultServer, clock: VirtualClock, store: MemoryJournal) -> Agent[str]:
    return Agent(
        "openai-compatible:m",
        base_url=server.url,
        key=KEY,
        journal=store,
        clock=clock,
        timeouts=Timeouts(first_byte_s=20, idle_s=10),
    )


def mends(fault: WireFault) -> bool:
    return fault.retryable and (fault.retry_after_s or 0.0) <= RETRY_AFTER_MAX_S


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
async def test_a_fault_is_survived_or_named(fault: WireFault, clock: VirtualClock) -> None:
    """S1, S2, S3, S5, S8, L6: asked again if that may help, text once, one failure on record."""
    trace, store = Trace(), MemoryJournal()
    async with FaultServer(fault.answer, text_answer("Hello again")) as server:
        agent = agent_at(server, clock, store)
        result = await ended(agent, trace)
    trace.check()
    facts = await store.read("s")
    failures = [fact for fact in facts if isinstance(fact, AttemptFailed)]
    assert [failure.fault.kind for failure in failures] == [fault.kind]
    assert failures[0].partial == fault.text
    assert len(server.requests) == sum(isinstance(fact, AttemptStarted) for fact in facts)
    if mends(fault):
        assert (result.outcome, result.text, len(server.requests)) == (
            "completed",
            "Hello again",
            2,
        )
        assert trace.shown_text() == "Hello again"
    else:
        assert (result.outcome, len(server.requests)) == ("failed", 1)
    assert fold("s", facts).ledger == result.ledger
    assert KEY not in str(facts)


async def ended(agent: Agent[str], trace: Trace) -> RunResult[str]:
    try:
        return await agent.run("Hello?", session="s", on_event=trace)
    except FailedByModel as failed:
        return failed.result


SEEN = [fault for fault in FAULTS if fault.text]


@pytest.mark.parametrize("fault", SEEN, ids=lambda fault: fault.name)
async def test_a_stream_restarts_and_its_text_is_whole(
    fault: WireFault, clock: VirtualClock
) -> None:
    """S5, S6: by default, also for a program that watches; what was shown is taken back."""
    async with FaultServer(fault.answer, text_answer("Hello again")) as server:
        agent = agent_at(server, clock, MemoryJournal())
        async with agent.stream("Hello?") as events:
            texts = [text async for text in events.text()]
    # A broken text may come and go within one turn of the loop; it is never part of the whole one.
    assert all("Hello again".startswith(text) for text in texts)
    assert texts[-1] == events.result.text == "Hello again"


@pytest.mark.parametrize("fault", SEEN, ids=lambda fault: fault.name)
async def test_text_that_was_seen_ends_the_run_if_so_chosen(
    fault: WireFault, clock: VirtualClock
) -> None:
    """S6: `on_partial="fail"` keeps the partial text."""
    events: list[Event] = []
    async with FaultServer(fault.answer) as server:
        agent = Agent(
            "openai-compatible:m", base_url=server.url, clock=clock, timeouts=Timeouts(idle_s=10)
        )
        with pytest.raises(RunFailed) as raised:
            await agent.run("Hello?", on_event=events.append, on_partial="fail")
    assert raised.value.result.partial_text == fault.text
    assert len(server.requests) == 1


@pytest.mark.parametrize("oddity", ODDITIES, ids=lambda oddity: oddity.name)
async def test_what_only_looks_broken_is_whole(oddity: WireOddity, clock: VirtualClock) -> None:
    """S9, S10, S12: one request, the right text and calls."""
    async with FaultServer(oddity.answer, text_answer("Done")) as server:
        agent = Agent("openai-compatible:m", base_url=server.url, clock=clock)
        result = await agent.run("Hello?")
        assert len(server.requests) == (2 if oddity.calls else 1)
    first = result.new_messages()[1]
    calls = [(call.name, call.arguments) for call in getattr(first, "calls", ())]
    assert calls == list(oddity.calls)
    assert getattr(first, "text", "") == oddity.text
    assert result.usage is not None
    assert result.usage.estimated == (not oddity.usage)


async def test_a_server_that_is_not_there_costs_four_requests(clock: VirtualClock) -> None:
    """S3: three retries while no stream was ever opened; the error names the address."""
    async with FaultServer() as server:
        url = server.url
    with pytest.raises(FailedByModel, match=r"127\.0\.0\.1") as raised:
        await Agent("openai-compatible:m", base_url=url, clock=clock).run("Hello?")
    assert raised.value.fault.kind == "network"
    assert raised.value.result.model_calls == 4
    assert raised.value.result.usage is None


BARELY_OPEN = {
    "silent": stream_answer(stall()),
    "pings": stream_answer(*(part for _ in range(40) for part in (wait(30), PING)), stall()),
    "empty": stream_answer(),
    "dropped": stream_answer(drop()),
    "role_only": stream_answer(chat_chunk({"role": "assistant", "content": ""})),
    "role_then_silent": stream_answer(chat_chunk({"role": "assistant"}), stall()),
    "broken_json": stream_answer(b"data: {\n\n"),
    "error_at_once": stream_answer(sse_event({"error": {"message": "overloaded", "code": 529}})),
}


@pytest.mark.contract("S3")
@pytest.mark.parametrize("answer", BARELY_OPEN.values(), ids=BARELY_OPEN)
async def test_a_stream_is_established_by_its_head(answer: WireAnswer, clock: VirtualClock) -> None:
    """S3: six requests with the default settings, although no content ever comes."""
    store = MemoryJournal()
    async with FaultServer(always=answer) as server:
        agent = Agent("openai-compatible:m", base_url=server.url, clock=clock, journal=store)
        with pytest.raises(FailedByModel):
            await agent.run("Hello?", session="s")
        assert len(server.requests) == 6
    failures = [fact for fact in await store.read("s") if isinstance(fact, AttemptFailed)]
    assert all(failure.established for failure in failures)


@pytest.mark.contract("S3")
@pytest.mark.parametrize("answer", [hang_up(stall()), refuse_with(503)], ids=["silent", "refused"])
async def test_without_a_head_no_stream_is_established(
    answer: WireAnswer, clock: VirtualClock
) -> None:
    """S3: four requests with the default settings."""
    async with FaultServer(always=answer) as server:
        with pytest.raises(FailedByModel):
            await Agent("openai-compatible:m", base_url=server.url, clock=clock).run("Hello?")
        assert len(server.requests) == 4


async def test_an_error_in_place_of_a_reply_costs_nothing(clock: VirtualClock) -> None:
    """B2: a stream that broke off before its content may have cost something."""
    for name, costs in (("error_at_once", False), ("empty", True), ("silent", True)):
        store = MemoryJournal()
        async with FaultServer(BARELY_OPEN[name], text_answer("Hello")) as server:
            agent = Agent("openai-compatible:m", base_url=server.url, clock=clock, journal=store)
            await agent.run("Hello?", session="s")
        (failure,) = (fact for fact in await store.read("s") if isinstance(fact, AttemptFailed))
        assert (failure.charge is not None) is costs, name


DEEP = "[" * 200_000 + "]" * 200_000


@pytest.mark.contract("S10")
@pytest.mark.parametrize("content_type", ["text/event-stream", "application/json"])
async def test_a_field_that_is_nested_too_deeply_is_a_fault_of_the_server(
    content_type: str, clock: VirtualClock
) -> None:
    """S10: also in a field that no reader knows. The next attempt may be whole."""
    reply = f'{{"choices": [{{"message": {{"content": "Hi"}}, "other": {DEEP}}}]}}'.encode()
    if content_type == "text/event-stream":
        answer = stream_answer(b"data: " + reply + b"\n\n")
    else:
        answer = stream_answer(reply, content_type=content_type)
    async with FaultServer(answer, text_answer("Hello again")) as server:
        agent = Agent("openai-compatible:m", base_url=server.url, clock=clock)
        if content_type == "text/event-stream":
            assert (await agent.run("Hello?")).text == "Hello again"
        else:
            with pytest.raises(RunFailed, match="instead of an event stream"):
                await agent.run("Hello?")


@pytest.mark.contract("B5")
@pytest.mark.parametrize("reports", [True, False], ids=["usage", "no_usage"])
async def test_a_server_that_ignores_the_output_cap_is_left(
    reports: bool,  # noqa: FBT001
    clock: VirtualClock,
) -> None:
    """B5: what was sent by then is kept, and charged as what it is."""
    usage = chat_chunk(usage={"prompt_tokens": 90, "completion_tokens": 1})
    flood = stream_answer(*[usage] * reports, *[text_chunk("word " * 200)] * 10_000, stall())
    async with FaultServer(flood) as server:
        agent = Agent(
            "openai-compatible:m", base_url=server.url, clock=clock, limits=Limits(tokens=2_000)
        )
        result = await agent.run("Hello?")
        await asyncio.wait_for(server.requests[0].client_left.wait(), 5)
    assert server.requests[0].json["max_tokens"] < 2_000
    assert (result.outcome, len(server.requests)) == ("truncated", 1)
    assert 16 * 1_500 < len(result.text) < 16 * 2_000 + 4_000
    assert result.usage is not None
    assert result.usage.output == len(result.text) // 4
    assert result.usage.estimated


HOUR = refuse_with(429, {"error": {"message": "Slow down."}}, {"Retry-After": "3600"})
ONCE = RetryPolicy(attempts_max=1)
SAID: dict[str, tuple[WireAnswer, Timeouts, RetryPolicy, str]] = {
    "silent": (
        stream_answer(stall()),
        Timeouts(first_byte_s=20),
        ONCE,
        (
            "the model sent nothing for 20 s after the request. If it needs longer "
            "to begin, set Timeouts(first_byte_s=…)."
        ),
    ),
    "fell_silent": (
        stream_answer(text_chunk("Once"), stall()),
        Timeouts(idle_s=30),
        ONCE,
        (
            "the model fell silent: nothing came for 30 s in the middle of its "
            "reply. If it pauses for longer, set Timeouts(idle_s=…)."
        ),
    ),
    "talking": (
        stream_answer(*(part for _ in range(99) for part in (wait(1), text_chunk("a ")))),
        Timeouts(step_s=7),
        ONCE,
        (
            "the reply was not complete after 7 s, the limit Timeouts(step_s=…), "
            "and was cut off. Set a longer step_s, or None for no limit."
        ),
    ),
    "no_end": (
        stream_answer(wait(3), text_chunk("Once")),
        Timeouts(),
        ONCE,
        (
            "the stream ended without its end marker after 3.0 s. If this happens "
            "again, a proxy or a server limit may cut long replies off."
        ),
    ),
    "hour": (
        HOUR,
        Timeouts(),
        RetryPolicy(),
        (
            "too many requests (429): Slow down. The provider asks to wait 3600 s, "
            "and RetryPolicy(retry_after_max_s=60) allows less. Run it again after that time, "
            "allow a longer wait, or give the agent fallbacks."
        ),
    ),
}


@pytest.mark.contract("U1")
@pytest.mark.parametrize(
    ("answer", "timeouts", "retries", "message"), SAID.values(), ids=SAID.keys()
)
async def test_an_error_says_who_and_how_long_and_what_to_do(
    answer: WireAnswer,
    timeouts: Timeouts,
    retries: RetryPolicy,
    message: str,
    clock: VirtualClock,
) -> None:
    """U1, S2: the provider, the seconds, and the fix."""
    async with FaultServer(answer) as server:
        agent = Agent(
            "openai-compatible:m",
            base_url=server.url,
            clock=clock,
            timeouts=timeouts,
            retries=retries,
        )
        with pytest.raises(FailedByModel) as raised:
            await agent.run("Hello?")
    assert raised.value.fault.message == f"openai-compatible: {message}"
    assert message in str(raised.value)


async def test_a_connection_that_breaks_says_after_how_long(clock: VirtualClock) -> None:
    """U1."""
    async with FaultServer(stream_answer(text_chunk("Once"), wait(4), drop())) as server:
        agent = Agent("openai-compatible:m", base_url=server.url, clock=clock, retries=ONCE)
        with pytest.raises(FailedByModel, match=r"in the middle of its reply, after 4\.0 s\. If"):
            await agent.run("Hello?")


@pytest.mark.contract("S9")
async def test_a_name_without_end_is_not_sent_back(clock: VirtualClock) -> None:
    """S9: no tool has a name of 100 kB, so its beginning tells the model enough."""
    name = "look_" * 20_000
    async with FaultServer(chat_answer(call_chunks(name, "{}")), text_answer("Done")) as server:
        agent = Agent("openai-compatible:m", base_url=server.url, clock=clock, tools=[look])
        assert (await agent.run("Hello?")).text == "Done"
        assert len(server.requests[1].body) < 4_000
    asked, told = server.requests[1].json["messages"][-2:]
    assert asked["tool_calls"][0]["function"]["name"] == name[:64]
    assert told["content"].startswith("There is no tool 'look_look_")


def look() -> str:
    """Look around."""
    return "a door"


async def test_a_cancel_closes_the_connection(clock: VirtualClock) -> None:
    """C1: and nothing goes on being paid for."""
    async with FaultServer(stream_answer(text_chunk("Once"), stall())) as server:
        agent = Agent("openai-compatible:m", base_url=server.url, clock=clock)
        running = asyncio.create_task(agent.run("Hello?", session="s"))
        await asyncio.sleep(1)
        agent.cancel("s")
        result = await running
        await asyncio.wait_for(server.requests[0].client_left.wait(), 5)
    assert (result.outcome, result.partial_text) == ("cancelled", "Once")
