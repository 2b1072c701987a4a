"""The time of `import windlass`, with compiled bytecode as an installed package has it."""

import tempfile

from meter import BenchRow, run_in_child

AIM = 2.0
SIDES = {"floor": "asyncio, json, sqlite3", "windlass": "windlass"}
TIMED = "import time; began = time.process_time(); import {}; print(time.process_time() - began)"


def measure(rounds: int) -> list[BenchRow]:
    best = dict.fromkeys(SIDES, float("inf"))
    with tempfile.TemporaryDirectory() as cache:
        for at in range(rounds + 1):
            for side, modules in SIDES.items():
                taken_s = run_in_child(TIMED.format(modules), PYTHONPYCACHEPREFIX=cache)
                if at > 0:  # The first round compiles.
                    best[side] = min(best[side], taken_s * 1e3)
    return [BenchRow(name=f"import, best of {rounds}", unit="ms CPU", aim=AIM, **best)]
