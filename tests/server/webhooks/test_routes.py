"""Webhooks and links over HTTP: made by their owners, and leading to exactly one question."""

import asyncio
import re
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from aiohttp import web

from service import Answer, DirectClient, RunningService, run_service
from windlass import Agent, tool
from windlass.gates import ask
from windlass.server.background import OutsideSettings
from windlass.server.messages import HttpReply
from windlass.server.webhooks import question_page
from windlass.server.webhooks.links import AnswerLink, make_link
from windlass.server.webhooks.signing import verify_webhook
from windlass.server.webhooks.store import NewWebhook, WebhookStore
from windlass.testing import ScriptedModel, call, say

pytestmark = [pytest.mark.contract("A7"), pytest.mark.realtime]
PUBLIC = OutsideSettings(public_url="https://agents.example", webhook_hosts=("127.0.0.1",))
sent: list[str] = []


@tool
def send(text: str) -> str:
    """Send a text."""
    sent.append(text)
    return f"sent {text}"


def asking_agent(text: str = "<b>hi</b>") -> Agent[str]:
    sent.clear()
    model = ScriptedModel([[call("send", {"text": text})], [say("Done.")]])
    return Agent(model, name="helper", tools=[send], gate=ask())


@asynccontextmanager
async def asked() -> AsyncGenerator[tuple[RunningService, DirectClient, str, str]]:
    """Yield a service with a question that waits, a client of its owner, and a link's path."""
    async with run_service(asking_agent(), outside=PUBLIC) as service:
        ann = await service.make_client("ann")
        session = (await ann.post("/runs", {"prompt": "Send it."})).data["session"]
        await poll_questions(ann)
        yield service, ann, session, await link_path(service, ann)


async def poll_questions(client: DirectClient) -> None:
    while True:
        if (await client.get("/questions")).data["questions"]:
            return
        await asyncio.sleep(0.05)


async def wait_for_messages(received: list[Any], count: int) -> None:
    while True:
        if len(received) >= count:
            return
        await asyncio.sleep(0.05)


async def link_path(service: RunningService, client: DirectClient, **changes: Any) -> str:
    """The path of a link to the question that waits; `changes` are of the link."""
    store = WebhookStore(service.service.journal, time.time)
    try:
        hook = await store.get("links", "ann")
    except Exception:  # noqa: BLE001 - the first link of this service
        new = NewWebhook(name="links", url="https://example.com/", owner="ann")
        hook = await store.create_webhook(new)
    (question,) = (await client.get("/questions")).data["questions"]
    fields = {
        "hook": "ann.links",
        "session": question["session"],
        "call_id": question["call_id"],
        "digest": question["digest"],
        "expires": int(time.time()) + 60,
    }
    return urlsplit(make_link(hook, "https://x", AnswerLink(**{**fields, **changes}))).path


async def open_page(
    service: RunningService, path: str, body: bytes | None = None
) -> tuple[int, str, HttpReply]:
    """What somebody without any token gets from a link."""
    stranger = DirectClient(service.dispatcher)
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    method = "GET" if body is None else "POST"
    reply = await stranger.send(method, path, body, headers)
    assert isinstance(reply, HttpReply)
    return reply.status, reply.encode_body().decode(), reply


async def wait_ended(client: DirectClient, session: str) -> Answer:
    while True:
        run = await client.get(f"/runs/{session}")
        if run.data["summary"]["state"] not in ("open", "waiting"):
            return run
        await asyncio.sleep(0.05)


async def test_a_link_shows_its_question_and_answers_it_once() -> None:
    async with asked() as (service, ann, session, path):
        status, page, reply = await open_page(service, path)
        assert status == 200
        assert "&lt;b&gt;hi&lt;/b&gt;" in page
        assert "<b>" not in page
        assert "script" not in page
        policy = reply.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        # A preview of the link changes nothing.
        await open_page(service, path)
        assert sent == []
        status, page, _ = await open_page(service, path, b"answer=allow")
        assert (status, "allowed" in page) == (200, True)
        await wait_ended(ann, session)
        assert sent == ["<b>hi</b>"]
        assert (await open_page(service, path))[0] == 410
        for body in (b"answer=deny", b"answer=allow"):
            status, page, _ = await open_page(service, path, body)
            assert (status, "The call was allowed by" in page) == (409, True)
        assert sent == ["<b>hi</b>"]


