"""What Windlass costs, as a multiple of the smallest loop that does the same work: `make bench`.

Everything is measured in one run, with the sides in turn, so that the ratios hold on any machine.
Nothing is asserted: the aim is printed beside each ratio.
"""

import argparse
import platform
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from measures import (
    crowd,
    deltas,
    durable,
    growth,
    idle,
    imports,
    install,
    projecting,
    side_by_side,
    startup,
    view_cost,
)
from measures.http import crowd as http_crowd
from measures.http import deltas as http_deltas
from measures.http import growth as http_growth
from measures.journal import appends as journal_appends
from measures.journal import control as journal_control
from measures.journal import growth as journal_growth
from measures.journal import live as journal_live
from measures.journal import mail as journal_mail
from measures.journal import postgres as journal_postgres
from measures.journal import replies as journal_replies
from measures.service import ready as service_ready
from measures.service import watching as service_watching
from meter import BenchRow

Measure = Callable[[], list[BenchRow]]

FULL: Mapping[str, Measure] = {
    "deltas": lambda: deltas.measure(count=20_000, rounds=9),
    "growth": lambda: growth.measure(lengths=(10, 100, 1_000), rounds=9),
    "view_cost": lambda: view_cost.measure(length=500, rounds=3),
    "projecting": lambda: projecting.measure(steps=500, pieces=40, rounds=5),
    "crowd": lambda: crowd.measure(runs=1_000, rounds=5),
    "side_by_side": lambda: side_by_side.measure(calls=32, rounds=9),
    "idle": lambda: idle.measure(sessions=2_000),
    "imports": lambda: imports.measure(rounds=7),
    "startup": lambda: startup.measure(rounds=9),
    "install": install.measure,
    "durable": lambda: durable.measure(length=200, rounds=5),
    "journal_appends": lambda: journal_appends.measure((1, 10, 100), appends=500, rounds=4),
    "journal_replies": lambda: journal_replies.measure(replies=1_000),
    "journal_growth": lambda: journal_growth.measure(10, 1_000, facts=10_000, rounds=4),
    "journal_postgres": lambda: journal_postgres.measure((1, 10, 100), appends=300, rounds=3),
    "journal_live": lambda: journal_live.measure(count=20_000, rounds=15, deltas=400),
    "journal_mail": lambda: journal_mail.measure(posts=200, steps=300),
    "journal_control": lambda: journal_control.measure(
        starts=200, posts=200, watchers=1_000, rounds=25
    ),
    "http_deltas": lambda: http_deltas.measure(count=20_000, apart=2_000, rounds=9),
    "http_growth": lambda: http_growth.measure(lengths=(50, 100, 200), rounds=9),
    "http_crowd": lambda: http_crowd.measure(sizes=(200, 1_000), rounds=5),
    "service": lambda: service_watching.measure(1_000, events=40, rounds=3, starts=1_000),
    "service_ready": lambda: service_ready.measure(rounds=7),
}
QUICK: Mapping[str, Measure] = {
    "deltas": lambda: deltas.measure(count=2_000, rounds=3),
    "growth": lambda: growth.measure(lengths=(10, 30, 100), rounds=3),
    "view_cost": lambda: view_cost.measure(length=50, rounds=1),
    "projecting": lambda: projecting.measure(steps=50, pieces=10, rounds=1),
    "crowd": lambda: crowd.measure(runs=100, rounds=1),
    "side_by_side": lambda: side_by_side.measure(calls=32, rounds=2),
    "idle": lambda: idle.measure(sessions=100),
    "imports": lambda: imports.measure(rounds=2),
    "startup": lambda: startup.measure(rounds=2),
    "install": install.measure,
    "durable": lambda: durable.measure(length=20, rounds=1),
    "journal_appends": lambda: journal_appends.measure((1, 10), appends=100, rounds=1),
    "journal_replies": lambda: journal_replies.measure(replies=50),
    "journal_growth": lambda: journal_growth.measure(10, 100, facts=500, rounds=1),
    "journal_postgres": lambda: journal_postgres.measure((1, 10), appends=50, rounds=1),
    "journal_live": lambda: journal_live.measure(count=2_000, rounds=2, deltas=20),
    "journal_mail": lambda: journal_mail.measure(posts=10, steps=20),
    "journal_control": lambda: journal_control.measure(starts=5, posts=10, watchers=20, rounds=3),
    "http_deltas": lambda: http_deltas.measure(count=2_000, apart=100, rounds=3),
    "http_growth": lambda: http_growth.measure(lengths=(10, 20, 40), rounds=3),
    "http_crowd": lambda: http_crowd.measure(sizes=(20, 100), rounds=1),
    "service": lambda: service_watching.measure(50, events=10, rounds=1, starts=50),
    "service_ready": lambda: service_ready.measure(rounds=1),
}
LINE = "{:<44} {:>8} {:>9} {:>9} {:>9} {:>7}  {}"


def main() -> None:
    parser = argparse.ArgumentParser(description="What Windlass costs, as a multiple of the floor.")
    parser.add_argument(
        "--quick", action="store_true", help="small sizes, to see that everything runs"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="also write the rows to this file"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=FULL,
        metavar="NAME",
        default=[*FULL],
        help="run only these measures: %(choices)s",
    )
    options = parser.parse_args()
    print(f"Python {platform.python_version()}, {platform.system()} {platform.machine()}")
    print(LINE.format("", "", "model", "floor", "Windlass", "ratio", "aim"))
    rows: list[BenchRow] = []
    measures = QUICK if options.quick else FULL
    for name in options.only:
        for row in measures[name]():
            rows.append(row)
            print(_format_row(row), flush=True)
    if options.json:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(rows)))


def _format_row(row: BenchRow) -> str:
    if row.aim is None:
        aim = ""
    else:
        value = row.windlass if row.ratio is None else row.ratio
        aim = f"≤ {row.aim:g}"
        if value > row.aim:
            aim += "  missed"
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    sides = (row.model, row.floor, row.windlass)
    numbers = ("" if side is None else f"{side:,.2f}" for side in sides)
    return LINE.format(row.name, row.unit, *numbers, ratio, aim).rstrip()


if __name__ == "__main__":
    main()
