"""Limits: where a run, a session or a whole team must stop."""

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec
from msgspec.structs import force_setattr, replace

from windlass.core.suggestions import SettingsStruct

Money: TypeAlias = Decimal | int | float | str
"""US dollars as a caller may write them. They are kept as an exact Decimal: 0.1 is `0.1`."""


def make_exact(settings: msgspec.Struct, name: str) -> None:
    """Turn a field into a Decimal, however the amount was written."""
    amount = getattr(settings, name)
    if isinstance(amount, float | int | str):
        # Through the text of a float, so that 0.1 does not become 0.1000000000000000055.
        force_setattr(settings, name, Decimal(str(amount)))


def check_numbers(settings: msgspec.Struct, *names: str, zero_allowed: bool = False) -> None:
    """Refuse numbers that cannot be used when the settings are built, not when they are met.

    Raises ValueError unless each field is None or a finite number above zero.
    """
    for name in names:
        number = getattr(settings, name)
        if number is None:
            continue
        # Finite first: a Decimal that is not a number cannot be compared.
        if not math.isfinite(number) or number < 0 or (number == 0 and not zero_allowed):
            if zero_allowed:
                wanted = "zero or a number above zero"
            else:
                wanted = "a number above zero"
            raise ValueError(f"{type(settings).__name__}({name}={number}): it must be {wanted}")


class Limits(SettingsStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a run must stop. None means no limit."""

    steps: int | None = 25
    """Replies of the model."""
    tokens: int | None = None
    """Input and output together, over all attempts."""
    usd: Decimal | None = None
    """US dollars, over all attempts."""
    seconds: float | None = None
    """Time at work. Waiting for a person does not count."""
    idle_seconds: float | None = None
    """Time in which nothing happens at all: no output of the model, no progress of a tool."""

    if TYPE_CHECKING:
        # A field is a Decimal, but a caller may write an int, a float or a text.
        def __init__(
            self,
            *,
            steps: int | None = 25,
            tokens: int | None = None,
            usd: Money | None = None,
            seconds: float | None = None,
            idle_seconds: float | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        make_exact(self, "usd")
        check_numbers(self, *self.__struct_fields__)


def tighten_limits(limits: Limits, cap: Limits) -> Limits:
    """Return the stricter one of each limit."""
    stricter: dict[str, Any] = {}
    for name in limits.__struct_fields__:
        both = (getattr(limits, name), getattr(cap, name))
        stricter[name] = min((limit for limit in both if limit is not None), default=None)
    return Limits(**stricter)


class SessionLimits(SettingsStruct, frozen=True, kw_only=True, omit_defaults=True):
    """Where all the runs of a session together must stop. None means no limit."""

    steps: int | None = None
    """Replies of the model."""
    tokens: int | None = None
    """Input and output together, over all attempts."""
    usd: Decimal | None = None
    """US dollars, over all attempts."""
    seconds: float | None = None
    """Time at work. Waiting for a person does not count."""

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            steps: int | None = None,
            tokens: int | None = None,
            usd: Money | None = None,
            seconds: float | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        make_exact(self, "usd")
        check_numbers(self, *self.__struct_fields__)


class RaisedLimits(SettingsStruct, frozen=True, kw_only=True, omit_defaults=True):
    """New totals for limits of a run, or of its session. A limit can only be raised.

    None leaves a limit as it is, and a run without a limit stays without one.
    """

    steps: int | None = None
    tokens: int | None = None
    usd: Decimal | None = None
    seconds: float | None = None
    session_steps: int | None = None
    session_tokens: int | None = None
    session_usd: Decimal | None = None
    session_seconds: float | None = None

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            steps: int | None = None,
            tokens: int | None = None,
            usd: Money | None = None,
            seconds: float | None = None,
            session_steps: int | None = None,
            session_tokens: int | None = None,
            session_usd: Money | None = None,
            session_seconds: float | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        make_exact(self, "usd")
        make_exact(self, "session_usd")
        check_numbers(self, *self.__struct_fields__)

    def raise_run(self, limits: Limits) -> Limits:
        """Return the limits of a run, with these totals where they are higher."""
        return replace(limits, **self._higher_than(limits))

    def raise_session(self, limits: SessionLimits) -> SessionLimits:
        """Return the limits of a session, with these totals where they are higher."""
        return replace(limits, **self._higher_than(limits, "session_"))

    def merge(self, later: "RaisedLimits") -> "RaisedLimits":
        """Return the higher of each total."""
        totals: dict[str, Any] = {}
        for name in self.__struct_fields__:
            both = [getattr(self, name), getattr(later, name)]
            totals[name] = max((total for total in both if total is not None), default=None)
        return RaisedLimits(**totals)

    def describe(self) -> str:
        """Return the new totals in words; empty if there are none."""
        totals = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return ", ".join(f"{name} {total}" for name, total in totals if total is not None)

    def _higher_than(self, limits: Limits | SessionLimits, prefix: str = "") -> dict[str, Any]:
        higher: dict[str, Any] = {}
        for name in ("steps", "tokens", "usd", "seconds"):
            limit = getattr(limits, name)
            total = getattr(self, prefix + name)
            if limit is not None and total is not None and total > limit:
                higher[name] = total
        return higher


class Amount(msgspec.Struct, frozen=True, omit_defaults=True):
    """An amount of money, of tokens, or of both. None is not counted."""

    usd: Decimal | None = None
    tokens: int | None = None


NOTHING = Amount()


class Budget(SettingsStruct, frozen=True, omit_defaults=True):
    """A limit that many runs share, in any number of processes on one journal.

    A run counts for the hour, day or month (in UTC) in which it first drew on the budget.
    """

    name: str
    usd: Decimal | None = None
    """US dollars."""
    tokens: int | None = None
    """Input and output together."""
    per: Literal["hour", "day", "month"] | None = None
    """When the budget is full again. None: never."""
    with_run: bool = False
    """Whether it was given with a run and not with the agent: it stays with the run under every
    driver. Set by the option `budgets` of a run."""

    if TYPE_CHECKING:

        def __init__(
            self,
            name: str,
            usd: Money | None = None,
            tokens: int | None = None,
            per: Literal["hour", "day", "month"] | None = None,
            *,
            with_run: bool = False,
        ) -> None: ...

    def __post_init__(self) -> None:
        make_exact(self, "usd")
        check_numbers(self, "usd", "tokens")
        if not self.name:
            raise ValueError("Budget(name=''): a shared budget needs a name")
        if self.usd is None and self.tokens is None:
            raise ValueError(f"Budget({self.name!r}): pass usd= or tokens=")
        if self.per not in (None, "hour", "day", "month"):
            raise ValueError(f"Budget({self.name!r}, per={self.per!r}): use hour, day or month")


class Reservation(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The most that an attempt may cost, in tokens and US dollars."""

    input: int
    output: int
    usd: Decimal | None = None
