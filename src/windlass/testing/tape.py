r"""The file of a cassette: HTTP traffic as JSON lines that a person can read.

    {"kind":"tape","version":1,"upstream":"https://host/v1"}
    {"kind":"request","method":"POST","path":"/chat/completions","headers":{…},"body":{…}}
    {"kind":"response","status":200,"headers":{…},"after_s":0.31}
    {"kind":"piece","text":"data: {…}\n\n","after_s":0.02}
    {"kind":"end","how":"whole"}

Invariant: no key reaches the file. A header that carries a key is masked by its name, and the same
key is masked wherever else it appears, even if the wire split it between two pieces.
"""

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile, zip_longest
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast
from urllib.parse import unquote

import msgspec

from windlass.core.errors import ConfigError

VERSION = 1
MASK = "****"
SECRET_CHARS_MIN = 8
"""A shorter value is not treated as a key: it would match inside ordinary text."""

SHOWN_CHARS = 60
"""How many characters of a value a difference shows."""
ABSENT = object()

_SECRET_NAME = re.compile(r"auth|cookie|credential|key|password|secret|token$", re.IGNORECASE)
_SECRET_QUERY = re.compile(r"(?<=[?&])(\w*(?:key|token)\w*)=([^&]+)", re.IGNORECASE)
_URL_USER = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_HOP_HEADERS = frozenset(
    ("accept-encoding", "connection", "content-length", "host", "keep-alive", "transfer-encoding"),
)
_KEPT_HEADER = re.compile(r"content-type|date|location|retry-after.*|.*ratelimit.*|x-should-retry")
"""Response headers that a client acts on. Others are dropped: they may identify an account."""

ResponseEnding: TypeAlias = Literal["whole", "broken", "left"]
"""`whole`: read to its end. `broken`: the server broke off. `left`: the client went away."""


class TapeLine(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind"):
    """One line of the file."""


class TapeHeader(TapeLine, frozen=True, tag="tape"):
    """The first line of the file."""

    version: int
    upstream: str


class TapeRequest(TapeLine, frozen=True, tag="request"):
    method: str
    path: str
    """Below the base URL, with its query."""
    headers: dict[str, str] = {}
    body: Any = None
    """The decoded JSON, else the text, else base64."""


class TapeResponse(TapeLine, frozen=True, tag="response"):
    status: int
    headers: dict[str, str] = {}
    after_s: float = 0.0
    """Seconds since the request."""


class TapePiece(TapeLine, frozen=True, tag="piece"):
    """One piece of a response. Bytes that are not valid UTF-8 are kept as base64."""

    text: str | None = None
    data: bytes | None = None
    after_s: float = 0.0
    """Seconds since the piece before."""

    @classmethod
    def from_bytes(cls, content: bytes, after_s: float) -> "TapePiece":
        try:
            return cls(text=content.decode(), after_s=after_s)
        except UnicodeDecodeError:
            return cls(data=content, after_s=after_s)

    @property
    def content(self) -> bytes:
        return self.data or (self.text or "").encode()


class TapeEnd(TapeLine, frozen=True, tag="end"):
    how: ResponseEnding


@dataclass(slots=True)
class HttpExchange:
    """One request and its response."""

    request: TapeRequest
    response: TapeResponse | None = None
    """None if the client left before a response began."""
    pieces: list[TapePiece] = field(default_factory=list[TapePiece])
    how: ResponseEnding = "left"

    def tape_lines(self) -> Iterator[TapeLine]:
        yield self.request
        if self.response is not None:
            yield self.response
        yield from self.pieces
        yield TapeEnd(self.how)


_decoder = msgspec.json.Decoder(TapeHeader | TapeRequest | TapeResponse | TapePiece | TapeEnd)


def load_tape(path: Path) -> list[HttpExchange]:
    """Read the exchanges of a file, in order. Raises ConfigError if it is not a cassette."""
    exchanges: list[HttpExchange] = []
    for number, text in enumerate(path.read_bytes().splitlines(), 1):
        try:
            _add_line(_decoder.decode(text), exchanges, first=number == 1)
        except (msgspec.DecodeError, ValueError, IndexError) as error:
            raise ConfigError(f"{path} is not a cassette: line {number}: {error}") from error
    if not exchanges:
        raise ConfigError(f"{path} is not a cassette: it is empty")
    return exchanges


def _add_line(line: TapeLine, exchanges: list[HttpExchange], *, first: bool) -> None:
    if first != isinstance(line, TapeHeader):
        raise ValueError("the first line, and only that one, must be of the kind `tape`")
    match line:
        case TapeHeader(version) if version != VERSION:
            raise ValueError(f"it has version {version}, not {VERSION}; record it again")
        case TapeRequest():
            exchanges.append(HttpExchange(line))
        case TapeResponse():
            exchanges[-1].response = line
        case TapePiece():
            exchanges[-1].pieces.append(line)
        case TapeEnd(how):
            exchanges[-1].how = how
        case _:
            pass


def save_tape(
    path: Path, upstream: str, exchanges: Iterable[HttpExchange], secrets: set[bytes]
) -> None:
    """Write the file as a whole: a crash leaves the old file or none."""
    lines: list[TapeLine] = [TapeHeader(VERSION, mask_url_user(upstream))]
    for exchange in exchanges:
        exchange.pieces = _mask_pieces(exchange.pieces, secrets)
        lines.extend(exchange.tape_lines())
    path.parent.mkdir(parents=True, exist_ok=True)
    # Written beside the file and then renamed, which replaces it in one step.
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(
        b"".join(mask_secrets(msgspec.json.encode(line), secrets) + b"\n" for line in lines)
    )
    part.replace(path)


def _mask_pieces(pieces: list[TapePiece], secrets: set[bytes]) -> list[TapePiece]:
    """Mask the keys in the pieces. If a key spans two pieces, join all pieces into one."""
    clean = [
        TapePiece.from_bytes(mask_secrets(piece.content, secrets), piece.after_s)
        for piece in pieces
    ]
    whole = b"".join(piece.content for piece in clean)
    if not any(secret in whole for secret in secrets):
        return clean
    return [
        TapePiece.from_bytes(mask_secrets(whole, secrets), sum(piece.after_s for piece in pieces))
    ]


def record_request(
    method: str, path: str, headers: Mapping[str, str], body: bytes
) -> tuple[TapeRequest, set[bytes]]:
    """Return the request as it is kept, and the keys that were found in it."""
    # `Authorization: Bearer KEY`: the key is the last word of the header.
    in_headers = [
        value.split()[-1] for name, value in headers.items() if _is_secret_name(name) and value
    ]
    in_query = [found[2] for found in _SECRET_QUERY.finditer(path)]
    values = {*in_headers, *in_query, *map(unquote, in_query)}
    secrets = {value.encode() for value in values if len(value) >= SECRET_CHARS_MIN}
    kept = {
        name: MASK if _is_secret_name(name) else value
        for name, value in end_to_end_headers(headers).items()
    }
    path = _SECRET_QUERY.sub(rf"\1={MASK}", path)
    return TapeRequest(method, path, kept, decode_body(mask_secrets(body, secrets))), secrets


def mask_url_user(url: str) -> str:
    """Mask the user name and password in a URL."""
    return _URL_USER.sub(MASK, url)


def end_to_end_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that do not concern only this connection."""
    return {name: value for name, value in headers.items() if name.lower() not in _HOP_HEADERS}


def kept_response_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the response headers that are kept."""
    return {name: value for name, value in headers.items() if _KEPT_HEADER.fullmatch(name.lower())}


def mask_secrets(text: bytes, secrets: set[bytes]) -> bytes:
    # Longest first: one key may be the beginning of another.
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, MASK.encode())
    return text


