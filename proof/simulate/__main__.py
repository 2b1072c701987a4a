"""`python -m proof.simulate --seeds 0:2000`."""

import argparse
import logging
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from proof.simulate.people import is_unplanned
from proof.simulate.plan import draw_plan
from proof.simulate.play import play_plan
from proof.simulate.rules.check import check_rules

CHUNK = 100


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m proof.simulate", description=__doc__)
    parser.add_argument("--seeds", default="0:2000", help="first:last, without the last one")
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the work")
    parser.add_argument("--show", action="store_true", help="print the facts of each session")
    options = parser.parse_args(argv)
    first, last = map(int, options.seeds.split(":"))
    began = time.monotonic()
    if options.jobs > 1:
        chunks = [range(at, min(at + CHUNK, last)) for at in range(first, last, CHUNK)]
        with ProcessPoolExecutor(options.jobs) as pool:
            broken = [line for lines in pool.map(_simulate_seeds, chunks) for line in lines]
    else:
        broken = _simulate_seeds(range(first, last), show=options.show)
    for line in broken:
        print(line)
    took = time.monotonic() - began
    print(f"simulated {last - first} sessions in {took:.1f} s: {len(broken)} broke a rule")
    return 1 if broken else 0


def _simulate_seeds(seeds: range, *, show: bool = False) -> list[str]:
    broken: list[str] = []
    logging.disable(logging.WARNING)  # Planned faults would fill the log.
    approvals = logging.getLogger("windlass.agent.approvals")
    approvals.addFilter(is_unplanned)
    for seed in seeds:
        try:
            played = play_plan(draw_plan(seed))
            if show:
                print(*played.facts, sep="\n")
            check_rules(played)
        except Exception as error:  # noqa: BLE001 - any failure is a finding
            finding = f"{type(error).__name__}: {error}".replace("\n", " ")[:300]
            broken.append(f"python -m proof.simulate --seeds {seed}:{seed + 1}  # {finding}")
    approvals.removeFilter(is_unplanned)
    logging.disable(logging.NOTSET)
    return broken


if __name__ == "__main__":
    sys.exit(main())
