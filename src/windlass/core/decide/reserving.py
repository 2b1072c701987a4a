"""Reserve before the request, settle after it.

Money is exact, and its limit is a hard edge: what an attempt could cost at the most must fit into
what is left.
"""

from datetime import UTC, datetime
from decimal import Decimal
from functools import reduce

from msgspec.structs import replace

from windlass.core.events import AttemptStarted, Reservation
from windlass.core.limits import Amount, Budget, Limits, SessionLimits
from windlass.core.messages import EXACT_MATH, Charge, Ledger, Usage
from windlass.core.setup import ModelInfo, Price
from windlass.core.state import PromptMeasure, State

MILLION = Decimal(1_000_000)
CHARS_PER_TOKEN = 4
_WINDOW_CHARS = {"hour": len("2026-01-31T12"), "day": len("2026-01-31"), "month": len("2026-01")}


def input_tokens_max(model: str, fixed: int, size: int, measure: PromptMeasure | None) -> int:
    """The tokens of a prompt at the most.

    What a provider has measured counts as it said; a byte that came since counts as a token.
    """
    if measure is None or measure.model != model:
        return fixed + size
    return measure.tokens + max(0, fixed - measure.fixed) + size - measure.size


def estimate_tokens(state: State, model: str) -> float:
    """The tokens of the view, as near as can be told.

    Four bytes are taken for a token until the model has said how long its tokens are.
    """
    bytes_per_token = max(1.0, dict(state.calibration).get(model, float(CHARS_PER_TOKEN)))
    measure = state.measure
    if measure is not None and measure.model == model:
        grown = state.fixed - measure.fixed + state.size - measure.size
        return max(0.0, measure.tokens + grown / bytes_per_token)
    return (state.fixed + state.size) / bytes_per_token


def reserve_within(model: ModelInfo, input_tokens: int, *remaining: Amount) -> Reservation | None:
    """What the next attempt may use, with its output cut to what is left; None if it cannot fit.

    Several amounts may be left, of a run, a session, a budget: all of them bound it.
    """
    price, output = model.price, model.output_max
    for amount in remaining:
        if amount.tokens is not None:
            output = min(output, amount.tokens - input_tokens)
        if amount.usd is not None and price is not None:
            rest = EXACT_MATH.subtract(
                amount.usd, _sum_costs((input_tokens, _highest_input_price(price)))
            )
            if rest < 0:
                return None
            if price.output:
                affordable = EXACT_MATH.divide_int(EXACT_MATH.multiply(rest, MILLION), price.output)
                output = min(output, int(affordable))
    if output < 1:
        return None
    worst = (
        None
        if price is None
        else _sum_costs((input_tokens, _highest_input_price(price)), (output, price.output))
    )
    return Reservation(input_tokens, output, worst)


def spent_amount(ledger: Ledger) -> Amount:
    """All that a ledger holds, as far as it is known."""
    return Amount(ledger.known_usd, ledger.usage.total if ledger.usage else 0)


def own_spending(ledger: Ledger) -> Ledger:
    """What a run spent itself: those who worked for it drew on the shared budgets themselves."""
    return Ledger(tuple(one for one in ledger.charges if one.purpose != "subagent"))


def remaining_amount(limit: Amount | Limits | SessionLimits, ledger: Ledger) -> Amount:
    """What is left of a limit."""
    usd = None if limit.usd is None else EXACT_MATH.subtract(limit.usd, ledger.known_usd)
    used = ledger.usage.total if ledger.usage and limit.tokens is not None else 0
    return Amount(usd, None if limit.tokens is None else limit.tokens - used)


def tightest_amount(*amounts: Amount) -> Amount:
    """What is left where several limits hold at once."""
    usd = [one.usd for one in amounts if one.usd is not None]
    tokens = [one.tokens for one in amounts if one.tokens is not None]
    return Amount(min(usd, default=None), min(tokens, default=None))


