"""The ports: everything that the loop needs of the world, as small protocols.

Each port has a conformance suite in `windlass.testing`: what passes it can be plugged in.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from windlass.core.events import CallWaiting, Delta, Event, Fact, KnowledgeRecalled, ReplyPiece
from windlass.core.limits import Amount, Budget
from windlass.core.live_batch import LiveBatch
from windlass.core.mail import Letter, Mail, MailLane, MailReceipt
from windlass.core.messages import Charge, ContentPart, Label, ToolResult, ToolSpec
from windlass.core.moves import ClearedCall
from windlass.core.result import Question
from windlass.core.schema import JsonSchema
from windlass.core.secrets.mask import Mask
from windlass.core.session_query import (
    ABANDONED_SESSIONS,
    PAGE_SESSIONS,
    SessionPage,
    StateFilter,
)
from windlass.core.session_summary import SessionSummary
from windlass.core.setup import ModelInfo
from windlass.core.state import State
from windlass.core.suggestions import SettingsStruct
from windlass.core.verdicts import Allow, Deny, Grant, PersonAnswer, Verdict
from windlass.core.view import Prompt


class Model(Protocol):
    """A language model behind one wire format."""

    @property
    def info(self) -> ModelInfo: ...

    def stream(self, prompt: Prompt) -> AsyncGenerator[ReplyPiece]:
        """Make one request and stream its pieces.

        Raises ModelError. It must not retry: the loop decides about retries, and records them.
        """
        ...


@runtime_checkable
class RefusesContent(Protocol):
    """A model that knows before a request which content it cannot take."""

    def content_refusal(self, parts: Sequence[ContentPart]) -> str | None:
        """Return why the model cannot take one of these parts, for users; None if it takes all."""
        ...


class GateRequest(msgspec.Struct, frozen=True):
    """A call that a gate must judge."""

    session: str
    call_id: str
    tool: ToolSpec
    arguments: Mapping[str, Any]
    labels: frozenset[Label] = frozenset()
    """What the session may hold because of earlier calls: untrusted text, private data."""
    sources: Mapping[Label, str] = {}
    """Which call first brought each label, in words."""
    grants: tuple[Grant, ...] = ()
    """What a person has allowed for the rest of this session."""
    agent: str = ""
    caller: str = ""
    """On whose behalf the agent runs."""
    context: Mapping[str, Any] = {}
    """What the program that runs the agent says; no model and no tool can write it."""


class Gate(Protocol):
    """Decides which calls may run. A gate that raises has denied."""

    @property
    def name(self) -> str:
        """Identifies the policy: a resumed run is checked against it."""
        ...

    @property
    def judges_replies(self) -> bool:
        """Whether final replies are withheld until `judge_reply` has allowed them."""
        ...

    async def judge(self, request: GateRequest) -> Verdict: ...

    async def judge_reply(self, session: str, text: str) -> Allow | Deny: ...


def _ignore_charges(_charges: Sequence[Charge]) -> None:
    """Nobody keeps the books."""


def _no_earlier_result(_call_id: str) -> ToolResult | None:
    """There were no earlier calls."""


async def _always_driving() -> bool:
    """Nobody else can take the session over."""
    return True


def _never_woken(_waiting: CallWaiting | None) -> "asyncio.Future[None]":
    """Nobody can end the wait."""
    return asyncio.get_running_loop().create_future()


def _go_on() -> bool:
    """Nothing else has to be asked."""
    return True


def _ignore_leftover(_work: "asyncio.Future[Any]") -> None:
    """Nobody minds."""


class CallContext(msgspec.Struct, frozen=True):
    """What a running call may know of its run.

    The law: data and functions only. A call never gets at the journal, the gate or the models.
    """

    session: str
    run: int
    report: Callable[[str], None]
    """Show progress to the watchers of the run."""
    on_late_result: Callable[[ToolResult], None]
    """Hand in the result of a call that ended after it had been given up."""
    report_charges: Callable[[Sequence[Charge]], None] = _ignore_charges
    """Say what the call has paid to models in all so far; it counts as spent by the run."""
    earlier_result: Callable[[str], ToolResult | None] = _no_earlier_result
    """Return the result of an earlier call of the session, by the id of the call."""
    remaining: Amount = Amount()
    """What the call may spend on models: its share of what the run has left."""
    labels: frozenset[Label] = frozenset()
    """What the session may hold because of earlier calls."""
    mask_text: Callable[[str], str] = str
    """Return a text without its secrets: for text that is kept outside of the journal."""
    blobs: "BlobStore | None" = None
    """Where the rest of a clipped result can be kept with the session."""
    fencing_token: int = 0
    """Grows with each driver of the session: what is done with a lower one comes from a dead one.
    """
    still_driving: Callable[[], Awaitable[bool]] = _always_driving
    """Ask the journal whether this driver still has the session."""
    park: "Callable[[CallWaiting | None], asyncio.Future[None]]" = _never_woken
    """Say that the sub-agent of the call waits (None: was let go) and what for. Returns a future
    that is done when it should look again; the call is cancelled if nothing else can move."""
    unpark: Callable[[], bool] = _go_on
    """Ask to go on after `park`. False: it is too late, and the call must wait to be cancelled."""
    keep_leftover: "Callable[[asyncio.Future[Any]], None]" = _ignore_leftover
    """Say that something of the call runs on after it was given up, until this is done."""


ReconcileOutcome = ToolResult | Literal["not_done", "unknown"]


class Tools(Protocol):
    """What the model may call. A tool that fails has a result; `run` raises only when cancelled."""

    @property
    def specs(self) -> tuple[ToolSpec, ...]: ...

    def resource_of(self, name: str, arguments: Mapping[str, Any]) -> str | None:
        """Return what a call would change, or None if that could be anything.

        Calls that change different resources may run side by side.
        """
        ...

    def run(
        self, cleared: ClearedCall, context: CallContext
    ) -> Coroutine[Any, Any, ToolResult]: ...

    async def reconcile(self, cleared: ClearedCall, context: CallContext) -> ReconcileOutcome:
        """Find out what became of a write that a crash interrupted."""
        ...


@runtime_checkable
class RecoverableTools(Protocol):
    """Tools that may leave something running when their process dies."""

    def recover(self) -> Sequence[str]:
        """End what a dead process left running. Returns what that was, in words; may block."""
        ...


class Journal(Protocol):
    """Stores the facts of sessions."""

    async def read(self, session: str, after: int = 0) -> Sequence[Fact]:
        """Return the facts after a sequence number, in order; none for an unknown session."""
        ...

    def append(self, session: str, facts: Sequence[Fact]) -> Awaitable[None]:
        """Write all of the facts or none, and return once they are durable.

        Raises SessionBusy if their sequence numbers are taken, JournalFailed if they were not kept.
        """
        ...


class Lease(Protocol):
    """The right to drive a session, until it is released or its holder dies."""

    def release(self) -> None: ...


@runtime_checkable
class ConfirmableLease(Protocol):
    """A lease that can be lost while its holder lives: the server that grants it is elsewhere."""

    async def confirm(self) -> bool:
        """Ask the server whether it is held. One that was lost is taken again if it is free."""
        ...


@runtime_checkable
class SessionLeases(Protocol):
    """A journal that knows who drives a session."""

    async def lease(self, session: str) -> Lease:
        """Take the session. Raises SessionBusy at once if a living driver has it."""
        ...

    async def is_leased(self, session: str) -> bool:
        """Return whether a living driver has the session, in this process or another."""
        ...


@runtime_checkable
class AppendSignals(Protocol):
    """A journal that can tell when another process wrote."""

    async def wait_for_append(self, session: str, after: int) -> None:
        """Return when the session may have facts after a sequence number; sometimes without one."""
        ...


class LiveSender(Protocol):
    """The driver's side of a live channel. Sending never waits; who is behind loses the batch."""

    def send(self, batch: LiveBatch) -> None: ...

    def close(self) -> None: ...


