"""The model provider of a fleet: a server of the campaign, which outlives every worker and counts.

It keeps no state of its own: the reply to a request that shows n replies is reply n + 1.
"""

import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from proof.fleet.app import CALLS
from proof.limited_provider import LimitedProvider
from windlass.testing import FaultServer, ReceivedRequest
from windlass.testing.chat_wire import call_chunks, chat_answer, text_answer
from windlass.testing.wire import WireAnswer, stream_answer, wait

REQUESTS_PER_S = 100.0
SESSION_WORD = "Session "


@dataclass(frozen=True, slots=True)
class StepAsked:
    """A request for one reply of a session."""

    step: int
    worker: str
    at: float
    """Seconds since the epoch, by the campaign's clock."""


def write_prompt(session: str, calls: int = CALLS) -> str:
    """Return a prompt by which the provider knows the session, and how many calls it makes."""
    return f"{SESSION_WORD}{session}. Write {calls} lines."


class FleetProvider:
    """Replies to any number of sessions, after some time, and limits the rate as providers do."""

    def __init__(self, latency_s: float = 0.05, requests_per_s: float = REQUESTS_PER_S) -> None:
        self._latency_s = latency_s
        self._asked: defaultdict[str, list[StepAsked]] = defaultdict(list)
        self._workers: set[str] = set()
        self._mutex = threading.Lock()
        self.limits = LimitedProvider(
            self._answer, requests_per_s=requests_per_s, burst=int(2 * requests_per_s)
        )
        self.server = FaultServer(always=self.limits)

    def requests_of(self, session: str) -> list[StepAsked]:
        """Return the accepted requests of a session, in order."""
        with self._mutex:
            return list(self._asked[session])

    def has_heard_of(self, worker: str) -> bool:
        """Return whether a worker has made a request."""
        return worker in self._workers

    def _answer(self, request: ReceivedRequest) -> WireAnswer:
        messages: list[dict[str, Any]] = request.json["messages"]
        replies = sum(message["role"] == "assistant" for message in messages)
        session = find_session(messages)
        asked = StepAsked(replies + 1, request.headers.get("x-worker", ""), time.time())
        with self._mutex:
            self._asked[session].append(asked)
            self._workers.add(asked.worker)
        if replies < find_calls(messages):
            call = call_chunks("note", f'{{"number": {replies + 1}}}', id=f"call{replies + 1}")
            answer = chat_answer(call)
        else:
            answer = text_answer("Done.")
        return stream_answer(wait(self._latency_s), *answer.acts)


def find_calls(messages: list[dict[str, Any]]) -> int:
    """Return how many calls a prompt asks for."""
    return int(_find_prompt(messages).partition("Write ")[2].partition(" ")[0])


def find_session(messages: list[dict[str, Any]]) -> str:
    """Return the session that a prompt names."""
    return _find_prompt(messages).partition(SESSION_WORD)[2].partition(".")[0]


def _find_prompt(messages: list[dict[str, Any]]) -> str:
    texts = (str(message["content"]) for message in messages if message["role"] == "user")
    return next(text for text in texts if SESSION_WORD in text)
