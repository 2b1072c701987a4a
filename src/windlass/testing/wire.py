"""What a server does on the wire, act by act: the words of a `FaultServer`'s script.

    answer(words("Hello"), stall())             # a stream that falls silent
    refuse_with(429, headers={"Retry-After": "2"})

A stream is sent in HTTP chunks, one for each piece of bytes, so that a piece is a write of its own.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

import msgspec


@dataclass(frozen=True, slots=True)
class WireWait:
    """Nothing for a while; None is until the client goes."""

    seconds: float | None


@dataclass(frozen=True, slots=True)
class WireReset:
    """The connection is torn down, as by a crash: the client sees it reset."""


@dataclass(frozen=True, slots=True)
class WireDrop:
    """The connection is closed, as if all had been said."""


WireAct = bytes | WireWait | WireReset | WireDrop


@dataclass(frozen=True, slots=True, kw_only=True)
class WireAnswer:
    """One response: a head, and then acts in order. Without a status there is no head."""

    status: int | None = 200
    headers: tuple[tuple[str, str], ...] = ()
    before: tuple[WireAct, ...] = ()
    """What happens before the head is sent."""
    acts: tuple[WireAct, ...] = ()
    after: tuple[WireAct, ...] = ()
    """What happens when the response is over."""
    chunked: bool = True

    def encode_head(self) -> bytes:
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
    return WireWait(seconds)


def stall() -> WireWait:
    return WireWait(None)


def reset() -> WireReset:
    return WireReset()


def drop() -> WireDrop:
    return WireDrop()


def stream_answer(*acts: WireAct, content_type: str = "text/event-stream") -> WireAnswer:
    """A stream of these bytes, each piece a write of its own."""
    return WireAnswer(headers=(("Content-Type", content_type),), acts=acts)


def refuse_with(
    status: int, body: dict[str, Any] | str = "", headers: dict[str, str] | None = None
) -> WireAnswer:
    """A whole response that is no stream: JSON from a dict, else a page as it is."""
    json = isinstance(body, dict)
    content = msgspec.json.encode(body) if isinstance(body, dict) else body.encode()
    kind = "application/json" if json else "text/html; charset=utf-8"
    sent = {"Content-Type": kind, "Content-Length": str(len(content))} | (headers or {})
    return WireAnswer(status=status, headers=tuple(sent.items()), acts=(content,), chunked=False)


def hang_up(act: WireAct, *, after_head: bool = False) -> WireAnswer:
    """No answer at all: what happens in its place, before or after the head."""
    if after_head:
        return stream_answer(act)
    return WireAnswer(status=None, before=(act,), chunked=False)


def split_pieces(response: WireAnswer, size: int = 1) -> WireAnswer:
    """The same response with its body cut into pieces of so many bytes."""
    cut = tuple(part for act in response.acts for part in _split_act(act, size))
    return replace(response, acts=cut)


def with_crlf(response: WireAnswer) -> WireAnswer:
    """The same response with CRLF at the end of each line."""
    acts = tuple(
        act.replace(b"\n", b"\r\n") if isinstance(act, bytes) else act for act in response.acts
    )
    return replace(response, acts=acts)


def append_acts(response: WireAnswer, *acts: WireAct) -> WireAnswer:
    """The same response, and then something else."""
    return replace(response, acts=(*response.acts, *acts))


def cut_after(response: WireAnswer, count: int, *acts: WireAct) -> WireAnswer:
    """The first pieces of a response, and then something else in place of the rest."""
    return replace(response, acts=(*response.acts[:count], *acts))


def _split_act(act: WireAct, size: int) -> Iterable[WireAct]:
    if not isinstance(act, bytes):
        return (act,)
    return (act[at : at + size] for at in range(0, len(act), size))
