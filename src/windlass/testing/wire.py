"""What a server does on the wire, act by act: the vocabulary of a `FaultServer` script.

    stream_answer(text_chunk("Hello"), stall())             # a stream that falls silent
    refuse_with(429, headers={"Retry-After": "2"})

A stream is sent in HTTP chunks, one for each piece of bytes, so that each piece is its own write.
"""

import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

import msgspec


@dataclass(frozen=True, slots=True)
class WireWait:
    """Silence for some seconds. None: until the client leaves."""

    seconds: float | None


@dataclass(frozen=True, slots=True)
class WireHold:
    """Silence until an event is set, in any thread."""

    until: threading.Event


@dataclass(frozen=True, slots=True)
class WireReset:
    """The connection is reset (RST), as by a crash of the server."""


@dataclass(frozen=True, slots=True)
class WireDrop:
    """The connection is closed (FIN), as if the response were complete."""


WireAct = bytes | WireWait | WireHold | WireReset | WireDrop


@dataclass(frozen=True, slots=True, kw_only=True)
class WireAnswer:
    """One response: a head, and then acts in order. Without a status no head is sent."""

    status: int | None = 200
    headers: tuple[tuple[str, str], ...] = ()
    before: tuple[WireAct, ...] = ()
    """What happens before the head is sent."""
    acts: tuple[WireAct, ...] = ()
    after: tuple[WireAct, ...] = ()
    """What happens after the response."""
    chunked: bool = True

    def encode_head(self) -> bytes:
        """Return the status line and the headers."""
        if self.status is None:
            return b""
        try:
            phrase = HTTPStatus(self.status).phrase
        except ValueError:
            phrase = "Unknown"
        lines = [f"HTTP/1.1 {self.status} {phrase}", *(f"{k}: {v}" for k, v in self.headers)]
        if self.chunked:
            lines.append("Transfer-Encoding: chunked")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def wait(seconds: float) -> WireWait:
    """Silence for some seconds."""
    return WireWait(seconds)


def stall() -> WireWait:
    """Silence until the client leaves."""
    return WireWait(None)


def hold(until: threading.Event) -> WireHold:
    """Silence until an event is set: a test decides when the answer continues."""
    return WireHold(until)


def reset() -> WireReset:
    """The connection is reset here."""
    return WireReset()


def drop() -> WireDrop:
    """The connection is closed here."""
    return WireDrop()


def stream_answer(*acts: WireAct, content_type: str = "text/event-stream") -> WireAnswer:
    """Return a stream of these acts. Each piece of bytes is its own write."""
    return WireAnswer(headers=(("Content-Type", content_type),), acts=acts)


def refuse_with(
    status: int, body: dict[str, Any] | str = "", headers: dict[str, str] | None = None
) -> WireAnswer:
    """Return a whole response that is not a stream: a dict as JSON, a text as an HTML page."""
    if isinstance(body, dict):
        content = msgspec.json.encode(body)
        kind = "application/json"
    else:
        content = body.encode()
        kind = "text/html; charset=utf-8"
    sent = {"Content-Type": kind, "Content-Length": str(len(content))} | (headers or {})
    return WireAnswer(status=status, headers=tuple(sent.items()), acts=(content,), chunked=False)


def hang_up(act: WireAct, *, after_head: bool = False) -> WireAnswer:
    """Return an act instead of an answer, before or after the head."""
    if after_head:
        return stream_answer(act)
    return WireAnswer(status=None, before=(act,), chunked=False)


def split_pieces(response: WireAnswer, size: int = 1) -> WireAnswer:
    """Return the same response with its body split into pieces of `size` bytes."""
    acts = tuple(part for act in response.acts for part in _split_act(act, size))
    return replace(response, acts=acts)


def with_crlf(response: WireAnswer) -> WireAnswer:
    """Return the same response with CRLF at the end of each line."""
    acts = tuple(
        act.replace(b"\n", b"\r\n") if isinstance(act, bytes) else act for act in response.acts
    )
    return replace(response, acts=acts)


def append_acts(response: WireAnswer, *acts: WireAct) -> WireAnswer:
    """Return the same response with more acts at its end."""
    return replace(response, acts=(*response.acts, *acts))


def cut_after(response: WireAnswer, count: int, *acts: WireAct) -> WireAnswer:
    """Return the first `count` acts of a response, and then other acts instead of the rest."""
    return replace(response, acts=(*response.acts[:count], *acts))


def _split_act(act: WireAct, size: int) -> Iterable[WireAct]:
    if not isinstance(act, bytes):
        return (act,)
    return (act[at : at + size] for at in range(0, len(act), size))