class LiveSubscription(Protocol):
    """A watcher's side of a live channel, and its interest in a session, until it is closed."""

    async def receive(self) -> LiveBatch: ...

    def ask_snapshot(self) -> None:
        """Ask whoever drives the session to begin anew: something was missed."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class LiveChannel(Protocol):
    """A journal that carries deltas to watchers in other processes. It may lose any of them."""

    def open_live(self, session: str, on_interest: Callable[[bool], None]) -> LiveSender:
        """Open the driver's side. Nothing need be sent before somebody watches.

        `on_interest` is called in this loop: True if a snapshot is needed, False if nobody watches.
        """
        ...

    def watch_live(self, session: str) -> LiveSubscription: ...


@runtime_checkable
class BlobStore(Protocol):
    """A journal that keeps data beside the facts of a session, by its hash."""

    async def put_blob(self, session: str, data: bytes) -> str:
        """Keep data for as long as the session. Returns its name once it is durable."""
        ...

    async def get_blob(self, session: str, name: str) -> bytes | None:
        """Return what the session keeps under a name; the first 16 characters are enough."""
        ...


@runtime_checkable
class SharedBudgets(Protocol):
    """A journal that keeps budgets which many runs share."""

    async def draw_budget(self, budget: Budget, session: str, run: int, wanted: Amount) -> Amount:
        """Raise what a run may spend in all to `wanted`, or as near as the budget allows.

        Returns the new total, which is never less than before. Asking twice for the same amount
        has the effect of asking once.
        """
        ...

    async def settle_budget(self, budget: Budget, session: str, run: int, spent: Amount) -> None:
        """Say what a run has spent in all; the rest of what it had drawn goes back."""
        ...

    async def read_spending(self, budget: Budget) -> Amount:
        """Return what is spent or promised in the budget's current period."""
        ...


