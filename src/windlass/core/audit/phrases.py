"""The small words of an explanation: amounts, times, quotations, each of a bounded length."""

from collections.abc import Iterable
from decimal import Decimal

import msgspec
from msgspec.structs import asdict

from windlass.core.events import Allotted, CallAnswered, Compacted, Heeded, Recalled, Steered
from windlass.core.limits import Amount, Limits, SessionLimits
from windlass.core.messages import Change, Charge, Content, Result, Text
from windlass.core.verdicts import Allow, Answer, Deny, Misfit, Modify

QUOTED_MAX = 100
"""Characters of a text that are quoted."""


def shown(text: str, most: int = 3 * QUOTED_MAX) -> str:
    """A text on one line, without what could steer a terminal, cut to a length."""
    words = " ".join(text[: 10 * most].split())
    words = "".join(char if char.isprintable() else "?" for char in words)
    return words if len(words) <= most else words[: most - 1] + "…"


def brief(text: str) -> str:
    """The beginning of a text."""
    return shown(text, QUOTED_MAX)


def quoted(text: str) -> str:
    """The beginning of a text, in quotation marks."""
    return f'"{brief(text)}"'


def written(value: object) -> str:
    """A value as JSON."""
    return msgspec.json.encode(value).decode()


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def seconds(amount: float) -> str:
    """A time in the unit that fits it."""
    if 0 < amount < 1:
        return f"{round(1000 * amount)} ms"
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if amount >= 2 * size:
            return f"{round(amount / size, 1):g} {unit}"
    return f"{round(amount, 1):g} s"


def money(usd: Decimal | None) -> str:
    """Dollars behind a comma; nothing where they are not known."""
    return "" if usd is None else f", ${usd.normalize():f}"


def _allowance(amount: Amount) -> str:
    """So much money, so many tokens."""
    usd = None if amount.usd is None else f"${amount.usd.normalize():f}"
    tokens = None if amount.tokens is None else count(amount.tokens, "token")
    return " and ".join(filter(None, (usd, tokens))) or "nothing"


def paid(charge: Charge | None) -> str:
    """What was paid, in brackets; nothing where nothing was."""
    if charge is None or charge.usage is None:
        return ""
    usage = charge.usage
    guess = ", estimated" if usage.estimated else ""
    return f" [{usage.input:,} tokens in, {usage.output:,} out{money(charge.usd)}{guess}]"


def by_rule(rule: str) -> str:
    return f" by the rule {quoted(rule)}" if rule else ""


def said(parts: Iterable[Content]) -> str:
    """The text of a message."""
    return " ".join(part.text for part in parts if isinstance(part, Text))


def attached(parts: Iterable[Content]) -> str:
    """How much there is beside the text."""
    others = sum(not isinstance(part, Text) for part in parts)
    return f" with {count(others, 'attachment')}" if others else ""


def result(of_call: Result) -> str:
    """What became of a call."""
    kind = "gave" if of_call.kind == "value" else of_call.kind.replace("_", " ") + ":"
    outage = ", an outage" if of_call.outage else ""
    return f"{kind} {quoted(of_call.text)}{attached(of_call.content)}{outage}"


def _number(value: Decimal | float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def limits(of_run: Limits | SessionLimits) -> str:
    """The limits that are set."""
    known: dict[str, Decimal | float | None] = asdict(of_run)
    told = (
        f"${value:f}" if name == "usd" else f"{_number(value)} {name.replace('_', ' ')}"
        for name, value in known.items()
        if value is not None
    )
    return ", ".join(told) or "none"


def repairs(changes: Iterable[Change]) -> str:
    """What was changed, in order."""
    told = (f"{change.path}: {change.what}" if change.path else change.what for change in changes)
    return shown("; ".join(told))


def verdict(given: Answer) -> str:
    match given:
        case Allow(rule):
            return f"allowed{by_rule(rule)}"
        case Deny(reason, rule):
            return f"denied{by_rule(rule)}: {quoted(reason)}"
        case Modify(arguments, reason, rule):
            return f"changed to {brief(written(arguments))}{by_rule(rule)}: {quoted(reason)}"


def answered(fact: CallAnswered) -> str:
    who = shown(fact.by) if fact.by else "somebody"
    scope = fact.grant.pattern or "this very call" if fact.grant else ""
    more = f"; and {shown(scope)} for the rest of the session" if scope else ""
    return f"{who} answered: {verdict(fact.verdict)}{more}"


def judged_reply(given: Allow | Deny | Misfit) -> str:
    match given:
        case Allow(rule):
            return f"passed{by_rule(rule)}"
        case Deny(reason, rule):
            return f"was withheld{by_rule(rule)}: {quoted(reason)}"
        case Misfit(message):
            return f"does not fit the output type: {quoted(message)}"


def allotted(fact: Allotted) -> str:
    more = "; it has no more for now" if fact.dry else ""
    return f"The budget {shown(fact.budget)} gives this run {_allowance(fact.amount)} in all{more}"


def compacted(fact: Compacted) -> str:
    before = f"The first {count(fact.upto, 'message')}"
    if fact.how == "mask":
        return f"{before}: the results in them left the view"
    how = "were summed up" if fact.how == "summary" else "left the view"
    return f"{before} {how}: {quoted(fact.note)}{paid(fact.charge)}"


def added(fact: Steered | Heeded | Recalled) -> str:
    """What came into the conversation beside the prompt."""
    match fact:
        case Steered(prompt, by):
            who = shown(by) if by else "Somebody"
            return f"{who} said meanwhile: {quoted(said(prompt))}{attached(prompt)}"
        case Heeded():
            return "What was said meanwhile went into the conversation"
        case Recalled(text):
            return f"What is known about the prompt: {quoted(text) if text else 'nothing'}"
