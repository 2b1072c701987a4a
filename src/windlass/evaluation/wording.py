"""Rates, intervals and amounts in words: the same in the terminal and in HTML."""

from collections.abc import Sequence
from decimal import Decimal

from windlass.core.text_clip import printable_chars
from windlass.evaluation.statistics import Interval
from windlass.evaluation.summaries import ScoreSummary

UNKNOWN_AMOUNT = "an unknown amount"


def format_rate(rate: float) -> str:
    return f"{rate * 100:.0f} %"


def format_interval(interval: Interval) -> str:
    return f"{interval.low * 100:.0f} to {interval.high * 100:.0f} %"


def format_summary(summary: ScoreSummary) -> str:
    """Return the mean of a graded score with its interval, and the spread of the values."""
    values = summary.values
    words = f"{printable_chars(summary.scorer)}: mean {summary.mean:.3g}"
    if summary.interval is not None:
        which = "these cases" if summary.over == "trials" else "cases like these"
        words += f" ({summary.interval.low:.3g} to {summary.interval.high:.3g} on {which})"
    return f"{words}, median {values.median:.3g}, from {values.low:.3g} to {values.high:.3g}"


def format_usd(usd: Decimal | None, unpriced: Sequence[str] = ()) -> str:
    """Return an amount with as many digits as it needs to be seen.

    `unpriced` names the models whose price is not known, which is why an amount is not known.
    """
    if usd is None:
        models = ", ".join(map(printable_chars, unpriced))
        return f"{UNKNOWN_AMOUNT} (no price is known for {models})" if models else UNKNOWN_AMOUNT
    if not usd:
        return "$0"
    return f"${usd:.4f}" if usd < 1 else f"${usd:.2f}"
