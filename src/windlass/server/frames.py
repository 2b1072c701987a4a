"""Frames of server-sent events, each encoded once."""

from windlass.core.events import Event
from windlass.core.json_form import encode_json

FRAMES_KEPT = 128
"""Frames that are kept for the other watchers of the same events."""


class FrameEncoder:
    """Encodes events once, no matter how many watch them."""

    def __init__(self) -> None:
        self._frames: dict[int, tuple[Event, bytes]] = {}

    def encode(self, event: Event) -> bytes:
        """Return the frame of an event in the stream of its session."""
        known = self._frames.get(id(event))
        if known is not None:
            return known[1]
        if len(self._frames) >= FRAMES_KEPT:
            self._frames.clear()
        frame = encode_event(event)
        # The event is kept as well: its id is its address, which must not be used again in the
        # meantime.
        self._frames[id(event)] = (event, frame)
        return frame


def encode_event(event: Event) -> bytes:
    """Return the frame of an event: `fact` with an id, or `delta` without one."""
    data = encode_json(event)
    if event.nth:
        return b"event: delta\ndata: %b\n\n" % data
    return b"id: %d\nevent: fact\ndata: %b\n\n" % (event.seq, data)


def encode_frame(name: str, data: object, event_id: str = "") -> bytes:
    """Return a frame with any data that has a JSON form."""
    head = f"id: {event_id}\n" if event_id else ""
    return f"{head}event: {name}\n".encode() + b"data: %b\n\n" % encode_json(data)
