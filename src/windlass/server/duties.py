"""What a service does by itself, besides driving runs: it fires schedules.

The law: every replica does it, and they agree by the shared records of the journal. A journal
without such records has none of it.
"""

import time
from typing import Protocol

from windlass.ports import SharedRecords
from windlass.server.background import BackgroundWork
from windlass.server.limits import ServiceLimits
from windlass.server.schedules.serving import SchedulingService, make_scheduler


class DutifulService(SchedulingService, Protocol):
    """What the duties need of a service."""

    background: BackgroundWork
    limits: ServiceLimits


def begin_duties(service: DutifulService) -> None:
    """Begin what a service does by itself. It ends with the service's background work."""
    if isinstance(service.journal, SharedRecords):
        scheduler = make_scheduler(service, time.time)
        service.background.repeat("schedules", scheduler.run_due, service.limits.schedule_s)
