"""What is new in a session, as updates of the protocol.

Invariant: each encoder remembers what it has sent. Given one projection after the other, it yields
what is new and nothing twice, whether an editor watches from the beginning, loads an old session or
comes back in the middle of a reply. Text that was sent cannot be taken back, so after an attempt
that broke off a new message begins, and says so.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from acp.helpers import (
    image_block,
    start_tool_call,
    text_block,
    update_plan,
    update_tool_call,
)
from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    Cost,
    SessionInfoUpdate,
    ToolCallProgress,
    ToolCallStart,
    UsageUpdate,
    UserMessageChunk,
)

from windlass.core.events import (
    BudgetAllotted,
    BudgetAwaited,
    ContextCompacted,
    LimitsRaised,
    MailRefused,
    RunContinued,
    RunEnded,
    RunPaused,
)
from windlass.core.messages import (
    AssistantMessage,
    ContentPart,
    FilePart,
    ImagePart,
    TextPart,
    ThinkingPart,
    ToolCall,
    UserMessage,
)
from windlass.core.projection.entries import (
    EarlierEntry,
    FailureEntry,
    FallbackEntry,
    NoticeEntry,
    PromptEntry,
    SteeringEntry,
)
from windlass.core.projection.streaming import StreamingReply
from windlass.core.projection.view import CallView, Entry, Projection, ReplyEntry
from windlass.core.setup import digest
from windlass.core.text_clip import clip_line
from windlass.server.acp.tool_calls import (
    STATES,
    CallContent,
    ReadText,
    find_kind,
    find_locations,
    make_diffs,
    make_title,
    read_arguments,
    read_plan,
    show_progress,
    show_result,
)

TITLE_CHARS_MAX = 80
BROKEN_OFF = "\n\n*The reply broke off and is written again:*\n\n"
SHOWN_NOTICES = (
    BudgetAllotted,
    BudgetAwaited,
    ContextCompacted,
    LimitsRaised,
    MailRefused,
    RunContinued,
    RunPaused,
)
"""Facts that a person should know of. They are shown like thoughts, beside the reply."""

Update = (
    UserMessageChunk
    | AgentMessageChunk
    | AgentThoughtChunk
    | ToolCallStart
    | ToolCallProgress
    | AgentPlanUpdate
    | SessionInfoUpdate
    | UsageUpdate
)


class _LiveText:
    """What was sent of a reply before it was complete."""

    def __init__(self, key: tuple[int, int, int] = (0, 0, 0)) -> None:
        self.key = key
        """Run, step and attempt."""
        self.chunks = 0
        self.text = ""
        self.thinking = ""

    @property
    def message_id(self) -> str:
        return "-".join(map(str, self.key))


class UpdateEncoder:
    """Turns the projections of one session into updates, each once."""

    def __init__(self, folder: Path, read_text: ReadText | None = None) -> None:
        """Make an encoder. `read_text` reads a file of the workspace, for a diff."""
        self._folder = folder
        self._read_text = read_text
        self._place = (0, 0)
        self._next_entry = 0
        """The index of the first entry of which nothing was sent."""
        self._live = _LiveText()
        self._sent_calls: dict[str, dict[str, Any]] = {}
        self._diffs: dict[str, tuple[dict[str, Any], list[CallContent]]] = {}
        """The change that each call makes, with the arguments that it was made from."""
        self._own_prompts: Counter[str] = Counter()
        self._title = ""

    def expect_prompt(self, parts: tuple[ContentPart, ...]) -> None:
        """Do not send this prompt back: the editor shows what it sent itself."""
        self._own_prompts[digest(parts)] += 1

    def skip(self, view: Projection) -> None:
        """Take everything in a view for sent."""
        for _ in self.encode(view):
            pass

    def encode(self, view: Projection) -> Iterator[Update]:
        """Yield what is new in a view."""
        for index, entry in view.changed_since(self._place):
            is_new = index >= self._next_entry
            self._next_entry = max(self._next_entry, index + 1)
            yield from self._encode_entry(view, entry, is_new=is_new)
        yield from self._encode_live_text(view)
        self._place = view.place

    def _encode_entry(self, view: Projection, entry: Entry, *, is_new: bool) -> Iterator[Update]:
        match entry:
            case ReplyEntry():
                yield from self._encode_reply(view, entry, is_new=is_new)
            case _ if not is_new:
                return
            case PromptEntry() | SteeringEntry():
                yield from self._encode_prompt(entry)
            case EarlierEntry():
                yield from _encode_earlier(entry)
            case FailureEntry():
                yield _think(f"{entry.model}: {entry.fact.fault.message}\n")
            case FallbackEntry():
                yield _think(f"{entry.model} is asked instead of {entry.instead_of}.\n")
            case NoticeEntry(fact=RunEnded() as fact):
                yield from _encode_end(fact)
            case NoticeEntry(fact=fact) if isinstance(fact, SHOWN_NOTICES):
                yield _think(f"{fact.describe()}\n")
            case _:
                return

    def _encode_prompt(self, entry: PromptEntry | SteeringEntry) -> Iterator[Update]:
        if not self._title and entry.text.strip():
            self._title = clip_line(entry.text, TITLE_CHARS_MAX)
            at = datetime.fromtimestamp(entry.at, UTC).isoformat()
            yield SessionInfoUpdate(
                session_update="session_info_update", title=self._title, updated_at=at
            )
        key = digest(entry.parts)
        if self._own_prompts[key]:
            self._own_prompts[key] -= 1
            return
        for part in _written_by_person(entry.parts):
            yield _say_as_user(part)

    def _encode_reply(
        self, view: Projection, entry: ReplyEntry, *, is_new: bool
    ) -> Iterator[Update]:
        live = self._live
        if is_new and not entry.withheld:
            is_live = (live.key[0], live.key[1]) == (entry.run, entry.step)
            sent = live if is_live or entry.kind == "partial" else _LiveText()
            yield from self._encode_parts(entry, sent)
            self._live = _LiveText()
        elif entry.withheld:
            # Nothing of it may be shown yet: it counts as new until the gate has allowed it.
            self._next_entry = min(self._next_entry, _index_of(view, entry))
            return
        for call in entry.calls:
            is_changed = not is_new and call.changed > self._place
            if is_changed or call.id not in self._sent_calls:
                yield from self._encode_call(call)
        if is_new and entry.kind == "reply":
            yield from _encode_usage(view, entry)

    def _encode_parts(self, entry: ReplyEntry, sent: _LiveText) -> Iterator[Update]:
        """Yield the text of a complete reply that was not sent while it streamed."""
        text = sent.text
        thinking = sent.thinking
        message_id = sent.message_id if sent.text else str(entry.seq)
        for part in entry.parts:
            match part:
                case TextPart():
                    rest, text = _take_rest(part.text, text)
                    if rest:
                        yield _say(rest, message_id)
                case ThinkingPart():
                    rest, thinking = _take_rest(part.text, thinking)
                    if rest:
                        yield _think(rest)
                case ToolCall():
                    call = next((one for one in entry.calls if one.id == part.id), None)
                    if call is not None:
                        yield from self._encode_call(call)

    def _encode_live_text(self, view: Projection) -> Iterator[Update]:
        reply = view.reply
        if reply is None or not reply.chunks:
            return
        run = view.run.number if view.run else 0
        key = (run, reply.step, reply.attempt)
        if key != self._live.key:
            broke_off = bool(self._live.text)
            self._live = _LiveText(key)
            if broke_off:
                yield _say(BROKEN_OFF, self._live.message_id)
        live = self._live
        if len(reply.chunks) < live.chunks:
            # A watcher that came back begins with the text so far, all of it.
            yield from self._encode_text_so_far(reply)
            return
        for chunk in reply.chunks.since(live.chunks):
            if chunk.kind == "text":
                live.text += chunk.text
                yield _say(chunk.text, live.message_id)
            else:
                live.thinking += chunk.text
                yield _think(chunk.text)
        live.chunks = len(reply.chunks)

    def _encode_text_so_far(self, reply: StreamingReply) -> Iterator[Update]:
        """Yield the new part of a text that was started again, if it extends what was sent."""
        live = self._live
        for so_far, sent, show in (
            (reply.thinking, live.thinking, _think),
            (reply.text, live.text, partial(_say, message_id=live.message_id)),
        ):
            if so_far.startswith(sent) and len(so_far) > len(sent):
                yield show(so_far[len(sent) :])
        if reply.text.startswith(live.text):
            live.text = reply.text
            live.thinking = reply.thinking
            live.chunks = len(reply.chunks)

    def _encode_call(self, call: CallView) -> Iterator[Update]:
        plan = read_plan(call)
        if plan is not None:
            if call.id not in self._sent_calls:
                self._sent_calls[call.id] = {}
                yield update_plan(plan)
            return
        fields = self._call_fields(call)
        before = self._sent_calls.get(call.id)
        self._sent_calls[call.id] = fields
        if not call.is_open:
            # It never changes again, so only the id is kept.
            self._sent_calls[call.id] = {}
            self._diffs.pop(call.id, None)
        if before is None:
            yield start_tool_call(call.id, **fields)
            return
        changed = {name: value for name, value in fields.items() if before.get(name) != value}
        if changed:
            yield update_tool_call(call.id, **changed)

    def _call_fields(self, call: CallView) -> dict[str, Any]:
        arguments = read_arguments(call)
        content = show_result(call.result) if call.result else show_progress(call)
        return {
            "title": make_title(call.name, arguments),
            "kind": find_kind(call.name),
            "status": STATES[call.state],
            "content": [*self._find_diffs(call, arguments), *content],
            "locations": find_locations(call.name, arguments, self._folder),
            "raw_input": arguments,
        }

    def _find_diffs(self, call: CallView, arguments: dict[str, Any]) -> list[CallContent]:
        """Return the change that a call makes, from the file as it is before the call."""
        known = self._diffs.get(call.id)
        if known is not None and known[0] == arguments:
            return known[1]
        is_ahead = call.is_open and call.starts == 0
        reader = self._read_text if is_ahead else None
        diffs = make_diffs(call.name, arguments, self._folder, reader)
        self._diffs[call.id] = (arguments, diffs)
        return diffs


def _take_rest(whole: str, sent: str) -> tuple[str, str]:
    """Return what is to be sent of a part, and what was sent of the parts after it."""
    if sent.startswith(whole):
        return "", sent[len(whole) :]
    if whole.startswith(sent):
        return whole[len(sent) :], ""
    # What streamed was masked in another way than the whole: both are shown.
    return f"{BROKEN_OFF}{whole}", ""


def _say(text: str, message_id: str) -> AgentMessageChunk:
    return AgentMessageChunk(
        session_update="agent_message_chunk", content=text_block(text), message_id=message_id
    )


def _think(text: str) -> AgentThoughtChunk:
    return AgentThoughtChunk(session_update="agent_thought_chunk", content=text_block(text))


def say_note(text: str) -> AgentMessageChunk:
    """Return a note of the runtime, set apart from the model's own text."""
    return _say(f"\n\n*{text}*\n", f"note-{digest(text)}")


