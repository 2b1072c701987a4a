"""The service: agents over HTTP, from one journal, for any number of callers.

    from windlass.server import Service, serve

Runs belong to the service, not to connections: a client may go away and come back.
"""

# The names below are imported only for type checkers, so this is not a cycle at run time.
# pyright: reportImportCycles=false
from typing import TYPE_CHECKING

from windlass.lazy_modules import LazyModules, lazy_attributes

if TYPE_CHECKING:
    from windlass.agent.working import SessionWorker as SessionWorker, WorkLimits as WorkLimits
    from windlass.server.access import Caller as Caller
    from windlass.server.asgi import create_asgi_app as create_asgi_app
    from windlass.server.dispatch import Dispatcher as Dispatcher
    from windlass.server.background import OutsideSettings as OutsideSettings
    from windlass.server.errors import ApiError as ApiError
    from windlass.server.guard import AccessRules as AccessRules
    from windlass.server.limits import ServiceLimits as ServiceLimits
    from windlass.server.quotas.admission import Quota as Quota, QuotaStore as QuotaStore
    from windlass.server.schedules.schedule import (
        NewSchedule as NewSchedule,
        ScheduleStore as ScheduleStore,
    )
    from windlass.server.schedules.times import (
        CronTimes as CronTimes,
        IntervalTimes as IntervalTimes,
        OnceTime as OnceTime,
    )
    from windlass.server.service import Service as Service
    from windlass.server.serving import ServeOptions as ServeOptions, serve as serve
    from windlass.server.run_controls import StartRequest as StartRequest
    from windlass.server.webhooks.signing import verify_webhook as verify_webhook
    from windlass.server.webhooks.store import (
        NewWebhook as NewWebhook,
        WebhookStore as WebhookStore,
    )

LAZY_MODULES: LazyModules = {
    "windlass.agent.working": "SessionWorker WorkLimits",
    "windlass.server.access": "Caller",
    "windlass.server.asgi": "create_asgi_app",
    "windlass.server.background": "OutsideSettings",
    "windlass.server.dispatch": "Dispatcher",
    "windlass.server.errors": "ApiError",
    "windlass.server.guard": "AccessRules",
    "windlass.server.limits": "ServiceLimits",
    "windlass.server.quotas.admission": "Quota QuotaStore",
    "windlass.server.run_controls": "StartRequest",
    "windlass.server.schedules.schedule": "NewSchedule ScheduleStore",
    "windlass.server.schedules.times": "CronTimes IntervalTimes OnceTime",
    "windlass.server.service": "Service",
    "windlass.server.serving": "ServeOptions serve",
    "windlass.server.webhooks.signing": "verify_webhook",
    "windlass.server.webhooks.store": "NewWebhook WebhookStore",
}
if not TYPE_CHECKING:  # To a type checker, `__getattr__` would make every name a valid one.
    __getattr__ = lazy_attributes(__name__, LAZY_MODULES)
