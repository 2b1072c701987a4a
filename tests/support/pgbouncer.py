"""A real transaction pooler in front of the Postgres server of the tests: pgbouncer."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from postgres import start_server

PROGRAM = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
PORT = 6432
SERVER_CONNECTIONS = 3
"""Fewer than the clients have, so that each transaction may get another one."""
_running: list[tuple[subprocess.Popen[bytes], Path]] = []


def has_pooler_died() -> bool:
    """Whether the pooler ended by itself: 1.18 may, of a client that leaves while it signs in."""
    return _running[-1][0].poll() is not None


def start_pooler() -> Path:
    """Return the folder of the pooler's socket. It is started if none runs, or skips."""
    if PROGRAM is None:
        pytest.skip("needs pgbouncer: make pooler")
    if _running and not has_pooler_died():
        return _running[-1][1]
    server = start_server()
    folder = Path(tempfile.mkdtemp(prefix="windlass-pooler-"))
    settings = folder / "pgbouncer.ini"
    settings.write_text(
        f"""[databases]
* = host={server.pgdata} port=5432 user=postgres
[pgbouncer]
listen_addr =
listen_port = {PORT}
unix_socket_dir = {folder}
auth_type = any
pool_mode = transaction
default_pool_size = {SERVER_CONNECTIONS}
max_client_conn = 500
logfile = {folder}/log
pidfile = {folder}/pid
""",
        "utf-8",
    )
    command = [PROGRAM, "--quiet", str(settings)]
    if os.geteuid() == 0:
        # It refuses to run as root, as the server does.
        for path in (folder, settings):
            shutil.chown(path, server.system_user)
        command[1:1] = ["--user", server.system_user]
    process = subprocess.Popen(command)
    _running.append((process, folder))
    ends_at = time.monotonic() + 20
    while not (folder / f".s.PGSQL.{PORT}").exists():
        assert process.poll() is None, (folder / "log").read_text("utf-8")
        assert time.monotonic() < ends_at
        time.sleep(0.02)
    return folder


def pooled_dsn(database: str = "postgres", *, direct: str = "") -> str:
    """The address of a database through the pooler; `direct` is one around it."""
    around = f"&direct={quote(direct, safe='')}" if direct else ""
    place = f"host={start_pooler()}&port={PORT}"
    return f"postgresql://postgres@/{database}?{place}&pooler=transaction{around}"


@pytest.fixture(scope="session", autouse=True)
def stop_pooler_at_the_end() -> Iterator[None]:
    """Import it into a test module that uses the pooler."""
    yield
    for process, folder in _running:
        process.terminate()
        process.wait(20)
        shutil.rmtree(folder)
    _running.clear()
