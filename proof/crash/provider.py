"""The model provider: a server in the parent process, which outlives every kill and counts.

It keeps no state of its own: the reply to a request that shows n replies is reply n + 1.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from proof.crash.script import ANSWER, PIECE_S, STEPS, call_id, count_replies, encode_arguments
from windlass.testing.chat_wire import DONE, call_chunks, chat_answer, text_chunk
from windlass.testing.fault_server import FaultServer, ReceivedRequest
from windlass.testing.wire import WireAct, WireAnswer, append_acts, stall, stream_answer, wait


@dataclass(frozen=True, slots=True)
class StepRequest:
    """A request for the reply of one step."""

    step: int
    at: float
    """Seconds since the epoch."""
    request: ReceivedRequest
    end_act: int
    """The number of the act that sends the end marker of the reply, from 0."""

    @property
    def sent_at(self) -> float | None:
        """When the whole reply had been sent, with its end marker. None: never."""
        done = self.request.acts_done
        return done[self.end_act] if len(done) > self.end_act else None


class CrashProvider:
    """A scripted OpenAI-compatible server for any number of trials, identified by their API key."""

    def __init__(self, *, keep_open: bool = False) -> None:
        """Make a provider; `keep_open`: its responses stay open after the end marker."""
        self._keep_open = keep_open
        self.server = FaultServer(always=self._answer_request)
        self._requests: defaultdict[str, list[StepRequest]] = defaultdict(list)
        self._one_at_a_time = threading.Lock()

    def requests_of(self, trial: str) -> list[StepRequest]:
        """Return the requests of a trial, in order."""
        with self._one_at_a_time:
            return list(self._requests[trial])

    def _answer_request(self, asked: ReceivedRequest) -> WireAnswer:
        step = count_replies(asked.json) + 1
        trial = asked.headers["authorization"].removeprefix("Bearer ")
        answer = answer_step(step)
        end_act = max(at for at, act in enumerate(answer.acts) if act == DONE)
        with self._one_at_a_time:
            self._requests[trial].append(StepRequest(step, time.time(), asked, end_act))
        return append_acts(answer, stall()) if self._keep_open else answer


def answer_step(step: int) -> WireAnswer:
    """Return the reply of a step, piece by piece."""
    if step > len(STEPS):
        whole = chat_answer(*(text_chunk(f"{word} ") for word in ANSWER.split(" ")))
    else:
        calls = [
            call_chunks(name, encode_arguments(what), id=call_id(step, at), index=at)
            for at, (name, what) in enumerate(STEPS[step - 1])
        ]
        whole = chat_answer(text_chunk(f"Step {step}. "), *calls)
    return stream_answer(*_pace_acts(whole.acts))


def _pace_acts(acts: tuple[WireAct, ...]) -> Iterator[WireAct]:
    for act in acts:
        yield act
        yield wait(PIECE_S)
