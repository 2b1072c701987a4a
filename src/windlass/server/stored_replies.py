"""Replies that are kept, so that a change which is sent twice is made once.

Invariant: a key identifies one request of one caller. The same request gets the reply of the first
one again, in any replica; another request with the same key is refused. A key is forgotten after a
day. A reply that streams is not kept: its handler finds the same run again by the key.
"""

import hashlib
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple

import msgspec

from windlass.core.errors import RecordConflict
from windlass.ports import Journal, SharedRecord, SharedRecords
from windlass.server.errors import ApiError
from windlass.server.messages import HttpReply, Reply

KIND = "reply"
KEPT_S = 86_400.0
PENDING_S = 60.0
"""How long a request may be under way. Then its process has died, and it is made again."""
KEY_CHARS_MAX = 200
SERVER_ERRORS = 500
Work = Callable[[], Awaitable[Reply]]


class StoredReply(msgspec.Struct, frozen=True):
    """A reply, or a request that is under way."""

    digest: str
    """Of the request."""
    at: float
    status: int = 0
    """0 while the request is under way."""
    body: bytes = b""
    headers: dict[str, str] = {}
    content_type: str = ""
    owner: str = ""
    """Whose request it is."""

    def to_reply(self) -> HttpReply:
        headers = {**self.headers, "Idempotent-Replayed": "true"}
        return HttpReply(self.status, self.body, headers, self.content_type)


class KeyedRequest(NamedTuple):
    """A request that may be sent again."""

    owner: str
    place: str
    """The route, and what it is about."""
    key: str
    body: bytes
    can_join: bool = False
    """Whether it may be carried out while the first one is under way, since that changes nothing
    twice."""


class StoredReplies:
    """The replies of one journal."""

    def __init__(self, journal: Journal, now: Callable[[], float] = time.time) -> None:
        self._records: SharedRecords = journal
        self._now = now

    async def answer(self, request: KeyedRequest, work: Work) -> Reply:
        """Do the work of a request once for its key, and return its reply each time.

        Raises ApiError 409 while the first request is under way and cannot be joined, and 422 if
        the key was used for another request.
        """
        key = request.key
        if len(key) > KEY_CHARS_MAX or not key.isprintable():
            raise ApiError(
                422,
                "bad_idempotency_key",
                f"An Idempotency-Key has at most {KEY_CHARS_MAX} visible characters.",
                "Send a random one for each change.",
            )
        name = hashlib.sha256(msgspec.json.encode([request.owner, request.place, key])).hexdigest()
        digest = hashlib.sha256(request.body).hexdigest()
        claim = await self._claim(name, digest, request.owner, can_join=request.can_join)
        if isinstance(claim, HttpReply):
            return claim
        return await self._do_work(claim, digest, work, request)

    async def _claim(
        self, name: str, digest: str, owner: str, *, can_join: bool
    ) -> SharedRecord | HttpReply:
        """Return the record that stands for this request, or the reply of an earlier one."""
        while True:
            found = await self._records.get_record(KIND, name)
            version = 0
            if found is not None:
                known = msgspec.json.decode(found.data, type=StoredReply)
                reply = self._use_known(known, digest, can_join=can_join)
                if reply is not None:
                    return reply
                version = found.version
            pending = msgspec.json.encode(StoredReply(digest, self._now(), owner=owner))
            with suppress(RecordConflict):
                return await self._records.put_record(KIND, name, pending, version)

    def _use_known(self, known: StoredReply, digest: str, *, can_join: bool) -> HttpReply | None:
        """Return the reply of an earlier request; None if the work is to be done."""
        age = self._now() - known.at
        if age > KEPT_S:
            return None
        if known.digest != digest:
            raise ApiError(
                422,
                "idempotency_key_reused",
                "This Idempotency-Key was used for another request.",
                "Use one key for one change.",
            )
        if known.status:
            return known.to_reply()
        if age < PENDING_S and not can_join:
            raise ApiError(
                409,
                "request_under_way",
                "The first request with this Idempotency-Key is still under way.",
                "Send it again in a moment.",
                retry_after=1.0,
            )
        return None

    async def _do_work(
        self, claim: SharedRecord, digest: str, work: Work, request: KeyedRequest
    ) -> Reply:
        try:
            reply = await work()
        except BaseException:
            # Nothing is kept of a request that was refused: it may fit later.
            await self._forget(claim)
            raise
        if not isinstance(reply, HttpReply) or reply.status >= SERVER_ERRORS:
            if not request.can_join or isinstance(reply, HttpReply):
                await self._forget(claim)
            return reply
        stored = StoredReply(
            digest,
            self._now(),
            reply.status,
            reply.encode_body(),
            dict(reply.headers),
            reply.content_type,
            request.owner,
        )
        with suppress(RecordConflict):
            await self._records.put_record(
                KIND, claim.name, msgspec.json.encode(stored), claim.version
            )
        return reply

    async def _forget(self, claim: SharedRecord) -> None:
        with suppress(RecordConflict):
            await self._records.delete_record(KIND, claim.name, claim.version)

    async def remove_old(self) -> None:
        """Forget the keys of yesterday."""
        now = self._now()
        await self._remove_where(lambda known: now - known.at > KEPT_S)

    async def remove_of(self, owner: str) -> None:
        """Forget all replies to a caller."""
        await self._remove_where(lambda known: known.owner == owner)

    async def _remove_where(self, is_unwanted: Callable[[StoredReply], bool]) -> None:
        after = ""
        while page := await self._records.list_records(KIND, after):
            for record in page:
                if is_unwanted(msgspec.json.decode(record.data, type=StoredReply)):
                    await self._forget(record)
            after = page[-1].name
