"""Events from their JSON form, of whatever kind they are."""

from typing import Any, cast

from windlass.core.deltas import resolve_nested
from windlass.core.events import Event
from windlass.core.json_form import decode_json


def parse_event(text: str | bytes) -> Event:
    """Return the event that `to_json`, a service or a line of `stream-json` wrote.

    Raises ValueError if it is not the JSON of an event.
    """
    # A union of types is no type to a checker; the decoder returns one of them.
    event: Event = decode_json(text, cast("Any", Event), "an event")
    return resolve_nested(event)
