"""The facts about what the model sees: notes, compaction, recalled knowledge, calls of the runtime.

All of them are members of the union in `core/events.py`, which says what a fact declares.
"""

from typing import ClassVar, Literal

import msgspec

from windlass.core.deltas import PlacedEvent
from windlass.core.messages import Charge, Label, ResultKind, ToolCall
from windlass.core.phrases import format_charge, format_count, quote_text

NoteReason = Literal["same_call", "refused_reply"]


class NoteGiven(PlacedEvent, frozen=True, tag="NoteGiven"):
    """The runtime adds a note for the model to the transcript."""

    masked_fields: ClassVar = ("text",)
    text: str
    why: NoteReason
    """`same_call`: it repeats itself. `refused_reply`: the provider refused what it wrote."""

    def describe(self) -> str:
        """Say in words what happened, for `windlass explain` and the terminal."""
        return f"The model was told: {quote_text(self.text)}"


class ContextCompacted(PlacedEvent, frozen=True, tag="Compacted"):
    """The view of the model gets shorter from here on. The transcript keeps everything.

    The messages before `upto` are replaced by a note, summarized in one, or kept with the results
    of their calls masked.
    """

    masked_fields: ClassVar = ("note",)
    upto: int
    note: str = ""
    how: Literal["window", "summary", "mask"] = "window"
    charge: Charge | None = None
    messages_saved: int = 0
    tokens_saved: int = 0
    """What the view became shorter by. Only live watchers see it: it is not recorded."""

    def describe(self) -> str:
        """Say in words what happened, for `windlass explain` and the terminal."""
        messages = f"The first {format_count(self.upto, 'message')}"
        saved = f" (about {self.tokens_saved} tokens fewer)" if self.tokens_saved else ""
        if self.how == "mask":
            return f"{messages}: the results in them were removed from the view{saved}"
        verb = "were summarized" if self.how == "summary" else "were removed from the view"
        return f"{messages} {verb}: {quote_text(self.note)}{format_charge(self.charge)}{saved}"


class LookupsPlanned(PlacedEvent, frozen=True, tag="Hydrated"):
    """The runtime looks up what the prompt refers to before the first step, by ordinary calls."""

    masked_fields: ClassVar = ("calls",)
    calls: tuple[ToolCall, ...]


class UndoneCall(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A call of an earlier run that has to be undone, as the function that undoes it sees it."""

    call_id: str
    """The call that is undone."""
    by: str
    """The call that undoes it."""
    kind: ResultKind
    """The kind of its result. All but `value` mean that it may have had its effect."""
    result: str
    """The text that it returned, as the model saw it."""
    snapshot: str = ""
    """What its tool kept before the call ran."""


class UndoPlanned(PlacedEvent, frozen=True, tag="UndoPlanned"):
    """This run asks no model: it undoes calls of an earlier run, the last one first."""

    masked_fields: ClassVar = ("calls", "undone")
    from_outside: ClassVar = True
    calls: tuple[ToolCall, ...]
    undone: tuple[UndoneCall, ...]
    run: int = 0
    """The run whose calls are undone."""


class KnowledgeRecalled(PlacedEvent, frozen=True, tag="Recalled"):
    """What the memory knows about a prompt. Empty if it knows nothing.

    The model sees it beside the prompt in this run only. It does not enter the conversation.
    """

    masked_fields: ClassVar = ("text",)
    text: str
    labels: tuple[Label, ...] = ()

    def describe(self) -> str:
        """Say in words what happened, for `windlass explain` and the terminal."""
        known = quote_text(self.text) if self.text else "nothing"
        return f"Recalled about the prompt: {known}"
