"""The flow guard: text from outside must not make the model send private data out.

The law: once a session holds both text that anyone may have written and private data, only a person
may allow a call that sends data out. A tool that is labelled private and external counts as holding
private data itself. Why the model made the call does not matter, only what it has seen.
"""

from typing import Any, Literal, TypeAlias

import msgspec

from windlass.core.errors import ConfigError
from windlass.core.messages import Label
from windlass.core.suggestions import suggest_names
from windlass.core.text_clip import printable_chars
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
"""Names of arguments that say where data goes. So does every argument that holds a URL."""

VALUE_CHARS_MAX = 100
LINE_CHARS_MAX = 600

_LABEL_WORDS: dict[Label, str] = {
    "untrusted": "text from outside, which anyone may have written",
    "private": "private data",
}


class FlowGuard:
    """A gate that asks about (or denies) calls that may send private data out.

    `decision`: `"ask"` or `"deny"`. Raises ConfigError for anything else.
    """

    judges_replies = False

    def __init__(self, decision: FlowDecision = "ask") -> None:
        if decision not in ("ask", "deny"):
            hint = suggest_names(str(decision), ["ask", "deny"])
            raise ConfigError(f"a flow guard cannot {decision!r}: it can ask or deny.{hint}")
        self.decision: FlowDecision = decision
        self.name = "flow_guard" if decision == "ask" else "flow_guard(deny)"

    async def judge(self, request: GateRequest) -> Verdict:
        own_labels = {"private"}.intersection(request.tool.labels)
        labels = request.labels.union(own_labels)
        if "external" not in request.tool.labels or not labels.issuperset(_LABEL_WORDS):
            return Allow(self.name)
        cause = _explain_labels(request)
        if self.decision == "deny":
            return Deny(f"Not allowed: {request.tool.name} sends data out, and {cause}", self.name)
        question = f"May {request.tool.name} send this out? {_describe_arguments(request)}"
        return Ask(f"{question} You are asked because {cause}", self.name)

    async def judge_reply(self, session: str, text: str) -> Allow | Deny:  # noqa: ARG002
        return Allow(self.name)


def flow_guard(decision: FlowDecision = "ask") -> FlowGuard:
    """A gate that stops calls that send data out once a session holds untrusted and private text.

    `decision`: `"ask"` a person, or `"deny"`.
    """
    return FlowGuard(decision)


def _explain_labels(request: GateRequest) -> str:
    held = " and ".join(
        f"{words} ({_label_source(request, label)})" for label, words in _LABEL_WORDS.items()
    )
    return f"this session holds {held}: the first may have told the model to send the second."


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
        where = f"Where to: {_format_arguments(request, destinations)}."
    if not contents:
        return where
    return f"{where} What: {_format_arguments(request, contents)}."


def _is_destination(call: PreparedCall, name: str) -> bool:
    return name.casefold() in DESTINATION_ARGUMENTS or call.argument_kind(name) == "url"


def _format_arguments(request: GateRequest, names: list[str]) -> str:
    line = ", ".join(
        f"{printable_text(name, 40)}={_format_value(request.arguments[name])}" for name in names
    )
    left = len(line) - LINE_CHARS_MAX
    if left <= 0:
        return line
    return f"{line[:LINE_CHARS_MAX]}… ({left} more characters)"


def _format_value(value: Any) -> str:  # noqa: ANN401 - an argument is any JSON
    """A value as JSON, whose quotes it cannot close; a long one as both its ends and its length."""
    text = printable_chars(msgspec.json.encode(value).decode())
    if len(text) <= VALUE_CHARS_MAX:
        return text
    half = VALUE_CHARS_MAX // 2
    return f"{text[:half]} … {text[-half:]} ({len(text)} characters)"
