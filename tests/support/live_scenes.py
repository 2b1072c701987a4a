"""Scenes with a driver in one process and a watcher in another: the same for every store."""

import asyncio
import json
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import live_child
from processes import start_process
from windlass import Agent
from windlass.core.events import (
    AttemptStarted,
    Event,
    NestedEvent,
    RunEnded,
    StepProposed,
    TextDelta,
)
from windlass.core.projection.project import project_events, without_live_parts
from windlass.core.projection.view import Projection, ReplyEntry
from windlass.journals.postgres.journal import PostgresJournal
from windlass.testing import ScriptedModel, Trace

WAIT_S = 30.0
TEXT = "".join(live_child.WORDS) + "All done."


class LiveStore:
    """A store that two processes use."""

    def __init__(self, store: str, name: str) -> None:
        self.arguments = (store, name)

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Any]:
        journal = live_child.open_journal(*self.arguments)
        try:
            yield journal
        finally:
            if isinstance(journal, PostgresJournal):
                await journal.aclose()
            else:
                journal.close()

    def start(self, what: str, *options: str) -> Any:
        return start_process("live_child.py", what, *self.arguments, *options)


async def wait_for_facts(journal: Any, count: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while len(await journal.read("s")) < count:
            await journal.wait_for_append("s", count - 1)


async def watch(journal: Any, after: int = 0, stop: Callable[[Event], bool] | None = None) -> Trace:
    trace = Trace()
    agent = Agent(ScriptedModel([]), journal=journal)
    async with asyncio.timeout(WAIT_S):
        events = agent.watch("s", after=after)
        async for event in events:
            trace(event)
            if stop is not None and stop(event):
                break
        await events.aclose()
    return trace


async def check_whole(journal: Any, trace: Trace) -> None:
    trace.check()
    assert [event for event in trace.events if not event.nth] == list(await journal.read("s"))


async def watch_from_the_beginning(store: LiveStore) -> None:
    """Each delta's text in order, once, long before the step that holds it is recorded."""
    async with store.open() as journal:
        with store.start("drive") as driver:
            await wait_for_facts(journal, 1)
            trace = await watch(journal)
            driver.process.wait()
        await check_whole(journal, trace)
        assert "".join(trace.texts()) == TEXT
        assert len(trace.texts()) > 10


async def watch_from_the_middle(store: LiveStore) -> None:
    """Two come one after the other; the second one while the reply streams."""
    async with store.open() as journal:
        with store.start("drive") as driver:
            await wait_for_facts(journal, 2)
            await watch(journal, stop=lambda event: "word9 " in getattr(event, "text", ""))
            trace = await watch(journal)
            driver.process.wait()
        await check_whole(journal, trace)
        texts = trace.texts()
        assert "".join(texts) == TEXT
        assert texts[0].startswith("".join(live_child.WORDS[:10]))


def find_nested(events: list[Event]) -> Projection:
    """Return the view of the one sub-agent that these events show; an empty one if they do not."""
    for entry in project_events(events, "s").entries:
        for call in entry.calls if isinstance(entry, ReplyEntry) else ():
            for nested in call.agents:
                return nested.projection
    return Projection()


async def watch_a_sub_agent_from_the_middle(store: LiveStore) -> None:
    """Its facts from the first one, and its reply so far with the thinking, come at once."""
    async with store.open() as journal:
        with store.start("delegate") as driver:
            await wait_for_facts(journal, 2)

            def has_word(event: Event) -> bool:
                return isinstance(event, NestedEvent) and "word9 " in getattr(
                    event.event, "text", ""
                )

            await watch(journal, stop=has_word)
            trace = await watch(journal, stop=has_word)
            before = find_nested(trace.events)
            assert before.reply is not None
            assert before.reply.thinking == "Hm."
            assert before.reply.text.startswith("".join(live_child.WORDS[:10]))
            trace = await watch(journal)
            driver.process.wait()
        places = [(event.seq, event.nth) for event in trace.events]
        assert places == sorted(set(places))
        facts = await journal.read("s/c1_0")
        wanted = without_live_parts(project_events(facts, "s/c1_0"))
        assert without_live_parts(find_nested(trace.events)) == wanted


async def watch_across_a_kill(store: LiveStore) -> None:
    """The driver dies in the middle of a reply, and another process goes on."""
    async with store.open() as journal:
        with store.start("drive") as driver:
            await wait_for_facts(journal, 2)
            first = await watch(journal, stop=lambda e: "word5 " in getattr(e, "text", ""))
            second = asyncio.create_task(watch(journal, first.events[-1].seq))
            await asyncio.sleep(0.3)
            driver.kill()
        with store.start("resume") as driver:
            events = [*first.events, *(await second).events]
            while not isinstance(events[-1], RunEnded):
                events += (await watch(journal, events[-1].seq)).events
                await asyncio.sleep(0.01)
            driver.process.wait()
        facts = [event for event in events if not event.nth]
        assert facts == list(await journal.read("s"))
        assert shown_in_the_end(events) == TEXT


def shown_in_the_end(events: list[Event]) -> str:
    """The text of a view that drops what it showed of an attempt that another one replaces."""
    kept = ""
    attempt = ""
    for event in events:
        if isinstance(event, TextDelta):
            attempt += event.text
        elif isinstance(event, AttemptStarted):
            attempt = ""
        elif isinstance(event, StepProposed):
            kept += attempt or event.reply.text
            attempt = ""
    return kept


async def begin_to_watch(journal: Any, watcher: Any) -> list[dict[str, Any]]:
    """Let a watcher begin once the model speaks, and return what it saw up to the first text."""
    assert await asyncio.to_thread(watcher.read_line) == "ready"
    await wait_for_facts(journal, 2)
    watcher.write_line("go")
    lines: list[dict[str, Any]] = []
    while not (lines and lines[-1]["type"] == "TextDelta"):
        lines.append(json.loads(await asyncio.to_thread(watcher.read_line)))
    return lines


async def read_to_the_end(watcher: Any) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    while not (lines and lines[-1]["type"] == "RunEnded"):
        lines.append(json.loads(await asyncio.to_thread(watcher.read_line)))
    return lines


async def stop_the_watcher(store: LiveStore, *options: str) -> None:
    """A watcher that is stopped for a while slows nothing down, and then catches up."""
    async with store.open() as journal:
        with (
            store.start("watch", *options) as watcher,
            store.start("drive", *options) as driver,
        ):
            lines = await begin_to_watch(journal, watcher)
            watcher.process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(1.0)
            watcher.process.send_signal(signal.SIGCONT)
            lines += await read_to_the_end(watcher)
            driver.process.wait()
        places = [(line["seq"], line["nth"]) for line in lines]
        assert places == sorted(set(places))
        facts = await journal.read("s")
        assert [line["seq"] for line in lines if not line["nth"]] == [fact.seq for fact in facts]
        assert "".join(line["text"] for line in lines if line["type"] == "TextDelta") == TEXT


async def flood_a_stopped_watcher(store: LiveStore) -> None:
    """More text than any buffer holds: the run goes on, and no fact is lost."""
    async with store.open() as journal:
        with store.start("watch") as watcher, store.start("drive", "flood") as driver:
            lines = await begin_to_watch(journal, watcher)
            watcher.process.send_signal(signal.SIGSTOP)
            await asyncio.to_thread(driver.process.wait)
            watcher.process.send_signal(signal.SIGCONT)
            lines += await read_to_the_end(watcher)
        assert driver.process.returncode == 0
        facts = await journal.read("s")
        assert [line["seq"] for line in lines if not line["nth"]] == [fact.seq for fact in facts]
        text = "".join(line["text"] for line in lines if line["type"] == "TextDelta")
        assert ("Begin. " + "x" * 4_000_000).startswith(text)


async def watch_a_secret(store: LiveStore) -> None:
    async with store.open() as journal:
        with store.start("drive", "secret") as driver:
            await wait_for_facts(journal, 1)
            trace = await watch(journal)
            driver.process.wait()
        assert "".join(trace.texts()) == "It is [secret: P]."
        assert "hunter" not in repr(trace.events)


async def watch_a_reply_that_is_denied(store: LiveStore) -> None:
    async with store.open() as journal:
        with store.start("withhold") as driver:
            await wait_for_facts(journal, 1)
            trace = await watch(journal)
            driver.process.wait()
        trace.check()
        assert "word" not in repr(trace.events)
        assert trace.shown_text() == "Sorry."
