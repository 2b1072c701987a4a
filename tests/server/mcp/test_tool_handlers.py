"""What the methods of the MCP server do, without a connection."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("mcp", reason="needs the extra `mcp`")

import mcp_types as types

from windlass import Agent
from windlass.journals.memory import MemoryJournal
from windlass.server.access import Caller
from windlass.server.mcp.agent_calls import make_run_id, read_form, split_run_id
from windlass.server.mcp.server import ToolHandlers
from windlass.server.service import Service
from windlass.testing import ScriptedModel, stall

pytestmark = pytest.mark.contract("A6")


def make_context(caller: str, request_id: int | None = None) -> Any:
    """A request of a caller; all of them name the same session of the protocol."""

    async def report_progress(*_: Any, **__: Any) -> None:
        return

    return SimpleNamespace(
        caller=Caller(caller, frozenset(("watch", "start", "answer"))),
        request=SimpleNamespace(headers={"mcp-session-id": "shared"}),
        request_id=request_id,
        session=SimpleNamespace(client_capabilities=None, report_progress=report_progress),
    )


@pytest.mark.contract("A4", "A6")
async def test_nobody_cancels_the_call_of_another() -> None:
    """The id of a session and of a request is not enough: the caller must be the same."""
    journal = MemoryJournal()
    agent = Agent(ScriptedModel([[stall()]]), name="clerk", journal=journal)
    async with Service(agent) as service:
        handlers = ToolHandlers(service, lambda ctx: ctx.caller)  # pyright: ignore[reportAttributeAccessIssue]
        params = types.CallToolRequestParams(name="clerk", arguments={"prompt": "Go."})
        calling = asyncio.create_task(handlers.call_tool(make_context("ann", 7), params))
        await asyncio.sleep(1)
        cancel = types.CancelledNotificationParams(request_id=7)
        await handlers.cancel_call(make_context("bob"), cancel)
        await asyncio.sleep(1)
        assert [one.state for one in await journal.sessions()] == ["open"]
        await handlers.cancel_call(make_context("ann"), cancel)
        result = await calling
        assert isinstance(result, types.CallToolResult)
        assert result.structured_content["outcome"] == "cancelled"


def test_a_run_is_found_again_whatever_the_session_is_called() -> None:
    for session in ("s", "ann.a:b", "a/b:c"):
        assert split_run_id(make_run_id(session, 3)) == (session, 3)


@pytest.mark.parametrize(
    "content", [None, {}, {"answer": None}, {"answer": True}, {"answer": "ok"}]
)
def test_only_a_clear_yes_is_a_yes(content: Any) -> None:
    """Nor is anything else a no: the question still waits."""
    assert read_form(types.ElicitResult(action="accept", content=content)) is None


@pytest.mark.contract("A6")
def test_what_a_person_says_in_a_form_is_the_answer() -> None:
    said = {"allow": "Allow", "always": "AllowAlways", "deny": "Deny"}
    for answer, kind in said.items():
        reply = read_form(types.ElicitResult(action="accept", content={"answer": answer}))
        assert type(reply).__name__ == kind
    assert type(read_form(types.ElicitResult(action="decline"))).__name__ == "Deny"
    assert read_form(types.ElicitResult(action="cancel")) is None
