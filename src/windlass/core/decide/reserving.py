"""Reserve before a request, settle after it.

Money is exact, and its limit is hard: the most that an attempt can cost must fit into what is left.
"""

from datetime import UTC, datetime
from decimal import Decimal
from functools import reduce
from typing import NamedTuple

from msgspec.structs import replace

from windlass.core.events import AttemptStarted, BudgetAllotted, Reservation
from windlass.core.limits import Amount, Budget, Limits, SessionLimits
from windlass.core.messages import EXACT_MATH, Charge, Ledger, Usage
from windlass.core.setup import ModelInfo, Price, Setup
from windlass.core.state import RunState, State

MILLION = Decimal(1_000_000)
CHARS_PER_TOKEN = 4
OUTPUT_MARGIN = 4
"""A reply may be this many times as long as its cap allows with tokens of the usual length.

Prose has up to 6 characters a token, and tables that are padded with spaces more than that.
"""
OUTPUT_SLACK_CHARS = 2_000
"""Characters that a reply may have besides, as a few long tokens can make up a short reply."""
TOOLS_OVERHEAD = 600
"""The most tokens that a provider adds to a prompt to explain to the model what tools are.

Anthropic documents up to 530 for its models; the text protocols write about 100.
"""
UNLIMITED = Amount()
_WINDOW_CHARS = {"hour": len("2026-01-31T12"), "day": len("2026-01-31"), "month": len("2026-01")}


class BudgetDrawNeeded(NamedTuple):
    """A shared budget must first let the run spend this much in all."""

    budget: Budget
    total_wanted: Amount


def reserve_request(
    state: State, setup: Setup, run: RunState, model: ModelInfo, input_tokens: int
) -> Reservation | BudgetDrawNeeded | None:
    """Reserve the worst case of the next request, or say what is missing.

    Returns None if the limits of the run or the session cannot cover it, and BudgetDrawNeeded if a
    shared budget has to grant the run more first.
    """
    remaining = [remaining_for_run(state, setup, run)]
    reservation = reserve_within(model, input_tokens, *remaining)
    if reservation is None or not setup.budgets:
        return reservation
    # Sub-agents draw on the shared budgets themselves, so their charges do not count here.
    spent_by_run = own_spending(run.ledger)
    for budget in setup.budgets:
        needed = total_needed(budget, reservation, spent_by_run)
        allotment = find_allotment(run, budget.name)
        if allotment is None or not (allotment.dry or covers_amount(allotment.amount, needed)):
            return BudgetDrawNeeded(budget, needed)
        remaining.append(remaining_amount(allotment.amount, spent_by_run))
    # A dry budget gave less than was needed: the reply gets shorter, or nothing is left.
    return reserve_within(model, input_tokens, *remaining)


def find_held_allotment(
    state: State, setup: Setup, run: RunState, model: ModelInfo, input_tokens: int
) -> BudgetAllotted | None:
    """Return what a budget allotted that is too little only because other runs hold reserves.

    None if the request would not fit even if all of them gave back what they hold.
    """
    remaining = [remaining_for_run(state, setup, run)]
    spent = own_spending(run.ledger)
    too_little: BudgetAllotted | None = None
    for budget in setup.budgets:
        allotment = find_allotment(run, budget.name)
        if allotment is None:
            return None
        amount = allotment.amount
        if allotment.dry and allotment.held is not None:
            too_little = too_little or allotment
            amount = _add_amounts(amount, allotment.held)
        remaining.append(remaining_amount(amount, spent))
    return too_little if reserve_within(model, input_tokens, *remaining) else None


def _add_amounts(amount: Amount, other: Amount) -> Amount:
    usd = tokens = None
    if amount.usd is not None:
        usd = EXACT_MATH.add(amount.usd, other.usd or Decimal(0))
    if amount.tokens is not None:
        tokens = amount.tokens + (other.tokens or 0)
    return Amount(usd, tokens)


def missing_amount(
    state: State, setup: Setup, run: RunState, model: ModelInfo, input_tokens: int
) -> Amount:
    """Return what a request needs at the least beyond what is left of the limits."""
    remaining = remaining_for_run(state, setup, run)
    needed = reserve_within(model, input_tokens)
    if needed is None:  # pragma: no cover - without a limit, every request fits
        raise AssertionError
    usd = None
    if remaining.usd is not None and needed.usd is not None:
        usd = max(Decimal(0), EXACT_MATH.subtract(needed.usd, remaining.usd))
    tokens = None
    if remaining.tokens is not None:
        tokens = max(0, needed.input + needed.output - remaining.tokens)
    return Amount(usd, tokens)


