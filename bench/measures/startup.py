"""Start-up: `windlass --help`, and the first run of a program, as whole processes.

They run with compiled bytecode, as an installed package has it. Each process is timed from start to
end, and the best time counts, because other load only makes a process slower.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from meter import BenchRow

AIM_MS = 150.0
RUN = """
from windlass import Agent
from windlass.testing import ScriptedModel
print(Agent(ScriptedModel(["Hello."])).run_sync("Hi.").text)
"""
FLOORS = {"python -c pass": "pass", "import click": "import click"}
OURS = {
    "windlass --help": "from windlass.cli import main; main(prog_name='windlass')",
    "a first scripted run": RUN,
}


def measure(rounds: int) -> list[BenchRow]:
    best = dict.fromkeys((*FLOORS, *OURS), float("inf"))
    with tempfile.TemporaryDirectory() as cache:
        for at in range(rounds + 1):
            for name, code in (FLOORS | OURS).items():
                taken_ms = _time_process(code, cache)
                if at > 0:  # The first round compiles.
                    best[name] = min(best[name], taken_ms)
    return list(_make_rows(best))


def _make_rows(best: dict[str, float]) -> Iterator[BenchRow]:
    bare = best["python -c pass"]
    for name in OURS:
        taken = best[name]
        yield BenchRow(name=f"{name}, in ms", floor=bare, windlass=taken, aim=AIM_MS)
        for floor in FLOORS:
            against = f"{name}, against {floor}"
            yield BenchRow(name=against, unit="ms wall", floor=best[floor], windlass=taken)


def _time_process(code: str, cache: str) -> float:
    """Return the milliseconds that a fresh interpreter with the same import path takes."""
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    path = os.pathsep.join(filter(None, sys.path))
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", code, "--help"],
        env={**inherited, "PYTHONPATH": path, "PYTHONPYCACHEPREFIX": cache},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return (time.perf_counter() - began) * 1e3