@pytest.mark.contract("G6", "D4")
async def test_of_many_answers_by_one_link_each_reply_says_what_counts() -> None:
    """Of both kinds, at the same moment: one is thanked, and the others read its decision."""
    async with asked() as (service, ann, session, path):
        bodies = [b"answer=allow", b"answer=deny&reason=no"] * 6
        pages = await asyncio.gather(*(open_page(service, path, body) for body in bodies))
        run = await wait_ended(ann, session)
        assert sorted(status for status, _, _ in pages) == [200, *[409] * 11]
        was_sent = sent == ["<b>hi</b>"]
        words = "allowed" if was_sent else "denied"
        assert all(words in page for _, page, _ in pages), pages
        assert ("Denied" in msgspec.json.encode(run.data["entries"]).decode()) != was_sent


async def test_a_link_can_deny_with_a_reason() -> None:
    async with asked() as (service, ann, session, path):
        status, page, _ = await open_page(service, path, b"answer=deny&reason=not+today")
        assert (status, "denied" in page) == (200, True)
        run = await wait_ended(ann, session)
        assert "not today" in msgspec.json.encode(run.data["entries"]).decode()
        assert sent == []


async def test_a_link_that_was_changed_is_no_link() -> None:
    async with asked() as (service, ann, _, path):
        code = path.removeprefix("/ask/")
        payload, _, signature = code.partition(".")
        wrong = [
            f"/ask/{payload}.{'A' * len(signature)}",
            f"/ask/{payload}",
            f"/ask/{payload[:-4]}.{signature}",
            "/ask/x.y",
            f"/ask/{'A' * 5_000}",
        ]
        for place in wrong:
            for body in (None, b"answer=allow"):
                assert (await open_page(service, place, body))[0] == 404
        for changes in ({"digest": "0" * 64}, {"call_id": "other"}):
            other = await link_path(service, ann, **changes)
            assert (await open_page(service, other, b"answer=allow"))[0] == 410
        expired = await link_path(service, ann, expires=int(time.time()) - 1)
        assert (await open_page(service, expired, b"answer=allow"))[0] == 410
        no_answer = await open_page(service, path, b"answer=maybe")
        assert no_answer[0] == 422
        assert sent == []
        # With its webhook, a link is withdrawn.
        assert (await ann.ask("DELETE", "/webhooks/links")).status == 204
        assert (await open_page(service, path, b"answer=allow"))[0] == 404
        assert sent == []


async def test_a_link_leads_to_nothing_of_another_owner() -> None:
    async with asked() as (service, ann, _, path):
        store = WebhookStore(service.service.journal, time.time)
        new = NewWebhook(name="evil", url="https://example.com/", owner="bob")
        hook = await store.create_webhook(new)
        (question,) = (await ann.get("/questions")).data["questions"]
        link = AnswerLink(
            "bob.evil",
            question["session"],
            question["call_id"],
            question["digest"],
            int(time.time()) + 60,
        )
        forged = urlsplit(make_link(hook, "https://x", link)).path
        assert (await open_page(service, forged, b"answer=allow"))[0] == 404
        assert sent == []
        assert (await open_page(service, path))[0] == 200


def test_the_style_of_the_page_is_the_one_that_is_allowed() -> None:
    page = question_page._page(200, "t", "x").encode_body().decode()
    found = re.search("<style>(.*)</style>", page)
    assert found is not None
    assert found[1] == question_page.STYLE


async def test_a_webhook_is_made_read_and_deleted_by_its_owner_only() -> None:
    async with run_service(asking_agent(), outside=PUBLIC) as service:
        ann = await service.make_client("ann")
        bob = await service.make_client("bob")
        body = {"name": "phone", "url": "http://127.0.0.1:9/x", "format": "ntfy"}
        made = await ann.post("/webhooks", body)
        assert made.status == 201
        assert made.data["secret"].startswith("whsec_")
        read = await ann.get("/webhooks/phone")
        assert read.data["secret"] is None
        assert read.data["name"] == "ann.phone"
        for method, path in (
            ("GET", "/webhooks/ann.phone"),
            ("DELETE", "/webhooks/phone"),
            ("POST", "/webhooks/ann.phone/test"),
            ("POST", "/webhooks/ann.phone/enable"),
        ):
            answer = await bob.ask(method, path, {} if method == "POST" else None)
            assert (answer.status, answer.data["error"]["code"]) == (404, "webhook_not_found")
        assert (await bob.get("/webhooks")).data["webhooks"] == []
        starter = await service.make_client("ann", ["start", "watch"])
        assert (await starter.post("/webhooks", body)).status == 403
        assert (await ann.ask("DELETE", "/webhooks/phone")).status == 204


