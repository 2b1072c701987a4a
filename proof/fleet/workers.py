"""The workers of a campaign: real processes, each behind proxies of its own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from proof.fleet.proxy import FaultProxy, ProxyThread
from proof.fleet.servers import EngineServer, PostgresServer

ROOT = Path(__file__).parents[2]
STOP_S = 40.0
RUNS_AT_ONCE = 64
SWEEP_S = 0.3


@dataclass(slots=True)
class FleetPlace:
    """Where the workers of a campaign work."""

    folder: Path
    provider_url: str
    database: PostgresServer
    engine: EngineServer | None
    proxies: ProxyThread | None
    """Between workers and servers; without it, nothing stands in between."""
    runs_at_once: int = RUNS_AT_ONCE
    sweep_s: float = SWEEP_S

    @property
    def effects(self) -> Path:
        return self.folder / "effects"


@dataclass(slots=True)
class KilledWorker:
    """A worker that was killed, by its name, and when."""

    name: str
    at: float


@dataclass(slots=True)
class WorkerSlot:
    """One worker after another, at the same place."""

    place: FleetPlace
    number: int
    version: str = "1"
    clock_offset_s: float = 0.0
    name: str = ""
    busy: bool = False
    """A fault is under way."""
    versions: dict[str, str] = field(default_factory=dict[str, str])
    """The version of each worker that this slot has had, by its name."""
    excused: set[str] = field(default_factory=set[str])
    """Workers that were stopped or cut off at some time."""
    killed: list[KilledWorker] = field(default_factory=list[KilledWorker])
    _started_at: float = 0.0
    _process: subprocess.Popen[bytes] | None = None
    _proxies: list[FaultProxy] = field(default_factory=list[FaultProxy])

    @property
    def database_proxy(self) -> FaultProxy:
        return self._proxies[0]

    @property
    def engine_proxy(self) -> FaultProxy:
        return self._proxies[-1]

    @property
    def process_id(self) -> int:
        return self._process.pid if self._process is not None else 0

    @property
    def age_s(self) -> float:
        """Seconds since the worker was started."""
        return time.monotonic() - self._started_at

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the next worker of this slot."""
        place = self.place
        if not self._proxies and place.proxies is not None:
            self._proxies.append(FaultProxy(place.proxies, place.database.connect))
            if place.engine is not None:
                self._proxies.append(FaultProxy(place.proxies, place.engine.connect))
        self.name = f"w{self.number}.{len(self.versions) + 1}"
        self.versions[self.name] = self.version
        self._started_at = time.monotonic()
        environ = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "FLEET_PROVIDER": place.provider_url,
            "FLEET_EFFECTS": str(place.effects),
            "FLEET_WORKER": self.name,
            "FLEET_VERSION": self.version,
            "FLEET_CLOCK_OFFSET_S": str(self.clock_offset_s),
        }
        with (place.folder / "workers.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                cwd=place.folder,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _command(self) -> Sequence[str]:
        place = self.place
        journal = place.database.uri
        if self._proxies:
            journal = place.database.uri_through(self.database_proxy.port)
        command = [sys.executable, "-m", "windlass.cli", "worker", "proof.fleet.app:agents"]
        command += ["--journal", journal]
        command += ["--runs", str(place.runs_at_once), "--sweep", str(place.sweep_s)]
        if place.engine is not None:
            port = self.engine_proxy.port if self._proxies else place.engine.port
            command += ["--engine", place.engine.address_through(port)]
        return command

    def kill(self) -> None:
        """Kill the worker as a power cut would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self.killed.append(KilledWorker(self.name, time.time()))

    def terminate(self) -> None:
        """Ask the worker to let go of its runs, and wait until it has ended."""
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self.excused.add(self.name)
        self._process.send_signal(number)

    def stop(self) -> None:
        """End the worker and its proxies, whatever state they are in."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        for proxy in self._proxies:
            proxy.stop()
