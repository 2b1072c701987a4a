"""The fleet: many workers on many machines, placed by an engine that many already run, Temporal.

    from windlass.fleet import TemporalWorker, connect_engine

It needs the extra `windlass[temporal]`. The engine decides where and when a session is driven; the
journal and its lease decide what is true.
"""

# The names below are imported only for type checkers, so this cycle is none at run time.
# pyright: reportImportCycles=false
from typing import TYPE_CHECKING

from windlass.lazy_modules import LazyModules, lazy_attributes

if TYPE_CHECKING:
    from windlass.fleet.activities import DriftPolicy, TakingRules
    from windlass.fleet.engine import EngineUnreachable, LateEngine, TemporalEngine, connect_engine
    from windlass.fleet.engine_address import EngineAddress, parse_engine_address
    from windlass.fleet.schedules import EngineSchedules, EngineTimes, ScheduledPrompt
    from windlass.fleet.worker import TemporalWorker

__all__ = [
    "DriftPolicy",
    "EngineAddress",
    "EngineSchedules",
    "EngineTimes",
    "EngineUnreachable",
    "LateEngine",
    "ScheduledPrompt",
    "TakingRules",
    "TemporalEngine",
    "TemporalWorker",
    "connect_engine",
    "parse_engine_address",
]

LAZY_MODULES: LazyModules = {
    "DriftPolicy": "windlass.fleet.activities",
    "EngineAddress": "windlass.fleet.engine_address",
    "EngineSchedules": "windlass.fleet.schedules",
    "EngineTimes": "windlass.fleet.schedules",
    "EngineUnreachable": "windlass.fleet.engine",
    "LateEngine": "windlass.fleet.engine",
    "ScheduledPrompt": "windlass.fleet.schedules",
    "TakingRules": "windlass.fleet.activities",
    "TemporalEngine": "windlass.fleet.engine",
    "TemporalWorker": "windlass.fleet.worker",
    "connect_engine": "windlass.fleet.engine",
    "parse_engine_address": "windlass.fleet.engine_address",
}
if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(__name__, LAZY_MODULES)
