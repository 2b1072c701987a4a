"""`python -m proof.modelcheck`: explore all scenarios, and show that planted bugs are found."""

import argparse
import sys
import time
from collections.abc import Mapping

from proof.modelcheck.explore import Exploration, explore, replay
from proof.modelcheck.protocol import LeaseProtocol
from proof.modelcheck.scenarios import GAPS, PLANTED, SCENARIOS
from proof.modelcheck.world import Scenario

ALL: Mapping[str, Scenario] = {**SCENARIOS, **PLANTED, **GAPS}


def main(argv: list[str] | None = None) -> int:
    """Explore, or replay a counterexample. Returns 1 if something is not as it should be."""
    parser = argparse.ArgumentParser(prog="python -m proof.modelcheck", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"scenarios or bugs: {', '.join(ALL)}")
    parser.add_argument("--depth", type=int, help="the most steps from the beginning")
    parser.add_argument("--show", action="store_true", help="print every counterexample")
    parser.add_argument("--replay", help="the choices of a counterexample of the one scenario")
    options = parser.parse_args(argv)
    unknown = [name for name in options.names if name not in ALL]
    if unknown:
        parser.error(f"there is no scenario {unknown[0]!r}")
    if options.replay is not None:
        if len(options.names) != 1:
            parser.error("--replay needs the name of one scenario")
        return _replay(options.names[0], options.replay)
    names = options.names or list(ALL)
    wrong = [name for name in names if not _report(name, options.depth, show=options.show)]
    print(f"{len(names)} explored: {len(wrong)} not as expected {' '.join(wrong)}".rstrip())
    return 1 if wrong else 0


def _report(name: str, depth_max: int | None, *, show: bool) -> bool:
    """Explore a scenario, print what was found, and return whether that was to be expected."""
    began = time.process_time()
    found = explore(LeaseProtocol(ALL[name]), depth_max=depth_max)
    took_s = time.process_time() - began
    is_expected = (found.counterexample is None) == (name in SCENARIOS)
    print(f"{name:36s}{found.states:9,d} states {found.steps:10,d} steps {took_s:6.1f} s  "
          f"{_describe(found)}", flush=True)  # fmt: skip
    if found.counterexample is not None and (show or not is_expected):
        print(found.counterexample.describe())
    return is_expected


def _describe(found: Exploration) -> str:
    if found.counterexample is not None:
        steps = len(found.counterexample.steps)
        return f"broken after {steps} steps: {found.counterexample.rule}"
    extent = "all" if found.is_complete else "cut off"
    return f"{extent}, {found.depth} deep: every rule holds"


def _replay(name: str, choices: str) -> int:
    model = LeaseProtocol(ALL[name])
    for text, state in replay(model, [int(choice) for choice in choices.split(",") if choice]):
        print(text)
        if state is not None:
            facts = model.log[state.log].facts
            print(f"      record {len(facts)}, {type(facts[-1]).__name__}; lock {state.lock}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
