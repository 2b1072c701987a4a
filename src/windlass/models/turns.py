"""What the encoders of several dialects share: turns, the ids and arguments of calls, bodies.

The law: everything here only ever goes on. A turn that is open is continued and never rewritten,
and a call keeps the id that it was once given, so that encoded history stays a prefix (P5).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec

from windlass.core.messages import ToolCall
from windlass.models.fragments import HistoryFragment

encode_json = msgspec.json.Encoder().encode

_CALL_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""What every provider takes for the id of a call."""

_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


class TurnJoiner:
    """Joins messages of one role that follow one another into one turn."""

    def __init__(self, content_key: str) -> None:
        self._content_key = content_key
        self._role = ""

    def add_blocks(self, role: str, blocks: Sequence[bytes]) -> Iterable[HistoryFragment]:
        """A message without blocks says nothing, and no provider takes it."""
        if not blocks:
            return ()
        joins, self._role = role == self._role, role
        inside = b",".join(blocks)
        body = b"," + inside if joins else self._open_turn(role) + inside
        return (HistoryFragment(body, b"]}", joins),)

    def _open_turn(self, role: str) -> bytes:
        return f'{{"role":"{role}","{self._content_key}":['.encode()


class CallIds:
    """The id that each call has on the wire (S9).

    A provider gets back the ids that it gave, unless one is not unique or not well-formed; a call
    that another model made goes by our own id, which is unique in the session.
    """

    def __init__(self) -> None:
        self._given: dict[str, str] = {}
        self._taken: set[str] = set()

    def assign_id(self, call: ToolCall, *, native: bool) -> str:
        known = self._given.get(call.id)
        if known is not None:
            return known
        wanted = (call.provider_id if native else None) or call.id
        if not _CALL_ID.fullmatch(wanted) or wanted in self._taken:
            wanted = re.sub(r"[^a-zA-Z0-9_-]", "_", call.id)[-48:]
        while wanted in self._taken:
            wanted += "_"
        self._taken.add(wanted)
        self._given[call.id] = wanted
        return wanted

    def id_of(self, call: ToolCall) -> str:
        return self.assign_id(call, native=False)


def as_json_object(arguments: str) -> msgspec.Raw | dict[str, str]:
    """The arguments of a call, for a provider that takes nothing but a JSON object.

    Verbatim where they are one. What is none was refused with a result that says so; the model is
    shown what it wrote.
    """
    if not arguments.strip():
        return {}
    try:
        _decode_object(arguments)
    except msgspec.DecodeError:
        return {"not_a_json_object": arguments}
    return msgspec.Raw(arguments.encode())


def build_body(
    head: Mapping[str, Any], extra: Mapping[str, Any], key: str, history: bytes
) -> bytes:
    """One request: the head, then what the caller adds to it, and the history last."""
    whole = merge_fields(head, extra)
    encoded = encode_json(whole)
    if key in whole:  # The caller brings a history of their own.
        return encoded
    return b"%b,%b:[%b]}" % (encoded[:-1], encode_json(key), history)


def merge_fields(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The other's fields win; objects are merged, so that one field of a nested one can be set."""
    whole = dict(base)
    for key, value in overrides.items():
        mine = whole.get(key)
        if isinstance(mine, Mapping) and isinstance(value, Mapping):
            mine = cast("Mapping[str, Any]", mine)
            whole[key] = merge_fields(mine, cast("Mapping[str, Any]", value))
        else:
            whole[key] = value
    return whole
