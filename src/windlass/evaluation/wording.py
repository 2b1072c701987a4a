"""Rates, intervals and comparisons in words: the same in the terminal and in HTML."""

from decimal import Decimal

from windlass.evaluation.comparison import Comparison, MeasureChange
from windlass.evaluation.statistics import Interval

_VERDICTS = {
    "worse": "Worse beyond chance",
    "better": "Better beyond chance",
    "same": "No difference beyond chance",
}
_UNITS = {"usd": "$", "seconds": " s", "steps": " steps"}


def format_rate(rate: float) -> str:
    return f"{rate * 100:.0f} %"


def format_interval(interval: Interval) -> str:
    return f"{interval.low * 100:.0f} to {interval.high * 100:.0f} %"


def format_usd(usd: Decimal | None) -> str:
    """Return an amount with as many digits as it needs to be seen."""
    if usd is None:
        return "an unknown amount"
    if not usd:
        return "$0"
    return f"${usd:.4f}" if usd < 1 else f"${usd:.2f}"


def format_measure(measure: MeasureChange) -> str:
    """Return how a number changed, with the interval of the difference."""
    unit = _UNITS.get(measure.name, "")
    doubt = "" if measure.is_clear else ", which may be chance"
    return (
        f"{measure.name}: {measure.before:.4g} became {measure.after:.4g} "
        f"(difference {measure.interval.low:+.3g} to {measure.interval.high:+.3g}{unit}{doubt})"
    )


def describe_comparison(comparison: Comparison) -> str:
    """Return what changed from one report to another, in a sentence."""
    sentence = (
        f"{_VERDICTS[comparison.verdict]}: {format_rate(comparison.rate_before)} became "
        f"{format_rate(comparison.rate_after)} (difference {comparison.interval.low * 100:+.0f} to "
        f"{comparison.interval.high * 100:+.0f} points, p {comparison.two_sided_chance:.3f})."
    )
    if comparison.surely_worse:
        sentence += f" Surely worse: {', '.join(comparison.surely_worse)}."
    return sentence