def decode_body(body: bytes) -> Any:  # noqa: ANN401 - whatever was sent
    """Decode a body to what is stored and compared: JSON, else text, else base64."""
    if not body:
        return None
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        pass
    try:
        return body.decode()
    except UnicodeDecodeError:
        return b64encode(body).decode("ascii")


def first_difference(recorded: object, asked: object, path: str = "$") -> str | None:
    """Describe the first place at which two JSON values differ. None if they are equal."""
    match recorded, asked:
        case dict(), dict():
            old = cast("dict[str, object]", recorded)
            new = cast("dict[str, object]", asked)
            children = (
                (f"{path}.{name}", old.get(name, ABSENT), new.get(name, ABSENT))
                for name in old | new
            )
        case list(), list():
            olds = cast("list[object]", recorded)
            news = cast("list[object]", asked)
            pairs = enumerate(zip_longest(olds, news, fillvalue=ABSENT))
            children = ((f"{path}[{at}]", before, now) for at, (before, now) in pairs)
        case _:
            # By type as well: in Python, True == 1.
            if type(recorded) is type(asked) and recorded == asked:
                return None
            return f"at {path}, recorded {_show_both_values(recorded, asked)}"
    differences = (first_difference(old, new, where) for where, old, new in children)
    return next(filter(None, differences), None)


def _show_both_values(recorded: object, asked: object) -> str:
    """Show two values from a little before the place where they begin to differ."""
    old = _value_text(recorded)
    new = _value_text(asked)
    common_prefix = takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False))
    at = sum(1 for _ in common_prefix)
    return f"{_excerpt_around(old, at)}, asked {_excerpt_around(new, at)}"


def _value_text(value: object) -> str:
    return "nothing" if value is ABSENT else msgspec.json.encode(value).decode()


def _excerpt_around(text: str, at: int) -> str:
    start = max(0, at - SHOWN_CHARS // 3) if len(text) > SHOWN_CHARS else 0
    end = start + SHOWN_CHARS
    before = "…" if start else ""
    after = "…" if end < len(text) else ""
    return f"{before}{text[start:end]}{after}"


def _is_secret_name(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None
