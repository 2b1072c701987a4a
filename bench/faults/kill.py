"""SIGKILL in the middle of a tool that has had its effect, and then a new process that continues.

A run has three replies: look, pay, and an answer. Correct is: one payment, three requests, and an
answer, or a statement that it is not known whether the payment was made.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
from comparisons import STORES
from contestant import ContestantProcess, ContestantSilent
from lines import NONE
from roster import Peer

from windlass.testing.chat_wire import call_chunks, chat_answer, text_chunk
from windlass.testing.fault_server import FaultServer, ReceivedRequest, serve_in_thread
from windlass.testing.wire import WireAnswer, refuse_with

EFFECT_S = 60.0
RESUME_S = 60.0
NEEDED = 3
ANSWER = "That is all."


def kill_and_resume(peer: Peer) -> dict[str, Any]:
    if peer.name not in STORES:
        return {"kept by": "no store of its own", "outcome": NONE}
    server = FaultServer(always=_next_reply)
    with tempfile.TemporaryDirectory() as folder, serve_in_thread(server):
        effects = Path(folder) / "effects"
        order = {"url": server.url, "store": folder, "steps": 8}
        first = ContestantProcess(peer, BENCH_EFFECTS=str(effects), BENCH_STUCK_S="300")
        first.send("run", order=order)
        until = time.monotonic() + EFFECT_S
        while not effects.exists() and time.monotonic() < until:
            time.sleep(0.02)
        time.sleep(0.3)
        first.kill()
        if not effects.exists():
            return {"kept by": STORES[peer.name], "outcome": "the effect never happened"}
        second = ContestantProcess(peer, BENCH_EFFECTS=str(effects), BENCH_STUCK_S="0")
        try:
            answer = second.ask("run", RESUME_S, order={**order, "resume": True})
        except ContestantSilent as silent:
            answer = {"error": {"type": "ContestantSilent", "message": str(silent)}, "text": None}
        finally:
            second.kill()
        paid = len(effects.read_text("utf-8").splitlines())
    return {
        "kept by": STORES[peer.name],
        "outcome": _name_outcome(answer, paid, len(server.requests)),
        "effects": paid,
        "requests": f"{len(server.requests)} of {NEEDED} needed",
        "answer": _quote_answer(answer),
        "told of the payment": _result_of_pay(server.requests[-1].json),
        "bodies": [request.json.get("messages") for request in server.requests],
    }


def _quote_answer(answer: dict[str, Any]) -> str:
    if error := answer.get("error"):
        return f"{error['type']}: {error['message'][:90]}"
    return str(answer["text"])


def _name_outcome(answer: dict[str, Any], paid: int, requests: int) -> str:
    found = []
    if paid > 1:
        found.append("**EFFECT TWICE**")
    if requests > NEEDED:
        found.append("**PAID TWICE**")
    if answer.get("error"):
        found.append("**NOT RESUMED**")
    return ", ".join(found) or "resumed"


def _next_reply(request: ReceivedRequest) -> WireAnswer:
    """Return the reply to the conversation so far. Like a real provider it refuses invalid ones."""
    messages = request.json["messages"]
    open_ids = _unanswered_calls(messages)
    if open_ids:
        message = (
            f"An assistant message with 'tool_calls' must be followed by tool messages: {open_ids}"
        )
        return refuse_with(400, {"error": {"message": message, "type": "invalid_request_error"}})
    calls = [c["function"]["name"] for m in messages for c in m.get("tool_calls") or ()]
    if "pay" in calls:
        return chat_answer(text_chunk(ANSWER))
    if "look" in calls:
        return chat_answer(call_chunks("pay", '{"amount": 7}', id="call_pay"))
    return chat_answer(call_chunks("look", '{"at": 0}', id="call_look"))


def _unanswered_calls(messages: list[dict[str, Any]]) -> list[str]:
    call_ids = [c["id"] for m in messages for c in m.get("tool_calls") or ()]
    answered = {m.get("tool_call_id") for m in messages if m["role"] == "tool"}
    return [call_id for call_id in call_ids if call_id not in answered]


def _result_of_pay(body: dict[str, Any]) -> str:
    """Return the result of the payment as the model saw it."""
    results = [m for m in body["messages"] if m["role"] == "tool"]
    return msgspec.json.encode(results[-1]["content"]).decode()[:200] if results else ""
