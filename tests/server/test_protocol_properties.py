"""Properties of AG-UI and A2A: whenever a client comes, it ends up with the same; no input breaks.

The scripts are random: text, thinking, calls, attempts that break off, and clients that leave and
come back at any event.
"""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from a2a_client import A2aClient, answer_of
from ag_ui_client import AgUiClient
from service import run_service
from windlass import Agent, tool
from windlass.gates import ask
from windlass.testing import ScriptedModel, call, cut, pause, run_virtual, say, think

pytestmark = [pytest.mark.slow, pytest.mark.contract("A6")]

TURNS_MAX = 25


@tool(effect="read")
def look(place: str) -> str:
    """Look at a place."""
    return f"{place} is empty"


@tool
def send(text: str) -> str:
    """Send a text."""
    return f"sent {text}"


words = st.text(alphabet="ab \n", min_size=1, max_size=5).map(lambda text: f"w{text}")
pieces = st.one_of(words.map(say), words.map(think), st.floats(0.1, 3).map(pause))
broken = st.lists(pieces, max_size=3).map(lambda made: [*made, cut()])
asking = st.tuples(st.lists(pieces, max_size=3), st.sampled_from(["look", "send"]), words).map(
    lambda made: [*made[0], call(made[1], {"place" if made[1] == "look" else "text": made[2]})]
)
final = st.lists(pieces, max_size=4).map(lambda made: [*made, say("End.")])
scripts = st.tuples(
    st.lists(st.one_of(asking, st.tuples(broken, asking).map(list)), max_size=3), final
)


def flatten(script: Any) -> list[Any]:
    """Return the replies of a script; a pair is a reply that breaks off and the one after it."""
    steps, last = script
    replies: list[Any] = []
    for step in steps:
        is_pair = isinstance(step[0], list)
        replies += step if is_pair else [step]
    return [*replies, last]


