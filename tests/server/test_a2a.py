"""A2A without a socket: runs are tasks, and each item is one of the protocol."""

import asyncio
from typing import Any

import pytest
from a2a.types.a2a_pb2 import AgentCard
from google.protobuf.json_format import ParseDict

from a2a_client import A2aClient, answer_of, state_of
from service import RunningService, run_service
from windlass import Agent, tool
from windlass.gates import ask
from windlass.journals import MemoryJournal
from windlass.testing import ScriptedModel, call, cut, fail, pause, refuse, say

pytestmark = pytest.mark.contract("A6")


@tool
def send(text: str) -> str:
    """Send a text."""
    return f"sent {text}"


@tool(effect="read")
def look(place: str) -> str:
    """Look at a place."""
    return f"{place} is empty"


async def make_client(running: RunningService, caller: str = "ann", **more: Any) -> A2aClient:
    return A2aClient(await running.make_client(caller, **more))


async def test_a_message_begins_a_task_and_the_task_has_the_answer() -> None:
    with ScriptedModel(["Hello.", "Again."]) as model:
        async with run_service(Agent(model, name="helper")) as running:
            peer = await make_client(running)
            task = await peer.send("Hi")
            assert task["status"]["state"] == "TASK_STATE_COMPLETED"
            assert task["artifacts"][0]["parts"] == [{"text": "Hello."}]
            assert [message["role"] for message in task["history"]] == ["ROLE_USER", "ROLE_AGENT"]
            # The same message again is the same task, and costs nothing.
            peer.sent = 0
            assert (await peer.send("Hi"))["id"] == task["id"]
            more = await peer.send("And?", contextId=task["contextId"])
            assert more["contextId"] == task["contextId"]
            assert more["id"] != task["id"]
            assert more["artifacts"][0]["parts"] == [{"text": "Again."}]
            first = await peer.get(task["id"], historyLength=1)
            assert first["artifacts"] == task["artifacts"]
            assert [message["role"] for message in first["history"]] == ["ROLE_AGENT"]


async def test_a_stream_begins_with_the_task_and_ends_with_its_state() -> None:
    replies = [[say("Let me see."), call("look", {"place": "A"})], [say("It is "), say("empty.")]]
    with ScriptedModel(replies) as model:
        async with run_service(Agent(model, name="helper", tools=[look])) as running:
            peer = await make_client(running)
            items = await peer.stream("Where?")
            task = await peer.get(items[0]["task"]["id"])
    assert state_of(items[0]) == "WORKING"
    assert state_of(items[-1]) == "COMPLETED"
    assert items[-2]["artifactUpdate"]["lastChunk"]
    assert answer_of(items) == "It is empty." == task["artifacts"][0]["parts"][0]["text"]
    told = [
        item["statusUpdate"]["status"]["message"]["parts"][1]["data"]["call"]
        for item in items[1:-1]
        if "statusUpdate" in item
    ]
    assert [(each["name"], each["state"]) for each in told] == [
        ("look", "running"),
        ("look", "done"),
    ]
    # An agent is opaque: what a tool was given and what it returned stay inside.
    assert "A is empty" not in str(items)