@runtime_checkable
class SessionCatalog(Protocol):
    """A journal that lists its sessions, and deletes them."""

    async def sessions(  # noqa: PLR0913 - one parameter per filter
        self,
        query: str | None = None,
        *,
        state: StateFilter | None = None,
        agent: str | None = None,
        caller: str | None = None,
        since: float | None = None,
        until: float | None = None,
        parent: str | None = None,
        limit: int = PAGE_SESSIONS,
        cursor: str | None = None,
    ) -> SessionPage:
        """Return a page of the sessions that pass all filters: last activity first, then by name.

        Args:
            query: a part of the name or of the first prompt, in any case.
            state: `open`, `waiting`, `paused` or an outcome, or several of them.
            agent: the name of the agent of the last run.
            caller: on whose behalf the last run works.
            since: the earliest last activity, in seconds since the epoch.
            until: the last activity was before this time.
            parent: the session that it works for; "" for sessions that no sub-agent has.
            limit: how many sessions a page has at most.
            cursor: the cursor of the page before; None for the first page.

        A session that works on meanwhile moves to the front, so it is on one page at most. Raises
        ConfigError if the cursor is not one.
        """
        ...

    async def list_abandoned(self, *, limit: int = ABANDONED_SESSIONS) -> list[SessionSummary]:
        """Return the sessions with an open run that has no living driver and waits for nobody.

        These are the latest `limit` of them.
        """
        ...

    async def delete(self, session: str) -> bool:
        """Delete a session and those that work for it. Returns whether there was one.

        Raises SessionBusy, and deletes nothing, if one of them is driven.
        """
        ...

    async def prune(self, before: float, *, keep: int = 0) -> int:
        """Delete the sessions that have ended, and whose last activity was before a time.

        A session is deleted with those that work for it, and never without its own caller. It stays
        if one of them is driven, or if it is among the latest `keep`. Returns how many sessions
        were deleted.
        """
        ...


@runtime_checkable
class Mailbox(Protocol):
    """A journal that takes messages for sessions which anyone may drive (`core/mail.py`).

    Posting needs no lease and never touches the sequence of facts. Each lane has numbers of its
    own, from 1 and without gaps; they are never used again, also when messages were removed.
    """

    async def post_mail(
        self, session: str, message: Mail, *, by: str = "", key: str = ""
    ) -> MailReceipt:
        """Keep a message for a session, and return once it is durable.

        The same key in the same lane gives the receipt of the first post again. Raises NothingToDo
        if the session has no facts (a prompt may be its first message), and MailboxFull.
        """
        ...

    async def read_mail(self, session: str, lane: MailLane, after: int = 0) -> Sequence[Letter]:
        """Return the messages of a lane after a number, in order."""
        ...

    async def remove_mail(self, session: str, lane: MailLane, upto: int) -> None:
        """Forget the messages of a lane up to a number. Their facts are on record."""
        ...

    async def wait_for_mail(self, session: str, lane: MailLane, after: int) -> None:
        """Return when the lane may have messages after a number; sometimes without one."""
        ...

    async def list_mailed(self, limit: int = 100) -> Sequence[str]:
        """Return the sessions that have messages which nobody has taken, the oldest first."""
        ...


