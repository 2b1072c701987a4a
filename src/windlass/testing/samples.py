"""Facts to try a journal with: a session that folds, with every kind of fact in it."""

from collections.abc import Sequence
from decimal import Decimal

from msgspec.structs import replace

from windlass.core.events import (
    AttemptFailed,
    AttemptStarted,
    CallAnswered,
    CallFinished,
    CallJudged,
    CallLate,
    CallStarted,
    Change,
    Compacted,
    Fact,
    NoteGiven,
    ReplyJudged,
    Reservation,
    RunEnded,
    RunResumed,
    RunStarted,
    StepProposed,
)
from windlass.core.faults import Fault
from windlass.core.messages import (
    Assistant,
    Charge,
    File,
    Image,
    Result,
    Text,
    Thinking,
    ToolCall,
    ToolSpec,
    Usage,
)
from windlass.core.setup import Limits, ModelInfo, Price, Setup, digest
from windlass.core.verdicts import Allow, Ask, Deny, Invalid, Modify


def notes(first: int, last: int, text: str = "note") -> list[Fact]:
    """Small facts with these numbers."""
    numbers = range(first, last + 1)
    return [NoteGiven(f"{text} {at}", "same_call", seq=at, at=1e9 + at) for at in numbers]


RESERVED = Reservation(1_000, 500, Decimal("0.01"))
PAID = Charge("m:x", usage=Usage(100, 20, cache_read=10, reasoning=5), usd=Decimal("0.00123"))
ASKED = {"to": "ann", "n": [1, None, 2.5]}


def one_of_each() -> list[Fact]:
    """A session that folds, with every kind of fact and every kind of content in it."""
    prompt = (Text("Look, then send. 🙂"), Image("image/png", b"\x89PNG\x00\xff"), _page())
    fault = Fault("rate_limit", "slow down", retryable=True, retry_after_s=1.5)
    return placed(
        [
            RunStarted(1, prompt, setup=_setup()),
            AttemptStarted(1, 1, "m:x", RESERVED),
            AttemptFailed(fault, established=True, visible=True, partial="I", wait_s=1.0),
            AttemptStarted(1, 2, "m:x", RESERVED),
            *_a_step(),
            CallLate("a", Result.say("value", "too late")),
            NoteGiven("You said that before.", "same_call"),
            Compacted(1, "[1 earlier message was left out.]"),
            AttemptStarted(2, 1, "m:x", RESERVED, landing=True),
            StepProposed(Assistant((Text("Sent."),)), "end", Charge("m:x")),
            ReplyJudged(Allow()),
            RunEnded("completed", "done", partial=""),
            RunStarted(2, (Text("Again."),)),
            RunEnded("failed", "why", Fault("bug", "oh"), partial="Al", charge=PAID),
        ]
    )


def _a_step() -> list[Fact]:
    """Four calls: one that runs, one that is asked about, one that is none, one that is changed."""
    calls = (
        ToolCall("a", "look", '{"at":"ø"}', provider_id="p1", signature="s"),
        ToolCall("b", "send", '{"to":"ann","n":18446744073709551616}'),
        ToolCall("c", "nothing", "{"),
        ToolCall("d", "send", ""),
    )
    thought = (Thinking("Let me see.", signature="sig"), Text("I look."), *calls)
    result = Result("value", (Text("long " * 5_000), Image("image/png", b"\x89PNG\x00\xff")))
    return [
        StepProposed(Assistant(thought, "m:x"), "calls", PAID),
        CallJudged("a", Allow("rule 1"), changes=(Change("at", "trimmed"),), resource="r"),
        CallJudged("b", Ask("May I?", "rule 2", expires_at=2e9), ASKED),
        CallJudged("c", Invalid("unknown_tool", "There is no such tool.")),
        CallJudged("d", Modify({"to": "bob"}, "not ann")),
        RunResumed(("tool send changed",), setup=_setup()),
        CallAnswered("b", Deny("no"), digest(ASKED), by="ann"),
        CallStarted("a", "key-a"),
        CallFinished("a", result),
        CallStarted("d", "key-d"),
        CallFinished("d", Result.say("error", "no such address")),
    ]


def placed(facts: Sequence[Fact]) -> list[Fact]:
    """The facts, numbered from 1."""
    return [replace(fact, seq=at, at=1e9 + at / 8) for at, fact in enumerate(facts, 1)]


def _page() -> File:
    return File("text/plain", "notes.txt", b"", None)


def _setup() -> Setup:
    price = Price(Decimal("1.25"), Decimal(10), cache_read=Decimal("0.125"))
    look = ToolSpec("look", "Looks.", {"type": "object"}, effect="read", labels=("untrusted",))
    send = ToolSpec("send", "Sends.", {"type": "object", "properties": {"to": {"minLength": 1}}})
    return Setup(
        model=ModelInfo("m:x", price, window=100_000),
        instructions="Be brief.",
        tools=(look, send),
        gate="rules 1",
        judge_replies=True,
        output_schema={"type": "string"},
        limits=Limits(steps=5, usd=Decimal("0.5"), seconds=60.0),
    )
