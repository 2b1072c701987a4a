"""What user, model and tools say: parts, messages, results, tool specs, usage.

A message never changes once it is made, so that its encoded form can be kept next to it. Nothing
here can contain itself, so the garbage collector need not track any of it (`gc=False`).
"""

import re
from collections.abc import Iterator
from decimal import Context, Decimal
from functools import reduce
from typing import Any, Literal, Self

import msgspec
from typing_extensions import override

Tone = Literal["plain", "good", "bad", "asking"]

BODY_CHARS_MAX = 4_000
"""More of a text than this is not shown; the value itself has all of it."""
_BORDERS: dict[Tone, str] = {
    "plain": "#8a94a6",
    "good": "#2e9d5b",
    "bad": "#d1495b",
    "asking": "#d99a1c",
}
_CARD_STYLE = "border-left:3px solid {border};padding:.2em .8em;margin:.3em 0"
_BODY_STYLE = "white-space:pre-wrap;margin:.25em 0;font-family:inherit;background:none"


class DisplayCard(msgspec.Struct, frozen=True):
    """What is shown of a value."""

    title: str
    note: str = ""
    """Beside the title, in small print."""
    body: str = ""
    rows: tuple[tuple[str, str], ...] = ()
    """Names and values, in a table."""
    tone: Tone = "plain"
    cards: tuple["DisplayCard", ...] = ()
    """Of the values in it."""


class RichDisplay:
    """Makes a value show itself in a notebook, by its card."""

    __slots__ = ()

    def display_card(self) -> DisplayCard:
        """Return what is shown of this value in a notebook."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        return render_html(self.display_card())

    def _repr_markdown_(self) -> str:
        return "\n\n".join(render_markdown(self.display_card()))


def render_html(card: DisplayCard) -> str:
    """Return a card as HTML that needs no style sheet and reads on light and dark pages."""
    from html import escape  # noqa: PLC0415 - only notebooks need it

    border = _BORDERS[card.tone]
    note = f' <small style="opacity:.7">{escape(card.note)}</small>' if card.note else ""
    parts = [f"<div><b>{escape(card.title)}</b>{note}</div>"]
    if card.body:
        parts.append(f'<pre style="{_BODY_STYLE}">{escape(_clip(card.body))}</pre>')
    if card.rows:
        cells = "".join(
            f'<tr><td style="text-align:left;opacity:.7">{escape(name)}</td>'
            f'<td style="text-align:left">{escape(_clip(value))}</td></tr>'
            for name, value in card.rows
        )
        parts.append(f"<table>{cells}</table>")
    parts.extend(map(render_html, card.cards))
    return f'<div style="{_CARD_STYLE.format(border=border)}">{"".join(parts)}</div>'


def render_markdown(card: DisplayCard) -> Iterator[str]:
    """Yield the blocks of a card in Markdown. What others wrote is in blocks of code."""
    note = f" ({_in_code(card.note)})" if card.note else ""
    yield f"**{_in_code(card.title)}**{note}"
    if card.body:
        yield _fence(_clip(card.body))
    if card.rows:
        yield "\n".join(
            f"- {_in_code(name)}: {_in_code(_clip(value))}" for name, value in card.rows
        )
    for each in card.cards:
        yield from render_markdown(each)


def _clip(text: str) -> str:
    return text if len(text) <= BODY_CHARS_MAX else f"{text[:BODY_CHARS_MAX]}…"


def _in_code(text: str) -> str:
    """A text as one line of code; its own backticks would end it, so they are quotes."""
    return f"`{' '.join(text.split()).replace('`', chr(39))}`"


def _fence(text: str) -> str:
    """A text between fences that are longer than any in it."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"