@pytest.mark.parametrize("words", ["yes", "No."])
async def test_a_question_needs_input_and_a_message_answers_it(words: str) -> None:
    with ScriptedModel([[call("send", {"text": "hi"})], "Done."]) as model:
        agent = Agent(model, name="helper", tools=[send], gate=ask())
        async with run_service(agent) as running:
            peer = await make_client(running)
            asked = await peer.send("Send it")
            assert asked["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
            data = asked["status"]["message"]["parts"][-1]["data"]
            assert data["questions"][0]["arguments"] == {"text": "hi"}
            unclear = peer.make_message("Perhaps later", taskId=asked["id"])
            assert await peer.refuse("SendMessage", {"message": unclear}) == (
                -32602,
                "INVALID_PARAMS",
            )
            done = await peer.send(words, taskId=asked["id"])
            read = await peer.http.get(f"/runs/{asked['contextId']}")
    assert done["status"]["state"] == "TASK_STATE_COMPLETED"
    assert done["id"] == asked["id"]
    assert ("sent hi" in str(read.data)) == (words == "yes")


async def test_several_questions_are_answered_by_their_ids() -> None:
    first = [call("send", {"text": "a"}), call("send", {"text": "b"})]
    with ScriptedModel([first, "Done."]) as model:
        agent = Agent(model, name="helper", tools=[send], gate=ask())
        async with run_service(agent) as running:
            peer = await make_client(running)
            asked = await peer.send("Send both")
            message = peer.make_message("yes", taskId=asked["id"])
            assert (await peer.refuse("SendMessage", {"message": message}))[0] == -32602
            questions = asked["status"]["message"]["parts"][-1]["data"]["questions"]
            part = {"data": {"id": questions[0]["id"], "approved": True}}
            some = await peer.send(part, taskId=asked["id"])
            assert some["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
            denied = {"id": questions[1]["id"], "approved": False, "reason": "Not b."}
            items = await peer.stream({"data": {"answers": [denied]}}, taskId=asked["id"])
            read = await peer.http.get(f"/runs/{asked['contextId']}")
    assert state_of(items[-1]) == "COMPLETED"
    assert "sent a" in str(read.data)
    assert "sent b" not in str(read.data)
    assert "Not b." in str(read.data)


async def test_an_answer_from_elsewhere_counts_and_the_client_is_told() -> None:
    with ScriptedModel([[call("send", {"text": "hi"})], [pause(30), say("Done.")]]) as model:
        agent = Agent(model, name="helper", tools=[send], gate=ask())
        async with run_service(agent) as running:
            peer = await make_client(running)
            asked = await peer.send("Send it")
            listed = (await peer.http.get("/questions")).data["questions"][0]
            deny = {"verdict": "deny", "reason": "No."}
            body = {"call_id": listed["call_id"], "digest": listed["digest"], "answer": deny}
            await peer.http.post(f"/runs/{asked['contextId']}/answers", body)
            await asyncio.sleep(1)
            late = await peer.stream({"data": {"approved": True}}, taskId=asked["id"])
    told = late[0]["task"]["metadata"]["windlass"]["answeredElsewhere"]
    assert (told["answer"], told["by"]) == ("denied", "ann")
    assert state_of(late[-1]) == "COMPLETED"


async def test_a_client_that_comes_back_subscribes_to_the_task() -> None:
    with ScriptedModel([[say("It is "), pause(10), say("empty.")]]) as model:
        async with run_service(Agent(model, name="helper")) as running:
            peer = await make_client(running)
            message = peer.make_message("Where?")
            seen: list[dict[str, Any]] = []
            async with peer.open("SendStreamingMessage", {"message": message}) as items:
                async for item in items:
                    seen.append(item)
                    if "artifactUpdate" in item:
                        break
            name = seen[0]["task"]["id"]
            async with peer.open("SubscribeToTask", {"id": name}) as items:
                back = [item async for item in items]
            assert await peer.refuse("SubscribeToTask", {"id": name}) == (
                -32004,
                "UNSUPPORTED_OPERATION",
            )
    assert answer_of(back) == "It is empty."
    assert state_of(back[-1]) == "COMPLETED"


async def test_text_that_does_not_count_is_replaced() -> None:
    with ScriptedModel([[say("Wro"), cut()], "Right."]) as model:
        async with run_service(Agent(model, name="helper")) as running:
            peer = await make_client(running)
            items = await peer.stream("Hi")
    pieces = [item["artifactUpdate"] for item in items if "artifactUpdate" in item]
    assert "Wro" in "".join(piece["artifact"]["parts"][0]["text"] for piece in pieces)
    assert answer_of(items) == "Right."


async def test_a_cancel_ends_a_task_once() -> None:
    with ScriptedModel([[say("So"), pause(60), say("on")]]) as model:
        async with run_service(Agent(model, name="helper")) as running:
            peer = await make_client(running)
            begun = await peer.send("Hi", configuration={"returnImmediately": True})
            assert begun["status"]["state"] == "TASK_STATE_WORKING"
            await asyncio.sleep(1)
            ended = (await peer.call("CancelTask", {"id": begun["id"]}))["result"]
            assert ended["status"]["state"] == "TASK_STATE_CANCELED"
            assert await peer.refuse("CancelTask", {"id": begun["id"]}) == (
                -32002,
                "TASK_NOT_CANCELABLE",
            )
            message = peer.make_message("More", taskId=begun["id"])
            assert (await peer.refuse("SendMessage", {"message": message}))[0] == -32004


async def test_a_message_to_a_working_task_steers_it() -> None:
    with ScriptedModel(
        [[call("look", {"place": "A"})], [pause(5), say("Done.")]], pace_s=1
    ) as model:
        async with run_service(Agent(model, name="helper", tools=[look])) as running:
            peer = await make_client(running)
            begun = await peer.send("Look", configuration={"returnImmediately": True})
            done = await peer.send("Be quick", taskId=begun["id"])
            assert "Be quick" in str(model.prompts[1])
            busy = peer.make_message("Other", contextId=begun["contextId"])
    assert done["status"]["state"] == "TASK_STATE_COMPLETED"
    assert busy["contextId"]


async def test_failures_and_refusals_have_their_own_states() -> None:
    with ScriptedModel([[fail("auth")], [say("No."), refuse()]]) as model:
        async with run_service(Agent(model, name="helper")) as running:
            peer = await make_client(running)
            failed = await peer.send("Hi")
            assert failed["status"]["state"] == "TASK_STATE_FAILED"
            assert failed["status"]["message"]["parts"][1]["data"] == {"outcome": "failed"}
            rejected = await peer.send("Bad thing")
            assert rejected["status"]["state"] == "TASK_STATE_REJECTED"


async def test_a_pause_is_ended_by_a_clear_word() -> None:
    replies = [[call("look", {"place": "A"})], "Done."]
    with ScriptedModel(replies, pace_s=1) as model:
        async with run_service(Agent(model, name="helper", tools=[look])) as running:
            peer = await make_client(running)
            begun = await peer.send("Look", configuration={"returnImmediately": True})
            await peer.http.post(f"/runs/{begun['contextId']}/pause", {"reason": "Wait."})
            await asyncio.sleep(30)
            paused = await peer.get(begun["id"])
            assert paused["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
            message = peer.make_message("Hm", taskId=begun["id"])
            assert (await peer.refuse("SendMessage", {"message": message}))[0] == -32602
            done = await peer.send("yes", taskId=begun["id"])
    assert done["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_tasks_are_listed_by_context_and_state() -> None:
    with ScriptedModel(["One.", "Two.", [fail("auth")]]) as model:
        async with run_service(Agent(model, name="helper")) as running:
            peer = await make_client(running)
            one = await peer.send("1")
            two = await peer.send("2", contextId=one["contextId"])
            bad = await peer.send("3")
            every = await peer.list_tasks()
            assert {task["id"] for task in every["tasks"]} == {two["id"], bad["id"]}
            assert every["totalSize"] == 2
            page = await peer.list_tasks(
                contextId=one["contextId"], pageSize=1, includeArtifacts=True
            )
            assert [task["id"] for task in page["tasks"]] == [two["id"]]
            assert page["tasks"][0]["artifacts"]
            rest = await peer.list_tasks(
                contextId=one["contextId"], pageSize=1, pageToken=page["nextPageToken"]
            )
            assert [task["id"] for task in rest["tasks"]] == [one["id"]]
            assert rest["nextPageToken"] == ""
            failed = await peer.list_tasks(status="TASK_STATE_FAILED")
            assert [task["id"] for task in failed["tasks"]] == [bad["id"]]
            assert (await peer.list_tasks(status="TASK_STATE_AUTH_REQUIRED"))["tasks"] == []
            assert (await peer.refuse("ListTasks", {"pageSize": 1000}))[0] == -32602


@pytest.mark.contract("A4")
async def test_a_task_of_another_caller_does_not_exist() -> None:
    with ScriptedModel([[call("send", {"text": "hi"})]]) as model:
        agent = Agent(model, name="helper", tools=[send], gate=ask())
        async with run_service(agent) as running:
            ann = await make_client(running)
            task = await ann.send("Send it")
            bob = await make_client(running, "bob")
            for method in ("GetTask", "CancelTask", "SubscribeToTask"):
                assert await bob.refuse(method, {"id": task["id"]}) == (-32001, "TASK_NOT_FOUND")
            answer = bob.make_message("yes", taskId=task["id"])
            assert (await bob.refuse("SendMessage", {"message": answer}))[0] == -32001
            assert (await bob.list_tasks())["tasks"] == []
            assert (await bob.list_tasks(contextId=task["contextId"]))["tasks"] == []
            watcher = await make_client(running, roles=["watch"])
            assert (await watcher.get(task["id"]))["id"] == task["id"]
            answer = watcher.make_message("yes", taskId=task["id"])
            for method, params in (
                ("SendMessage", {"message": answer}),
                ("SendMessage", {"message": watcher.make_message("Hi")}),
                ("CancelTask", {"id": task["id"]}),
            ):
                body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
                refused = await watcher.http.post("/a2a/helper", body)
                assert (refused.status, refused.data["id"]) == (403, 1)


async def test_requests_that_are_not_of_the_protocol_are_refused() -> None:
    async with run_service(Agent(ScriptedModel([]), name="helper")) as running:
        peer = await make_client(running)
        assert await peer.refuse("message/send", {}) == (-32601, "METHOD_NOT_FOUND")
        for params in ({"id": 3}, ["x"], None):
            assert await peer.refuse("GetTask", params) == (-32602, "INVALID_PARAMS")
        assert await peer.refuse("GetTask", {"id": "nothing"}) == (-32001, "TASK_NOT_FOUND")
        old = await peer.refuse("GetTask", {"id": "x"}, **{"A2A-Version": "0.3"})
        assert old == (-32009, "VERSION_NOT_SUPPORTED")
        push = await peer.refuse("CreateTaskPushNotificationConfig", {})
        assert push == (-32003, "PUSH_NOTIFICATION_NOT_SUPPORTED")
        assert (await peer.refuse("GetExtendedAgentCard", {}))[0] == -32007
        for body, code in ((b"{", -32700), (b"[]", -32600), (b'{"jsonrpc":"1.0"}', -32600)):
            refused = await peer.http.post("/a2a/helper", body)
            assert (refused.data["error"]["code"], refused.data["id"]) == (code, None)
        picture = {"message": peer.make_message({"raw": "!", "mediaType": "image/png"})}
        assert (await peer.refuse("SendMessage", picture))[0] == -32602
        sound = {"acceptedOutputModes": ["audio/mpeg"]}
        wanted = {"message": peer.make_message("Sing"), "configuration": sound}
        assert (await peer.refuse("SendMessage", wanted))[0] == -32005


async def test_an_agent_has_a_card() -> None:
    agents = [
        Agent(ScriptedModel([]), name="helper", tools=[look], instructions="Secret words."),
        Agent(ScriptedModel([]), name="other"),
    ]
    async with run_service(agents) as running:
        http = await running.make_client()
        for path, name in (("", "helper"), ("/a2a", "helper"), ("/a2a/other", "other")):
            card = (await http.get(f"{path}/.well-known/agent-card.json")).data
            read = ParseDict(card, AgentCard())
            assert read.supported_interfaces[0].url == f"http://localhost/a2a/{name}"
            assert read.capabilities.streaming
            assert "Secret" not in str(card)
        assert (await http.get("/a2a/nobody/.well-known/agent-card.json")).status != 200


@pytest.mark.contract("A2")
async def test_a_client_that_leaves_while_it_waits_leaves_the_run_alone() -> None:
    with ScriptedModel([[say("So"), pause(30), say(" on.")]]) as model:
        async with run_service(Agent(model, name="helper")) as running:
            peer = await make_client(running)
            params = {"message": peer.make_message("Hi")}
            body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
            request = peer.http.make_request("POST", peer.path, body)
            answering = asyncio.create_task(running.dispatcher.handle(request))
            await asyncio.sleep(1)
            request.mark_disconnected()
            await asyncio.wait_for(answering, 1)
            task = (await peer.list_tasks())["tasks"][0]
            assert task["status"]["state"] == "TASK_STATE_WORKING"
            await asyncio.sleep(60)
            assert (await peer.get(task["id"]))["artifacts"][0]["parts"] == [{"text": "So on."}]


@pytest.mark.contract("A1")
async def test_any_replica_goes_on_with_a_task() -> None:
    replies = [[call("send", {"text": "hi"})], [say("Sent"), pause(10), say(" it.")]]
    journal = MemoryJournal()
    with ScriptedModel(replies) as model:
        agents = [Agent(model, name="helper", tools=[send], gate=ask()) for _ in range(2)]
        async with (
            run_service(agents[0], journal=journal) as one,
            run_service(agents[1], journal=journal) as two,
        ):
            here = await make_client(one)
            there = await make_client(two)
            asked = await here.send("Send it")
            assert (await there.get(asked["id"]))["status"] == asked["status"]
            answer = there.make_message("yes", taskId=asked["id"])
            async with there.open("SendStreamingMessage", {"message": answer}) as items:
                async for item in items:
                    if "artifactUpdate" in item:
                        break
            async with here.open("SubscribeToTask", {"id": asked["id"]}) as items:
                rest = [item async for item in items]
    assert answer_of(rest) == "Sent it."
    assert state_of(rest[-1]) == "COMPLETED"
