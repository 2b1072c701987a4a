"""An embeddings endpoint over real HTTP: its answers, its refusals, and its key."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from windlass.core.errors import ConfigError
from windlass.knowledge.embeddings import TEXTS_PER_REQUEST, HttpEmbedder, embed_texts
from windlass.knowledge.store import KnowledgeFailed

pytestmark = [pytest.mark.realtime, pytest.mark.contract("K1")]

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler) -> AsyncGenerator[str]:
    app = web.Application()
    app.router.add_post("/v1/embeddings", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


async def test_texts_go_out_and_vectors_come_back_in_order() -> None:
    asked: list[tuple[str | None, Any]] = []

    async def answer(request: web.Request) -> web.Response:
        body = await request.json()
        asked.append((request.headers.get("Authorization"), body["model"]))
        items = [
            {"index": at, "embedding": [float(len(text)), 1.0]}
            for at, text in enumerate(body["input"])
        ]
        return web.json_response({"data": items[::-1]})

    async with serving(answer) as url:
        embedder = HttpEmbedder("small", base_url=url, key="k3y")
        texts = ["x" * at for at in range(TEXTS_PER_REQUEST + 3)]
        vectors = await embedder.embed(texts)
    assert vectors == [[float(at), 1.0] for at in range(TEXTS_PER_REQUEST + 3)]
    assert asked == [("Bearer k3y", "small")] * 2


@pytest.mark.parametrize(
    ("response", "why"),
    [
        (web.Response(status=401, text="bad key k3y"), "status 401"),
        (web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"}), "status 302"),
        (web.Response(text="hello"), "not a list of vectors"),
        (web.Response(text='{"data": []}'), "0 vectors for 1 texts"),
    ],
    ids=["refused", "sent on", "no JSON", "too few"],
)
async def test_what_goes_wrong_is_said_without_the_key(response: web.Response, why: str) -> None:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return response

    async with serving(answer) as url:
        with pytest.raises(KnowledgeFailed, match=why) as told:
            await HttpEmbedder("small", base_url=url, key="k3y").embed(["one"])
    assert "k3y" not in str(told.value)


async def test_a_server_that_is_not_there_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """K2."""
    embedder = HttpEmbedder("small", base_url="http://127.0.0.1:1/v1")
    assert await embed_texts(embedder, ["one"]) is None
    assert "127.0.0.1:1" in caplog.text


@pytest.mark.parametrize("vectors", [[[0.0]], [[float("nan")]], [], [[1.0], [1.0]]])
async def test_vectors_that_make_no_sense_are_a_warning(vectors: list[list[float]]) -> None:
    class Odd:
        name = "odd"

        async def embed(self, texts: object) -> list[list[float]]:
            return vectors

    assert await embed_texts(Odd(), ["one"]) is None


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="base_url"):
        HttpEmbedder("small", base_url="localhost:8080")
