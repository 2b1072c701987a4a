"""The double of the tools does what it is told, and conforms."""

import asyncio

import pytest

from windlass.core.messages import ToolResult, ToolSpec
from windlass.core.moves import ClearedCall
from windlass.ports import CallContext
from windlass.testing.clock import VirtualClock
from windlass.testing.tools import (
    Delay,
    Hang,
    IgnoreCancel,
    RaiseFromRun,
    RecordingTools,
    ToolsConformance,
    call_context,
    cleared_call,
)


async def echo(call: ClearedCall, context: CallContext) -> object:
    return call.arguments["text"]


class TestRecordingToolsConform(ToolsConformance):
    @pytest.fixture
    def tools(self) -> RecordingTools:
        return RecordingTools(
            {"echo": echo, "fail": ValueError("no"), "hang": Hang()}, effects={"echo": "read"}
        )


def spec(name: str) -> ToolSpec:
    return ToolSpec(name, "", {"type": "object"})


async def test_it_keeps_what_ran() -> None:
    """V1."""
    tools = RecordingTools({"look": Delay(5, "seen"), "hang": Hang()}, resources={"look": "{at}"})
    calls = [
        cleared_call(spec("look"), {"at": "x"}, call_id="c1"),
        cleared_call(spec("hang"), call_id="c2"),
    ]
    running = [asyncio.create_task(tools.run(call, call_context())) for call in calls]
    assert (await running[0]).text == "seen"
    running[1].cancel()
    await asyncio.wait(running)
    assert [(ran.call_id, ran.key) for ran in tools.calls] == [("c1", "s/c1"), ("c2", "s/c2")]
    assert (tools.finished, tools.cancelled, tools.at_once_max) == (["c1"], ["c2"], 2)
    assert tools.resource_of("look", {"at": "x"}) == "x"


async def test_it_can_misbehave(clock: VirtualClock) -> None:
    """V1: be deaf to a cancel, and break the law of the port."""
    tools = RecordingTools(
        {"deaf": IgnoreCancel(60), "boom": RaiseFromRun(RuntimeError("boom"))},
        reconciles={"deaf": ToolResult.from_text("value", "it was done")},
    )
    running = asyncio.create_task(tools.run(cleared_call(spec("deaf")), call_context()))
    await asyncio.sleep(1)
    running.cancel()
    assert (await running).text == "done"
    assert clock.elapsed_s == 60
    with pytest.raises(RuntimeError, match="boom"):
        await tools.run(cleared_call(spec("boom")), call_context())
    found = await tools.reconcile(cleared_call(spec("deaf"), started=True), call_context())
    assert found == ToolResult.from_text("value", "it was done")
