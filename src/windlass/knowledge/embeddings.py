"""Texts in, vectors out: for searching by meaning, where an embeddings endpoint is available.

Invariant: vectors are optional. If an embedder fails, that is a warning, and the search by words
continues.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol, final
from urllib.parse import urlsplit

import msgspec

from windlass.core.errors import ConfigError
from windlass.core.secrets.mask import Secret
from windlass.environ import read_process_environment
from windlass.http.client import send_request
from windlass.http.errors import HttpError
from windlass.http.urls import find_proxy
from windlass.knowledge.ranking import pack_vector
from windlass.knowledge.store import KnowledgeFailed
from windlass.logs import get_logger

TEXTS_PER_REQUEST = 64
"""Texts in one request."""
STATUS_OK = 200
REPLY_BYTES_MAX = 64 * 2**20
"""How much of a reply is read: 64 vectors of 16,000 numbers."""

_log = get_logger(__name__)


class Embedder(Protocol):
    """A model that turns texts into vectors."""

    @property
    def name(self) -> str:
        """The name of the model. Only vectors of the same model are compared."""
        ...

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """A vector for each text, in their order."""
        ...


class _EmbeddingItem(msgspec.Struct):
    """A vector in the reply of the endpoint."""

    embedding: list[float]
    index: int = 0


class _EmbeddingReply(msgspec.Struct):
    """The reply of the endpoint."""

    data: list[_EmbeddingItem]


@final
class HttpEmbedder:
    """An endpoint with OpenAI's embeddings API: `HttpEmbedder(model, base_url=…, key=…)`.

    `timeout_s`: for all requests of one `embed`. Raises ConfigError if `base_url` is not a URL.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str = "https://api.openai.com/v1",
        key: str = "",
        timeout_s: float = 30.0,
    ) -> None:
        if urlsplit(base_url).scheme not in ("http", "https"):
            raise ConfigError(f"base_url={base_url!r} is not a URL such as https://host/v1")
        self.name = model
        self._url = base_url.rstrip("/") + "/embeddings"
        self._key = Secret(key)
        self._timeout_s = timeout_s

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """A vector for each text, in their order. Raises KnowledgeFailed; it does not retry."""
        vectors: list[list[float]] = []
        try:
            async with asyncio.timeout(self._timeout_s):
                for start in range(0, len(texts), TEXTS_PER_REQUEST):
                    part = list(texts[start : start + TEXTS_PER_REQUEST])
                    vectors += await self._request_vectors(part)
        except TimeoutError:
            raise self._make_error(f"no answer within {self._timeout_s:g} s") from None
        except HttpError as error:
            raise self._make_error(str(error)) from None
        return vectors

    async def _request_vectors(self, texts: list[str]) -> list[list[float]]:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key.reveal()}"
        body = msgspec.json.encode({"model": self.name, "input": texts})
        proxy = find_proxy(self._url, read_process_environment())
        # No redirect is followed: the key must not be sent to another host.
        reply = await send_request("POST", self._url, headers=headers, body=body, proxy=proxy)
        try:
            answer = await reply.read_up_to(REPLY_BYTES_MAX)
        finally:
            reply.close()
        return self._parse_vectors(reply.status, answer, len(texts))

    def _parse_vectors(self, status: int, body: bytes, vectors_expected: int) -> list[list[float]]:
        if status != STATUS_OK:
            raise self._make_error(f"status {status}")
        try:
            items = msgspec.json.decode(body, type=_EmbeddingReply).data
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise self._make_error("the reply is not a list of vectors") from None
        if len(items) != vectors_expected:
            raise self._make_error(f"{len(items)} vectors for {vectors_expected} texts")
        # Not all servers send the vectors in order; those that do not number them.
        return [item.embedding for item in sorted(items, key=lambda item: item.index)]

    def _make_error(self, reason: str) -> KnowledgeFailed:
        host = urlsplit(self._url).netloc.rpartition("@")[2]
        return KnowledgeFailed(f"embedder {self.name} at {host}: {reason}")


async def embed_texts(embedder: Embedder | None, texts: Sequence[str]) -> list[bytes] | None:
    """The vectors as they are stored. None if there is no embedder, or if it failed (a warning)."""
    if embedder is None or not texts:
        return None
    try:
        vectors = await embedder.embed(texts)
        return [pack_vector(vector) for _, vector in zip(texts, vectors, strict=True)]
    except Exception as error:  # noqa: BLE001 - the search by words needs no vectors
        _log.warning("no vectors: %s", error)
        return None
