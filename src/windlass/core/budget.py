"""Reserve before the request, settle after it.

Money is exact, and its limit is a hard edge: what an attempt could cost at the most must fit into
what is left.
"""

from decimal import Decimal
from functools import reduce

from msgspec.structs import replace

from windlass.core.events import Reservation
from windlass.core.messages import EXACT, Charge, Ledger, Usage
from windlass.core.setup import Limits, ModelInfo, Price
from windlass.core.state import Measure

MILLION = Decimal(1_000_000)
CHARS_PER_TOKEN = 4


def input_max(model: str, fixed: int, size: int, measure: Measure | None) -> int:
    """The tokens of a prompt at the most.

    What a provider has measured counts as it said; a byte that came since counts as a token.
    """
    if measure is None or measure.model != model:
        return fixed + size
    return measure.tokens + max(0, fixed - measure.fixed) + size - measure.size


def reserve(model: ModelInfo, tokens: int, limits: Limits, spent: Ledger) -> Reservation | None:
    """What the next attempt may use, with its output cut to what is left; None if it cannot fit."""
    price, output = model.price, model.output_max
    if limits.tokens is not None:
        used = spent.usage.total if spent.usage else 0
        output = min(output, limits.tokens - used - tokens)
    if limits.usd is not None and price is not None:
        left = EXACT.subtract(limits.usd, spent.known_usd)
        left = EXACT.subtract(left, _money((tokens, _dearest(price))))
        if left < 0:
            return None
        if price.output:
            affordable = EXACT.divide_int(EXACT.multiply(left, MILLION), price.output)
            output = min(output, int(affordable))
    if output < 1:
        return None
    worst = None if price is None else _money((tokens, _dearest(price)), (output, price.output))
    return Reservation(tokens, output, worst)


def settle(
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
    if reported is not None and whole:
        usage = reported
    elif whole:
        estimate = reserved.input // CHARS_PER_TOKEN, output_size // CHARS_PER_TOKEN
        usage = Usage(*estimate, estimated=True)
    else:
        known = reported or Usage(reserved.input)
        output = min(max(known.output, output_size), max(known.output, reserved.output))
        usage = replace(known, output=output, estimated=True)
    return Charge(model.name, usage=usage, usd=cost(model.price, usage))


def cost(price: Price | None, usage: Usage) -> Decimal | None:
    if price is None:
        return None
    return _money(
        (usage.input - usage.cache_read - usage.cache_write, price.input),
        (usage.cache_read, price.input if price.cache_read is None else price.cache_read),
        (usage.cache_write, price.input if price.cache_write is None else price.cache_write),
        (usage.output, price.output),
    )


def _dearest(price: Price) -> Decimal:
    """Input may be written to a cache, which can cost more than plain input."""
    return max(price.input, price.cache_write or Decimal(0))


def _money(*terms: tuple[int, Decimal]) -> Decimal:
    """Tokens at prices for a million, exactly."""
    costs = (EXACT.multiply(Decimal(tokens), price) for tokens, price in terms)
    return EXACT.divide(reduce(EXACT.add, costs), MILLION)
