"""What a service does by itself, besides driving runs: it fires schedules and sends webhooks.

Invariant: every replica does it, and they agree by the shared records of the journal.
"""

import time
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from windlass.core.errors import ConfigError
from windlass.server.background import BackgroundWork
from windlass.server.limits import ServiceLimits
from windlass.server.schedules.serving import SchedulingService, make_scheduler
from windlass.server.webhooks.duty import TellingService, WebhookDuty
from windlass.server.webhooks.sender import HookSender
from windlass.tools.web.addresses import AllowedHosts


class OutsideSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How people reach the service, and whom it may send messages to."""

    public_url: str = ""
    """The address under which people reach it, for links in messages; without it they have none."""
    webhook_hosts: tuple[str, ...] = ()
    """Receivers of webhooks that are not public: hosts, addresses or networks, as for `fetch`."""

    def __post_init__(self) -> None:
        if self.public_url and not self.public_hosts():
            raise ConfigError(
                f"--public-url {self.public_url!r} is not an address: give it as https://host"
            )

    def public_hosts(self) -> tuple[str, ...]:
        """Return the name under which people reach the service, if there is one."""
        parts = urlsplit(self.public_url)
        is_web = parts.scheme in ("http", "https") and parts.hostname
        return (str(parts.hostname),) if is_web else ()

    def make_sender(self) -> HookSender:
        """Return what sends messages. Raises ConfigError if a host cannot be used."""
        return HookSender(AllowedHosts(self.webhook_hosts), time.time)


class DutifulService(SchedulingService, TellingService, Protocol):
    """What the duties need of a service."""

    background: BackgroundWork
    limits: ServiceLimits
    outside: OutsideSettings


def begin_duties(service: DutifulService, sender: HookSender) -> None:
    """Begin what a service does by itself. It ends with the service's background work."""
    scheduler = make_scheduler(service, time.time)
    service.background.repeat("schedules", scheduler.run_due, service.limits.schedule_s)
    url = service.outside.public_url
    webhooks = WebhookDuty(service, sender, time.time, public_url=url)
    service.background.start("webhooks", webhooks.run)
