"""The flow guard: text from outside must not make the model send private data out.

Invariant: once a session holds both text that anyone may have written and private data, only a
person may allow a call that sends data out. A tool that is labelled private and external counts as
holding private data itself. Why the model made the call does not matter, only what it has seen.

One kind of call is still harmless: one whose every argument is an address that the person wrote. It
sends nothing that the model could have chosen.
"""

from collections.abc import Callable, Collection
from typing import Any, Literal, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from windlass.core.errors import ConfigError
from windlass.core.messages import Label
from windlass.core.suggestions import suggest_names
from windlass.core.text_clip import printable_chars
from windlass.core.verdicts import Allow, Ask, Deny, Verdict
from windlass.gates.globs import printable_text
from windlass.gates.patterns import PreparedCall
from windlass.gates.urls import plain_address
from windlass.ports import GateRequest

FlowDecision: TypeAlias = Literal["ask", "deny"]

DESTINATION_ARGUMENTS = frozenset(
    [
        "address",
        "bcc",
        "cc",
        "channel",
        "destination",
        "domain",
        "email",
        "endpoint",
        "host",
        "hostname",
        "phone",
        "recipient",
        "recipients",
        "room",
        "server",
        "to",
        "webhook",
    ]
)
"""Names of arguments that say where data goes. So does every argument that holds a URL."""

AddressReader: TypeAlias = Callable[[GateRequest], Collection[str]]
"""Returns the addresses that the person wrote, as `find_addresses` finds them in a text."""

VALUE_CHARS_MAX = 100
ADDRESS_CHARS_MAX = 400
LINE_CHARS_MAX = 600

_LABEL_WORDS: dict[Label, str] = {
    "untrusted": "text from outside, which anyone may have written",
    "private": "private data",
}


class FlowGuard:
    """A gate that asks about (or denies) calls that may send private data out.

    `decision`: `"ask"` or `"deny"`. Raises ConfigError for anything else. `typed_addresses` reads
    what the person wrote from what the program says about the run; by default, nothing.
    """

    judges_replies = False

    def __init__(
        self, decision: FlowDecision = "ask", *, typed_addresses: AddressReader | None = None
    ) -> None:
        if decision not in ("ask", "deny"):
            hint = suggest_names(str(decision), ["ask", "deny"])
            raise ConfigError(f"a flow guard cannot {decision!r}: it can ask or deny.{hint}")
        self.decision: FlowDecision = decision
        self._typed_addresses = typed_addresses
        self.name = "flow_guard" if decision == "ask" else "flow_guard(deny)"

    async def judge(self, request: GateRequest) -> Verdict:
        """Ask a person before private data could leave because of untrusted text."""
        own_labels = {"private"}.intersection(request.tool.labels)
        labels = request.labels.union(own_labels)
        if "external" not in request.tool.labels or not labels.issuperset(_LABEL_WORDS):
            return Allow(self.name)
        if self._is_typed(request):
            return Allow(f"{self.name}: the person wrote this address")
        held = " and ".join(
            f"{words} ({_label_source(request, label)})" for label, words in _LABEL_WORDS.items()
        )
        cause = f"this session holds {held}: the first may have told the model to send the second."
        if self.decision == "deny":
            return Deny(f"Not allowed: {request.tool.name} sends data out, and {cause}", self.name)
        question = f"May {request.tool.name} send this out? {_describe_arguments(request)}"
        return Ask(f"{question} You are asked because {cause}", self.name)

    def _is_typed(self, request: GateRequest) -> bool:
        """Whether the call has no argument but addresses that the person wrote."""
        values = list(request.arguments.values())
        if self._typed_addresses is None or not values:
            return False
        typed = self._typed_addresses(request)
        return all(isinstance(value, str) and plain_address(value) in typed for value in values)

    async def judge_reply(self, session: str, text: str) -> Allow | Deny:  # noqa: ARG002
        """Allow every reply: it stays with the person who asked."""
        return Allow(self.name)


def flow_guard(
    decision: FlowDecision = "ask", *, typed_addresses: AddressReader | None = None
) -> FlowGuard:
    """A gate that stops calls that send data out once a session holds untrusted and private text.

    `decision`: `"ask"` a person, or `"deny"`. `typed_addresses`: see `FlowGuard`.
    """
    return FlowGuard(decision, typed_addresses=typed_addresses)


def _label_source(request: GateRequest, label: Label) -> str:
    """Which call brought the label into the session."""
    if label not in request.labels:
        return f"from {request.tool.name} itself"
    return f"from {printable_text(request.sources.get(label, 'an earlier call'), VALUE_CHARS_MAX)}"


def _describe_arguments(request: GateRequest) -> str:
    """Where the data goes and what it is, in one line that no argument can break out of."""
    call = PreparedCall(request.tool, request.arguments)
    destinations = [name for name in request.arguments if _is_destination(call, name)]
    contents = [name for name in request.arguments if name not in destinations]
    where = "Its arguments do not say where it goes."
    if destinations:
        where = f"Where to: {_format_arguments(request, destinations, ADDRESS_CHARS_MAX)}."
        carried = ", ".join(_describe_address(request.arguments[name]) for name in destinations)
        if carried.strip(", "):
            where = f"{where} The address carries: {_clip_line(carried)}."
    if not contents:
        return where
    return f"{where} What: {_format_arguments(request, contents)}."


def _is_destination(call: PreparedCall, name: str) -> bool:
    return name.casefold() in DESTINATION_ARGUMENTS or call.argument_kind(name) == "url"


def _describe_address(value: Any) -> str:  # noqa: ANN401 - an argument is any JSON
    """What a URL reveals to its server besides its name, decoded, so that a person can read it.

    Empty if that is nothing, or if it is plain to see.
    """
    try:
        parts = urlsplit(value) if isinstance(value, str) else None
    except ValueError:
        parts = None
    if parts is None:
        return ""
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    if parts.query and not pairs:
        pairs = [("query", unquote(parts.query))]
    path = unquote(parts.path)
    if path != parts.path or len(path) > VALUE_CHARS_MAX:
        pairs.insert(0, ("path", path))
    return ", ".join(f"{printable_text(name, 40)}={_format_value(text)}" for name, text in pairs)


def _format_arguments(
    request: GateRequest, names: list[str], chars_max: int = VALUE_CHARS_MAX
) -> str:
    line = ", ".join(
        f"{printable_text(name, 40)}={_format_value(request.arguments[name], chars_max)}"
        for name in names
    )
    return _clip_line(line)


def _clip_line(line: str) -> str:
    left = len(line) - LINE_CHARS_MAX
    if left <= 0:
        return line
    return f"{line[:LINE_CHARS_MAX]}… ({left} more characters)"


def _format_value(value: Any, chars_max: int = VALUE_CHARS_MAX) -> str:  # noqa: ANN401 - an argument is any JSON
    """A value as JSON, whose quotes it cannot close; a long one as both its ends and its length."""
    text = printable_chars(msgspec.json.encode(value).decode())
    if len(text) <= chars_max:
        return text
    half = chars_max // 2
    return f"{text[:half]} … {text[-half:]} ({len(text)} characters)"
