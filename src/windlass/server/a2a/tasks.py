"""Runs as tasks of A2A: a session is a context, and each of its runs is a task.

The id of a task names its session and its run, so any replica finds it without its own table.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from windlass.core.errors import Outcome
from windlass.core.messages import ContentPart, FilePart, ImagePart, TextPart
from windlass.core.projection.entries import PromptEntry, SteeringEntry
from windlass.core.projection.runs import RunView
from windlass.core.projection.view import Projection, ReplyEntry
from windlass.core.question import Question
from windlass.server.a2a.wire import (
    A2aArtifact,
    A2aMessage,
    A2aPart,
    A2aTask,
    TaskState,
    TaskStatus,
)
from windlass.server.answers import ANSWER_SCHEMA, question_id
from windlass.server.client_run import describe_end

ANSWER_ARTIFACT = "answer"
"""The one artifact of a task: the last reply of its run."""
RUN_MARK = "#"
_REJECTED: frozenset[Outcome] = frozenset(("refused", "policy_denied"))


def task_id(session: str, run: int) -> str:
    """Return the id of the task that is a run of a session."""
    return f"{session}{RUN_MARK}{run}"


def split_task_id(name: str) -> tuple[str, int]:
    """Return the session and the run of a task; ("", 0) if it cannot be the id of one."""
    session, mark, run = name.rpartition(RUN_MARK)
    if not mark or not run.isascii() or not run.isdecimal():
        return "", 0
    return session, int(run)


def build_task(
    view: Projection, run: RunView, history_length: int | None = None, *, artifacts: bool = True
) -> A2aTask:
    """Return a run as a task. `history_length`: the maximum number of its last messages."""
    history = tuple(build_history(view, run))
    if history_length is not None:
        history = history[-history_length:] if history_length > 0 else ()
    metadata: dict[str, Any] = {"agent": run.agent} if run.agent else {}
    if run.outcome is not None:
        metadata["outcome"] = run.outcome
    if run.ledger.usd is not None:
        metadata["costUsd"] = str(run.ledger.usd)
    return A2aTask(
        id=task_id(view.session, run.number),
        context_id=view.session,
        status=build_status(view, run),
        artifacts=tuple(build_artifacts(run)) if artifacts else (),
        history=history,
        metadata={"windlass": metadata} if metadata else {},
    )


def build_status(view: Projection, run: RunView) -> TaskStatus:
    """Return how far a run has come, with what it asks or why it failed."""
    state = task_state(view, run)
    message: A2aMessage | None = None
    at = run.ended_at or view.at
    match state:
        case "TASK_STATE_INPUT_REQUIRED":
            message = agent_message(view, run, f"question-{view.seq}", *_question_parts(view))
        case "TASK_STATE_FAILED" | "TASK_STATE_REJECTED" | "TASK_STATE_CANCELED":
            parts = (
                A2aPart(text=describe_end(run)),
                A2aPart(data={"outcome": run.outcome}),
            )
            message = agent_message(view, run, f"end-{run.number}", *parts)
        case _:
            pass
    return TaskStatus(state=state, message=message, timestamp=format_time(at))


def task_state(view: Projection, run: RunView) -> TaskState:
    """Return the state of a run in the words of the protocol."""
    match run.outcome:
        case None:
            waits = view.status.waits_for
            if run.queued and waits == "driver":
                return "TASK_STATE_SUBMITTED"
            is_asked = (waits == "person" and bool(view.questions)) or waits == "continue"
            return "TASK_STATE_INPUT_REQUIRED" if is_asked else "TASK_STATE_WORKING"
        case "completed":
            return "TASK_STATE_COMPLETED"
        case "cancelled":
            return "TASK_STATE_CANCELED"
        case outcome if outcome in _REJECTED:
            return "TASK_STATE_REJECTED"
        case _:
            return "TASK_STATE_FAILED"


def _question_parts(view: Projection) -> Iterator[A2aPart]:
    """Yield what the run asks, in words and as data."""
    questions = view.questions
    if not questions:
        pause = view.run.pause if view.run is not None else None
        because = f": {pause.reason}" if pause is not None and pause.reason else ""
        yield A2aPart(text=f"The run is paused{because}. Answer yes to go on, or no to end it.")
        return
    for question in questions:
        yield A2aPart(text=question.question)
    yield A2aPart(
        data={
            "questions": [_describe_question(each) for each in questions],
            "answer": ANSWER_SCHEMA,
        }
    )


def _describe_question(question: Question) -> dict[str, Any]:
    described: dict[str, Any] = {
        "id": question_id(question),
        "question": question.question,
        "tool": question.tool,
        "arguments": question.arguments,
        "rule": question.rule,
        "agents": list(question.chain),
    }
    if question.expires_at is not None:
        described["expiresAt"] = format_time(question.expires_at)
    return described


def build_artifacts(run: RunView) -> Iterator[A2aArtifact]:
    """Yield what a run has produced: its last reply, or as far as it came."""
    text = run.text or run.partial
    if text:
        yield answer_artifact(text)


def answer_artifact(text: str) -> A2aArtifact:
    """Return the reply of a run, or a piece of it."""
    return A2aArtifact(artifact_id=ANSWER_ARTIFACT, name="answer", parts=(A2aPart(text=text),))


def build_history(view: Projection, run: RunView) -> Iterator[A2aMessage]:
    """Yield what was said in a run, by people and by the agent."""
    later = [
        each.first_entry for each in (*view.runs, view.run) if each and each.number > run.number
    ]
    end = min(later, default=len(view.entries))
    for at in range(run.first_entry, end):
        entry = view.entries[at]
        match entry:
            case PromptEntry(parts=parts) | SteeringEntry(parts=parts):
                yield A2aMessage(
                    message_id=f"message-{entry.seq}",
                    role="ROLE_USER",
                    parts=tuple(map(encode_part, parts)),
                    context_id=view.session,
                    task_id=task_id(view.session, run.number),
                )
            case ReplyEntry() if entry.text:
                part = A2aPart(text=entry.text)
                yield agent_message(view, run, f"message-{entry.seq}", part)
            case _:
                pass


def agent_message(view: Projection, run: RunView, name: str, *parts: A2aPart) -> A2aMessage:
    """Return a message of the agent."""
    return A2aMessage(
        message_id=f"{task_id(view.session, run.number)}/{name}",
        role="ROLE_AGENT",
        parts=parts,
        context_id=view.session,
        task_id=task_id(view.session, run.number),
    )


def encode_part(part: ContentPart) -> A2aPart:
    """Return a part of a prompt as the protocol writes it."""
    match part:
        case TextPart(text):
            return A2aPart(text=text)
        case ImagePart() | FilePart():
            filename = part.name if isinstance(part, FilePart) else ""
            made = A2aPart(filename=filename, media_type=part.media_type)
            if part.data is not None:
                raw: str = msgspec.to_builtins(part.data)
                return msgspec.structs.replace(made, raw=raw)
            return msgspec.structs.replace(made, url=part.url or "")


def format_time(at: float) -> str:
    """Return seconds since the epoch as the protocol writes a time."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