def find_allotment(run: RunState, budget: str) -> BudgetAllotted | None:
    """Return what a shared budget last allotted to the run, or None."""
    return next((entry for entry in run.allotments if entry.budget == budget), None)


def reserve_within(model: ModelInfo, input_tokens: int, *remaining: Amount) -> Reservation | None:
    """Reserve a request within all of these amounts; None if it does not fit.

    The output is cut to what is left. The amounts are those of a run, a session and budgets.
    """
    price = model.price
    output = model.output_max
    for amount in remaining:
        if amount.tokens is not None:
            output = min(output, amount.tokens - input_tokens)
        if amount.usd is not None and price is not None:
            input_cost = _sum_costs((input_tokens, _highest_input_price(price)))
            rest = EXACT_MATH.subtract(amount.usd, input_cost)
            if rest < 0:
                return None
            if price.output:
                affordable = EXACT_MATH.divide_int(EXACT_MATH.multiply(rest, MILLION), price.output)
                output = min(output, int(affordable))
    if output < 1:
        return None
    if price is None:
        return Reservation(input_tokens, output)
    worst_case = _sum_costs((input_tokens, _highest_input_price(price)), (output, price.output))
    return Reservation(input_tokens, output, worst_case)


def input_tokens_max(state: State, model: str) -> int:
    """Return the most tokens that the next prompt can have.

    What a provider has measured counts as it said. Each byte added since counts as a token, and
    around each call and each result a provider may add words and ids of its own.
    """
    tools_overhead = TOOLS_OVERHEAD if state.offered else 0
    size = state.size + state.framing
    measure = state.measure
    if measure is None or measure.model != model:
        return state.fixed + tools_overhead + size
    grown = size - measure.size - measure.framing
    if state.fixed > measure.fixed:
        # The prompt that was measured may have had no tools.
        grown += state.fixed - measure.fixed + tools_overhead
    return measure.tokens + grown


def estimate_tokens(state: State, model: str) -> float:
    """Return the best estimate of the tokens of the view.

    A token counts as four bytes until the model's usage has shown how long its tokens are.
    """
    bytes_per_token = max(1.0, _bytes_per_token(state, model))
    measure = state.measure
    if measure is not None and measure.model == model:
        grown = state.fixed - measure.fixed + state.size - measure.size
        return max(0.0, measure.tokens + grown / bytes_per_token)
    return (state.fixed + state.size) / bytes_per_token


def output_chars_max(state: State, model: str, reserved: Reservation) -> int:
    """Return how many characters a reply can have if its server keeps to the output cap (B5)."""
    # Usage may be reported wrongly, and the prompt may be of another kind than the reply.
    calibrated = min(2.0 * CHARS_PER_TOKEN, _bytes_per_token(state, model))
    chars_per_token = max(CHARS_PER_TOKEN, calibrated)
    return int(reserved.output * chars_per_token * OUTPUT_MARGIN) + OUTPUT_SLACK_CHARS


def _bytes_per_token(state: State, model: str) -> float:
    for name, size in state.calibration:
        if name == model:
            return size
    return float(CHARS_PER_TOKEN)


def spent_amount(ledger: Ledger) -> Amount:
    """Return what a ledger holds, as far as it is known."""
    return Amount(ledger.known_usd, ledger.usage.total if ledger.usage else 0)


def own_spending(ledger: Ledger) -> Ledger:
    """Return what a run spent itself, without its sub-agents."""
    return Ledger(tuple(charge for charge in ledger.charges if charge.purpose != "subagent"))


def remaining_amount(limit: Amount | Limits | SessionLimits, ledger: Ledger) -> Amount:
    """Return what is left of a limit. A part that is not limited is None."""
    usd = None
    if limit.usd is not None:
        usd = EXACT_MATH.subtract(limit.usd, ledger.known_usd)
    tokens = None
    if limit.tokens is not None:
        tokens = limit.tokens - (ledger.usage.total if ledger.usage else 0)
    return Amount(usd, tokens)


def remaining_for_run(state: State, setup: Setup, run: RunState) -> Amount:
    """Return what is left of the limits of a run and of its session together."""
    limits = setup.limits
    in_session = setup.session_limits
    if limits.usd is limits.tokens is in_session.usd is in_session.tokens is None:
        return UNLIMITED
    return tightest_amount(
        remaining_amount(limits, run.ledger), remaining_amount(in_session, state.ledger)
    )


