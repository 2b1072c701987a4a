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
    from windlass.fleet.activities import DriftPolicy as DriftPolicy, TakingRules as TakingRules
    from windlass.fleet.engine import (
        EngineUnreachable as EngineUnreachable,
        LateEngine as LateEngine,
        TemporalEngine as TemporalEngine,
        connect_engine as connect_engine,
    )
    from windlass.fleet.engine_address import (
        EngineAddress as EngineAddress,
        parse_engine_address as parse_engine_address,
    )
    from windlass.fleet.schedules import (
        EngineSchedules as EngineSchedules,
        EngineTimes as EngineTimes,
        ScheduledPrompt as ScheduledPrompt,
    )
    from windlass.fleet.worker import TemporalWorker as TemporalWorker

LAZY_MODULES: LazyModules = {
    "windlass.fleet.activities": "DriftPolicy TakingRules",
    "windlass.fleet.engine": "EngineUnreachable LateEngine TemporalEngine connect_engine",
    "windlass.fleet.engine_address": "EngineAddress parse_engine_address",
    "windlass.fleet.schedules": "EngineSchedules EngineTimes ScheduledPrompt",
    "windlass.fleet.worker": "TemporalWorker",
}
if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(__name__, LAZY_MODULES)
