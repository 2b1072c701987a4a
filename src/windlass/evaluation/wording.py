"""Rates, intervals and amounts in words: the same in the terminal and in HTML."""

from collections.abc import Sequence
from decimal import Decimal

from windlass.core.text_clip import printable_chars
from windlass.evaluation.statistics import Interval

UNKNOWN_AMOUNT = "an unknown amount"


def format_rate(rate: float) -> str:
    return f"{rate * 100:.0f} %"


def format_interval(interval: Interval) -> str:
    return f"{interval.low * 100:.0f} to {interval.high * 100:.0f} %"


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
