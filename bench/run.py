"""What Windlass costs, in multiples of the smallest loop that does the same: `make bench`.

All is measured in one run, each side in turn, so that the ratios hold on any machine. Nothing is
asserted: the aim stands beside each ratio.
"""

import argparse
import platform
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from measures import crowd, deltas, durable, growth, idle, imports
from meter import Row

Measure = Callable[[], list[Row]]

FULL: Sequence[Measure] = (
    lambda: deltas.measure(count=20_000, rounds=9),
    lambda: growth.measure(lengths=(10, 100, 1_000), rounds=9),
    lambda: crowd.measure(runs=1_000, rounds=5),
    lambda: idle.measure(sessions=2_000),
    lambda: imports.measure(rounds=7),
    lambda: durable.measure(length=200, rounds=5),
)
QUICK: Sequence[Measure] = (
    lambda: deltas.measure(count=2_000, rounds=3),
    lambda: growth.measure(lengths=(10, 30, 100), rounds=3),
    lambda: crowd.measure(runs=100, rounds=1),
    lambda: idle.measure(sessions=100),
    lambda: imports.measure(rounds=2),
    lambda: durable.measure(length=20, rounds=1),
)
LINE = "{:<44} {:>8} {:>9} {:>9} {:>9} {:>7}  {}"


def main() -> None:
    parser = argparse.ArgumentParser(description="What Windlass costs, in multiples of the floor.")
    parser.add_argument("--quick", action="store_true", help="small sizes: does it run at all?")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there as well")
    chosen = parser.parse_args()
    print(f"Python {platform.python_version()}, {platform.system()} {platform.machine()}")
    print(LINE.format("", "", "model", "floor", "Windlass", "ratio", "aim"))
    rows: list[Row] = []
    for measure in QUICK if chosen.quick else FULL:
        for row in measure():
            rows.append(row)
            print(_line(row), flush=True)
    if chosen.json:
        chosen.json.write_bytes(msgspec.json.format(msgspec.json.encode(rows)))


def _line(row: Row) -> str:
    if row.aim is None:
        aim = ""
    else:
        judged = row.windlass if row.ratio is None else row.ratio
        aim = f"≤ {row.aim:g}{'' if judged <= row.aim else '  missed'}"
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    sides = (row.model, row.floor, row.windlass)
    numbers = ("" if side is None else f"{side:,.2f}" for side in sides)
    return LINE.format(row.name, row.unit, *numbers, ratio, aim).rstrip()


if __name__ == "__main__":
    main()
