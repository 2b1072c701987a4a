"""A client of a service: start runs, watch them, answer, cancel; in async programs and in others.

    with Client("http://127.0.0.1:8420", token) as client:
        started = client.start("Write a report.")
        for event in client.watch(started.session):
            ...

Promise: a change is made once, however often its request has to be sent again, and a watcher gets
every fact once, however often its connection breaks. Start reading in `async_client.py`.
"""

from windlass.client.async_client import AsyncClient, ServiceError
from windlass.client.sync_client import Client
from windlass.server.api.runs import RunCaps
from windlass.server.schedules.schedule_routes import IntervalBody, ScheduleBody
from windlass.server.sse import Snapshot

__all__ = [
    "AsyncClient",
    "Client",
    "IntervalBody",
    "RunCaps",
    "ScheduleBody",
    "ServiceError",
    "Snapshot",
]
