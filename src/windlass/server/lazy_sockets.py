"""The sockets of the service: imported when it begins to listen.

They need aiohttp, which is an extra. A worker, a service below an ASGI server and the commands that
only read the journal do without it.
"""

from typing import TYPE_CHECKING

from windlass.lazy_modules import LazyModules, lazy_attributes

if TYPE_CHECKING:
    from windlass.server.aiohttp_server import listen as listen

LAZY_MODULES: LazyModules = {"windlass.server.aiohttp_server": "listen"}
if not TYPE_CHECKING:  # To a type checker, `__getattr__` would make every name a valid one.
    __getattr__ = lazy_attributes(__name__, LAZY_MODULES)
