"""The model's side: a server in the parent process, which outlives every kill and counts.

It answers by what it is shown, so it needs to remember nothing: the reply to a request that holds
n replies is the one after the nth.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from proof.crash.script import ANSWER, PIECE_S, STEPS, arguments, call_id, steps_done
from windlass.testing.chat_wire import called, chat, words
from windlass.testing.fault_server import Asked, FaultServer
from windlass.testing.wire import Act, Answer, answer, wait


@dataclass(frozen=True, slots=True)
class Ask:
    """A request for the reply of one step."""

    step: int
    at: float
    """Seconds since the epoch."""
    asked: Asked

    @property
    def whole(self) -> bool:
        """Whether the whole reply was sent to somebody who was still there."""
        return not self.asked.client_left.is_set()


class Provider:
    """A scripted OpenAI-compatible server for any number of trials, told apart by their key."""

    def __init__(self) -> None:
        self.server = FaultServer(always=self._answer)
        self._asks: defaultdict[str, list[Ask]] = defaultdict(list)
        self._one_at_a_time = threading.Lock()

    def asks(self, trial: str) -> list[Ask]:
        """What a trial asked for, in order."""
        with self._one_at_a_time:
            return list(self._asks[trial])

    def _answer(self, asked: Asked) -> Answer:
        step = steps_done(asked.json) + 1
        trial = asked.headers["authorization"].removeprefix("Bearer ")
        with self._one_at_a_time:
            self._asks[trial].append(Ask(step, time.time(), asked))
        return reply(step)


def reply(step: int) -> Answer:
    """What the model says in a step, piece by piece."""
    if step > len(STEPS):
        whole = chat(*(words(f"{word} ") for word in ANSWER.split(" ")))
    else:
        calls = [
            called(name, arguments(what), id=call_id(step, at), index=at)
            for at, (name, what) in enumerate(STEPS[step - 1])
        ]
        whole = chat(words(f"Step {step}. "), *calls)
    return answer(*_paced(whole.acts))


def _paced(acts: tuple[Act, ...]) -> Iterator[Act]:
    for act in acts:
        yield act
        yield wait(PIECE_S)
