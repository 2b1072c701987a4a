"""The model provider: a server that follows the plan in the prompt and fails at random.

It answers only by what a request contains, so a killed client does not matter to it.
"""

import random
from collections import Counter
from typing import Any

import msgspec
from plan import SoakPlan, parse_plan

from proof.wire_faults import FAULTS, WireFault
from windlass.testing.chat_wire import call_chunks, chat_answer, text_chunk
from windlass.testing.fault_server import FaultServer, ReceivedRequest
from windlass.testing.wire import WireAnswer, WireWait, stream_answer, wait

FAULTY = 0.12
"""The share of the requests that fail."""
HOPELESS = 0.03
"""The share of the failures that no retry can fix."""
PATIENCE_S = 1.0
"""The longest wait that the server asks for: a longer one would only make the soak idle."""
KEPT_MAX = 200
_MENDABLE = [
    fault
    for fault in FAULTS
    if fault.retryable and (fault.retry_after_s or 0.0) <= PATIENCE_S and fault.name != "pings_only"
]
_HOPELESS = [fault for fault in FAULTS if not fault.retryable]


class SoakProvider:
    """An OpenAI-compatible server for any number of sessions."""

    def __init__(self, seed: int) -> None:
        self.server = FaultServer(always=self._answer_request)
        self.request_count = 0
        self.faults: Counter[str] = Counter()
        self._rolls = random.Random(seed)

    def _answer_request(self, request: ReceivedRequest) -> WireAnswer:
        self.request_count += 1
        if len(self.server.requests) > KEPT_MAX:
            del self.server.requests[:-1]
        if self._rolls.random() < FAULTY:
            fault = self._roll_fault()
            self.faults[fault.name] += 1
            return fault.answer
        return self._plan_reply(request.json["messages"])

    def _roll_fault(self) -> WireFault:
        hopeless = self._rolls.random() < HOPELESS
        return self._rolls.choice(_HOPELESS if hopeless else _MENDABLE)

    def _plan_reply(self, messages: list[dict[str, Any]]) -> WireAnswer:
        plan, done = _plan_under_way(messages)
        pause = wait(self._rolls.choice((0.0, 0.005, 0.02, 0.05)))
        if done >= len(plan.steps):
            return _pace_answer(
                chat_answer(text_chunk("That "), text_chunk("is "), text_chunk("all.")), pause
            )
        calls = [
            call_chunks(name, msgspec.json.encode(arguments).decode(), id=f"c{done}_{at}", index=at)
            for at, (name, arguments) in enumerate(plan.steps[done])
        ]
        return _pace_answer(chat_answer(text_chunk("Next. "), *calls), pause)


def _plan_under_way(messages: list[dict[str, Any]]) -> tuple[SoakPlan, int]:
    """Return the latest plan, and how many replies came after it."""
    done = 0
    for message in reversed(messages):
        if message["role"] == "assistant":
            done += 1
        elif message["role"] == "user" and (plan := parse_plan(_content_text(message["content"]))):
            return plan, done
    return SoakPlan([]), done


def _content_text(content: str | list[dict[str, Any]]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content)


def _pace_answer(whole: WireAnswer, pause: WireWait) -> WireAnswer:
    return stream_answer(*(act for piece in whole.acts for act in (piece, pause)))
