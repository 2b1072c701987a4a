"""An async tool that blocks the event loop is noticed and named (T3)."""

import asyncio
import logging
import re
import threading
import time

import pytest
from typing_extensions import override

from windlass import Agent, CallProgress, Event, tool
from windlass.testing import ScriptedModel, call
from windlass.tools import attempts

pytestmark = [pytest.mark.contract("T3"), pytest.mark.realtime]


@tool(effect="read")
async def nap() -> str:
    """Sleep without an await."""
    await asyncio.sleep(0)
    time.sleep(attempts.BLOCKING_S * 1.2)  # noqa: ASYNC251 - the mistake that is noticed
    return "rested"


@tool(effect="read")
async def wait() -> str:
    """Sleep as one should, beside the other."""
    await asyncio.sleep(attempts.BLOCKING_S * 2)
    return "waited"


def test_the_tool_that_blocks_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """In the log with its seconds, and as progress of its call for those who watch."""
    events: list[Event] = []
    with ScriptedModel([[call("nap"), call("wait")], "Done."]) as model:
        agent = Agent(model, tools=[nap, wait])
        agent.run_sync("Go.", on_event=events.append)
    # A machine that is too busy to run anything may add a warning about the other tool.
    (warning,) = [one.getMessage() for one in caplog.records if "tool nap" in one.getMessage()]
    assert re.match(r"tool nap blocked the event loop for \d+\.\d s: ", warning)
    assert "runs in a thread" in warning
    told = [event.text for event in events if isinstance(event, CallProgress)]
    assert any(re.match(r"\[nap blocked the event loop for \d+\.\d s\]", text) for text in told)


def test_a_tool_that_never_returns_is_named_while_it_blocks(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "HANGING_S", 0.02)
    monkeypatch.setattr(attempts, "LOOK_S", 0.01)
    named = threading.Event()

    class Listener(logging.Handler):
        @override
        def emit(self, record: logging.LogRecord) -> None:
            if "tool hang has been blocking the event loop" in record.getMessage():
                named.set()

    @tool(effect="read")
    async def hang() -> bool:
        """Block until the log names this tool."""
        return named.wait(30)

    listener = Listener()
    logging.getLogger("windlass").addHandler(listener)
    try:
        with ScriptedModel([call("hang"), "Done."]) as model:
            Agent(model, tools=[hang]).run_sync("Go.")
    finally:
        logging.getLogger("windlass").removeHandler(listener)
    assert named.is_set()


def test_a_cancel_and_an_error_go_through_to_the_tool() -> None:
    seen: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            await asyncio.sleep(0)
            seen.append("cleaned up")
            raise

    async def main() -> None:
        async def timed() -> None:
            await attempts.TimedAwaitable(work(), "work", None)

        task = asyncio.create_task(timed())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert seen == ["cancelled", "cleaned up"]
