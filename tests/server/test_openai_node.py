"""The AI SDK with its two providers for OpenAI, over a real socket."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from node_clients import require_packages, run_script
from openai_agents import WORDS, HelperAgent
from service import RunningService, listen_service

pytestmark = [
    pytest.mark.slow,
    pytest.mark.realtime,
    pytest.mark.timeout(120),
    pytest.mark.contract("A6"),
]

PROVIDERS = ("chat", "responses", "compatible")
every_provider = pytest.mark.parametrize("provider", PROVIDERS)
chat_providers = pytest.mark.parametrize("provider", ["chat", "compatible"])


@dataclass
class NodeClient:
    """A service with the helper on a socket, and scenes that the AI SDK plays with it."""

    helper: HelperAgent
    running: RunningService
    token: str

    async def play(self, provider: str, scene: str) -> Any:
        folder = await asyncio.to_thread(require_packages, "openai")
        arguments = (self.running.address, self.token, provider, scene)
        return await run_script(folder, "openai.mjs", *arguments)

    async def answer(self, verdict: dict[str, str]) -> None:
        async with self.running.open_client() as http:
            found: list[Any] = []
            while not found:
                await asyncio.sleep(0.1)
                found = (await (await http.get("/questions")).json())["questions"]
            body = {"call_id": found[0]["call_id"], "answer": verdict}
            path = f"/runs/{found[0]['session']}/answers"
            assert (await http.post(path, json=body)).status == 200

    async def read_response(self, response_id: str) -> Any:
        async with self.running.open_client() as http:
            return await (await http.get(f"/v1/responses/{response_id}")).json()


@asynccontextmanager
async def connect() -> AsyncGenerator[NodeClient]:
    helper = HelperAgent(pause_s=0.1)
    async with listen_service(helper.agent) as running:
        yield NodeClient(helper, running, await running.make_token("ann"))


@every_provider
async def test_text(provider: str) -> None:
    async with connect() as at:
        said = await at.play(provider, "text")
        assert said["text"] == "Hello, world."
        assert said["tokens"] > 0
        assert said["finishReason"] == "stop"


@every_provider
async def test_streamed_text(provider: str) -> None:
    async with connect() as at:
        said = await at.play(provider, "stream")
        assert said["text"].split() == WORDS.split()
        assert said["pieces"] > 5
        assert said["tokens"] > 0
        assert said["finishReason"] == "stop"


@every_provider
async def test_tools_of_the_agent_run_in_the_service(provider: str) -> None:
    async with connect() as at:
        said = await at.play(provider, "tools")
        assert said["toolCalls"] == []
        assert said["text"].endswith("The sum is 5.")
        assert said["streamed"].replace("\n\n", "") == "Let me see.The sum is 5."


@every_provider
async def test_images(provider: str) -> None:
    async with connect() as at:
        assert (await at.play(provider, "image"))["text"] == "I see 1 image."


@every_provider
async def test_a_conversation_goes_on(provider: str) -> None:
    """The provider of responses sends a reference in the place of the agent's own message."""
    async with connect() as at:
        said = await at.play(provider, "conversation")
        assert "My name is Ann." in said["text"]
        assert all(prompt.system == "Be brief." for prompt in at.helper.model.prompts)
        assert "Hello, world." in str(at.helper.model.prompts[-1].messages[1])


async def test_the_previous_response_goes_on() -> None:
    async with connect() as at:
        assert (await at.play("responses", "previous"))["text"] == "Apples."


@every_provider
@pytest.mark.parametrize("is_allowed", [True, False])
async def test_a_question_is_answered_elsewhere(provider: str, *, is_allowed: bool) -> None:
    verdict = {"verdict": "allow"} if is_allowed else {"verdict": "deny", "reason": "not now"}
    async with connect() as at:
        said = await at.play(provider, "approval")
        assert (said["status"], said["isRetryable"]) == (403, False)
        assert said["body"]["error"]["code"] == "approval_required"
        details = said["body"]["error"]["windlass"]
        assert details["questions"][0]["url"] in said["message"]
        assert at.helper.model.requests == 1
        await at.answer(verdict)
        read = await at.read_response(details["response_id"])
        while read["status"] != "completed":
            await asyncio.sleep(0.05)
            read = await at.read_response(details["response_id"])
        text = read["output"][0]["content"][0]["text"]
        assert text == ("It was sent." if is_allowed else "It was not sent.")
        assert at.helper.sent == (["Ann"] if is_allowed else [])


async def test_a_request_may_wait_for_the_answer() -> None:
    async with connect() as at:
        waiting = at.play("compatible", "waiting")
        said, _ = await asyncio.gather(waiting, at.answer({"verdict": "allow"}))
        assert said["text"] == "It was sent."


@every_provider
async def test_a_streamed_question_is_an_error_of_the_stream(provider: str) -> None:
    async with connect() as at:
        said = await at.play(provider, "streamedApproval")
        assert len(said["errors"]) == 1
        assert "waits for a person" in said["errors"][0]


@chat_providers
async def test_leaving_cancels_a_chat_completion(provider: str) -> None:
    async with connect() as at, at.running.open_client() as http:
        await at.play(provider, "cancel")
        states = ["open"]
        while states == ["open"]:
            await asyncio.sleep(0.05)
            listed = await (await http.get("/runs")).json()
            states = [each["state"] for each in listed["sessions"]]
        assert states == ["cancelled"]


async def test_leaving_does_not_cancel_a_response() -> None:
    async with connect() as at, at.running.open_client() as http:
        await at.play("responses", "cancel")
        await asyncio.sleep(0.5)
        listed = await (await http.get("/runs")).json()
        assert [each["state"] for each in listed["sessions"]] == ["open"]


@chat_providers
async def test_a_broken_attempt_is_an_error_of_the_stream(provider: str) -> None:
    async with connect() as at:
        said = await at.play(provider, "broken")
        assert said["text"] == "All is "
        assert "broke off" in said["errors"][0]


async def test_a_broken_attempt_is_followed_by_another_message() -> None:
    async with connect() as at:
        said = await at.play("responses", "broken")
        assert said["text"].endswith("All is well.")
        assert said["errors"] == []


@every_provider
async def test_a_failed_run_is_an_error_that_is_not_repeated(provider: str) -> None:
    async with connect() as at:
        said = await at.play(provider, "failure")
        assert "the key of the model is wrong" in said["message"]
        assert said["isRetryable"] is False
        assert at.helper.model.requests == 1


@every_provider
async def test_a_streamed_failure_is_final(provider: str) -> None:
    """Each repetition would be a run of its own, with its effects."""
    async with connect() as at:
        said = await at.play(provider, "streamedFailure")
        assert "the key of the model is wrong" in said["errors"][0]["message"]
        assert at.helper.model.requests == 1
        async with at.running.open_client() as http:
            assert len((await (await http.get("/runs")).json())["sessions"]) == 1


async def test_a_client_comes_back_in_mid_stream() -> None:
    async with connect() as at:
        said = await at.play("responses", "reconnect")
        assert said["text"].split() == WORDS.split()
        assert said["last"] == "response.completed"
        assert said["isOrdered"]
