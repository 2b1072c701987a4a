"""The option that names an engine, and the names of the fleet, which are imported at first use."""

from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from windlass.core.errors import ConfigError
from windlass.lazy_modules import LazyModules, lazy_attributes

if TYPE_CHECKING:
    from windlass.fleet.activities import DriftPolicy, TakingRules
    from windlass.fleet.engine import EngineUnreachable, LateEngine, TemporalEngine, connect_engine
    from windlass.fleet.engine_address import parse_engine_address
    from windlass.fleet.schedules import (
        EngineSchedules,
        EngineTimes,
        ListedSchedule,
        ScheduledPrompt,
    )
    from windlass.fleet.worker import TemporalWorker

__all__ = [
    "DriftPolicy",
    "EngineSchedules",
    "EngineTimes",
    "EngineUnreachable",
    "LateEngine",
    "ListedSchedule",
    "ScheduledPrompt",
    "TakingRules",
    "TemporalEngine",
    "TemporalWorker",
    "connect_engine",
    "engine_option",
    "parse_engine_address",
]

LAZY_MODULES: LazyModules = {
    "DriftPolicy": "windlass.fleet.activities",
    "EngineSchedules": "windlass.fleet.schedules",
    "EngineTimes": "windlass.fleet.schedules",
    "EngineUnreachable": "windlass.fleet.engine",
    "LateEngine": "windlass.fleet.engine",
    "ListedSchedule": "windlass.fleet.schedules",
    "ScheduledPrompt": "windlass.fleet.schedules",
    "TakingRules": "windlass.fleet.activities",
    "TemporalEngine": "windlass.fleet.engine",
    "TemporalWorker": "windlass.fleet.worker",
    "connect_engine": "windlass.fleet.engine",
    "parse_engine_address": "windlass.fleet.engine_address",
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
