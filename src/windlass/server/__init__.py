"""The service: agents over HTTP, from one journal, for any number of callers.

    from windlass.server import Service, serve

Runs belong to the service, not to connections: a client may go away and come back.
"""

from typing import TYPE_CHECKING

from windlass.lazy_modules import LazyModules, lazy_attributes

if TYPE_CHECKING:
    from windlass.agent.working import SessionWorker, WorkLimits
    from windlass.server.access import Caller
    from windlass.server.asgi import create_asgi_app
    from windlass.server.dispatch import Dispatcher
    from windlass.server.errors import ApiError
    from windlass.server.guard import AccessRules
    from windlass.server.limits import ServiceLimits
    from windlass.server.service import Service
    from windlass.server.serving import ServeOptions, serve
    from windlass.server.start_request import StartRequest

__all__ = [
    "AccessRules",
    "ApiError",
    "Caller",
    "Dispatcher",
    "ServeOptions",
    "Service",
    "ServiceLimits",
    "SessionWorker",
    "StartRequest",
    "WorkLimits",
    "create_asgi_app",
    "serve",
]

LAZY_MODULES: LazyModules = {
    "AccessRules": "windlass.server.guard",
    "ApiError": "windlass.server.errors",
    "Caller": "windlass.server.access",
    "Dispatcher": "windlass.server.dispatch",
    "ServeOptions": "windlass.server.serving",
    "Service": "windlass.server.service",
    "ServiceLimits": "windlass.server.limits",
    "SessionWorker": "windlass.agent.working",
    "StartRequest": "windlass.server.start_request",
    "WorkLimits": "windlass.agent.working",
    "create_asgi_app": "windlass.server.asgi",
    "serve": "windlass.server.serving",
}
if not TYPE_CHECKING:  # To a type checker, `__getattr__` would make every name a valid one.
    __getattr__ = lazy_attributes(__name__, LAZY_MODULES)