@runtime_checkable
class SignedJournal(Protocol):
    """A journal that anyone may write to who gets at its file: the user's own key tells who did."""

    def find_letter_problem(self, session: str, letter: Letter) -> str | None:
        """Return why a message is not genuine; None if it is."""
        ...

    async def find_forgeries(self, session: str) -> Sequence[object]:
        """Return what somebody without the key did to a session, in words."""
        ...


@runtime_checkable
class ClosableJournal(Protocol):
    """A journal that holds something open, such as a file."""

    def close(self) -> None: ...


@runtime_checkable
class AsyncClosableJournal(Protocol):
    """A journal whose connections belong to event loops, which have to close them."""

    async def aclose(self) -> None: ...


class Clock(Protocol):
    """Time and random numbers."""

    def now(self) -> float:
        """Return the seconds since the epoch."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    def random_fraction(self) -> float:
        """Return a random number from 0 to 1."""
        ...


Watcher = Callable[[Event], None]
"""Is told of every event of a run; must return at once."""

ApproverReply = PersonAnswer | bool | None
Approver = Callable[[Question], Awaitable[ApproverReply] | ApproverReply]
"""Asks a person, who may take their time. None means no answer yet: the run waits durably.

True allows the call and False denies it. A function that is not async runs in a thread.
"""


class Timeouts(SettingsStruct, frozen=True, kw_only=True):
    """How long a model may be silent, in seconds. None waits for ever."""

    connect_s: float | None = 10.0
    first_byte_s: float | None = 120.0
    """From the request to the first piece of content."""
    idle_s: float | None = 90.0
    """Between two pieces of content; keep-alives do not count as content."""
    step_s: float | None = None
    """For a whole attempt at a step."""


Recaller = Callable[[str], Awaitable[KnowledgeRecalled]]
"""Finds what is known about a prompt. If it raises, a warning is logged and nothing is known."""


class World(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a run touches."""

    models: Mapping[str, Model]
    """By name: the main model, its fallbacks, and the one that writes summaries."""
    tools: Tools
    gate: Gate | None
    journal: Journal
    clock: Clock
    timeouts: Timeouts
    schemas: Mapping[str, JsonSchema]
    """The compiled schema of each tool, by name."""
    approver: Approver | None = None
    recall: Recaller | None = None
    blobs: BlobStore | None = None
    """Where tools keep what is too long for a result: the blobs of the journal, not its facts."""
    agent: str = ""
    """The name of the agent, for the gate."""
    lineage: tuple[str, ...] = ()
    """The agents that this one works for, the outermost first."""
    check_output: Callable[[str], str | None] | None = None
    """Returns what is wrong with a final reply, in words for the model; None if it fits."""


class ChildRun(Protocol):
    """The run of a sub-agent, as seen by the run that it works for."""

    def release(self, reason: str, grace_s: float) -> None: ...

    def pause(self, reason: str, by: str) -> None: ...

    def end_pause(self, by: str) -> None: ...


def _ignore_child(_child: ChildRun) -> None:
    """Nobody speaks to the run."""


class CallerRun(msgspec.Struct, frozen=True):
    """The run that a sub-agent works for. Only the tools of sub-agents are given it."""

    world: World
    mask: Mask
    read_state: Callable[[], State]
    """Return the state of the caller's session now."""
    show_delta: Callable[[Delta], None]
    """Show an event to the watchers of the caller's run."""
    add_child: Callable[[ChildRun], None] = _ignore_child
    """Let what is asked of the caller's run reach the run of a sub-agent."""
    remove_child: Callable[[ChildRun], None] = _ignore_child


@runtime_checkable
class RunBoundTools(Protocol):
    """Tools of which some work for a run as a whole: those that give tasks to sub-agents."""

    def bind_run(self, run: CallerRun) -> Tools:
        """Return the same tools for one run."""
        ...
