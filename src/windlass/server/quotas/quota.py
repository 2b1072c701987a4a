"""A quota: how much each caller may use of an agent."""

from decimal import Decimal

import msgspec

from windlass.core.limits import Budget, check_numbers, make_exact
from windlass.ports import Journal
from windlass.server.owned_records import OwnedRecords

EVERYONE = "*"
"""As a caller: each of them on its own. As an agent: all of them together."""


class Quota(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a caller may use. None means no limit."""

    name: str
    caller: str = EVERYONE
    agent: str = EVERYONE
    runs_at_once: int | None = None
    """Runs at work at a time; those that wait for a person do not count."""
    starts_per_min: int | None = None
    """Runs that are begun within any 60 seconds."""
    usd_per_day: Decimal | None = None
    """US dollars in a day, which begins at midnight UTC."""

    def __post_init__(self) -> None:
        make_exact(self, "usd_per_day")
        check_numbers(self, "runs_at_once", "starts_per_min", "usd_per_day")

    @property
    def owner(self) -> str:
        """Quotas belong to the service, whose name is empty."""
        return ""

    def applies_to(self, caller: str, agent: str) -> bool:
        """Return whether a run of this agent, for this caller, counts."""
        return self.caller in (EVERYONE, caller) and self.agent in (EVERYONE, agent)

    def make_budget(self, caller: str) -> Budget | None:
        """Return the shared budget that a caller's runs draw on; None without a limit of money."""
        if self.usd_per_day is None:
            return None
        return Budget(f"quota {self.name} of {caller or 'owner'}", self.usd_per_day, per="day")


class QuotaStore(OwnedRecords[Quota]):
    """The quotas of one journal."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal, "quota", Quota)

    async def put(self, quota: Quota) -> None:
        """Keep a quota, in place of the one of that name if there is one."""
        if await self.change(quota.name, lambda _: quota) is None:
            await self.add(quota)
