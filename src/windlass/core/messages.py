"""What user, model and tools say: parts, messages, results, tool specs, usage.

A message never changes once it is made, so that its encoded form can be kept beside it. Nothing
here can hold itself, and so none of it is looked at by the garbage collector (`gc=False`).
"""

from decimal import Context, Decimal
from functools import reduce
from typing import Any, Literal, Self

import msgspec


class MessagePart(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type"):
    """A piece of a message."""


class TextPart(MessagePart, frozen=True, tag="text"):
    text: str


class ThinkingPart(MessagePart, frozen=True, tag="thinking"):
    """The model's reasoning. The signature goes back verbatim to the model that made it."""

    text: str
    signature: str | None = None


class ImagePart(MessagePart, frozen=True, tag="image"):
    """A picture, by value or by address."""

    media_type: str
    data: bytes | None = None
    url: str | None = None


class FilePart(MessagePart, frozen=True, tag="file"):
    """A document, by value or by address."""

    media_type: str
    name: str
    data: bytes | None = None
    url: str | None = None


class ToolCall(MessagePart, frozen=True, tag="call"):
    """A call as the model wrote it; `arguments` is its text, whole and unrepaired."""

    id: str
    name: str
    arguments: str = ""
    provider_id: str | None = None
    signature: str | None = None
    origin: str = ""
    """How it was found, if the model did not call but wrote what was meant as a call."""


ContentPart = TextPart | ImagePart | FilePart
ReplyPart = TextPart | ThinkingPart | ToolCall

ResultKind = Literal["value", "error", "denied", "invalid", "timed_out", "cancelled", "unknown"]


class ToolResult(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What became of a call. Every kind but `value` tells the model what went wrong."""

    kind: ResultKind
    content: tuple[ContentPart, ...]
    outage: bool = False
    """Not the call's fault: what the tool stands on did not answer."""

    @classmethod
    def from_text(cls, kind: ResultKind, text: str, *, outage: bool = False) -> Self:
        return cls(kind, (TextPart(text),), outage)

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.content if isinstance(part, TextPart))


class ArgumentChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that was repaired: where, and what was done, in words that hold no content."""

    path: str
    what: str


class CallOutcome(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A result in the transcript, paired with its call."""

    call: ToolCall
    result: ToolResult


class UserMessage(
    msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="role", tag="user"
):
    """What a person said, or what the runtime says on their behalf (`note`)."""

    parts: tuple[ContentPart, ...]
    note: bool = False
    pinned: bool = False
    """Stays in view, however long the session grows."""

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))


class AssistantMessage(
    msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="role", tag="assistant"
):
    """A model's reply: text, thinking and calls in the order in which they came."""

    parts: tuple[ReplyPart, ...]
    model: str = ""

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolCall))


class ToolResults(
    msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="role", tag="tool"
):
    """The results of one reply's calls, in the model's order."""

    items: tuple[CallOutcome, ...]


Message = UserMessage | AssistantMessage | ToolResults

Effect = Literal["read", "idempotent", "write"]
Label = Literal["untrusted", "private", "external"]


class ToolSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a model is told of a tool, and what the runtime must know of it."""

    name: str
    description: str
    parameters: dict[str, Any]
    effect: Effect = "write"
    labels: tuple[Label, ...] = ()
    version: str = ""
    """Tells what stands behind the tool from what stood there before, if that can change."""


class Usage(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Tokens of one or more attempts. `input` includes what was read from or written to a cache."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    estimated: bool = False

    @property
    def total(self) -> int:
        return self.input + self.output

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            self.reasoning + other.reasoning,
            self.estimated or other.estimated,
        )


Purpose = Literal["main", "compaction", "subagent"]


class Charge(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What one attempt cost. No usage is None, and an unknown price is None: neither is zero."""

    model: str
    purpose: Purpose = "main"
    usage: Usage | None = None
    usd: Decimal | None = None


EXACT_MATH = Context(prec=60)
"""Money is added and multiplied in this context, whatever precision the caller computes with."""


class Ledger(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """All charges, summed up per model and purpose."""

    charges: tuple[Charge, ...] = ()

    def add(self, charge: Charge) -> "Ledger":
        for at, known in enumerate(self.charges):
            if (known.model, known.purpose) == (charge.model, charge.purpose):
                summed = _add_charges(known, charge)
                return Ledger((*self.charges[:at], summed, *self.charges[at + 1 :]))
        return Ledger((*self.charges, charge))

    @property
    def usage(self) -> Usage | None:
        known = [charge.usage for charge in self.charges if charge.usage is not None]
        return reduce(Usage.__add__, known) if known else None

    @property
    def usd(self) -> Decimal | None:
        """The money spent, or None as soon as the price of anything in it is unknown."""
        paid = [charge for charge in self.charges if charge.usage is not None]
        return self.known_usd if paid and all(charge.usd is not None for charge in paid) else None

    @property
    def known_usd(self) -> Decimal:
        """The money that is known to be spent."""
        known = (charge.usd for charge in self.charges if charge.usd is not None)
        return reduce(EXACT_MATH.add, known, Decimal(0))


def _add_charges(earlier: Charge, new: Charge) -> Charge:
    """Two charges of one model and purpose as one."""
    if earlier.usage is None or new.usage is None:
        return earlier if new.usage is None else new
    both = earlier.usd is not None and new.usd is not None
    usd = EXACT_MATH.add(earlier.usd or Decimal(0), new.usd or Decimal(0)) if both else None
    return Charge(earlier.model, earlier.purpose, earlier.usage + new.usage, usd)
