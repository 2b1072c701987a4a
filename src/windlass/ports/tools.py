"""The port to the tools, and what a running call may know of its run."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from windlass.core.context_facts import UndoneCall
from windlass.core.events import CallWaiting
from windlass.core.limits import Amount
from windlass.core.messages import Charge, Label, ToolResult, ToolSpec
from windlass.core.moves import ClearedCall
from windlass.core.question import Question
from windlass.core.verdicts import CallPreview, PersonAnswer
from windlass.ports.journals import BlobStore


def _ignore_charges(_charges: Iterable[Charge]) -> None:
    """Ignore the charges: no ledger is kept."""


def _no_earlier_result(_call_id: str) -> ToolResult | None:
    """There were no earlier calls."""


async def _always_driving() -> bool:
    """Return True: no other driver can take the session over."""
    return True


def _has_no_run() -> bool:
    """Nothing is known of a run."""
    return False


def _never_woken(_waiting: CallWaiting | None) -> "asyncio.Future[None]":
    """Return a future that is never done: no caller can end the wait."""
    return asyncio.get_running_loop().create_future()


def _go_on() -> bool:
    """Nothing else has to be asked."""
    return True


def _ignore_leftover(_work: "asyncio.Future[Any]") -> None:
    """Ignore the work: it is not tracked."""


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a running call wants the model of its run to write."""

    tool: ToolSpec
    """The tool as the gate sees it."""
    arguments: Mapping[str, Any]
    """`prompt`, and maybe `instructions` and `max_tokens`. They fit the schema of `tool`."""
    question: str
    """What a person is asked, if no gate decides."""
    occurrence: int = 1
    """How often the call has made this same request, this time included."""


class WrittenReply(msgspec.Struct, frozen=True):
    """What the model wrote for a running call, or why it did not."""

    text: str
    model: str = ""
    refusal: str = ""
    """Why nothing was written, in words; empty if something was."""


async def _ask_nobody(_question: Question) -> PersonAnswer | None:
    """Return None: there is no person to ask."""
    return None


async def _refuse_request(_request: ModelRequest) -> WrittenReply:
    return WrittenReply("", refusal="the call is not part of a run")


class CallContext(msgspec.Struct, frozen=True):
    """What a running call may know of its run.

    Invariant: it holds data and functions only. A call never reaches the journal, the gate or the
    models.
    """

    session: str
    run: int
    report: Callable[[str], None]
    """Show progress to the watchers of the run."""
    on_late_result: Callable[[ToolResult], None]
    """Hand in the result of a call that ended after it had been given up."""
    report_charges: Callable[[Iterable[Charge]], None] = _ignore_charges
    """Say what the call has paid to models in all so far; it counts as spent by the run."""
    earlier_result: Callable[[str], ToolResult | None] = _no_earlier_result
    """Return the result of an earlier call of the session, by the id of the call."""
    remaining: Amount = Amount()
    """What the call may spend on models: its share of what the run has left."""
    remaining_now: Callable[[], Amount] = Amount
    """Return the same share under the limits in force now: an operator may have raised them."""
    labels: frozenset[Label] = frozenset()
    """What the session may hold because of earlier calls."""
    mask_text: Callable[[str], str] = str
    """Return a text without its secrets: for text that is kept outside the journal."""
    blobs: "BlobStore | None" = None
    """Where the rest of a clipped result can be kept with the session."""
    fencing_token: int = 0
    """Grows with each driver of the session: what is done with a lower one comes from a dead one.
    """
    still_driving: Callable[[], Awaitable[bool]] = _always_driving
    """Ask the journal whether this driver still has the session."""
    run_is_open: Callable[[], bool] = _has_no_run
    """Whether the run had not ended when this driver saw it last: it may wait for an answer."""
    park: "Callable[[CallWaiting | None], asyncio.Future[None]]" = _never_woken
    """Report what the sub-agent of the call waits for (None: it was released). Returns a future
    that is done when it should look again; the call is cancelled if nothing else can move."""
    unpark: Callable[[], bool] = _go_on
    """Ask to resume after `park`. False: it is too late, and the call must wait to be cancelled."""
    undoes: UndoneCall | None = None
    """The earlier call that this one undoes, if it undoes one."""
    folder: Path | None = None
    """The folder that the run works in; None for the one that the tools were built with."""
    keep_leftover: "Callable[[asyncio.Future[Any]], None]" = _ignore_leftover
    """Say that something of the call runs on after it was given up, until this is done."""
    ask_person: Callable[[Question], Awaitable[PersonAnswer | None]] = _ask_nobody
    """Ask the person who answers the questions of the run. None: it stays unanswered."""
    ask_model: Callable[[ModelRequest], Awaitable[WrittenReply]] = _refuse_request
    """Have the run's model write something, if the gate or a person allows it."""


class CallRequests(Protocol):
    """What a running call may ask for: an answer of a person, and a reply of the run's model."""

    async def ask_person(self, question: Question) -> PersonAnswer | None:
        """Ask the person who answers the questions of the run. None: no answer came."""
        ...

    async def ask_model(self, request: ModelRequest) -> WrittenReply:
        """Have the model write something, if the gate or a person allows it.

        The run pays for it, within its limits. What was written for the same request before a crash
        is returned again.
        """
        ...


ReconcileOutcome = ToolResult | Literal["not_done", "unknown"]
"""The outcome of an interrupted call: its result, that it was not done, or unknown."""


class Tools(Protocol):
    """What the model may call. A tool that fails has a result; `run` raises only when cancelled."""

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The description of each tool that the model gets."""
        ...

    def resource_of(self, name: str, arguments: Mapping[str, Any]) -> str | None:
        """Return what a call would change, or None if that could be anything.

        Calls that change different resources may run side by side.
        """
        ...

    def run(self, cleared: ClearedCall, context: CallContext) -> Coroutine[Any, Any, ToolResult]:
        """Run a call that was judged. A tool that fails is a result, not an exception."""
        ...

    async def reconcile(self, cleared: ClearedCall, context: CallContext) -> ReconcileOutcome:
        """Find out whether a write that a crash interrupted took effect."""
        ...


@runtime_checkable
class RecoverableTools(Protocol):
    """Tools that may leave something running when their process dies."""

    def recover(self) -> Sequence[str]:
        """End what a dead process left running. Returns what that was, in words; may block."""
        ...


@runtime_checkable
class UndoableTools(Protocol):
    """Tools of which some can undo their calls."""

    @property
    def undo_specs(self) -> tuple[ToolSpec, ...]:
        """The tools that undo calls of others. No model is offered them, but `run` runs them."""
        ...

    async def take_snapshot(self, cleared: ClearedCall, context: CallContext) -> str:
        """Return what must be known to undo a call that is about to run; empty if nothing.

        It changes nothing, answers in seconds and does not raise.
        """
        ...


@runtime_checkable
class PreviewingTools(Protocol):
    """Tools that can say what a call would change before it runs."""

    async def preview(
        self,
        name: str,
        arguments: Mapping[str, Any],
        chain: Sequence[str] = (),
        folder: Path | None = None,
    ) -> CallPreview | None:
        """Return what a call would change if it ran now; None if that is not known.

        `chain`: the sub-agents from the top down to the one whose tool it is; none for these tools
        themselves. `folder`: the one that the call works in, if it is not the tools' own. It
        changes nothing, answers in seconds and does not raise.
        """
        ...


@runtime_checkable
class NestableTools(Protocol):
    """Tools of which some can be called by the code of another tool."""

    @property
    def nested_specs(self) -> tuple[ToolSpec, ...]:
        """Those tools."""
        ...
