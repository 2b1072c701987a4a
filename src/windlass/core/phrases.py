"""Small phrases for people: amounts, durations, quotations and verdicts, each of a bounded length.

Text of a model, a tool or a person goes through `printable_line`, so that it cannot steer a
terminal or fill a screen.
"""

from collections.abc import Iterable
from decimal import Decimal

import msgspec
from msgspec.structs import asdict

from windlass.core.limits import Amount, Limits, SessionLimits
from windlass.core.messages import ArgumentChange, Charge, ContentPart, TextPart, ToolResult
from windlass.core.text_clip import printable_line
from windlass.core.verdicts import Allow, AnswerVerdict, Deny, Modify

QUOTED_CHARS_MAX = 100
"""Characters of a text that are quoted."""


def clip_text(text: str) -> str:
    """Return the beginning of a text as one line."""
    return printable_line(text, QUOTED_CHARS_MAX)


def quote_text(text: str) -> str:
    """Return the beginning of a text in quotation marks."""
    return f'"{clip_text(text)}"'


def encode_json(value: object) -> str:
    """Return a value as JSON text."""
    return msgspec.json.encode(value).decode()


def format_count(number: int, noun: str) -> str:
    """Return `1 call` or `2 calls`."""
    plural = "" if number == 1 else "s"
    return f"{number:,} {noun}{plural}"


def format_duration(seconds: float) -> str:
    """Return a duration in the unit that suits it."""
    if 0 < seconds < 1:
        return f"{round(1000 * seconds)} ms"
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{round(seconds / size, 1):g} {unit}"
    return f"{round(seconds, 1):g} s"


def format_money(usd: Decimal | None) -> str:
    """Return dollars behind a comma, or nothing if the price is not known."""
    if usd is None:
        return ""
    return f", ${usd.normalize():f}"


def format_amount(amount: Amount) -> str:
    """Return the money and the tokens of an amount."""
    terms: list[str] = []
    if amount.usd is not None:
        terms.append(f"${amount.usd.normalize():f}")
    if amount.tokens is not None:
        terms.append(format_count(amount.tokens, "token"))
    return " and ".join(terms) or "nothing"


def format_charge(charge: Charge | None) -> str:
    """Return what was paid in brackets, or nothing if no usage is known."""
    if charge is None or charge.usage is None:
        return ""
    usage = charge.usage
    if usage.cached_replies and not usage.total:
        return " [from the reply cache, not paid]"
    estimated = ", estimated" if usage.estimated else ""
    return (
        f" [{usage.input:,} tokens in, {usage.output:,} out{format_money(charge.usd)}{estimated}]"
    )


def format_rule(rule: str) -> str:
    """Return the rule that decided, or nothing if none is named."""
    if rule:
        return f" by the rule {quote_text(rule)}"
    return ""


def join_texts(parts: Iterable[ContentPart]) -> str:
    """Return the text of a message, without what the program added to it."""
    return " ".join(
        part.text for part in parts if isinstance(part, TextPart) and not part.by_program
    )


def count_attachments(parts: Iterable[ContentPart]) -> str:
    """Return how many pictures and files come with a text, or nothing if there are none."""
    others = sum(not isinstance(part, TextPart) for part in parts)
    if others:
        return f" with {format_count(others, 'attachment')}"
    return ""


def format_result(result: ToolResult) -> str:
    """Return the result of a call."""
    if result.kind == "value":
        kind = "returned"
    else:
        kind = f"{result.kind.replace('_', ' ')}:"
    outage = ", an outage" if result.outage else ""
    return f"{kind} {quote_text(result.text)}{count_attachments(result.content)}{outage}"


def _format_number(value: Decimal | float) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:g}"


def format_limits(limits: Limits | SessionLimits) -> str:
    """Return the limits that are set."""
    values: dict[str, Decimal | float | None] = asdict(limits)
    terms = (
        f"${value:f}" if name == "usd" else f"{_format_number(value)} {name.replace('_', ' ')}"
        for name, value in values.items()
        if value is not None
    )
    return ", ".join(terms) or "none"


def format_repairs(changes: Iterable[ArgumentChange]) -> str:
    """Return what was repaired in the arguments of a call, in order."""
    repairs = (
        f"{change.path}: {change.what}" if change.path else change.what for change in changes
    )
    return printable_line("; ".join(repairs))


def format_verdict(verdict: AnswerVerdict) -> str:
    """Return a verdict that settles a call, with its rule and its reason."""
    match verdict:
        case Allow(rule):
            return f"allowed{format_rule(rule)}"
        case Deny(reason, rule):
            return f"denied{format_rule(rule)}: {quote_text(reason)}"
        case Modify(arguments, reason, rule):
            new = clip_text(encode_json(arguments))
            return f"changed to {new}{format_rule(rule)}: {quote_text(reason)}"
