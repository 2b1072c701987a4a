"""The flow guard: what came from outside must not send out what is private.

The law: once a session holds both text that anyone may have written and private data, a call that
sends out is a person's to allow. A tool that is itself private and sends out brings the private
part along. It does not matter how the model came to make the call: only what it has seen.
"""

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

import msgspec

from windlass.core.errors import ConfigError
from windlass.core.messages import Label
from windlass.core.suggestions import suggest_names
from windlass.core.verdicts import Allow, Ask, Deny, Verdict
from windlass.gates.globs import printable_text
from windlass.gates.patterns import PreparedCall
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
"""Names of arguments that say where something goes; so does any that is an address."""

VALUE_CHARS_MAX = 100
LINE_CHARS_MAX = 600

_LABEL_WORDS: dict[Label, str] = {
    "untrusted": "text from outside, which anyone may have written",
    "private": "private data",
}


class FlowGuard:
    """Asks about calls that could carry private data out at a stranger's wish."""

    judges_replies = False

    def __init__(self, decision: FlowDecision = "ask") -> None:
        if decision not in ("ask", "deny"):
            told = suggest_names(str(decision), ["ask", "deny"])
            raise ConfigError(f"{decision!r} is nothing that a flow guard does.{told}")
        self.decision: FlowDecision = decision
        self.name = "flow_guard" if decision == "ask" else "flow_guard(deny)"

    async def judge(self, request: GateRequest) -> Verdict:
        own = {"private"}.intersection(request.tool.labels)
        held = request.labels.union(own)
        if "external" not in request.tool.labels or not held.issuperset(_LABEL_WORDS):
            return Allow(self.name)
        why = _explain_labels(request)
        if self.decision == "deny":
            return Deny(f"Not allowed: {request.tool.name} sends out, and {why}", self.name)
        question = f"May {request.tool.name} send this out? {_describe_arguments(request)}"
        return Ask(f"{question} You are asked because {why}", self.name)

    async def judge_reply(self, session: str, text: str) -> Allow | Deny:  # noqa: ARG002
        return Allow(self.name)


def flow_guard(decision: FlowDecision = "ask") -> FlowGuard:
    """A gate that stops what sends out once a session holds untrusted and private content."""
    return FlowGuard(decision)


def _explain_labels(request: GateRequest) -> str:
    held = " and ".join(
        f"{words} ({_label_source(request, label)})" for label, words in _LABEL_WORDS.items()
    )
    return f"this session holds {held}: the one may have told the model to send the other."


def _label_source(request: GateRequest, label: Label) -> str:
    """Which call brought a label, in words."""
    if label not in request.labels:
        return f"of {request.tool.name} itself"
    return f"from {printable_text(request.sources.get(label, 'an earlier call'), VALUE_CHARS_MAX)}"


def _describe_arguments(request: GateRequest) -> str:
    """Where to, and what, each in one line that no argument can break out of."""
    call = PreparedCall(request.tool, request.arguments)
    places = [name for name in request.arguments if _is_destination(call, name)]
    rest = [name for name in request.arguments if name not in places]
    where = (
        f"Where to: {_format_arguments(request, places)}."
        if places
        else "Its arguments do not say where to."
    )
    what = f"What: {_format_arguments(request, rest)}." if rest else ""
    return f"{where} {what}".strip()


def _is_destination(call: PreparedCall, name: str) -> bool:
    return name.casefold() in DESTINATION_ARGUMENTS or call.argument_kind(name) == "url"


def _format_arguments(request: GateRequest, names: list[str]) -> str:
    line = ", ".join(
        f"{printable_text(name, 40)}={_format_value(request.arguments[name])}" for name in names
    )
    left = len(line) - LINE_CHARS_MAX
    return line if left <= 0 else f"{line[:LINE_CHARS_MAX]}… ({left} characters more)"


def _format_value(value: Any) -> str:  # noqa: ANN401 - an argument is any JSON
    """A value as JSON, so that its quotes are not ours; of a long one, both ends and its length."""
    text = "".join(_printable_chars(msgspec.json.encode(value).decode()))
    if len(text) <= VALUE_CHARS_MAX:
        return text
    half = VALUE_CHARS_MAX // 2
    return f"{text[:half]} … {text[-half:]} ({len(text)} characters)"


def _printable_chars(text: str) -> Iterator[str]:
    yield from (char if char.isprintable() else " " for char in text)
