"""What a client of the protocol with a handshake is known by: ids that any replica can read.

Invariant: nothing of such a client is kept in a process. Its session id holds what it said about
itself, and the id of an event says which request of it waits for which run. Neither gives any
right: the token of each request does, and a session belongs to the token that opened it.

A request that waits for a run, as a stream of events that a client can come back to.

Invariant: what a stream sends follows from the run and from the id of the client's last event. So
any replica continues the stream of another, and a question is shown once.
"""

import asyncio
import binascii
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, TypeVar

import mcp_types as types
import msgspec
from msgspec.structs import replace

from windlass.core.errors import WindlassError
from windlass.core.projection.view import Projection
from windlass.core.question import Question
from windlass.server.access import Caller
from windlass.server.answers import give_answer, question_id
from windlass.server.client_run import ClientRun
from windlass.server.errors import ApiError, api_error_from
from windlass.server.mcp.agent_calls import (
    describe_progress,
    follow_call,
    is_too_long,
    make_form,
    read_form,
)
from windlass.server.mcp.agent_tools import dump_model, make_error_result, make_result
from windlass.server.mcp.call_notes import CallNotes, digest_parts
from windlass.server.service import Service

T = TypeVar("T")
RequestId = str | int
PRIMED_SINCE = "2025-11-25"
"""Since then streams begin with an event without data, and runs can be tasks."""


class ClientSession(msgspec.Struct, frozen=True, array_like=True):
    """What a client said of itself in the handshake."""

    version: str
    elicits: bool
    """Whether it can show a form to its user."""
    owner: str
    """A digest of the token that opened the session."""
    nonce: str

    @property
    def has_tasks(self) -> bool:
        """Whether its version of the protocol has tasks, and events without data."""
        return self.version >= PRIMED_SINCE

    def to_id(self) -> str:
        """Return the session as an opaque text."""
        return _to_text(self)


def open_session(caller: Caller, version: str, *, elicits: bool) -> ClientSession:
    """Return a new session of a caller."""
    return ClientSession(version, elicits, _owner_mark(caller), secrets.token_hex(8))


def read_session(caller: Caller, text: str) -> ClientSession:
    """Return a session by its id. Raises ApiError 404 if it is not one of this token."""
    session = _from_text(text, ClientSession)
    if session is None or session.owner != _owner_mark(caller):
        raise ApiError(
            404, "mcp_session_not_found", "There is no such session.", "Send initialize again."
        )
    return session


class EventPlace(msgspec.Struct, frozen=True, array_like=True):
    """Up to where a client has read the stream of a request."""

    request: RequestId
    run: str
    """The id of the run."""
    progress: RequestId | None = None
    """How the client wants progress reported; None if it does not."""
    is_task: bool = False
    asked: tuple[str, ...] = ()
    """The ids of the questions that are shown to its user."""

    def to_id(self) -> str:
        """Return the place as the id of an event."""
        return _to_text(self)


def read_event_id(text: str) -> EventPlace:
    """Return the place of an event. Raises ApiError 400 if it is not one."""
    place = _from_text(text, EventPlace)
    if place is None:
        raise ApiError(
            400, "bad_event_id", f"{text[:50]!r} is not the id of an event.", "Send the last one."
        )
    return place


def make_call_key(session_id: str, request: RequestId) -> str:
    """Return what names a request of a client: its ids are unique within its session."""
    return "mcp:" + digest_parts(session_id, request)[:32]


def _owner_mark(caller: Caller) -> str:
    return digest_parts(caller.name, caller.token)[:16]


def _to_text(value: object) -> str:
    return urlsafe_b64encode(msgspec.json.encode(value)).decode().rstrip("=")


def _from_text(text: str, kind: type[T]) -> T | None:
    try:
        data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        return msgspec.json.decode(data, type=kind)
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        return None


RELATED_TASK = "io.modelcontextprotocol/related-task"
LOOK_S = 1.0
"""How often to look whether a form was put away at another replica, while one is shown."""
RETRY_MS = 1_000
_QUESTION = "question:"
"""What the ids of our own requests to a client begin with."""


