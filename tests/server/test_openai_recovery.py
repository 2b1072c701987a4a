"""A response goes on at another replica, and after the service was killed."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from openai import APIError, AsyncOpenAI

from openai_agents import MODEL, WORDS, HelperAgent
from service import listen_service
from windlass.journals import SqliteJournal

SUPPORT = Path(__file__).resolve().parents[1] / "support"
APP = "from openai_agents import HelperAgent\nagents = [HelperAgent(pause_s=0.3).agent]\n"
pytestmark = [pytest.mark.slow, pytest.mark.realtime, pytest.mark.timeout(120)]


async def read_events(stream: Any, most: int = 10_000) -> list[Any]:
    events: list[Any] = []
    async for event in stream:
        events.append(event)
        if len(events) >= most:
            break
    await stream.close()
    return events


def check_numbers(events: list[Any]) -> None:
    numbers = [event.sequence_number for event in events]
    assert all(earlier < later for earlier, later in pairwise(numbers))


def join_texts(events: list[Any]) -> dict[str, str]:
    """Return the text of each message as its deltas gave it."""
    texts: dict[str, str] = {}
    for event in events:
        if event.type == "response.output_text.delta":
            texts[event.item_id] = texts.get(event.item_id, "") + event.delta
    return texts


@dataclass
class Replicas:
    """Two services on one journal, with a client of each."""

    first: AsyncOpenAI
    second: AsyncOpenAI


@asynccontextmanager
async def run_replicas(folder: Path) -> AsyncGenerator[Replicas]:
    path = folder / "windlass.db"
    with SqliteJournal(path) as one, SqliteJournal(path) as other:
        async with (
            listen_service(HelperAgent(0.2).agent, journal=one) as first,
            listen_service(HelperAgent(0.2).agent, journal=other) as second,
        ):
            token = await first.make_token("ann")
            urls = [f"{replica.address}/v1" for replica in (first, second)]
            clients = [AsyncOpenAI(api_key=token, base_url=url) for url in urls]
            async with clients[0], clients[1]:
                yield Replicas(*clients)


@pytest.mark.contract("A1", "A6")
async def test_a_stream_goes_on_at_another_replica(tmp_path: Path) -> None:
    async with run_replicas(tmp_path) as at:
        stream = await at.first.responses.create(
            model=MODEL, input="Count.", background=True, stream=True
        )
        seen = await read_events(stream, 7)
        rest = await at.second.responses.retrieve(
            seen[0].response.id, stream=True, starting_after=seen[-1].sequence_number
        )
        seen += await read_events(rest)
        check_numbers(seen)
        assert [text.split() for text in join_texts(seen).values()] == [WORDS.split()]
        assert seen[-1].type == "response.completed"
        whole = await at.second.responses.retrieve(seen[0].response.id)
        assert whole == await at.first.responses.retrieve(whole.id)
        followed = await at.second.responses.create(
            model=MODEL, input="Recall.", previous_response_id=whole.id
        )
        assert followed.output_text == "Count."


@pytest.mark.contract("A1", "A6")
async def test_a_response_is_cancelled_at_another_replica(tmp_path: Path) -> None:
    async with run_replicas(tmp_path) as at:
        created = await at.first.responses.create(model=MODEL, input="Wait.", background=True)
        cancelled = await at.second.responses.cancel(created.id)
        assert cancelled.status == "cancelled"


@dataclass
class ServedProcess:
    """`windlass serve` as a process of its own."""

    process: asyncio.subprocess.Process
    address: str
    token: str


async def start_process(folder: Path) -> ServedProcess:
    (folder / "app.py").write_text(APP, "utf-8")
    home = {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    environ = {**os.environ, **home, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(SUPPORT)}
    command = ("serve", "app:agents", "--port", "0", "--journal", str(folder / "windlass.db"))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "windlass.cli", *command),
        cwd=folder,
        env=environ,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    printed = ""
    while not re.search("Token, |For programs", printed):
        line = await asyncio.wait_for(process.stdout.readline(), 30)
        assert line, "the service ended"
        printed += line.decode()
    address = re.findall(r"^Serving helper at (\S+)$", printed, re.MULTILINE)[0]
    tokens = re.findall(r"^Token, shown only now: (\S+)$", printed, re.MULTILINE)
    return ServedProcess(process, address, tokens[0] if tokens else "")


async def read_until_stopped(
    served: ServedProcess, events: int, number: signal.Signals
) -> list[Any]:
    """Start a response, and stop the service by a signal after some events of it."""
    seen: list[Any] = []
    url = f"{served.address}/v1"
    async with AsyncOpenAI(api_key=served.token, base_url=url, max_retries=0) as client:
        stream = await client.responses.create(
            model=MODEL, input="Count.", background=True, stream=True
        )
        with suppress(APIError):
            async for event in stream:
                seen.append(event)
                if len(seen) == events:
                    served.process.send_signal(number)
    await served.process.wait()
    return seen


@pytest.mark.contract("A3", "A6")
async def test_a_service_that_is_asked_to_end_finishes_its_replies(tmp_path: Path) -> None:
    """A deploy cuts no reply, so that nothing is paid for twice."""
    served = await start_process(tmp_path)
    seen = await read_until_stopped(served, 7, signal.SIGTERM)
    assert seen[-1].type == "response.completed"
    assert [item.status for item in seen[-1].response.output] == ["completed"]
    assert seen[-1].response.output_text.split() == WORDS.split()


@pytest.mark.contract("A3", "A6")
async def test_a_response_survives_the_end_of_its_service(tmp_path: Path) -> None:
    """What the stopped attempt had said stays an incomplete message; the next one is whole."""
    served = await start_process(tmp_path)
    seen = await read_until_stopped(served, 7, signal.SIGKILL)
    assert seen[-1].type == "response.output_text.delta"
    again = await start_process(tmp_path)
    try:
        url = f"{again.address}/v1"
        async with AsyncOpenAI(api_key=served.token, base_url=url) as client:
            rest = await client.responses.retrieve(
                seen[0].response.id, stream=True, starting_after=seen[-1].sequence_number
            )
            seen += await read_events(rest)
    finally:
        again.process.terminate()
        await again.process.wait()
    check_numbers(seen)
    final = seen[-1].response
    assert final.status == "completed"
    assert [item.status for item in final.output] == ["incomplete", "completed"]
    assert final.output_text.split() == WORDS.split()
    assert join_texts(seen)[final.output[1].id].split() == WORDS.split()
