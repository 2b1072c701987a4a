"""The time of importing what an agent needs, with bytecode that is compiled already."""

import tempfile

from meter import BenchRow, run_in_child

AIM = 1.7
SIDES = {
    "floor": "import asyncio, json, sqlite3",
    "windlass": "from windlass import Agent, Limits, RunContext, Toolbox, tool",
}
TIMED = "import time; began = time.process_time(); {}; print(time.process_time() - began)"


def measure(rounds: int) -> list[BenchRow]:
    best = dict.fromkeys(SIDES, float("inf"))
    with tempfile.TemporaryDirectory() as cache:
        for at in range(rounds + 1):
            for side, imports in SIDES.items():
                taken_s = run_in_child(TIMED.format(imports), PYTHONPYCACHEPREFIX=cache)
                if at > 0:  # The first round compiles.
                    best[side] = min(best[side], taken_s * 1e3)
    return [BenchRow(name=f"import, best of {rounds}", unit="ms CPU", aim=AIM, **best)]
