"""The official Python client of OpenAI, over a real socket."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses import Response

from openai_agents import MODEL, WORDS, HelperAgent
from service import RunningService, listen_service

pytestmark = [pytest.mark.slow, pytest.mark.realtime, pytest.mark.contract("A6")]

PIXEL = "data:image/png;base64,iVBORw0KGgo="


@dataclass
class OpenAIClient:
    """A service with the helper on a socket, and the client of it."""

    helper: HelperAgent
    running: RunningService
    client: AsyncOpenAI

    def user(self, text: str) -> list[ChatCompletionMessageParam]:
        return [{"role": "user", "content": text}]

    async def answer(self, verdict: dict[str, str]) -> None:
        """Answer the question that waits, with another client than the one that asked."""
        async with self.running.open_client() as http:
            found: list[Any] = []
            while not found:
                await asyncio.sleep(0.05)
                found = (await (await http.get("/questions")).json())["questions"]
            question = found[0]
            body = {"call_id": question["call_id"], "answer": verdict}
            path = f"/runs/{question['session']}/answers"
            assert (await http.post(path, json=body)).status == 200

    async def poll(self, response_id: str) -> Response:
        for _ in range(200):
            response = await self.client.responses.retrieve(response_id)
            if response.status not in ("queued", "in_progress"):
                return response
            await asyncio.sleep(0.05)
        raise AssertionError("the response did not end")

    async def list_states(self) -> list[str]:
        async with self.running.open_client() as http:
            listed = await (await http.get("/runs")).json()
        return [each["state"] for each in listed["sessions"]]


@asynccontextmanager
async def connect(pause_s: float = 0.1) -> AsyncGenerator[OpenAIClient]:
    helper = HelperAgent(pause_s)
    async with listen_service(helper.agent) as running:
        token = await running.make_token("ann")
        url = f"{running.address}/v1"
        async with AsyncOpenAI(api_key=token, base_url=url, max_retries=2) as client:
            yield OpenAIClient(helper, running, client)


async def test_models_and_chat_completions() -> None:
    async with connect() as at:
        models = await at.client.models.list()
        assert [model.id for model in models.data] == [MODEL]
        assert (await at.client.models.retrieve(MODEL)).id == MODEL
        completion = await at.client.chat.completions.create(
            model=MODEL, messages=at.user("Add them.")
        )
        assert completion.choices[0].message.content == "Let me see.\n\nThe sum is 5."
        assert completion.choices[0].finish_reason == "stop"
        assert completion.choices[0].message.tool_calls is None
        assert completion.usage is not None
        assert completion.usage.total_tokens > 0
        assert completion.usage.model_extra
        assert completion.usage.model_extra["cost"] > 0


async def test_a_streamed_chat_completion() -> None:
    async with connect() as at:
        stream = await at.client.chat.completions.create(
            model=MODEL,
            messages=at.user("Count."),
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert text.split() == WORDS.split()
        assert len(chunks) > 5
        assert chunks[-1].usage is not None


async def test_the_streaming_helper_of_chat_completions() -> None:
    async with connect() as at:
        async with at.client.chat.completions.stream(
            model=MODEL, messages=at.user("Add them.")
        ) as stream:
            async for _ in stream:
                pass
            final = await stream.get_final_completion()
        assert final.choices[0].message.content == "Let me see.\n\nThe sum is 5."


async def test_images() -> None:
    async with connect() as at:
        completion = await at.client.chat.completions.create(
            model=MODEL,
            messages=[
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "Look."},
                        {"type": "image_url", "image_url": {"url": PIXEL}},
                    ],
                }
            ],
        )
        assert completion.choices[0].message.content == "I see 1 image."
        response = await at.client.responses.create(
            model=MODEL,
            input=[
                {
                    "role": "user",
                    "content": [
                        {"type": "input_text", "text": "Look."},
                        {"type": "input_image", "image_url": PIXEL, "detail": "auto"},
                    ],
                }
            ],
        )
        assert response.output_text == "I see 1 image."


@pytest.mark.replicated
async def test_responses() -> None:
    async with connect() as at:
        response = await at.client.responses.create(model=MODEL, input="Add them.")
        assert response.status == "completed"
        assert [item.type for item in response.output] == ["message", "message"]
        assert response.output_text.endswith("The sum is 5.")
        assert response.usage is not None
        assert response.usage.total_tokens > 0
        again = await at.client.responses.retrieve(response.id)
        assert again == response
        followed = await at.client.responses.create(
            model=MODEL, input="Recall.", previous_response_id=response.id
        )
        assert followed.output_text == "Add them."
        forked = await at.client.responses.create(
            model=MODEL, input="Recall.", previous_response_id=response.id
        )
        assert forked.output_text == "Add them."


async def test_the_streaming_helper_of_responses() -> None:
    async with connect() as at:
        async with at.client.responses.stream(model=MODEL, input="Add them.") as stream:
            types = [event.type async for event in stream]
            final = await stream.get_final_response()
        assert types[0] == "response.created"
        assert types[-1] == "response.completed"
        assert final.output_text.endswith("The sum is 5.")


async def test_the_streaming_helper_survives_a_broken_attempt() -> None:
    async with connect() as at:
        async with at.client.responses.stream(model=MODEL, input="Break.") as stream:
            async for _ in stream:
                pass
            final = await stream.get_final_response()
        assert final.output_text == "All is well."


@pytest.mark.replicated
async def test_a_background_response_goes_on_after_its_client_has_left() -> None:
    """The client comes back in mid-stream, and has every character once."""
    async with connect() as at:
        stream = await at.client.responses.create(
            model=MODEL, input="Count.", background=True, stream=True
        )
        seen: list[Any] = []
        async for event in stream:
            seen.append(event)
            if len(seen) > 6:
                break
        await stream.close()
        response_id = seen[0].response.id
        await asyncio.sleep(0.25)
        rest = await at.client.responses.retrieve(
            response_id, stream=True, starting_after=seen[-1].sequence_number
        )
        seen += [event async for event in rest]
        text = "".join(each.delta for each in seen if each.type == "response.output_text.delta")
        assert text.split() == WORDS.split()
        assert seen[-1].type == "response.completed"
        assert len({each.sequence_number for each in seen}) == len(seen)


@pytest.mark.replicated
async def test_a_background_response_is_cancelled() -> None:
    async with connect() as at:
        created = await at.client.responses.create(model=MODEL, input="Wait.", background=True)
        assert created.status == "in_progress"
        cancelled = await at.client.responses.cancel(created.id)
        assert cancelled.status == "cancelled"
        assert (await at.poll(created.id)).status == "cancelled"


@pytest.mark.replicated
@pytest.mark.parametrize("is_allowed", [True, False])
async def test_a_question_is_answered_elsewhere(*, is_allowed: bool) -> None:
    verdict = {"verdict": "allow"} if is_allowed else {"verdict": "deny", "reason": "not now"}
    expected = "It was sent." if is_allowed else "It was not sent."
    async with connect() as at:
        with pytest.raises(openai.PermissionDeniedError) as raised:
            await at.client.chat.completions.create(model=MODEL, messages=at.user("Send it."))
        body: Any = raised.value.body
        assert raised.value.code == "approval_required"
        assert at.running.address in body["windlass"]["questions"][0]["url"]
        assert at.helper.model.requests == 1, "the client sent the request again"
        await at.answer(verdict)
        answered = await at.poll(body["windlass"]["response_id"])
        assert answered.output_text == expected
        # A background response stays in progress, and its stream open.
        created = await at.client.responses.create(model=MODEL, input="Send it.", background=True)
        stream = await at.client.responses.retrieve(created.id, stream=True)
        watching = asyncio.create_task(_last_event(stream))
        await at.answer(verdict)
        last = await watching
        assert last.response.output_text == expected
        # A chat completion may wait too, if it says so.
        asking = at.client.chat.completions.create(
            model=MODEL,
            messages=at.user("Send it."),
            extra_body={"windlass": {"on_question": "wait"}},
        )
        completion, _ = await asyncio.gather(asking, at.answer(verdict))
        assert completion.choices[0].message.content == expected
        assert at.helper.sent == (["Ann"] * 3 if is_allowed else [])


async def _last_event(stream: Any) -> Any:
    last = None
    async for event in stream:
        last = event
    return last


async def test_a_client_that_goes_away_cancels_its_chat_completion() -> None:
    async with connect() as at:
        asking = asyncio.create_task(
            at.client.chat.completions.create(model=MODEL, messages=at.user("Wait."))
        )
        await asyncio.sleep(0.5)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        stream = await at.client.chat.completions.create(
            model=MODEL, messages=at.user("Wait."), stream=True
        )
        async for chunk in stream:
            if chunk.choices[0].delta.content:
                break
        await stream.close()
        while "open" in await at.list_states():  # noqa: ASYNC110 - a cancel is told to nobody here
            await asyncio.sleep(0.05)
        assert await at.list_states() == ["cancelled", "cancelled"]


async def test_a_broken_attempt_is_an_error_of_the_stream() -> None:
    async with connect() as at:
        stream = await at.client.chat.completions.create(
            model=MODEL, messages=at.user("Break."), stream=True
        )
        with pytest.raises(openai.APIError, match="broke off"):
            async for _ in stream:
                pass


async def test_errors() -> None:
    async with connect() as at:
        chat = at.client.chat.completions
        with pytest.raises(openai.NotFoundError, match="no model 'gpt-9'"):
            await chat.create(model="gpt-9", messages=at.user("Hi."))
        with pytest.raises(openai.BadRequestError, match="`tools` is not supported"):
            await chat.create(
                model=MODEL,
                messages=at.user("Hi."),
                tools=[{"type": "function", "function": {"name": "send", "parameters": {}}}],
            )
        with pytest.raises(openai.APIStatusError, match="the key of the model is wrong"):
            await chat.create(model=MODEL, messages=at.user("Fail."))
        assert at.helper.model.requests == 1, "the client sent the request again"
        failed = await at.client.responses.create(model=MODEL, input="Fail.")
        assert failed.status == "failed"
        assert failed.error is not None
        assert "wrong" in failed.error.message
        with pytest.raises(openai.NotFoundError):
            await at.client.responses.retrieve("resp_1_bm9uZQ")
        stranger = at.client.with_options(api_key="wrong")
        with pytest.raises(openai.AuthenticationError):
            await stranger.models.list()
        bob = at.client.with_options(api_key=await at.running.make_token("bob"))
        with pytest.raises(openai.NotFoundError):
            await bob.responses.retrieve(failed.id)
