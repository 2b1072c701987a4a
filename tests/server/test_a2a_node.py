"""The A2A client for JavaScript over a real socket, plain and streamed."""

import asyncio
from typing import Any

import pytest

from node_clients import require_packages, run_script
from openai_agents import WORDS, HelperAgent
from service import listen_service

pytestmark = [
    pytest.mark.slow,
    pytest.mark.realtime,
    pytest.mark.timeout(120),
    pytest.mark.contract("A6"),
]
both_modes = pytest.mark.parametrize("mode", ["plain", "streamed"])


async def play(mode: str, scene: str) -> Any:
    """Play a scene with a service, and return what the client has, and whom the agent wrote to."""
    helper = HelperAgent(pause_s=0.1)
    folder = await asyncio.to_thread(require_packages, "a2a")
    async with listen_service(helper.agent) as running:
        token = await running.make_token("ann")
        seen = await run_script(folder, "a2a.mjs", running.address, token, mode, scene)
    return {**seen, "sent": helper.sent}


@both_modes
async def test_text_in_one_context(mode: str) -> None:
    seen = await play(mode, "text")
    assert seen["first"]["text"] == "Hello, world."
    assert seen["text"] == "Hello."
    assert seen["state"] == "TASK_STATE_COMPLETED"
    assert seen["history"] == 2


@both_modes
async def test_tools_of_the_agent(mode: str) -> None:
    seen = await play(mode, "tools")
    assert seen["text"] == "The sum is 5."
    assert seen["calls"] == (["add running", "add done"] if mode == "streamed" else [])


@both_modes
async def test_an_approval_that_is_given(mode: str) -> None:
    seen = await play(mode, "approve")
    assert seen["asked"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert seen["asked"]["message"][-1]["questions"][0]["arguments"] == {"to": "Ann"}
    assert (seen["state"], seen["text"]) == ("TASK_STATE_COMPLETED", "It was sent.")
    assert seen["sent"] == ["Ann"]


@both_modes
async def test_an_approval_that_is_denied(mode: str) -> None:
    seen = await play(mode, "deny")
    assert (seen["state"], seen["text"]) == ("TASK_STATE_COMPLETED", "It was not sent.")
    assert seen["sent"] == []


@both_modes
async def test_a_cancel(mode: str) -> None:
    seen = await play(mode, "cancel")
    assert seen["ended"] == seen["state"] == "TASK_STATE_CANCELED"
    assert seen["text"] == "Working"
    assert seen["again"]["name"] == "TaskNotCancelableError"


@pytest.mark.contract("A2")
async def test_a_client_that_comes_back_in_the_middle() -> None:
    seen = await play("streamed", "reconnect")
    assert 0 < len(seen["before"]) < len(WORDS)
    assert seen["text"].strip() == WORDS
    assert seen["state"] == "TASK_STATE_COMPLETED"
    assert seen["late"]["name"] == "UnsupportedOperationError"


@both_modes
async def test_errors(mode: str) -> None:
    seen = await play(mode, "error")
    assert seen["state"] == "TASK_STATE_FAILED"
    assert "the key of the model is wrong" in seen["message"][0]
    assert seen["missing"]["name"] == "TaskNotFoundError"
    assert seen["ended"]["name"] == "UnsupportedOperationError"