def tightest_amount(*amounts: Amount) -> Amount:
    """Return what is left where several limits hold at once."""
    usd = [amount.usd for amount in amounts if amount.usd is not None]
    tokens = [amount.tokens for amount in amounts if amount.tokens is not None]
    return Amount(min(usd, default=None), min(tokens, default=None))


def equal_share(amount: Amount, count: int) -> Amount:
    """Divide what is left into equal parts, rounded down: together never more than the whole."""
    if amount is UNLIMITED:
        return amount
    usd = amount.usd
    if usd is not None:
        millionths = EXACT_MATH.divide_int(EXACT_MATH.multiply(usd, MILLION), Decimal(count))
        usd = EXACT_MATH.divide(millionths, MILLION)
    tokens = None if amount.tokens is None else amount.tokens // count
    return Amount(usd, tokens)


def total_needed(budget: Budget, reserved: Reservation, ledger: Ledger) -> Amount:
    """Return the total that a budget must let a run spend, so that the next attempt fits."""
    spent = spent_amount(ledger)
    usd = None
    if budget.usd is not None and spent.usd is not None:
        usd = EXACT_MATH.add(spent.usd, reserved.usd or Decimal(0))
    tokens = None
    if budget.tokens is not None:
        tokens = (spent.tokens or 0) + reserved.input + reserved.output
    return Amount(usd, tokens)


def budget_window(budget: Budget, at: float) -> str:
    """Return the hour, day or month in UTC that a moment counts for; empty if there is none."""
    if budget.per is None:
        return ""
    return datetime.fromtimestamp(at, UTC).isoformat()[: _WINDOW_CHARS[budget.per]]


def covers_amount(amount: Amount, other: Amount) -> bool:
    """Whether one amount is as large as another, in everything that the other counts."""
    if other.usd is not None and (amount.usd is None or amount.usd < other.usd):
        return False
    return other.tokens is None or (amount.tokens is not None and amount.tokens >= other.tokens)


def settle_attempt(
    model: ModelInfo,
    reserved: Reservation,
    reported: Usage | None,
    output_size: int,
    *,
    whole: bool,
    overlong: bool = False,
) -> Charge:
    """Return the charge of an attempt: as reported, else estimated from what was sent and came.

    `output_size` is in bytes. A broken attempt counts as the most that it can have cost, so that a
    limit holds. If it was `overlong`, its server ignores the output cap, and what came counts.
    """
    reported = _plausible_usage(reported)
    if whole:
        usage = reported or Usage(
            reserved.input // CHARS_PER_TOKEN, output_size // CHARS_PER_TOKEN, estimated=True
        )
    else:
        known = reported or Usage(reserved.input)
        output = max(known.output, min(output_size, reserved.output))
        if overlong:
            output = max(output, output_size // CHARS_PER_TOKEN)
        usage = replace(known, output=output, estimated=True)
    if usage.cached_replies:
        return Charge(model.name, usage=usage, usd=Decimal(0))
    return Charge(model.name, usage=usage, usd=usage_cost(model.price, usage))


def _plausible_usage(reported: Usage | None) -> Usage | None:
    """Return a provider's usage, or None if it cannot be true: it would pay a limit back."""
    if reported is None or reported.cached_replies:
        return reported  # No provider reports a reply from the disk: it says so by itself.
    counts = (
        reported.input,
        reported.output,
        reported.cache_read,
        reported.cache_write,
        reported.reasoning,
    )
    cached = reported.cache_read + reported.cache_write
    if min(counts) < 0 or cached > reported.input or reported.total <= 0:
        return None
    return reported


def worst_case_charge(attempt: AttemptStarted) -> Charge:
    """Return the charge of an attempt whose end is not known: its whole reservation."""
    reserved = attempt.reserved
    usage = Usage(reserved.input, reserved.output, estimated=True)
    return Charge(attempt.model, attempt.purpose, usage, reserved.usd)


def usage_cost(price: Price | None, usage: Usage) -> Decimal | None:
    """Return the cost of a usage in US dollars, or None if the price is not known."""
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
    """Return the exact cost of tokens at prices for a million."""
    costs = (EXACT_MATH.multiply(Decimal(tokens), price) for tokens, price in terms)
    return EXACT_MATH.divide(reduce(EXACT_MATH.add, costs), MILLION)
