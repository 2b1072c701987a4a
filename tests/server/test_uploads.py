"""Uploads: sent once, named in prompts, the caller's own, bounded, and gone after a day."""

import asyncio
from typing import Any

import pytest

from service import run_service
from windlass import Agent, FilePart, ImagePart, UserMessage
from windlass.core.view import Prompt
from windlass.journals import MemoryJournal
from windlass.server.access import Caller
from windlass.server.errors import ApiError
from windlass.server.limits import ServiceLimits
from windlass.server.uploads import CHUNK_BYTES, DATA_KIND, UploadStore
from windlass.testing import ScriptedModel, VirtualClock

pytestmark = pytest.mark.contract("A4", "A5")
PNG = b"\x89PNG\r\n\x1a\n" + b"picture" * 10
IMAGE = {"Content-Type": "image/png"}
PDF = {"Content-Type": "application/pdf; version=1"}


def describe_parts(prompt: Prompt) -> str:
    """Say what the model got."""
    last = [message for message in prompt.messages if isinstance(message, UserMessage)][-1]
    found: list[str] = []
    for part in last.parts:
        if isinstance(part, ImagePart):
            found.append(f"{part.media_type} {len(part.data or b'')}")
        elif isinstance(part, FilePart):
            found.append(f"{part.name} {part.media_type} {len(part.data or b'')}")
    return ", ".join(found)


def make_agent() -> Agent[str]:
    return Agent(ScriptedModel([describe_parts] * 20), name="viewer")


async def read_reply(client: Any, session: str) -> str:
    while True:
        read = (await client.get(f"/runs/{session}")).data
        if read["summary"]["state"] == "completed":
            return read["run"]["text"]
        await asyncio.sleep(0.1)


async def test_a_prompt_names_uploads_by_their_address() -> None:
    pdf = b"%PDF-" + b"x" * (2 * CHUNK_BYTES)
    async with run_service(make_agent()) as running:
        ann = await running.make_client("ann")
        made = await ann.ask("POST", "/uploads?name=plan.png", PNG, IMAGE)
        assert (made.status, made.data["media_type"]) == (201, "image/png")
        assert made.headers["Location"] == f"/uploads/{made.data['id']}"
        file = await ann.ask("POST", "/uploads?name=plan.pdf", pdf, PDF)
        assert file.data["bytes"] == len(pdf)
        prompt = [
            {"type": "text", "text": "Compare."},
            {"type": "image", "media_type": "", "url": made.data["url"]},
            {"type": "file", "media_type": "", "name": "", "url": file.data["url"]},
        ]
        await ann.post("/runs", {"prompt": prompt, "session": "s"})
        seen = await read_reply(ann, "s")
        assert seen == f"image/png {len(PNG)}, plan.pdf application/pdf {len(pdf)}"
        listed = (await ann.get("/uploads")).data["uploads"]
        assert {one["id"] for one in listed} == {made.data["id"], file.data["id"]}
        # The run has a copy of its own: it can be read when the upload is gone.
        for one in listed:
            assert (await ann.ask("DELETE", f"/uploads/{one['id']}")).status == 204
        again = await ann.post("/runs", {"prompt": prompt, "session": "t"})
        assert (again.status, again.data["error"]["code"]) == (404, "upload_not_found")
        assert await read_reply(ann, "s") == seen
        assert not await running.service.journal.list_records(DATA_KIND)


async def test_clients_of_openai_name_them_as_files() -> None:
    async with run_service(make_agent()) as running:
        ann = await running.make_client("ann")
        made = (await ann.ask("POST", "/uploads", PNG, IMAGE)).data
        content = [{"type": "input_image", "file_id": made["id"]}]
        body = {"model": "viewer", "input": [{"role": "user", "content": content}]}
        reply = await ann.post("/v1/responses", body)
        assert reply.data["output"][0]["content"][0]["text"] == f"image/png {len(PNG)}"
        chat = [{"type": "image_url", "image_url": {"url": made["url"]}}]
        body = {"model": "viewer", "messages": [{"role": "user", "content": chat}]}
        reply = await ann.post("/v1/chat/completions", body)
        assert reply.data["choices"][0]["message"]["content"] == f"image/png {len(PNG)}"
        bob = await running.make_client("bob")
        stolen = await bob.post("/v1/chat/completions", body)
        assert (stolen.status, stolen.data["error"]["code"]) == (404, "upload_not_found")


