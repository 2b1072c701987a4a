"""How long `windlass serve` takes until it answers, as a whole process.

It runs with compiled bytecode, as an installed package has it, and the best time counts. The CPU
time is what it takes on a machine that does nothing else.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from meter import BenchRow, child_environment

AIM_MS = 1_000.0
APP = """
from windlass import Agent
from windlass.testing import ScriptedModel
agents = Agent(ScriptedModel(["Hello."]), name="helper")
"""


def measure(rounds: int) -> list[BenchRow]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "app.py").write_text(APP)
        command = ["-m", "windlass.cli", "serve", "app:agents", "--port", "0"]
        command += ["--journal", str(folder / "sessions.db")]
        # The first one compiles, and makes the journal.
        ours = [_time_line(command, folder) for _ in range(rounds + 1)][1:]
        floor = [_time_line(["-c", "print(flush=True)"], folder) for _ in range(rounds + 1)][1:]
    return [
        BenchRow(
            name=f"windlass serve until it answers, in ms {kind}",
            floor=min(times[at] for times in floor),
            windlass=min(times[at] for times in ours),
            aim=AIM_MS,
        )
        for at, kind in enumerate(("CPU", "wall"))
    ]


def _time_line(command: list[str], folder: Path) -> tuple[float, float]:
    """Return the milliseconds until a process writes its first line: CPU time and wall time."""
    environment = {**child_environment(), "PYTHONPYCACHEPREFIX": str(folder / "cache")}
    began = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        taken_ms = (time.perf_counter() - began) * 1e3
        process.kill()
        _, _, used = os.wait4(process.pid, 0)
        process.returncode = -9
    return (used.ru_utime + used.ru_stime) * 1e3, taken_ms
