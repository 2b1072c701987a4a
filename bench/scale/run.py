"""Ten thousand sessions in one process, a hundred thousand in one file: `make scale`.

Each row compares with few sessions in the same run, so that the ratio holds on any machine: a cost
that does not grow has a ratio of about 1. Nothing is asserted.
"""

import argparse
import platform
import subprocess
import sys
from pathlib import Path

import crowd
import library
import msgspec
from tally import ScaleRow, table_head

FULL = {"crowd": (10_000, 1_000), "library": (1_000, 100_000)}
QUICK = {"crowd": (1_000, 100), "library": (200, 2_000)}


def main() -> None:
    parser = argparse.ArgumentParser(description="What grows with the number of sessions.")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--only", choices=FULL, help="one of the two")
    parser.add_argument("--json", action="store_true", help="print the rows for a program")
    given = parser.parse_args()
    sizes = QUICK if given.quick else FULL
    if given.json:
        print(msgspec.json.encode(list(_measure_rows(given.only, *sizes[given.only]))).decode())
        return
    print(f"Python {platform.python_version()}, {platform.system()} {platform.machine()}")
    for name in (given.only,) if given.only else FULL:
        few, many = sizes[name]
        little, much = (f"{few:,}", f"{many:,}") if few < many else (f"{few // 10:,}", f"{few:,}")
        print(f"\n{table_head(little, much)}")
        # Each in a process of its own, so that the memory of one is not the other's.
        flags = ["--quick"] if given.quick else []
        command = [sys.executable, str(Path(__file__)), "--only", name, "--json", *flags]
        told = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
        for row in msgspec.json.decode(told, type=list[ScaleRow]):
            print(row.line, flush=True)


def _measure_rows(name: str, few: int, many: int) -> list[ScaleRow]:
    return list({"crowd": crowd.crowd_rows, "library": library.library_rows}[name](few, many))


if __name__ == "__main__":
    main()
