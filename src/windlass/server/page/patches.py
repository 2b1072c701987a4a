"""What changed in a session since a page saw it last.

Invariant: the service folds the events, once; a page only puts what changed in its place. So a page
that was reloaded in the middle of a reply shows what one shows that saw it all.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from windlass.core.events import CallLate, RunEnded, RunResumed
from windlass.core.messages import FilePart, ImagePart, TextPart, ToolResult
from windlass.core.projection.entries import NoticeEntry, NoticeFact, Place
from windlass.core.projection.runs import RunView
from windlass.core.projection.streaming import StreamingReply
from windlass.core.projection.view import CallView, Entry, Projection, ReplyEntry
from windlass.core.text_clip import printable_line

RESULT_CHARS_MAX = 40_000
"""Characters of a result that a page shows; its record has all of it."""
PICTURE_BYTES_MAX = 2_000_000


class ChildSession(msgspec.Struct, frozen=True):
    """A session of a sub-agent, and the call that it works for."""

    agent: str
    session: str


class LiveReply(msgspec.Struct, frozen=True):
    """The reply that is being written."""

    step: int
    attempt: int
    model: str
    text_from: int
    """The number of pieces before these; 0: forget what was shown of it."""
    chunks: Sequence[Sequence[str]]
    calls: Sequence[Mapping[str, str]]


class ViewPatch(msgspec.Struct, frozen=True, kw_only=True):
    """What a page must change to show a session as it is now."""

    session: str
    epoch: int
    """Changes if the session was deleted and begun again."""
    seq: int
    reset: bool
    """Forget all entries: these are all that there are."""
    settled: int
    """Entries before this index never change again."""
    entries: Sequence[tuple[int, Any]]
    pending: Sequence[Any]
    status: Any
    run: RunView | None
    attempt: Any
    reply: LiveReply | None
    steps: int
    usd: Any
    usage: Any
    model: str
    agent: str
    parent: str
    driven: bool
    writes: Sequence[str]
    """Names of the tools that change something."""


class ViewPatcher:
    """Makes the patches of one session for one page."""

    def __init__(self, place: Place, epoch: int, parent: str) -> None:
        """Begin after a place that the page has seen; (0, 0) for a page that has seen nothing."""
        self._place = place
        self._epoch = epoch
        self._parent = parent
        self._reply_key: tuple[int, int] | None = None
        self._reply_sent = 0

    def make_patch(
        self, view: Projection, children: Mapping[str, ChildSession], *, driven: bool
    ) -> ViewPatch:
        """Return what changed since the patch before. The next one begins here."""
        since = self._place
        self._place = view.place
        run = view.run
        setup = view.setup
        return ViewPatch(
            session=view.session,
            epoch=self._epoch,
            seq=view.seq,
            reset=since == (0, 0),
            settled=len(view.settled),
            entries=[(at, shown_entry(entry, children)) for at, entry in view.changed_since(since)],
            pending=[msgspec.to_builtins(entry) for entry in view.pending],
            status=view.status,
            run=run,
            attempt=view.attempt,
            reply=self._patch_reply(view.reply),
            steps=view.steps,
            usd=view.cost,
            usage=view.usage,
            model=(run.model if run else "") or (setup.model.name if setup else ""),
            agent=run.agent if run else "",
            parent=self._parent,
            driven=driven,
            writes=[spec.name for spec in setup.tools if spec.effect != "read"] if setup else (),
        )

    def _patch_reply(self, reply: StreamingReply | None) -> LiveReply | None:
        if reply is None:
            self._reply_key = None
            return None
        key = (reply.step, reply.attempt)
        # An attempt whose text was dropped begins again under the same number.
        if key != self._reply_key or len(reply.chunks) < self._reply_sent:
            self._reply_key = key
            self._reply_sent = 0
        start = self._reply_sent
        self._reply_sent = len(reply.chunks)
        return LiveReply(
            step=reply.step,
            attempt=reply.attempt,
            model=reply.model,
            text_from=start,
            chunks=[(chunk.kind, chunk.text) for chunk in reply.chunks.since(start)],
            calls=[{"name": call.name, "arguments": call.arguments} for call in reply.calls],
        )


def shown_entry(entry: Entry, children: Mapping[str, ChildSession]) -> dict[str, Any]:
    """Return the JSON form of an entry: bounded, with sub-agents by name, notices in words."""
    if not isinstance(entry, ReplyEntry):
        shown: dict[str, Any] = msgspec.to_builtins(entry)
        if isinstance(entry, NoticeEntry):
            shown["words"] = notice_words(entry.fact)
        return shown
    plain = replace(entry, calls=tuple(replace(call, agents=()) for call in entry.calls))
    shown = msgspec.to_builtins(plain)
    shown["calls"] = [_shown_call(call, children) for call in entry.calls]
    return shown


def _shown_call(call: CallView, children: Mapping[str, ChildSession]) -> dict[str, Any]:
    agents = [ChildSession(nested.agent, nested.session) for nested in call.agents]
    if not agents and call.waits_for is not None:
        agents = [ChildSession(call.name, call.waits_for.session)]
    if not agents and call.id in children:
        agents = [children[call.id]]
    result, hidden = _clip_result(call.result)
    shown: dict[str, Any] = msgspec.to_builtins(replace(call, agents=(), result=result))
    shown["agents"] = msgspec.to_builtins(agents)
    if hidden:
        shown["clipped"] = hidden
    return shown


def _clip_result(result: ToolResult | None) -> tuple[ToolResult | None, int]:
    """Return a result that is not too long to be shown, and how many characters are left out."""
    if result is None:
        return None, 0
    room = RESULT_CHARS_MAX
    hidden = 0
    content: list[TextPart | ImagePart | FilePart] = []
    for part in result.content:
        if isinstance(part, TextPart):
            content.append(TextPart(part.text[:room]))
            hidden += max(0, len(part.text) - room)
            room = max(0, room - len(part.text))
        elif part.data is not None and len(part.data) > PICTURE_BYTES_MAX:
            content.append(replace(part, data=None))
        else:
            content.append(part)
    return replace(result, content=tuple(content)), hidden


def notice_words(fact: NoticeFact) -> str:
    """Return what a page says about a fact that appears in the conversation as it is."""
    match fact:
        case RunResumed(drift, reaped=reaped):
            words = "The run was taken up again"
            if drift:
                words += f"; changed since, with consent: {', '.join(drift)}"
            if reaped:
                words += f"; was still running, and was ended: {', '.join(reaped)}"
            return printable_line(words)
        case CallLate(call_id):
            return f"A result of {printable_line(call_id)} came too late and changes nothing"
        case RunEnded(reason=reason, fault=fault, by=by):
            words = reason or (fault.message if fault else "")
            return printable_line(f"{words}{f' (by {by})' if by else ''}")
        case _:
            return fact.describe()
