"""What the notifications of the live channel say, and who is interested in which session.

A notification has 8,000 bytes at most, so a batch may be cut into parts: `ID INDEX COUNT TEXT`. An
interest is `KEY WATCHER VERB`; the verb is `ask`, `keep` or `leave`.
"""

import asyncio
from collections.abc import Callable

from windlass.journals.live.frames import BATCH_BYTES_MAX, BadFrame

PART_BYTES_MAX = 6_900
"""Of the text in a part; with its prefix, a payload has 7,000 bytes at most."""
PARTS_MAX = BATCH_BYTES_MAX // (PART_BYTES_MAX - 4) + 1
INTEREST_S = 15.0
"""How long an interest lasts that is not renewed."""
SESSIONS_MAX = 10_000
WATCHERS_MAX = 256
_CONTINUATION_MASK = 0xC0
_CONTINUATION = 0x80


def split_batch(batch_id: str, body: bytes) -> list[str]:
    """Return the payloads of a batch, cut between characters."""
    texts: list[str] = []
    start = 0
    while start < len(body):
        end = min(start + PART_BYTES_MAX, len(body))
        while end < len(body) and body[end] & _CONTINUATION_MASK == _CONTINUATION:
            end -= 1
        texts.append(body[start:end].decode())
        start = end
    return [f"{batch_id} {at} {len(texts)} {text}" for at, text in enumerate(texts)]


class BatchAssembly:
    """Puts the parts of batches together, which come in order; a batch with a gap is dropped."""

    def __init__(self) -> None:
        self._id = ""
        self._parts: list[str] = []

    def add(self, payload: str) -> bytes | None:
        """Return the body of the batch that this part completes. Raises BadFrame."""
        try:
            batch_id, index, count, text = payload.split(" ", 3)
            at = int(index)
            parts = int(count)
        except ValueError:
            raise BadFrame("it is not a part of a batch") from None
        if not 0 <= at < parts <= PARTS_MAX:
            raise BadFrame(f"part {at} of {parts}")
        if at == 0:
            self._id = batch_id
            self._parts = []
        elif (batch_id, at) != (self._id, len(self._parts)):
            self._id = ""
            return None
        self._parts.append(text)
        if len(self._parts) < parts:
            return None
        return "".join(self._parts).encode()


class InterestTable:
    """Who watches which session, until they leave or do not renew their interest."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, on_change: Callable[[str, bool], None]
    ) -> None:
        """Make a table; `on_change` gets a key, and whether to send a snapshot or to stop."""
        self._loop = loop
        self._on_change = on_change
        self._expires_at: dict[str, dict[str, float]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def is_wanted(self, key: str) -> bool:
        return key in self._expires_at

    def take(self, payload: str) -> None:
        """Take what a watcher says; what is not understood is ignored."""
        words = payload.split(" ")
        if len(words) != 3:  # noqa: PLR2004 - key, watcher, verb
            return
        key, watcher, verb = words
        watchers = self._expires_at.get(key, {})
        if verb == "leave":
            watchers.pop(watcher, None)
            self._forget_if_empty(key)
            return
        is_new = watcher not in watchers
        if is_new and (len(watchers) >= WATCHERS_MAX or len(self._expires_at) >= SESSIONS_MAX):
            return
        self._expires_at.setdefault(key, watchers)[watcher] = self._loop.time() + INTEREST_S
        if self._timer is None:
            self._timer = self._loop.call_later(INTEREST_S / 3, self._sweep)
        if is_new or verb == "ask":
            self._on_change(key, True)  # noqa: FBT003 - it is a callback

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _sweep(self) -> None:
        self._timer = None
        now = self._loop.time()
        for key, watchers in tuple(self._expires_at.items()):
            for watcher, expires_at in tuple(watchers.items()):
                if expires_at <= now:
                    del watchers[watcher]
            self._forget_if_empty(key)
        if self._expires_at:
            self._timer = self._loop.call_later(INTEREST_S / 3, self._sweep)

    def _forget_if_empty(self, key: str) -> None:
        if key in self._expires_at and not self._expires_at[key]:
            del self._expires_at[key]
            self._on_change(key, False)  # noqa: FBT003 - it is a callback
