"""The HttpAgent of AG-UI over a real socket: it checks the order of every event by itself."""

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


async def play(scene: str) -> Any:
    """Play a scene with a service, and return what the client has, and whom the agent wrote to."""
    helper = HelperAgent(pause_s=0.1)
    folder = await asyncio.to_thread(require_packages, "ag_ui")
    async with listen_service(helper.agent) as running:
        token = await running.make_token("ann")
        seen = await run_script(folder, "ag_ui.mjs", running.address, token, scene)
    return {**seen, "sent": helper.sent}


def texts(messages: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    return [(message["role"], message.get("content")) for message in messages]


async def test_text() -> None:
    seen = await play("text")
    assert seen["result"] == "Hello, world."
    assert texts(seen["messages"]) == [("user", "Hello."), ("assistant", "Hello, world.")]
    assert seen["last"]["usage"][0]["model"] == "m"
    assert seen["last"]["metadata"]["windlass"]["costUsd"]


@pytest.mark.replicated
async def test_turns_of_one_thread() -> None:
    seen = await play("turns")
    assert seen["result"] == "Hello. / Add."
    assert "MESSAGES_SNAPSHOT" not in seen["kinds"]
    roles = [message["role"] for message in seen["messages"]]
    assert roles == [
        "user",
        "assistant",
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
        "assistant",
    ]


async def test_tools_of_the_agent() -> None:
    seen = await play("tools")
    assert seen["result"] == "The sum is 5."
    reply = seen["messages"][1]
    assert reply["content"] == "Let me see."
    assert reply["toolCalls"][0]["function"] == {"name": "add", "arguments": '{"a":2,"b":3}'}
    assert texts(seen["messages"])[2:] == [("tool", "5"), ("assistant", "The sum is 5.")]


@pytest.mark.replicated
async def test_an_approval_that_is_given() -> None:
    seen = await play("approve")
    (interrupt,) = seen["interrupts"]
    assert interrupt["metadata"]["windlass"]["arguments"] == {"to": "Ann"}
    assert seen["sent"] == ["Ann"]
    assert seen["result"] == "It was sent."
    assert seen["pending"] == []


async def test_an_approval_that_is_denied() -> None:
    seen = await play("deny")
    assert seen["sent"] == []
    assert seen["result"] == "It was not sent."
    assert "Not today." in str(seen["messages"])


async def test_an_approval_that_is_denied_elsewhere_first() -> None:
    seen = await play("elsewhere")
    assert seen["sent"] == []
    assert seen["result"] == "It was not sent."
    assert [event["name"] for event in seen["custom"]] == ["windlass.answered_elsewhere"]


async def test_a_cancel_from_elsewhere() -> None:
    seen = await play("cancel")
    assert seen["last"]["outcome"] == {"type": "cancelled"}
    assert texts(seen["messages"]) == [("user", "Wait."), ("assistant", "Working")]


@pytest.mark.replicated
@pytest.mark.contract("A2")
async def test_a_client_that_comes_back_in_the_middle() -> None:
    seen = await play("reconnect")
    assert len(seen["before"][-1]["content"]) < len(WORDS)
    assert seen["kinds"][:2] == ["RUN_STARTED", "MESSAGES_SNAPSHOT"]
    assert [role for role, _ in texts(seen["messages"])] == ["user", "assistant"]
    assert seen["messages"][-1]["content"].strip() == WORDS


async def test_text_that_broke_off_is_taken_back() -> None:
    seen = await play("broken")
    assert texts(seen["messages"]) == [("user", "Break."), ("assistant", "All is well.")]


async def test_an_error() -> None:
    seen = await play("error")
    assert seen["last"]["type"] == "RUN_ERROR"
    assert seen["last"]["code"] == "failed"
    assert "the key of the model is wrong" in seen["last"]["message"]


async def test_a_request_without_a_token() -> None:
    seen = await play("refused")
    assert seen["status"] == 401
    assert seen["payload"]["error"]["code"] == "token_needed"