async def test_an_upload_that_is_sent_again_with_its_key_is_one() -> None:
    async with run_service(make_agent()) as running:
        ann = await running.make_client("ann")
        headers = {**IMAGE, "Idempotency-Key": "mine"}
        ids = {(await ann.ask("POST", "/uploads", PNG, headers)).data["id"] for _ in range(2)}
        assert len(ids) == 1
        other = await ann.ask("POST", "/uploads", PNG + b"!", headers)
        assert other.data["error"]["code"] == "idempotency_key_reused"


@pytest.mark.parametrize(
    ("path", "data", "kind"),
    [
        ("/uploads", b"", "image/png"),
        ("/uploads", PNG, "picture"),
        ("/uploads", PNG, "image/" + "x" * 100),
        ("/uploads?name=", PNG, "image/png"),
        ("/uploads?name=a\nb", PNG, "image/png"),
        ("/uploads?name=" + "x" * 300, PNG, "image/png"),
    ],
)
async def test_what_is_not_a_file_is_refused(path: str, data: bytes, kind: str) -> None:
    async with run_service(make_agent()) as running:
        ann = await running.make_client("ann")
        refused = await ann.ask("POST", path, data, {"Content-Type": kind})
        assert refused.status == 422
        assert (await ann.get("/uploads")).data["uploads"] == []


async def test_uploads_are_bounded_and_expire(clock: VirtualClock) -> None:
    journal = MemoryJournal(now=clock.now)
    limits = ServiceLimits(uploads_bytes=250, upload_kept_s=100.0)
    store = UploadStore(journal, limits, clock.now)
    ann = Caller("ann", frozenset({"start"}))
    first = await store.keep(ann, b"x" * 100, "text/plain", "a")
    await asyncio.sleep(50)
    await store.keep(ann, b"x" * 100, "text/plain", "b")
    with pytest.raises(ApiError) as full:
        await store.keep(ann, b"x" * 100, "text/plain", "c")
    assert (full.value.code, full.value.retry_after) == ("uploads_full", 50.0)
    # What another caller keeps does not count.
    await store.keep(Caller("bob", frozenset({"start"})), b"x" * 200, "text/plain", "d")
    await asyncio.sleep(51)
    prompt = (FilePart("", "", url=f"upload:{first.name}"),)
    with pytest.raises(ApiError, match="There is no upload"):
        await store.resolve(ann, prompt)
    await store.remove_old()
    assert {upload.file_name async for upload in store.walk()} == {"b", "d"}
    assert len(await journal.list_records(DATA_KIND)) == 2
    await store.keep(ann, b"x" * 100, "text/plain", "c")


async def test_one_that_a_killed_service_left_unfinished_is_not_used_and_is_removed(
    clock: VirtualClock,
) -> None:
    journal = MemoryJournal(now=clock.now)
    store = UploadStore(journal, ServiceLimits(), clock.now)
    ann = Caller("ann", frozenset({"start"}))

    async def die(*_: object) -> None:
        raise asyncio.CancelledError

    store.change = die  # pyright: ignore[reportAttributeAccessIssue] - it is never marked as whole
    with pytest.raises(asyncio.CancelledError):
        await store.keep(ann, b"x", "text/plain", "a")
    [left] = [upload async for upload in store.walk()]
    with pytest.raises(ApiError, match="There is no upload"):
        await store.resolve(ann, (FilePart("", "", url=f"upload:{left.name}"),))
    await asyncio.sleep(86_401)
    await store.remove_old()
    assert not await journal.list_records(DATA_KIND)
