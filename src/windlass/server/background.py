"""Work of the service that no request waits for: driving, sweeping, schedules, webhooks.

Invariant: a failure is logged and ends nothing else. Work that repeats continues after a failure.
Every replica fires schedules and sends webhooks; they agree by the shared records of the journal.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec

from windlass.core.errors import ConfigError, SessionBusy, WindlassError
from windlass.core.retention import RetentionRules
from windlass.logs import get_logger
from windlass.ports import Journal
from windlass.server.guard import find_origin
from windlass.server.limits import ServiceLimits
from windlass.server.retention import RETENTION_S, prune_due
from windlass.server.schedules.scheduler import SchedulingService, make_scheduler
from windlass.server.webhooks.duty import TellingService, WebhookDuty
from windlass.server.webhooks.sender import HookSender
from windlass.tools.web.addresses import AllowedHosts

_log = get_logger(__name__)
BackgroundJob = Callable[[], Awaitable[Any]]


class BackgroundWork:
    """The tasks of a service. They end with it."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stopped = False

    def start(self, name: str, work: BackgroundJob, *, quiet: bool = False) -> None:
        """Start something once. `quiet`: what users can do about a failure is on record already."""
        if not self._is_stopped:
            self._track(asyncio.create_task(_run_logged(name, work, quiet=quiet), name=name))

    def repeat(self, name: str, work: BackgroundJob, every_s: float) -> None:
        """Do something again and again, `every_s` seconds after it was done."""
        self._track(asyncio.create_task(_repeat(name, work, every_s), name=name))

    def count(self, beginning: str) -> int:
        """Return how many tasks have a name that begins so."""
        return sum(task.get_name().startswith(beginning) for task in self._tasks)

    async def stop(self) -> None:
        """Cancel all tasks, and return when they have ended. Runs that they drive are released."""
        self._is_stopped = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _track(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _run_logged(name: str, work: BackgroundJob, *, quiet: bool) -> None:
    try:
        await work()
    except SessionBusy:
        # Another driver was faster, which is what was wanted.
        pass
    except WindlassError as error:
        if quiet:
            _log.info("%s: %s", name, error)
        else:
            _log.warning("%s: %s", name, error)
    except Exception:  # noqa: BLE001 - logged; other work continues
        _log.exception("%s failed", name)


async def _repeat(name: str, work: BackgroundJob, every_s: float) -> None:
    while True:
        try:
            await work()
        except WindlassError as error:
            _log.warning("%s: %s", name, error)
        except Exception:  # noqa: BLE001 - logged; other work continues
            _log.exception("%s failed", name)
        await asyncio.sleep(every_s)


def begin_retention(background: BackgroundWork, journal: Journal, rules: RetentionRules) -> None:
    """Begin to delete sessions whose time is over, if there are any that are not kept for ever."""
    if rules.shortest_s is not None:
        background.repeat("retention", lambda: prune_due(journal, rules), RETENTION_S)


class OutsideSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How people reach the service, and whom it may send messages to."""

    public_url: str = ""
    """The address under which people reach it, for links in messages; without it they have none."""
    webhook_hosts: tuple[str, ...] = ()
    """Receivers of webhooks that are not public: hosts, addresses or networks, as for `fetch`."""

    def __post_init__(self) -> None:
        if self.public_url and not find_origin(self.public_url):
            raise ConfigError(
                f"--public-url {self.public_url!r} is not an address: write it as https://host"
            )

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
