"""What a webhook says: pure functions from facts to messages.

Invariant: a message follows from the facts alone, and so does its id, no matter which process sends
it and how often. What was said in a session is in it only if the webhook was made with `content`.
"""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal

import msgspec

from windlass.core.control_facts import CallWaiting
from windlass.core.events import CallJudged, Fact, RunEnded, RunQueued, RunStarted
from windlass.core.question import Question
from windlass.core.session_summary import NO_TAGS, TAGS_KEY, SessionSummary
from windlass.core.verdicts import Ask
from windlass.server.webhooks.store import Webhook

MessageType = Literal["question.asked", "run.ended", "run.failed", "webhook.test"]
TEXT_CHARS_MAX = 2_000


class QuestionNotice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A question that waits for a person."""

    session: str
    """The session that asks, which may be that of a sub-agent."""
    call_id: str
    tool: str
    digest: str
    """Of the arguments. An answer is bound to it."""
    expires_at: float | None = None
    question: str = ""
    arguments: dict[str, Any] | None = None


class MessageData(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a message is about."""

    session: str
    owner: str
    agent: str
    seq: int
    """The fact that it follows from."""
    run: int
    question: QuestionNotice | None = None
    outcome: str = ""
    reason: str = ""
    steps: int | None = None
    tokens: int | None = None
    usd: Decimal | None = None
    tags: Mapping[str, str] = {}
    """Of the run."""
    link: str = ""
    """A page for exactly this question. It needs no other login, and works once."""


class HookMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a webhook, and its id."""

    id: str
    type: MessageType
    at: float
    data: MessageData

    def to_body(self) -> bytes:
        """Return the JSON that is sent and signed."""
        moment = datetime.fromtimestamp(self.at, UTC).isoformat(timespec="milliseconds")
        body = {"type": self.type, "timestamp": moment, "data": self.data}
        return msgspec.json.encode(body)

    def to_text(self) -> str:
        """Return the message as a line for a person."""
        data = self.data
        where = f"{data.agent or 'An agent'} in {data.session}"
        match self.type:
            case "question.asked":
                asked = data.question
                tool = asked.tool if asked is not None else "a tool"
                text = asked.question if asked is not None and asked.question else ""
                return f"{where} asks whether to run {tool}. {text}".strip()
            case "run.failed" | "run.ended":
                return f"{where}: the run has ended as {data.outcome}. {data.reason}".strip()
            case "webhook.test":
                return "This webhook works."


class SessionReading(msgspec.Struct, frozen=True):
    """Facts of a session, and what they are about."""

    summary: SessionSummary
    owner: str
    facts: Sequence[Fact]
    """All facts after the cursor."""
    questions: Mapping[tuple[str, str], Question]
    """The questions that wait now, by session and call: only these are worth a message."""

    def run_of(self, fact: Fact) -> int:
        """Return the number of the run that a fact belongs to."""
        starts = [each for each in self.facts if isinstance(each, RunQueued | RunStarted)]
        before = [start.run for start in starts if start.seq <= fact.seq]
        if before:
            return before[-1]
        return starts[0].run - 1 if starts else self.summary.runs

    def tags_of(self, fact: Fact) -> Mapping[str, str]:
        """Return the tags of the run that a fact belongs to."""
        run = self.run_of(fact)
        for start in self.facts:
            if isinstance(start, RunStarted) and start.run == run:
                return start.context.get(TAGS_KEY, NO_TAGS)
        return self.summary.tags if run == self.summary.runs else NO_TAGS


def messages_of_fact(hook: Webhook, reading: SessionReading, fact: Fact) -> list[HookMessage]:
    """Return what a webhook says about a fact: nothing, one message, or one for each question."""
    match fact:
        case RunEnded(outcome="failed") if "failed" in hook.events:
            return [_end_message(hook, reading, fact, "run.failed")]
        case RunEnded(outcome=outcome) if outcome != "failed" and "ended" in hook.events:
            return [_end_message(hook, reading, fact, "run.ended")]
        case CallJudged(verdict=Ask()) if "question" in hook.events:
            asked = [(reading.summary.session, fact.call_id)]
        case CallWaiting(questions=questions) if "question" in hook.events:
            asked = [(question.session, question.call_id) for question in questions]
        case _:
            return []
    # A question that was answered meanwhile needs no message.
    waiting = [reading.questions[place] for place in asked if place in reading.questions]
    return [_question_message(hook, reading, fact, question) for question in waiting]


def make_test_message(hook: Webhook, at: float) -> HookMessage:
    """Return a message by which a person sees that a webhook works."""
    data = MessageData(session="", owner=hook.owner, agent=hook.agent, seq=0, run=0)
    return HookMessage(
        id=_message_id(hook, "test", repr(at)), type="webhook.test", at=at, data=data
    )


def _end_message(
    hook: Webhook, reading: SessionReading, fact: RunEnded, kind: Literal["run.ended", "run.failed"]
) -> HookMessage:
    summary = reading.summary
    # The figures are those of the session as it is now.
    is_last = summary.facts == fact.seq
    reason = fact.reason[:TEXT_CHARS_MAX] if hook.content else ""
    data = MessageData(
        session=summary.session,
        owner=reading.owner,
        agent=summary.agent,
        seq=fact.seq,
        run=reading.run_of(fact),
        outcome=fact.outcome,
        reason=reason,
        steps=summary.steps if is_last else None,
        tokens=summary.tokens if is_last else None,
        usd=summary.usd if is_last else None,
        tags=reading.tags_of(fact),
    )
    return HookMessage(
        id=_message_id(hook, summary.session, str(fact.seq)), type=kind, at=fact.at, data=data
    )


def _question_message(
    hook: Webhook, reading: SessionReading, fact: Fact, question: Question
) -> HookMessage:
    summary = reading.summary
    asked = QuestionNotice(
        session=question.session,
        call_id=question.call_id,
        tool=question.tool,
        digest=question.digest,
        expires_at=question.expires_at,
        question=question.question[:TEXT_CHARS_MAX] if hook.content else "",
        arguments=question.arguments if hook.content else None,
    )
    data = MessageData(
        session=summary.session,
        owner=reading.owner,
        agent=summary.agent,
        seq=fact.seq,
        run=reading.run_of(fact),
        question=asked,
        tags=reading.tags_of(fact),
    )
    # A question of a sub-agent may be recorded again when its caller waits again: it is the same.
    identity = (summary.session, question.session, question.call_id, question.digest)
    return HookMessage(
        id=_message_id(hook, *identity), type="question.asked", at=fact.at, data=data
    )


def _message_id(hook: Webhook, *parts: str) -> str:
    text = msgspec.json.encode((hook.id, *parts))
    return f"msg_{hashlib.sha256(text).hexdigest()[:32]}"
