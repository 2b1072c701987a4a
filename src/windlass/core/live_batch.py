"""What a driver sends to watchers in other processes: its deltas, and marks in place of its facts.

Facts themselves are never sent. A watcher reads them from the journal, where they are checked. The
marks tell when they are there, and keep the order of facts and deltas.
"""

import msgspec

from windlass.core.events import Delta, NestedEvent, RunResumed


class FactMark(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="FactMark"):
    """The facts up to this number are in the journal. A nested one is about that session."""

    seq: int


LiveItem = Delta | FactMark


class LiveBatch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What has happened in a run since the batch before."""

    driver: str
    """Distinguishes the drivers of the session: each counts its batches from 1."""
    number: int
    """One more than that of the batch before. A watcher that finds a gap has missed something."""
    items: tuple[LiveItem, ...] = ()
    is_snapshot: bool = False
    """It starts over: a mark of all facts so far, then the reply so far, if any. The same follows
    for the session of each sub-agent that works, as nested events."""


def count_places(delta: Delta) -> int:
    """Return how many places a delta takes: room for the facts that a late watcher reads for it.

    Those are the facts of a sub-agent: before a mark, or before the fact that continues it.
    """
    event = delta.event if isinstance(delta, NestedEvent) else delta
    while isinstance(event, NestedEvent):
        event = event.event
    if isinstance(event, FactMark | RunResumed):
        return max(1, event.seq)
    return 1
