"""Encode a value of many megabytes as JSON, a part at a time.

A call into C holds the interpreter's lock until it is over, also in a thread, and the event loop
waits for that lock. So a large value is encoded in a thread, by many calls that are short.

Invariant: the parts together are the same text as that of one call.
"""

from collections.abc import Callable, Iterator, Sequence, Sized
from itertools import islice
from typing import Any, cast

import msgspec

EncodeValue = Callable[[object], bytes]
"""Encodes a value that is not large; raises TypeError or ValueError if it has no JSON form."""

LARGE_WEIGHT = 200_000
"""From about this many characters of JSON on, a value is encoded in parts, in a thread."""
_BATCH_ITEMS = 512
_SCALARS = frozenset((int, float, bool, type(None)))
_encode_plain = msgspec.json.Encoder().encode


def is_large(value: object) -> bool:
    """Whether the JSON of a value would be long. Looks at no more of it than is needed to tell."""
    return weigh_value(value, LARGE_WEIGHT) > LARGE_WEIGHT


def weigh_value(value: object, enough: int) -> int:
    """Return about how many characters the JSON of a value has.

    Once it is more than `enough`, the rest is not counted.
    """
    weight = 0
    waiting = [value]
    while waiting and weight <= enough:
        item = waiting.pop()
        kind = type(item)
        if kind in _SCALARS:
            continue
        if kind is str:
            weight += len(cast("str", item))
        elif kind is dict:
            fields = cast("dict[object, object]", item)
            weight += 8 * len(fields)
            waiting += islice(fields.values(), enough)
        elif kind is list or kind is tuple:
            items = cast("Sequence[object]", item)
            weight += 4 * len(items)
            waiting += islice(items, enough)
        else:
            weight += _weigh_object(item, waiting)
    return weight


def _weigh_object(item: object, waiting: list[object]) -> int:
    """Return the weight of a value of another type; what it holds is added to `waiting`."""
    if isinstance(item, Sized):
        # Bytes, sets and mappings of other types.
        return 4 * len(item)
    if hasattr(item, "tolist"):
        # An array of a library: how much of it there is can only be asked.
        return 4 * int(getattr(item, "size", 0))
    if isinstance(item, msgspec.Struct):
        waiting += [getattr(item, name) for name in item.__struct_fields__]
    elif hasattr(item, "__dict__"):
        waiting += vars(item).values()
    return 0


def encode_in_parts(value: object, encode: EncodeValue) -> Iterator[bytes]:
    """Yield the JSON of a value in parts. `encode` is called for what is not large."""
    if not is_large(value):
        yield encode(value)
    elif type(value) is str:
        yield b'"'
        for first in range(0, len(value), LARGE_WEIGHT):
            yield _encode_plain(value[first : first + LARGE_WEIGHT])[1:-1]
        yield b'"'
    elif type(value) is list or type(value) is tuple:
        yield from _encode_items(cast("Sequence[Any]", value), encode)
    elif type(value) is dict:
        yield from _encode_fields(cast("dict[Any, Any]", value), encode)
    else:
        yield encode(value)


def _encode_items(items: Sequence[Any], encode: EncodeValue) -> Iterator[bytes]:
    separator = b"["
    for first in range(0, len(items), _BATCH_ITEMS):
        batch = items[first : first + _BATCH_ITEMS]
        if is_large(batch):
            for item in batch:
                yield separator
                yield from encode_in_parts(item, encode)
                separator = b","
        else:
            yield separator
            yield encode(batch)[1:-1]
            separator = b","
    yield b"]"


def _encode_fields(fields: dict[Any, Any], encode: EncodeValue) -> Iterator[bytes]:
    separator = b"{"
    for key, item in fields.items():
        yield separator
        # The key as it stands before its value, whatever type it has.
        yield encode({key: 0})[1:-2]
        yield from encode_in_parts(item, encode)
        separator = b","
    yield b"}"
