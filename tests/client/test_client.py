"""The client library against a real service: runs, streams, questions, schedules, lost replies."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from printed_pages import read_block
from service import RunningService, listen_service
from service_process import free_port, make_token, serve_process
from windlass import Agent, tool
from windlass.client import (
    AsyncClient,
    Client,
    IntervalBody,
    ScheduleBody,
    ServiceError,
    Snapshot,
)
from windlass.core.events import RunEnded, RunStarted, TextDelta
from windlass.core.question import Question
from windlass.core.verdicts import Allow, Deny
from windlass.gates import ask
from windlass.testing import ScriptedModel, call, pause, say

pytestmark = [pytest.mark.slow, pytest.mark.contract("A14"), pytest.mark.one_process]
Scene = Callable[[RunningService, AsyncClient], Awaitable[None]]


@tool
def send(text: str) -> str:
    """Send a text."""
    return f"sent {text}"


def play(agent: Agent[str], scene: Scene) -> None:
    """Play a scene with a service on a socket, and a client of it."""

    async def main() -> None:
        async with listen_service(agent) as running:
            token = await running.make_token("ann")
            async with AsyncClient(running.address, token, retry_s=5.0) as client:
                await scene(running, client)

    asyncio.run(main())


def test_a_run_is_started_watched_and_found() -> None:
    """A14: events are the structs of the package, and each fact comes once."""

    async def scene(_running: RunningService, client: AsyncClient) -> None:
        started = await client.start("Say hello.", session="s", tags={"team": "billing"})
        events = [event async for event in client.watch(started.session)]
        assert isinstance(events[0], Snapshot)
        facts = [event.seq for event in events if not isinstance(event, Snapshot) and not event.nth]
        assert facts == list(range(1, facts[-1] + 1))
        assert isinstance(events[-1], RunEnded)
        shown = [each.text for each in events if isinstance(each, Snapshot | TextDelta)]
        assert "".join(shown) == "Hello."
        found = await client.list_sessions(tags={"team": "billing"}, state=["completed"])
        assert [each.session for each in found.sessions] == [started.session]
        assert (await client.list_sessions(text="nothing like it")).sessions == []
        read = await client.wait(started.session)
        assert read.run is not None
        assert (read.run.outcome, read.run.text) == ("completed", "Hello.")

    with ScriptedModel([[say("Hel"), pause(0.2), say("lo.")]]) as model:
        play(Agent(model, name="helper"), scene)


def test_questions_are_listed_and_answered() -> None:
    async def scene(_running: RunningService, client: AsyncClient) -> None:
        started = await client.start("Send two.")
        waiting: list[Question] = []
        async for _ in client.watch(started.session, follow=True):
            waiting = (await client.list_questions()).questions
            if len(waiting) == 2:
                break
        first, second = waiting
        left = await client.answer(first.session, first.call_id, Allow(), digest=first.digest)
        assert [each.call_id for each in left.questions] == [second.call_id]
        await client.answer(second.session, second.call_id, Deny("no"), digest=second.digest)
        read = await client.wait(started.session)
        assert read.run is not None
        assert read.run.text == "Done."
        with pytest.raises(ServiceError) as refused:
            await client.answer(first.session, first.call_id, Allow(), digest=first.digest)
        assert refused.value.status == 409

    replies = [[call("send", {"text": "a"}), call("send", {"text": "b"})], "Done."]
    with ScriptedModel(replies) as model:
        play(Agent(model, name="helper", tools=[send], gate=ask()), scene)


def test_a_run_is_paused_resumed_steered_and_cancelled() -> None:
    async def scene(_running: RunningService, client: AsyncClient) -> None:
        started = await client.start("Go on for long.")
        assert (await client.pause(started.session, "lunch")).session == started.session
        assert (await client.resume(started.session)).session == started.session
        assert (await client.steer(started.session, "Faster.")).session == started.session
        await client.cancel(started.session, "enough")
        read = await client.wait(started.session)
        assert read.run is not None
        assert read.run.outcome == "cancelled"
        with pytest.raises(ServiceError, match="no session") as missing:
            await client.read_session("nobody's")
        assert (missing.value.status, missing.value.code) == (404, "session_not_found")

    model = ScriptedModel([[say("Long"), pause(30)]] * 3)
    play(Agent(model, name="helper"), scene)


def test_schedules_are_made_paused_and_deleted() -> None:
    async def scene(_running: RunningService, client: AsyncClient) -> None:
        body = ScheduleBody(name="daily", prompt="Report.", times=IntervalBody(86_400))
        made = await client.create_schedule(body)
        assert [each.name for each in (await client.list_schedules()).schedules] == [made.name]
        assert (await client.pause_schedule(made.name, "holidays")).is_paused
        assert not (await client.resume_schedule(made.name)).is_paused
        assert (await client.read_schedule(made.name)).prompt == "Report."
        await client.delete_schedule(made.name)
        assert (await client.list_schedules()).schedules == []

    play(Agent(ScriptedModel([]), name="helper"), scene)


def test_a_program_without_a_loop_uses_the_same_client(tmp_path: Path) -> None:
    """A14: also from a thread that has a loop of its own, such as that of a notebook."""
    port = free_port()
    token = asyncio.run(make_token(str(tmp_path / "sessions.db")))
    with serve_process(tmp_path, port) as service, Client(service.address, token) as client:
        started = client.start("Write.", session="s")
        seen = list(client.watch(started.session))
        assert isinstance(seen[-1], RunEnded)

        async def inside() -> str:
            return client.read_session("s").session

        assert asyncio.run(inside()) == started.session
        assert client.list_questions().questions == []


def test_the_page_of_the_client_works_as_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token = asyncio.run(make_token(str(tmp_path / "sessions.db")))
    with serve_process(tmp_path, free_port()) as service:
        for beginning in ("from windlass.client import Client", "import asyncio"):
            code = read_block("client.md", beginning)
            code = code.replace("http://127.0.0.1:8420", service.address).replace("wl_…", token)
            exec(compile(code, "client.md", "exec"), {"__name__": "__main__"})
            printed = capsys.readouterr().out
            assert "All done." in printed, printed


def test_a_watcher_stays_with_a_service_that_is_killed(tmp_path: Path) -> None:
    """A14, A2: it connects again by itself, and gets every fact once."""
    port = free_port()
    token = asyncio.run(make_token(str(tmp_path / "sessions.db")))

    def watch() -> list[int]:
        seen: list[int] = []
        with serve_process(tmp_path, port) as first:
            client = Client(first.address, token, retry_s=40.0)
            started = client.start("Write four lines.")
            events = client.watch(started.session)
            while len(seen) < 8:
                event = next(events)
                if not isinstance(event, Snapshot) and not event.nth:
                    seen.append(event.seq)
            first.kill()
            # A change that is made meanwhile waits for the service as well.
            with serve_process(tmp_path, port):
                last = None
                for event in events:
                    last = event
                    if not isinstance(event, Snapshot) and not event.nth:
                        seen.append(event.seq)
                assert isinstance(last, RunEnded)
                client.close()
        return seen

    seen = watch()
    assert seen == list(range(1, seen[-1] + 1))


def test_a_start_whose_reply_is_lost_is_made_once() -> None:
    """A14: the request is sent again under the same key."""

    async def scene(running: RunningService, _client: AsyncClient) -> None:
        host, _, port = running.address.removeprefix("http://").rpartition(":")
        lost = 0

        async def cut_first_reply(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter
        ) -> None:
            nonlocal lost
            upstream, sent = await asyncio.open_connection(host, int(port))
            sent.write(await reader.read(2**16))
            reply = await upstream.read(2**16)
            if lost == 0:
                lost += 1
            else:
                writer.write(reply)
            writer.close()
            sent.close()

        proxy = await asyncio.start_server(cut_first_reply, "127.0.0.1", 0)
        address = f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
        token = await running.make_token("bob")
        client = AsyncClient(address, token, retry_s=10.0)
        started = await client.start("Hi.")
        assert lost == 1
        proxy.close()
        direct = AsyncClient(running.address, token)
        found = await direct.list_sessions()
        assert [(each.session, each.runs) for each in found.sessions] == [(started.session, 1)]
        begun = [event async for event in direct.watch(started.session)]
        assert sum(isinstance(event, RunStarted) for event in begun) == 1

    with ScriptedModel(["Hello."]) as model:
        play(Agent(model, name="helper"), scene)


def test_a_service_that_is_not_there_is_reported() -> None:
    client = AsyncClient(f"http://127.0.0.1:{free_port()}", "t", retry_s=0.0)
    with pytest.raises(ServiceError, match="cannot be reached") as error:
        asyncio.run(client.list_sessions())
    assert (error.value.status, error.value.code) == (0, "unreachable")