class MessagePart(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type"):
    """A piece of a message."""


class TextPart(MessagePart, frozen=True, tag="text"):
    """Plain text."""

    text: str
    by_program: bool = False
    """The program added it to what a person said: models read it, and people are not shown it."""


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
    """A call as the model wrote it. `arguments` is its text, whole and unrepaired."""

    id: str
    """Given by the runtime, unique in the session."""
    name: str
    arguments: str = ""
    provider_id: str | None = None
    signature: str | None = None
    origin: str = ""
    """How the call was found, if the model wrote it as text instead of making it."""


ContentPart = TextPart | ImagePart | FilePart
"""What a person or a tool can send."""
ReplyPart = TextPart | ThinkingPart | ToolCall
"""What a model can reply."""

ResultKind = Literal["value", "error", "denied", "invalid", "timed_out", "cancelled", "unknown"]


Effect = Literal["read", "idempotent", "write"]
"""What a tool does: only reads, may be repeated safely, or must not run twice."""
Label = Literal["untrusted", "private", "external"]
"""Of a tool: its results are text from outside, or private data; it sends its arguments out."""


class ToolResult(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The result of a call. Every kind but `value` explains to the model what went wrong."""

    kind: ResultKind
    content: tuple[ContentPart, ...]
    outage: bool = False
    """The call is not at fault: a service that the tool needs did not answer."""
    artifacts: tuple[str, ...] = ()
    """The ids under which texts of this result, which is shortened, can be read whole."""
    labels: tuple[Label, ...] = ()
    """What this result brings into the session besides the labels of its tool."""

    @classmethod
    def from_text(cls, kind: ResultKind, text: str, *, outage: bool = False) -> Self:
        """Return a result whose content is one text."""
        return cls(kind, (TextPart(text),), outage)

    @property
    def text(self) -> str:
        """The text of the content, without pictures and files."""
        return "".join(part.text for part in self.content if isinstance(part, TextPart))


class ArgumentChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """One repair of the arguments: where, and what was done, in words without content."""

    path: str
    what: str


class CallOutcome(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A call in the transcript, with its result."""

    call: ToolCall
    result: ToolResult


class UserMessage(
    RichDisplay,
    msgspec.Struct,
    frozen=True,
    gc=False,
    omit_defaults=True,
    tag_field="role",
    tag="user",
):
    """A message of a person, or of the runtime on their behalf (`note`)."""

    parts: tuple[ContentPart, ...]
    note: bool = False
    pinned: bool = False
    """Stays in view, however long the session grows."""

    @property
    def text(self) -> str:
        """The text of the message, without pictures and files."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))

    @override
    def display_card(self) -> DisplayCard:
        """Return the notebook representation of this message."""
        files = sum(not isinstance(part, TextPart) for part in self.parts)
        return DisplayCard("user", f"{files} attached" if files else "", self.text)


class AssistantMessage(
    RichDisplay,
    msgspec.Struct,
    frozen=True,
    gc=False,
    omit_defaults=True,
    tag_field="role",
    tag="assistant",
):
    """A model's reply: text, thinking and calls in the order in which they came."""

    parts: tuple[ReplyPart, ...]
    model: str = ""

    @property
    def text(self) -> str:
        """The text of the reply, without thinking and calls."""
        return "".join([part.text for part in self.parts if isinstance(part, TextPart)])

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls of the reply, in the model's order."""
        return tuple([part for part in self.parts if isinstance(part, ToolCall)])

    @override
    def display_card(self) -> DisplayCard:
        """Return the notebook representation of this message."""
        calls = tuple((f"→ {call.name}", call.arguments) for call in self.calls)
        return DisplayCard("assistant", self.model, self.text, calls)


class ToolResults(
    RichDisplay,
    msgspec.Struct,
    frozen=True,
    gc=False,
    omit_defaults=True,
    tag_field="role",
    tag="tool",
):
    """The results of one reply's calls, in the model's order."""

    items: tuple[CallOutcome, ...]

    @override
    def display_card(self) -> DisplayCard:
        """Return the notebook representation of this message."""
        rows = tuple((f"← {item.call.name}", item.result.text) for item in self.items)
        failed = any(item.result.kind != "value" for item in self.items)
        return DisplayCard("tools", rows=rows, tone="bad" if failed else "plain")


Message = UserMessage | AssistantMessage | ToolResults
"""What a transcript consists of."""


class ToolSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the model reads about a tool, and what the runtime must know about it."""

    name: str
    description: str
    parameters: dict[str, Any]
    """A JSON Schema."""
    effect: Effect = "write"
    labels: tuple[Label, ...] = ()
    """What its results bring into the session, or where its arguments go."""
    version: str = ""
    """Changes when the implementation behind the tool changes, if that can happen."""
    notice: str = ""
    """What a person who is asked about a call must know, such as that nothing confines it."""
    question: str = ""
    """How a person is asked about a call: a template with the names of arguments."""
    asks: bool = False
    """A person is asked before each call, whatever the gate allows."""
    undo: Effect | Literal[""] = ""
    """The effect of what undoes its calls; empty if they cannot be undone."""
    needs_artifact: bool = False
    """Offered only once the session has an artifact."""
    isolated: bool = False
    """A call runs in its own process, or resumes in its own session, so that the death of
    a driver says nothing about it."""


class Usage(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Tokens of one or more attempts. `input` includes cache reads and cache writes."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    estimated: bool = False
    """Some of it was not reported by the provider."""
    cached_replies: int = 0
    """Replies that came from a cache on disk. Nothing was paid for them, and no tokens count."""

    @property
    def total(self) -> int:
        """Input and output together."""
        return self.input + self.output

    def minus(self, other: "Usage") -> "Usage":
        """Return the tokens that are not in the other one, of each kind at least none."""
        return Usage(
            max(0, self.input - other.input),
            max(0, self.output - other.output),
            max(0, self.cache_read - other.cache_read),
            max(0, self.cache_write - other.cache_write),
            max(0, self.reasoning - other.reasoning),
            self.estimated,
            self.cached_replies,
        )

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            self.reasoning + other.reasoning,
            self.estimated or other.estimated,
            self.cached_replies + other.cached_replies,
        )


Purpose = Literal["main", "compaction", "subagent"]


class Charge(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What one attempt cost. Unknown usage and an unknown price are None, not zero."""

    model: str
    purpose: Purpose = "main"
    usage: Usage | None = None
    usd: Decimal | None = None


EXACT_MATH = Context(prec=60)
"""Money is added and multiplied in this context, whatever precision the caller computes with."""


class Ledger(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """All charges, added up for each model and purpose."""

    charges: tuple[Charge, ...] = ()

    def add(self, charge: Charge) -> "Ledger":
        """Return the ledger with one more charge."""
        for at, entry in enumerate(self.charges):
            if (entry.model, entry.purpose) == (charge.model, charge.purpose):
                total = _add_charges(entry, charge)
                return Ledger((*self.charges[:at], total, *self.charges[at + 1 :]))
        return Ledger((*self.charges, charge))

    @property
    def usage(self) -> Usage | None:
        """The tokens of all charges, or None if no usage is known."""
        known = [charge.usage for charge in self.charges if charge.usage is not None]
        if known:
            return reduce(Usage.__add__, known)
        return None

    @property
    def usd(self) -> Decimal | None:
        """The money spent, or None as soon as one price is unknown."""
        used = [charge for charge in self.charges if charge.usage is not None]
        if not used or any(charge.usd is None for charge in used):
            return None
        return self.known_usd

    @property
    def known_usd(self) -> Decimal:
        """The money that is known to be spent."""
        known = (charge.usd for charge in self.charges if charge.usd is not None)
        return reduce(EXACT_MATH.add, known, Decimal(0))


def _add_charges(earlier: Charge, new: Charge) -> Charge:
    """Return two charges of one model and purpose as one."""
    if new.usage is None:
        return earlier
    if earlier.usage is None:
        return new
    usd = None
    if earlier.usd is not None and new.usd is not None:
        usd = EXACT_MATH.add(earlier.usd, new.usd)
    return Charge(earlier.model, earlier.purpose, earlier.usage + new.usage, usd)