def shown(messages: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return messages without reasoning, which a client keeps by itself."""
    return [
        (each["id"], each["role"], each.get("content") or "", each.get("toolCalls") or [])
        for each in messages
        if each["role"] != "reasoning"
    ]


@settings(max_examples=40)
@given(scripts, st.lists(st.integers(1, 30), max_size=3))
def test_a_client_of_ag_ui_shows_the_same_however_often_it_leaves(
    script: Any, leaves: list[int]
) -> None:
    async def play() -> None:
        with ScriptedModel(flatten(script)) as model:
            agent = Agent(model, name="helper", tools=[look, send], gate=ask())
            async with run_service(agent) as running:
                http = await running.make_client()
                ui = AgUiClient(http)
                ui.say("Go")
                for most in leaves:
                    async with ui.open() as events:
                        for _ in range(most):
                            if await anext(events, None) is None:
                                break
                end = await finish(ui)
                late = AgUiClient(http)
                await late.run()
        assert end["outcome"] == {"type": "success"}
        assert end["result"].endswith("End.")
        assert shown(ui.messages)[1:] == shown(late.messages)[1:]
        assert [each["id"] for each in ui.messages if each["role"] == "user"] == ["user-1"]

    run_virtual(play())


async def finish(ui: AgUiClient) -> dict[str, Any]:
    """Run a thread to its end, with a yes to every question."""
    resume: list[dict[str, Any]] = []
    for _ in range(TURNS_MAX):
        end = (await ui.run(resume=resume)).end
        if end["type"] != "RUN_FINISHED" or end["outcome"]["type"] != "interrupt":
            return end
        resume = [
            {"interruptId": each["id"], "status": "resolved", "payload": {"approved": True}}
            for each in end["outcome"]["interrupts"]
        ]
    raise AssertionError("the run asks for ever")


@settings(max_examples=40)
@given(scripts, st.lists(st.integers(1, 20), max_size=3))
def test_a_client_of_a2a_has_the_same_answer_however_often_it_leaves(
    script: Any, leaves: list[int]
) -> None:
    async def play() -> None:
        with ScriptedModel(flatten(script)) as model:
            agent = Agent(model, name="helper", tools=[look, send], gate=ask())
            async with run_service(agent) as running:
                peer = A2aClient(await running.make_client())
                begun = await peer.send("Go", configuration={"returnImmediately": True})
                items = await read_task(peer, begun["id"], leaves)
                task = await peer.get(begun["id"])
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        assert answer_of(items) == answer_of([{"task": task}])

    run_virtual(play())


async def read_task(peer: A2aClient, name: str, leaves: list[int]) -> list[dict[str, Any]]:
    """Follow a task to its end; returns the items of the last stream. Questions get a yes."""
    for most in leaves:
        if (await peer.get(name))["status"]["state"] != "TASK_STATE_WORKING":
            break
        async with peer.open("SubscribeToTask", {"id": name}) as items:
            for _ in range(most):
                if await anext(items, None) is None:
                    break
    for _ in range(TURNS_MAX):
        task = await peer.get(name)
        match task["status"]["state"]:
            case "TASK_STATE_WORKING":
                async with peer.open("SubscribeToTask", {"id": name}) as items:
                    read = [item async for item in items]
            case "TASK_STATE_INPUT_REQUIRED":
                read = await peer.stream("yes", taskId=name)
            case _:
                return [{"task": task}]
        if read[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED":
            return read
    raise AssertionError("the run asks for ever")


@pytest.mark.parametrize("seed", range(8))
def test_of_two_answers_at_once_exactly_one_counts(seed: int) -> None:
    async def play() -> None:
        with ScriptedModel([[call("send", {"text": "hi"})], "Done."]) as model:
            agent = Agent(model, name="helper", tools=[send], gate=ask())
            async with run_service(agent) as running:
                ui = AgUiClient(await running.make_client("ann"))
                ui.say("Send it")
                asked = await ui.run()
                peer = A2aClient(await running.make_client("ann"))
                task = (await peer.list_tasks())["tasks"][0]["id"]
                entry = {
                    "interruptId": asked.interrupts[0]["id"],
                    "status": "resolved",
                    "payload": {"approved": True},
                }
                no = peer.stream({"data": {"approved": False}}, taskId=task)
                both = (ui.run(resume=[entry]), no)
                order = both if seed % 2 else both[::-1]
                results = await asyncio.gather(*order)
                read = (await ui.http.get("/runs/t1")).data
        answered = "sent hi" in str(read)
        denied = "denied" in str(read)
        assert answered != denied
        assert len(results) == 2
        assert ui.messages[-1]["content"] == "Done."

    run_virtual(play(), seed=seed)


json_values: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
ROLES_OF_MESSAGES = ["user", "assistant", "tool", "system", "reasoning", "activity", "other"]
wild_messages = st.fixed_dictionaries(
    {"id": st.text(max_size=4), "role": st.sampled_from(ROLES_OF_MESSAGES)},
    optional={
        "content": json_values | st.lists(st.dictionaries(st.text(max_size=6), json_values)),
        "toolCalls": json_values,
        "toolCallId": json_values,
    },
)
wild_inputs = st.fixed_dictionaries(
    {"threadId": st.text(max_size=5), "runId": st.text(max_size=5)},
    optional={
        "messages": st.lists(wild_messages, max_size=4) | json_values,
        "tools": json_values,
        "context": json_values,
        "resume": json_values
        | st.lists(
            st.fixed_dictionaries(
                {
                    "interruptId": st.text(max_size=5) | st.just("a:b:c"),
                    "status": st.sampled_from(["resolved", "cancelled"]),
                    "payload": json_values,
                }
            )
        ),
        "forwardedProps": json_values,
    },
)
METHODS = ["SendMessage", "SendStreamingMessage", "GetTask", "ListTasks", "CancelTask", "x"]
wild_params = json_values | st.fixed_dictionaries(
    {},
    optional={
        "message": json_values
        | st.fixed_dictionaries(
            {
                "messageId": st.text(max_size=4),
                "role": st.just("ROLE_USER"),
                "parts": st.lists(
                    st.dictionaries(
                        st.sampled_from(["text", "raw", "url", "data", "mediaType"]), json_values
                    ),
                    max_size=3,
                ),
            },
            optional={"taskId": st.text(max_size=4), "contextId": st.text(max_size=4)},
        ),
        "configuration": json_values,
        "id": json_values,
        "pageSize": json_values,
        "pageToken": json_values,
    },
)


@settings(max_examples=60)
@given(st.data())
def test_no_request_breaks_the_service(data: st.DataObject) -> None:
    async def play() -> None:
        model = ScriptedModel(["Fine."] * 5)
        async with run_service(Agent(model, name="helper")) as running:
            http = await running.make_client()
            for _ in range(3):
                if data.draw(st.booleans()):
                    path = "/ag-ui/helper"
                    body: Any = data.draw(wild_inputs)
                else:
                    path = "/a2a/helper"
                    method = data.draw(st.sampled_from(METHODS))
                    params = data.draw(wild_params)
                    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
                reply = await http.send("POST", path, body)
                assert reply.status < 500, (path, body)
                await drain(reply)

    run_virtual(play())


async def drain(reply: Any) -> None:
    """Read a stream to its end; of a whole reply, check that it is no fault of the service."""
    if hasattr(reply, "chunks"):
        async for chunk in reply.chunks:
            assert b"internal_error" not in chunk
        await reply.close()
    else:
        assert b"-32603" not in reply.encode_body()
