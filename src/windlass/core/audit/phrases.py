"""The small words of an explanation: amounts, times, quotations, each of a bounded length."""

from collections.abc import Iterable
from decimal import Decimal

import msgspec
from msgspec.structs import asdict

from windlass.core.events import (
    BudgetAllotted,
    CallAnswered,
    ContextCompacted,
    KnowledgeRecalled,
    SteeringGiven,
    SteeringTaken,
)
from windlass.core.limits import Amount, Limits, SessionLimits
from windlass.core.messages import ArgumentChange, Charge, ContentPart, TextPart, ToolResult
from windlass.core.verdicts import Allow, AnswerVerdict, Deny, Modify, OutputMismatch

QUOTED_CHARS_MAX = 100
"""Characters of a text that are quoted."""


def printable_line(text: str, chars_max: int = 3 * QUOTED_CHARS_MAX) -> str:
    """A text on one line, without what could steer a terminal, cut to a length."""
    words = " ".join(text[: 10 * chars_max].split())
    words = "".join(char if char.isprintable() else "?" for char in words)
    return words if len(words) <= chars_max else words[: chars_max - 1] + "…"


def clip_text(text: str) -> str:
    """The beginning of a text."""
    return printable_line(text, QUOTED_CHARS_MAX)


def quote_text(text: str) -> str:
    """The beginning of a text, in quotation marks."""
    return f'"{clip_text(text)}"'


def encode_json(value: object) -> str:
    """A value as JSON."""
    return msgspec.json.encode(value).decode()


def format_count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_duration(amount: float) -> str:
    """A time in the unit that fits it."""
    if 0 < amount < 1:
        return f"{round(1000 * amount)} ms"
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if amount >= 2 * size:
            return f"{round(amount / size, 1):g} {unit}"
    return f"{round(amount, 1):g} s"


def format_money(usd: Decimal | None) -> str:
    """Dollars behind a comma; nothing where they are not known."""
    return "" if usd is None else f", ${usd.normalize():f}"


def _format_amount(amount: Amount) -> str:
    """So much money, so many tokens."""
    usd = None if amount.usd is None else f"${amount.usd.normalize():f}"
    tokens = None if amount.tokens is None else format_count(amount.tokens, "token")
    return " and ".join(filter(None, (usd, tokens))) or "nothing"


def format_charge(charge: Charge | None) -> str:
    """What was paid, in brackets; nothing where nothing was."""
    if charge is None or charge.usage is None:
        return ""
    usage = charge.usage
    guess = ", estimated" if usage.estimated else ""
    return f" [{usage.input:,} tokens in, {usage.output:,} out{format_money(charge.usd)}{guess}]"


def format_rule(rule: str) -> str:
    return f" by the rule {quote_text(rule)}" if rule else ""


def join_texts(parts: Iterable[ContentPart]) -> str:
    """The text of a message."""
    return " ".join(part.text for part in parts if isinstance(part, TextPart))


def count_attachments(parts: Iterable[ContentPart]) -> str:
    """How much there is beside the text."""
    others = sum(not isinstance(part, TextPart) for part in parts)
    return f" with {format_count(others, 'attachment')}" if others else ""


def format_result(of_call: ToolResult) -> str:
    """What became of a call."""
    kind = "gave" if of_call.kind == "value" else of_call.kind.replace("_", " ") + ":"
    outage = ", an outage" if of_call.outage else ""
    return f"{kind} {quote_text(of_call.text)}{count_attachments(of_call.content)}{outage}"


def _format_number(value: Decimal | float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def format_limits(of_run: Limits | SessionLimits) -> str:
    """The limits that are set."""
    known: dict[str, Decimal | float | None] = asdict(of_run)
    told = (
        f"${value:f}" if name == "usd" else f"{_format_number(value)} {name.replace('_', ' ')}"
        for name, value in known.items()
        if value is not None
    )
    return ", ".join(told) or "none"


def format_repairs(changes: Iterable[ArgumentChange]) -> str:
    """What was changed, in order."""
    told = (f"{change.path}: {change.what}" if change.path else change.what for change in changes)
    return printable_line("; ".join(told))


def format_verdict(given: AnswerVerdict) -> str:
    match given:
        case Allow(rule):
            return f"allowed{format_rule(rule)}"
        case Deny(reason, rule):
            return f"denied{format_rule(rule)}: {quote_text(reason)}"
        case Modify(arguments, reason, rule):
            return f"changed to {clip_text(encode_json(arguments))}{format_rule(rule)}: {quote_text(reason)}"


def explain_answer(fact: CallAnswered) -> str:
    who = printable_line(fact.by) if fact.by else "somebody"
    scope = fact.grant.pattern or "this very call" if fact.grant else ""
    more = f"; and {printable_line(scope)} for the rest of the session" if scope else ""
    return f"{who} answered: {format_verdict(fact.verdict)}{more}"


def explain_reply_verdict(given: Allow | Deny | OutputMismatch) -> str:
    match given:
        case Allow(rule):
            return f"passed{format_rule(rule)}"
        case Deny(reason, rule):
            return f"was withheld{format_rule(rule)}: {quote_text(reason)}"
        case OutputMismatch(message):
            return f"does not fit the output type: {quote_text(message)}"


def explain_allotment(fact: BudgetAllotted) -> str:
    more = "; it has no more for now" if fact.dry else ""
    return f"The budget {printable_line(fact.budget)} gives this run {_format_amount(fact.amount)} in all{more}"


def explain_compaction(fact: ContextCompacted) -> str:
    before = f"The first {format_count(fact.upto, 'message')}"
    if fact.how == "mask":
        return f"{before}: the results in them left the view"
    how = "were summed up" if fact.how == "summary" else "left the view"
    return f"{before} {how}: {quote_text(fact.note)}{format_charge(fact.charge)}"


def explain_addition(fact: SteeringGiven | SteeringTaken | KnowledgeRecalled) -> str:
    """What came into the conversation beside the prompt."""
    match fact:
        case SteeringGiven(prompt, by):
            who = printable_line(by) if by else "Somebody"
            return (
                f"{who} said meanwhile: {quote_text(join_texts(prompt))}{count_attachments(prompt)}"
            )
        case SteeringTaken():
            return "What was said meanwhile went into the conversation"
        case KnowledgeRecalled(text):
            return f"What is known about the prompt: {quote_text(text) if text else 'nothing'}"
