"""The service: agents over HTTP, from one journal, for any number of callers.

    from windlass.server import Service, serve

Runs belong to the service, not to connections: a client may go away and come back.
"""

# The names below are imported only for type checkers, so this is not a cycle at run time.
# pyright: reportImportCycles=false
from typing import TYPE_CHECKING

from windlass.lazy_modules import LazyModules, lazy_attributes

if TYPE_CHECKING:
    from windlass.agent.working import SessionWorker, WorkLimits
    from windlass.server.access import Caller
    from windlass.server.asgi import create_asgi_app
    from windlass.server.dispatch import Dispatcher
    from windlass.server.duties import OutsideSettings
    from windlass.server.errors import ApiError
    from windlass.server.guard import AccessRules
    from windlass.server.limits import ServiceLimits
    from windlass.server.quotas.quota import Quota, QuotaStore
    from windlass.server.schedules.store import NewSchedule, ScheduleStore
    from windlass.server.schedules.times import CronTimes, IntervalTimes, OnceTime
    from windlass.server.service import Service
    from windlass.server.serving import ServeOptions, serve
    from windlass.server.start_request import StartRequest
    from windlass.server.webhooks.signing import verify_webhook
    from windlass.server.webhooks.store import NewWebhook, WebhookStore

__all__ = [
    "AccessRules",
    "ApiError",
    "Caller",
    "CronTimes",
    "Dispatcher",
    "IntervalTimes",
    "NewSchedule",
    "NewWebhook",
    "OnceTime",
    "OutsideSettings",
    "Quota",
    "QuotaStore",
    "ScheduleStore",
    "ServeOptions",
    "Service",
    "ServiceLimits",
    "SessionWorker",
    "StartRequest",
    "WebhookStore",
    "WorkLimits",
    "create_asgi_app",
    "serve",
    "verify_webhook",
]

LAZY_MODULES: LazyModules = {
    "AccessRules": "windlass.server.guard",
    "ApiError": "windlass.server.errors",
    "Caller": "windlass.server.access",
    "CronTimes": "windlass.server.schedules.times",
    "Dispatcher": "windlass.server.dispatch",
    "IntervalTimes": "windlass.server.schedules.times",
    "NewSchedule": "windlass.server.schedules.store",
    "NewWebhook": "windlass.server.webhooks.store",
    "OnceTime": "windlass.server.schedules.times",
    "OutsideSettings": "windlass.server.duties",
    "Quota": "windlass.server.quotas.quota",
    "QuotaStore": "windlass.server.quotas.quota",
    "ScheduleStore": "windlass.server.schedules.store",
    "ServeOptions": "windlass.server.serving",
    "Service": "windlass.server.service",
    "ServiceLimits": "windlass.server.limits",
    "SessionWorker": "windlass.agent.working",
    "StartRequest": "windlass.server.start_request",
    "WebhookStore": "windlass.server.webhooks.store",
    "WorkLimits": "windlass.agent.working",
    "create_asgi_app": "windlass.server.asgi",
    "serve": "windlass.server.serving",
    "verify_webhook": "windlass.server.webhooks.signing",
}
if not TYPE_CHECKING:  # To a type checker, `__getattr__` would make every name a valid one.
    __getattr__ = lazy_attributes(__name__, LAZY_MODULES)
