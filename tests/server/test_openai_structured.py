"""Answers that fit a client's schema, and what a request gave, with the official client."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import openai
import pytest
from openai import AsyncOpenAI
from pydantic import BaseModel

from service import listen_service, run_service
from windlass import Agent, ConfigError
from windlass.core.events import RunStarted
from windlass.core.setup import OUTPUT_KEY
from windlass.journals import MemoryJournal
from windlass.testing import ScriptedModel, ScriptedReply, call

SCHEMA = {
    "type": "object",
    "properties": {"sum": {"type": "integer"}},
    "required": ["sum"],
    "additionalProperties": False,
}


class Sum(BaseModel):
    sum: int


@asynccontextmanager
async def connect(*replies: ScriptedReply) -> AsyncGenerator[AsyncOpenAI]:
    agent = Agent(ScriptedModel(replies), name="helper")
    async with listen_service(agent) as running:
        url = f"{running.address}/v1"
        async with AsyncOpenAI(api_key=await running.make_token("ann"), base_url=url) as client:
            yield client


@pytest.mark.slow
@pytest.mark.realtime
@pytest.mark.contract("A6")
async def test_a_response_is_parsed_after_a_reply_that_did_not_fit() -> None:
    async with connect("It is five.", '{"sum": 5}') as client:
        response = await client.responses.parse(
            model="helper", input="Add 2 and 3.", text_format=Sum
        )
        assert response.output_parsed == Sum(sum=5)
        assert response.output_text == '{"sum": 5}'
        assert response.text is not None
        assert response.text.format is not None
        assert response.text.format.type == "json_schema"
        listed = await client.responses.input_items.list(response.id)
        [item] = listed.data
        assert item.type == "message"
        assert item.content[0].to_dict() == {"type": "input_text", "text": "Add 2 and 3."}


@pytest.mark.slow
@pytest.mark.realtime
@pytest.mark.contract("A6")
async def test_a_streamed_answer_has_only_the_reply_that_fits() -> None:
    async with connect("It is five.", '{"sum": 5}') as client:
        said = ""
        async with client.responses.stream(
            model="helper", input="Add 2 and 3.", text_format=Sum
        ) as stream:
            async for event in stream:
                if event.type == "response.output_text.delta":
                    said += event.delta
            final = await stream.get_final_response()
        assert said == '{"sum": 5}'
        assert final.output_parsed == Sum(sum=5)


@pytest.mark.slow
@pytest.mark.realtime
@pytest.mark.contract("A6")
async def test_a_chat_completion_is_parsed_and_a_wrong_schema_begins_no_run() -> None:
    async with connect("five", '{"sum": 5}', "[1]", '{"any": "thing"}') as client:
        completion = await client.chat.completions.parse(
            model="helper",
            messages=[{"role": "user", "content": "Add 2 and 3."}],
            response_format=Sum,
        )
        assert completion.choices[0].message.parsed == Sum(sum=5)
        with pytest.raises(openai.UnprocessableEntityError, match="JSON Schema"):
            await client.responses.create(
                model="helper",
                input="Add.",
                text={"format": {"type": "json_schema", "name": "x", "schema": {"type": "sum"}}},
            )
        plain = await client.responses.create(
            model="helper", input="Anything.", text={"format": {"type": "json_object"}}
        )
        assert plain.output_text == '{"any": "thing"}'


@pytest.mark.contract("A6")
async def test_what_a_request_gave_is_listed_in_pages_to_its_caller_alone() -> None:
    async with run_service(Agent(ScriptedModel(["Fine.", "Again."]), name="helper")) as running:
        ann = await running.make_client("ann")
        given = [
            {"role": "user", "content": "Hello."},
            {"role": "assistant", "content": "Hi."},
            {"role": "user", "content": [{"type": "input_text", "text": "How are you?"}]},
        ]
        first = (await ann.post("/v1/responses", {"model": "helper", "input": given})).data
        path = f"/v1/responses/{first['id']}/input_items"
        listed = (await ann.get(f"{path}?order=asc")).data
        assert [item["role"] for item in listed["data"]] == ["user", "assistant", "user"]
        assert [item["content"][0]["text"] for item in listed["data"]] == [
            "Hello.",
            "Hi.",
            "How are you?",
        ]
        assert len({item["id"] for item in listed["data"]}) == 3
        page = (await ann.get(f"{path}?order=asc&limit=2")).data
        assert page["has_more"]
        rest = (await ann.get(f"{path}?order=asc&after={page['last_id']}")).data
        assert [item["content"][0]["text"] for item in rest["data"]] == ["How are you?"]
        assert (await ann.get(path)).data["data"] == listed["data"][::-1]
        body = {"model": "helper", "input": "And now?", "previous_response_id": first["id"]}
        second = (await ann.post("/v1/responses", body)).data
        own = (await ann.get(f"/v1/responses/{second['id']}/input_items")).data
        assert [item["content"][0]["text"] for item in own["data"]] == ["And now?"]
        bob = await running.make_client("bob")
        assert (await bob.get(path)).status == 404


@pytest.mark.contract("A6", "D8")
async def test_a_schema_stays_with_its_run_whoever_drives_it() -> None:
    journal = MemoryJournal()
    first = Agent(ScriptedModel([]), name="helper", journal=journal)
    handle = await first.start("Add.", session="s", output_schema=SCHEMA, drive=False)
    second = Agent(ScriptedModel(["five", '{"sum": 5}']), name="helper", journal=journal)
    await second.drive("s")
    result = await handle.result()
    assert (result.outcome, result.text) == ("completed", '{"sum": 5}')
    [started] = [fact for fact in await journal.read("s") if isinstance(fact, RunStarted)]
    assert started.setup is not None
    assert started.setup.output_schema == SCHEMA


@pytest.mark.contract("A6")
async def test_a_schema_is_not_that_of_a_sub_agent_nor_of_the_next_run() -> None:
    journal = MemoryJournal()
    scout = Agent(ScriptedModel(["No JSON here."]), name="scout")
    model = ScriptedModel([[call("scout", {"task": "Look."})], '{"sum": 5}', "Words."])
    agent = Agent(model, name="helper", tools=[scout.as_tool()], journal=journal)
    result = await agent.run("Add.", session="s", output_schema=SCHEMA)
    assert (result.outcome, result.text) == ("completed", '{"sum": 5}')
    [child] = await journal.sessions(parent="s")
    facts = await journal.read(child.session)
    [started] = [fact for fact in facts if isinstance(fact, RunStarted)]
    assert OUTPUT_KEY not in started.context
    assert (await agent.run("Talk.", session="s")).text == "Words."


async def test_a_schema_that_is_none_is_refused_before_the_run() -> None:
    journal = MemoryJournal()
    agent = Agent(ScriptedModel([]), journal=journal)
    with pytest.raises(ConfigError, match="not a JSON Schema"):
        await agent.run("Add.", session="s", output_schema={"type": "sum"})
    assert not await journal.read("s")