class RunStreams:
    """Streams the runs of a service to clients that wait for them."""

    def __init__(self, service: Service, notes: CallNotes) -> None:
        self._service = service
        self._notes = notes

    async def take_answer(self, caller: Caller, message: dict[str, Any]) -> None:
        """Take what a client's user said to a form. One that came too late changes nothing."""
        asked = _read_question_id(message.get("id"))
        if asked is None:
            return
        reply = None
        if "result" in message:
            try:
                reply = read_form(types.ElicitResult.model_validate(message["result"]))
            except ValueError:
                raise ApiError(400, "invalid_answer", "The result is not one of a form.") from None
        if reply is None:
            await self._notes.note_dismissed(caller, asked)
            return
        caller.require("answer")
        await give_answer(self._service, caller, asked, reply)

    async def stream(
        self, run: ClientRun, session: ClientSession, at: EventPlace
    ) -> AsyncGenerator[bytes]:
        """Yield the frames of a request after an event, up to its response."""
        last = at
        if session.has_tasks:
            # The client learns an id before anything happens, so that it can come back.
            yield b"id: %b\nretry: %d\ndata: \n\n" % (at.to_id().encode(), RETRY_MS)
        can_ask = session.elicits and run.caller.has_role("answer")
        try:
            async with aclosing(self._follow(run, at, can_ask=can_ask)) as told:
                async for message, last in told:
                    yield _encode_frame(message, last)
            result = make_result(await run.read_again())
        except (ApiError, WindlassError) as error:
            result = make_error_result(api_error_from(error))
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": at.request, "result": dump_model(result)}
        _relate_task(answer["result"], at)
        yield _encode_frame(answer, last)

    async def _follow(
        self, run: ClientRun, at: EventPlace, *, can_ask: bool
    ) -> AsyncGenerator[tuple[dict[str, Any], EventPlace]]:
        """Yield messages until the run has ended, or waits for what cannot be asked here."""
        views = _PatientReader(follow_call(run))
        try:
            while True:
                try:
                    view = await views.read(LOOK_S if at.asked else None)
                except TimeoutError:
                    if await self._is_put_away(run.caller, at.asked):
                        return
                    continue
                if view is None or run.has_ended:
                    return
                if at.progress is not None:
                    yield _make_progress(view, at.progress), at
                still_open = {question_id(one): one for one in view.questions}
                for asked in set(at.asked) - set(still_open):
                    at = replace(at, asked=tuple(each for each in at.asked if each != asked))
                    yield _take_back(asked), at
                new = [one for name, one in still_open.items() if name not in at.asked]
                if new and (not can_ask or any(map(is_too_long, new))):
                    return
                for question in new:
                    name = question_id(question)
                    # A form that was put away earlier is shown again.
                    await self._notes.take_dismissed(run.caller, name)
                    at = replace(at, asked=(*at.asked, name))
                    yield _ask(question, at), at
        finally:
            await views.close()

    async def _is_put_away(self, caller: Caller, asked: tuple[str, ...]) -> bool:
        return any([await self._notes.take_dismissed(caller, name) for name in asked])


class _PatientReader:
    """Reads views, with a time-out that loses none."""

    def __init__(self, views: AsyncGenerator[Projection]) -> None:
        self._views = views
        self._pending: asyncio.Future[Projection | None] | None = None

    async def read(self, seconds: float | None) -> Projection | None:
        """Return the next view; None after the last one. Raises TimeoutError."""
        if self._pending is None:
            self._pending = asyncio.ensure_future(anext(self._views, None))
        done, _ = await asyncio.wait({self._pending}, timeout=seconds)
        if not done:
            raise TimeoutError
        view = self._pending.result()
        self._pending = None
        return view

    async def close(self) -> None:
        if self._pending is not None:
            self._pending.cancel()
            await asyncio.gather(self._pending, return_exceptions=True)
        await self._views.aclose()


def _ask(question: Question, at: EventPlace) -> dict[str, Any]:
    form = dump_model(make_form(question))["params"]
    _relate_task(form, at)
    sent_id = _QUESTION + urlsafe_b64encode(question_id(question).encode()).decode()
    return {"jsonrpc": "2.0", "id": sent_id, "method": "elicitation/create", "params": form}


def _take_back(asked: str) -> dict[str, Any]:
    sent_id = _QUESTION + urlsafe_b64encode(asked.encode()).decode()
    params = {"requestId": sent_id, "reason": "The question has an answer."}
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}


def _read_question_id(sent_id: object) -> str | None:
    if not isinstance(sent_id, str) or not sent_id.startswith(_QUESTION):
        return None
    try:
        return urlsafe_b64decode(sent_id.removeprefix(_QUESTION)).decode()
    except ValueError:
        return None


def _make_progress(view: Projection, token: RequestId) -> dict[str, Any]:
    params = {
        "progressToken": token,
        "progress": float(view.seq),
        "message": describe_progress(view),
    }
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}


def _relate_task(params: dict[str, Any], at: EventPlace) -> None:
    """Say which task a message belongs to, if the client waits for one."""
    if at.is_task:
        params["_meta"] = {**params.get("_meta", {}), RELATED_TASK: {"taskId": at.run}}


def _encode_frame(message: dict[str, Any], at: EventPlace) -> bytes:
    data = msgspec.json.encode(message)
    return b"event: message\nid: %b\ndata: %b\n\n" % (at.to_id().encode(), data)
