"""Tools whose infrastructure fails: the model sees it first, and the run ends when it repeats."""

from typing import Any

import pytest

from windlass import Agent, FailedByTools, Tool, ToolUnavailable, tool
from windlass.core.messages import ToolResults
from windlass.testing import ScriptedModel, VirtualClock, call


def flaky(*up: bool) -> tuple[Tool[..., Any], list[bool]]:
    left = list(up)

    @tool(effect="read", retries=0)
    def ask(number: int) -> str:
        """Ask the server."""
        if not left.pop(0):
            raise ToolUnavailable("the server is down")
        return f"answer {number}"

    return ask, left


async def test_an_outage_is_seen_first_and_ends_the_run_when_it_repeats(
    clock: VirtualClock,
) -> None:
    """T7, L6."""
    ask, _ = flaky(False, False, False)
    script = [call("ask", {"number": at}) for at in range(3)]
    with ScriptedModel(script) as model, pytest.raises(FailedByTools) as raised:
        await Agent(model, tools=[ask], clock=clock).run("Go.")
    assert raised.value.result.steps == 3
    told = [m for m in raised.value.result.messages if isinstance(m, ToolResults)]
    assert all("down" in message.items[0].result.text for message in told)


async def test_what_works_in_between_starts_the_count_anew(clock: VirtualClock) -> None:
    """T7."""
    ask, left = flaky(False, False, True, False, False)
    script = [*(call("ask", {"number": at}) for at in range(5)), "Done."]
    with ScriptedModel(script) as model:
        result = await Agent(model, tools=[ask], clock=clock).run("Go.")
    assert result.outcome == "completed"
    assert not left


async def test_a_tool_that_simply_fails_ends_no_run(clock: VirtualClock) -> None:
    """T7, T8: an exception is the model's to deal with."""

    @tool(effect="read")
    def broken(number: int) -> str:
        """Fail."""
        raise ValueError(f"no {number}")

    script = [*(call("broken", {"number": at}) for at in range(5)), "I give up."]
    with ScriptedModel(script) as model:
        result = await Agent(model, tools=[broken], clock=clock).run("Go.")
    assert result.text == "I give up."
