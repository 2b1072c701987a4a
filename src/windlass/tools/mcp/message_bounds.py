"""Bound the values of a message from an MCP server before the SDK validates it.

The SDK validates on the event loop, and a union of types costs many times what its JSON costs: a
message of 4 MB can hold 300,000 parts, each with 13 errors. So the values of a message are counted
first. Short messages are counted here, and long ones in a reader, which may die (`readers/`).

Invariant: each message that the SDK gets is within the bounds. In place of a larger answer, its
request gets an error. In place of a larger request, the SDK gets one without parameters, which it
refuses.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, cast

import msgspec

from windlass.core.json_repair.strict import count_keys, cut_escapes, cut_strings
from windlass.readers.pool import ReaderJob, ReaderPool

KEYS_MAX = 100_000
"""Keys, objects and lists in a message, at any depth."""
COMMAS_MAX = 1_000_000
"""Values in a message, at any depth. Numbers and words cost less than keys and lists do."""
PARTS_MAX = 1_000
"""Parts of content in a message, which the SDK compares with every type of part."""
ITEMS_MAX = 10_000
"""Items of other lists in a message, such as tools. Data of the server's own does not count."""
FEW_VALUES = 1_000
"""A message that cannot have more values than this is not looked at more closely."""
SHORT_BYTES = 64 * 2**10
"""Up to this length, a message is counted on the event loop, which takes about a millisecond."""
SCANNED_BYTES = 2**20
"""Up to this length, the strings of a message are skipped to see whether it has few values."""
ID_SEARCH_BYTES = 200
"""How much of each end of a message that cannot be read is searched for its id."""
READERS_MAX = 2
READER_SECONDS = 20.0
READER_BYTES = 2**30

_PART_LISTS = frozenset(("content", "contents", "messages"))
_OWN_DATA = frozenset(("structuredContent", "_meta", "inputSchema", "outputSchema"))
"""Fields whose values the SDK takes as they are."""
_REQUEST_ID = re.compile(rb'"id"\s*:\s*(?:(\d{1,18})\b|"([^"\\]{1,100})")')
_INTERNAL_ERROR = -32603
_pool = ReaderPool(READERS_MAX)


class Envelope(msgspec.Struct, frozen=True):
    """What a message says about itself. The rest of it is skipped."""

    id: int | str | None = None
    method: str | None = None


async def bound_message(data: bytes) -> bytes:
    """Return a message as it is, or the one to take in its place; empty if it is to be ignored."""
    if _has_few_values(data):
        return data
    if len(data) <= SHORT_BYTES:
        reason = find_excess(data)
    else:
        reason = await _find_excess_apart(data)
    return replace_message(data, reason) if reason else data


def _has_few_values(data: bytes) -> bool:
    """Whether a message has few values, as far as a quick look can tell."""
    if count_separators(data) <= FEW_VALUES:
        return True
    if len(data) > SCANNED_BYTES:
        return False
    # Most often it is one long text, such as JSON in a string.
    plain = cut_escapes(data)
    is_quick = plain.count(b'"') <= 4 * FEW_VALUES
    return is_quick and count_separators(cut_strings(plain)) <= FEW_VALUES


async def _find_excess_apart(data: bytes) -> str:
    job = ReaderJob(
        f"{__name__}:report_excess",
        {},
        seconds=READER_SECONDS,
        memory_bytes=READER_BYTES,
        result_bytes=SHORT_BYTES,
    )
    result = await _pool.run(job, data)
    return result.failure or b"".join(result.parts).decode()


def report_excess(data: bytes) -> Iterator[bytes]:
    """Yield why a message is refused, in a reader; nothing if it is not."""
    yield find_excess(data).encode()


def find_excess(data: bytes) -> str:
    """Return why a message is refused; empty if it is within all bounds."""
    plain = cut_strings(cut_escapes(data))
    if count_keys(plain) > KEYS_MAX:
        return f"it has more than {KEYS_MAX} keys and lists"
    if plain.count(b",") > COMMAS_MAX:
        return f"it has more than {COMMAS_MAX} values"
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        return "it is not JSON that can be read"
    parts, items = _count_items(message)
    if parts > PARTS_MAX:
        return f"it has {parts} parts, and {PARTS_MAX} is the limit"
    if items > ITEMS_MAX:
        return f"it has {items} items in lists, and {ITEMS_MAX} is the limit"
    return ""


def count_separators(data: bytes) -> int:
    """Return at least the number of values, keys and lists: strings may hold separators too."""
    return data.count(b",") + data.count(b"[") + data.count(b"{")


def _count_items(message: object) -> tuple[int, int]:
    """Return the number of parts of content, and of items in other lists."""
    parts = items = 0
    waiting: list[tuple[object, bool]] = [(message, False)]
    while waiting:
        value, holds_parts = waiting.pop()
        if isinstance(value, dict):
            fields = cast("dict[str, Any]", value).items()
            waiting += [
                (field, name in _PART_LISTS) for name, field in fields if name not in _OWN_DATA
            ]
        elif isinstance(value, list):
            found = cast("list[object]", value)
            if holds_parts:
                parts += len(found)
            else:
                items += len(found)
            waiting += [(item, False) for item in found]
    return parts, items


def replace_message(data: bytes, reason: str) -> bytes:
    """Return what to take in place of a message that is refused; empty if it needs nothing."""
    envelope = _read_envelope(data)
    if envelope.id is None:
        return b""  # A notification, or a line that is not a message.
    head: dict[str, Any] = {"jsonrpc": "2.0", "id": envelope.id}
    if envelope.method is not None:
        return msgspec.json.encode({**head, "method": envelope.method, "params": {}})
    message = f"the server sent an answer that is refused: {reason}; ask for less"
    return msgspec.json.encode({**head, "error": {"code": _INTERNAL_ERROR, "message": message}})


def _read_envelope(data: bytes) -> Envelope:
    try:
        return msgspec.json.decode(data, type=Envelope)
    except (msgspec.DecodeError, RecursionError):
        found = find_request_id(data)
        return Envelope(found)


def find_request_id(data: bytes) -> int | str | None:
    """Return the id of an answer that cannot be read; None if it does not look like an answer."""
    ends = data[:ID_SEARCH_BYTES] + b"\n" + data[-ID_SEARCH_BYTES:]
    found = _REQUEST_ID.search(ends)
    if not data.lstrip().startswith(b"{") or b'"jsonrpc"' not in ends or found is None:
        return None
    number = found[1]
    return int(number) if number else found[2].decode("utf-8", "replace")
