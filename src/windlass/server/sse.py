"""Events as server-sent events.

Invariant: only a fact has an `id:`, its number, so a client that comes back with `Last-Event-ID`
gets every fact once. A `snapshot` says what the reply that is being written consists of so far:
each connection begins with an empty one, and the first piece of a reply comes as one. So a client
never shows text of a reply twice, nor text that no longer counts. A snapshot with a lower number
than the last id says that the session was set back: what the client has seen no longer counts.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from windlass.core.events import Event, RunEnded, TextDelta, ThinkingDelta
from windlass.server.errors import ApiError
from windlass.server.frames import encode_frame
from windlass.server.owned_reading import has_queued_prompt
from windlass.server.service import Service
from windlass.server.session_directory import OwnedSession

RETRY_MS = 1_000
"""How long a browser waits before it connects again."""
STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


class Snapshot(msgspec.Struct, frozen=True, tag_field="type", tag="snapshot"):
    """What the reply that is being written consists of so far. It replaces what was shown."""

    session: str
    seq: int
    """The last fact before it."""
    text: str = ""
    thinking: str = ""


def read_last_event_id(text: str) -> int:
    """Return the number of the last fact that a client has seen. Raises ApiError 400."""
    if not text:
        return 0
    if not text.isascii() or not text.isdigit() or len(text) > 15:  # noqa: PLR2004 - below 2**53
        raise ApiError(
            400,
            "bad_event_id",
            f"{text[:50]!r} is not the id of an event.",
            "Send the last id of the stream, or none to begin at the beginning.",
        )
    return int(text)


async def stream_session(
    service: Service, session: OwnedSession, after: int, *, follow: bool
) -> AsyncGenerator[bytes]:
    """Yield the frames of a session after a fact.

    Ends with the end of the last run; with `follow`, it continues with the next run.
    """
    yield b"retry: %d\n\n" % RETRY_MS
    async with aclosing(watch_with_snapshots(service, session, after)) as events:
        async for event in events:
            if isinstance(event, Snapshot):
                yield encode_frame("snapshot", event)
                continue
            yield service.frames.encode(event)
            is_end = isinstance(event, RunEnded) and not follow
            if is_end and await has_ended(service, session, event.seq):
                return


async def watch_with_snapshots(
    service: Service, session: OwnedSession, after: int
) -> AsyncGenerator[Event | Snapshot]:
    """Yield the events of a session after a fact, with the snapshots that begin a connection.

    A client that has seen more than there is gets everything again: a failover of the database lost
    what it saw. The number in its snapshot is lower than the one that it came with.
    """
    if after > session.summary.facts and after > (await service.read_again(session)).summary.facts:
        after = 0
    yield Snapshot(session.name, after)
    is_fresh = True
    async with aclosing(service.watch(session, after)) as events:
        async for event in events:
            if is_fresh and isinstance(event, TextDelta | ThinkingDelta):
                is_fresh = False
                yield _snapshot_of(session.name, event)
            else:
                yield event


def _snapshot_of(session: str, piece: TextDelta | ThinkingDelta) -> Snapshot:
    """Return the first piece of a reply, which is all of it so far, as a snapshot."""
    if isinstance(piece, TextDelta):
        return Snapshot(session, piece.seq, text=piece.text)
    return Snapshot(session, piece.seq, thinking=piece.text)


async def has_ended(service: Service, session: OwnedSession, seq: int) -> bool:
    """Return whether nothing comes after a fact for now: no open run, no prompt in the queue."""
    summary = (await service.read_again(session)).summary
    if summary.outcome is None or summary.facts != seq:
        return False
    return not await has_queued_prompt(service.journal, session)