@pytest.mark.contract("T13")
@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/hook",
        "http://localhost:8420/runs",
        "http://169.254.169.254/latest/meta-data",
        "http://[::1]/",
        "http://10.0.0.7/",
        "http://127.1/",
        "ftp://example.com/",
        "https://user:secret@example.com/",
        "not a url",
    ],
)
async def test_an_address_inside_of_the_network_is_refused(url: str) -> None:
    async with run_service(asking_agent()) as service:
        ann = await service.make_client("ann")
        made = await ann.post("/webhooks", {"name": "h", "url": url})
        assert (made.status, made.data["error"]["code"]) == (422, "address_refused")
        assert (await ann.get("/webhooks")).data["webhooks"] == []


@pytest.mark.parametrize(
    "change",
    [
        {"headers": {"Host": "x"}},
        {"headers": {"webhook-signature": "x"}},
        {"headers": {"X": "a\r\nB: c"}},
        {"events": []},
        {"events": ["everything"]},
        {"name": "a/b"},
        {"secret": "short"},
    ],
)
async def test_settings_that_cannot_be_used_are_told(change: dict[str, Any]) -> None:
    async with run_service(asking_agent(), outside=PUBLIC) as service:
        ann = await service.make_client("ann")
        body = {"name": "h", "url": "http://127.0.0.1:9/", **change}
        assert (await ann.post("/webhooks", body)).status == 422


@asynccontextmanager
async def receiver(statuses: list[int]) -> AsyncGenerator[tuple[str, list[Any]]]:
    """A program that takes webhooks, and answers with these statuses first."""
    received: list[Any] = []

    async def take(request: web.Request) -> web.Response:
        received.append((dict(request.headers), await request.read()))
        return web.Response(status=statuses.pop(0) if statuses else 204)

    app = web.Application()
    app.router.add_post("/hook", take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/hook", received
    finally:
        await runner.cleanup()


@pytest.mark.slow
async def test_a_receiver_gets_signed_messages_in_order_and_a_link() -> None:
    async with (
        receiver([500]) as (url, received),
        run_service(asking_agent(), outside=PUBLIC) as service,
    ):
        ann = await service.make_client("ann")
        made = await ann.post("/webhooks", {"name": "h", "url": url})
        test = await ann.post("/webhooks/h/test")
        assert test.data == {"delivered": False, "error": "the receiver answered with status 500"}
        session = (await ann.post("/runs", {"prompt": "Send it."})).data["session"]
        await wait_for_messages(received, 2)
        headers, data = received[1]
        lower = {name.lower(): value for name, value in headers.items()}
        verify_webhook(made.data["secret"], lower, data, time.time())
        message = msgspec.json.decode(data)
        assert message["type"] == "question.asked"
        assert message["data"]["session"] == session
        link = message["data"]["link"]
        assert link.startswith("https://agents.example/ask/")
        status, _, _ = await open_page(service, urlsplit(link).path, b"answer=allow")
        assert status == 200
        await wait_for_messages(received, 3)
        ended = msgspec.json.decode(received[2][1])
        assert (ended["type"], ended["data"]["outcome"]) == ("run.ended", "completed")
        assert len({headers["webhook-id"] for headers, _ in received}) == 3


@pytest.mark.slow
async def test_a_push_service_gets_a_line_of_text() -> None:
    async with (
        receiver([]) as (url, received),
        run_service(asking_agent(), outside=PUBLIC) as service,
    ):
        ann = await service.make_client("ann")
        body = {
            "name": "phone",
            "url": url,
            "format": "ntfy",
            "headers": {"Authorization": "Bearer tk_123"},
            "events": ["question"],
        }
        await ann.post("/webhooks", body)
        await ann.post("/runs", {"prompt": "Send it."})
        await wait_for_messages(received, 1)
        headers, data = received[0]
        assert "asks whether to run send" in data.decode()
        assert headers["Title"] == "Windlass asks"
        assert headers["Priority"] == "high"
        assert headers["Click"].startswith("https://agents.example/ask/")
        assert headers["Authorization"] == "Bearer tk_123"
