"""Where a run, a session or a whole team ends at the latest."""

import math
from decimal import Decimal
from typing import Literal

import msgspec
from msgspec.structs import force_setattr


def make_exact(settings: msgspec.Struct, name: str) -> None:
    """Money is exact from the start, however it was written."""
    amount = getattr(settings, name)
    if isinstance(amount, float | int | str):
        force_setattr(settings, name, Decimal(str(amount)))


def check_numbers(settings: msgspec.Struct, *names: str, zero_allowed: bool = False) -> None:
    """Refuse what cannot be followed, when it is built and not when it is met."""
    for name in names:
        number = getattr(settings, name)
        if number is None or (
            math.isfinite(number) and (number > 0 or (zero_allowed and number == 0))
        ):
            continue
        told = f"{type(settings).__name__}({name}={number}): it must be a number above zero"
        raise ValueError(f"{told}, or zero" if zero_allowed else told)


class Limits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a run ends at the latest. None is no limit."""

    steps: int | None = 25
    """Replies of the model."""
    tokens: int | None = None
    """Input and output together, over all attempts."""
    usd: Decimal | None = None
    """Money, over all attempts."""
    seconds: float | None = None
    """Time at work; waiting for a person does not count."""
    idle_seconds: float | None = None
    """Time in which nothing at all happens: no word of the model, no news of a tool."""

    def __post_init__(self) -> None:
        make_exact(self, "usd")
        check_numbers(self, *self.__struct_fields__)


class SessionLimits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where all the runs of a session together end at the latest. None is no limit."""

    steps: int | None = None
    tokens: int | None = None
    usd: Decimal | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        make_exact(self, "usd")
        check_numbers(self, *self.__struct_fields__)


class Amount(msgspec.Struct, frozen=True, omit_defaults=True):
    """So much money, or so many tokens, or both. None is not counted."""

    usd: Decimal | None = None
    tokens: int | None = None


class Budget(msgspec.Struct, frozen=True, omit_defaults=True):
    """A limit that many runs share, in any number of processes on one journal.

    A run counts for the day (hour, month) in which it first drew on the budget, in UTC.
    """

    name: str
    usd: Decimal | None = None
    tokens: int | None = None
    per: Literal["hour", "day", "month"] | None = None
    """When it is full again. None: never."""

    def __post_init__(self) -> None:
        make_exact(self, "usd")
        check_numbers(self, "usd", "tokens")
        if not self.name:
            raise ValueError("Budget(name): a budget that is shared needs a name")
        if self.usd is None and self.tokens is None:
            raise ValueError(f"Budget({self.name!r}): say usd= or tokens=")
        if self.per not in (None, "hour", "day", "month"):
            raise ValueError(f"Budget({self.name!r}, per={self.per!r}): hour, day or month")
