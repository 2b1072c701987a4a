"""The option that names an engine, and the names of the fleet, which are imported at first use."""

from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from windlass.core.errors import ConfigError
from windlass.lazy_modules import LazyModules, lazy_attributes

if TYPE_CHECKING:
    from windlass.fleet.activities import DriftPolicy as DriftPolicy, TakingRules as TakingRules
    from windlass.fleet.engine import (
        EngineUnreachable as EngineUnreachable,
        LateEngine as LateEngine,
        TemporalEngine as TemporalEngine,
        connect_engine as connect_engine,
    )
    from windlass.fleet.engine_address import parse_engine_address as parse_engine_address
    from windlass.fleet.schedules import (
        EngineSchedules as EngineSchedules,
        EngineTimes as EngineTimes,
        ListedSchedule as ListedSchedule,
        ScheduledPrompt as ScheduledPrompt,
    )
    from windlass.fleet.worker import TemporalWorker as TemporalWorker

LAZY_MODULES: LazyModules = {
    "windlass.fleet.activities": "DriftPolicy TakingRules",
    "windlass.fleet.engine": "EngineUnreachable LateEngine TemporalEngine connect_engine",
    "windlass.fleet.engine_address": "parse_engine_address",
    "windlass.fleet.schedules": "EngineSchedules EngineTimes ListedSchedule ScheduledPrompt",
    "windlass.fleet.worker": "TemporalWorker",
}
if not TYPE_CHECKING:
    __getattr__ = lazy_attributes(__name__, LAZY_MODULES)


def _check_engine(
    _context: click.Context, _option: click.Parameter, named: str | None
) -> str | None:
    if named is not None and find_spec("temporalio") is None:
        raise ConfigError("--engine needs the Temporal SDK: pip install 'windlass[temporal]'")
    return named


engine_option = click.option(
    "--engine",
    metavar="URL",
    callback=_check_engine,
    help="The engine that places runs: temporal://HOST:PORT/NAMESPACE",
)