def _written_by_person(parts: Sequence[ContentPart]) -> list[ContentPart]:
    """Return the parts of a prompt without what the program added, such as the date."""
    return [part for part in parts if not (isinstance(part, TextPart) and part.by_program)]


def _say_as_user(part: ContentPart) -> UserMessageChunk:
    match part:
        case TextPart(text):
            block = text_block(text)
        case ImagePart(media_type, bytes() as data):
            block = image_block(msgspec.to_builtins(data), media_type)
        case ImagePart():
            block = text_block(f"[image: {part.url or part.media_type}]")
        case FilePart():
            block = text_block(f"[file: {part.name}]")
    return UserMessageChunk(session_update="user_message_chunk", content=block)


def _encode_earlier(entry: EarlierEntry) -> Iterator[Update]:
    message = entry.message
    if isinstance(message, UserMessage) and not message.note:
        for part in _written_by_person(message.parts):
            yield _say_as_user(part)
    if isinstance(message, AssistantMessage):
        text = "".join(part.text for part in message.parts if isinstance(part, TextPart))
        if text:
            yield _say(text, str(entry.seq))


def _encode_end(fact: RunEnded) -> Iterator[Update]:
    """Say why a run ended, if its reply does not say it."""
    if fact.outcome in ("completed", "cancelled"):
        return
    reason = f": {fact.reason}" if fact.reason else "."
    outcome = fact.outcome.replace("_", " ")
    yield _say(f"\n\n*The run ended ({outcome}){reason}*\n", f"end-{fact.seq}")


def _encode_usage(view: Projection, entry: ReplyEntry) -> Iterator[Update]:
    window = view.setup.model.window if view.setup else None
    if window is None or entry.charge is None or entry.charge.usage is None:
        return
    cost = None
    if view.cost is not None:
        cost = Cost(amount=float(view.cost), currency="USD")
    yield UsageUpdate(
        session_update="usage_update", used=entry.charge.usage.total, size=window, cost=cost
    )


def _index_of(view: Projection, entry: ReplyEntry) -> int:
    """Return the index of an entry, which is among the last ones."""
    entries = view.entries
    at = len(entries) - 1
    while at > 0 and entries[at].seq != entry.seq:
        at -= 1
    return at