def equal_share(amount: Amount, count: int) -> Amount:
    """An equal part of what is left; never more than that, all together."""
    usd, tokens = amount.usd, amount.tokens
    if usd is not None:
        usd = EXACT_MATH.divide(
            EXACT_MATH.divide_int(EXACT_MATH.multiply(usd, MILLION), Decimal(count)), MILLION
        )
    return Amount(usd, None if tokens is None else tokens // count)


def total_needed(budget: Budget, reserved: Reservation, ledger: Ledger) -> Amount:
    """What a budget must let a run spend in all, so that the next attempt fits."""
    paid = spent_amount(ledger)
    usd = None
    if budget.usd is not None and paid.usd is not None:
        usd = EXACT_MATH.add(paid.usd, reserved.usd or Decimal(0))
    tokens = (paid.tokens or 0) + reserved.input + reserved.output
    return Amount(usd, None if budget.tokens is None else tokens)


def budget_window(budget: Budget, at: float) -> str:
    """The hour, day or month in UTC that a moment counts for; empty if the budget has none."""
    if budget.per is None:
        return ""
    return datetime.fromtimestamp(at, UTC).isoformat()[: _WINDOW_CHARS[budget.per]]


def covers_amount(amount: Amount, other: Amount) -> bool:
    """Whether one amount is as large as another, in all that the other counts."""
    enough_usd = other.usd is None or (amount.usd is not None and amount.usd >= other.usd)
    return enough_usd and (
        other.tokens is None or (amount.tokens is not None and amount.tokens >= other.tokens)
    )


def settle_attempt(
    model: ModelInfo,
    reserved: Reservation,
    reported: Usage | None,
    output_size: int,
    *,
    whole: bool,
) -> Charge:
    """The charge of an attempt: as reported, else estimated from what was sent and what came.

    A broken attempt is taken for all that it can have cost, so that a limit holds.
    """
    reported = _plausible_usage(reported)
    if reported is not None and whole:
        usage = reported
    elif whole:
        estimate = reserved.input // CHARS_PER_TOKEN, output_size // CHARS_PER_TOKEN
        usage = Usage(*estimate, estimated=True)
    else:
        known = reported or Usage(reserved.input)
        output = min(max(known.output, output_size), max(known.output, reserved.output))
        usage = replace(known, output=output, estimated=True)
    return Charge(model.name, usage=usage, usd=usage_cost(model.price, usage))


def _plausible_usage(reported: Usage | None) -> Usage | None:
    """What a provider says it counted; nothing, if that cannot be: it would pay a limit back."""
    if reported is None:
        return None
    cached, written = reported.cache_read, reported.cache_write
    least = min(reported.input, reported.output, cached, written, reported.reasoning)
    sound = least >= 0 and cached + written <= reported.input and reported.total > 0
    return reported if sound else None


def worst_case_charge(attempt: AttemptStarted) -> Charge:
    """What an attempt cost at the most: all that was reserved for it."""
    reserved = attempt.reserved
    usage = Usage(reserved.input, reserved.output, estimated=True)
    return Charge(attempt.model, attempt.purpose, usage, reserved.usd)


def usage_cost(price: Price | None, usage: Usage) -> Decimal | None:
    if price is None:
        return None
    return _sum_costs(
        (usage.input - usage.cache_read - usage.cache_write, price.input),
        (usage.cache_read, price.input if price.cache_read is None else price.cache_read),
        (usage.cache_write, price.input if price.cache_write is None else price.cache_write),
        (usage.output, price.output),
    )


def _highest_input_price(price: Price) -> Decimal:
    """Input may be written to a cache, which can cost more than plain input."""
    return max(price.input, price.cache_write or Decimal(0))


def _sum_costs(*terms: tuple[int, Decimal]) -> Decimal:
    """Tokens at prices for a million, exactly."""
    costs = (EXACT_MATH.multiply(Decimal(tokens), price) for tokens, price in terms)
    return EXACT_MATH.divide(reduce(EXACT_MATH.add, costs), MILLION)
