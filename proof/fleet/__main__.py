"""`python -m proof.fleet --minutes 10 --engine postgres`.

Runs a fleet of workers under faults, and prints what it cost. The exit code is 1 if any run did not
finish, an effect was lost or happened twice, or two drivers did the work of one.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from proof.fleet.campaign import CampaignPlan, CampaignReport, run_campaign

ZEROS = (
    "run not finished",
    "effect twice",
    "effect lost",
    "asked again once on record",
    "message lost or heeded twice",
    "two drivers",
    "driven by another version",
    "record not sound",
    "transcript differs",
)
"""The violations, in the order of the table."""
SHOWN_MAX = 20


def report_lines(report: CampaignReport) -> Iterator[str]:
    """Yield the table of a campaign."""
    engine = "Temporal and Postgres" if report.plan.engine else "Postgres alone"
    yield f"{f'workers, with {engine}':<52}{report.plan.workers:>10}"
    yield f"{'minutes':<52}{report.plan.seconds / 60:>10.1f}"
    yield f"{'runs':<52}{report.runs:>10}"
    yield f"{'messages acknowledged':<52}{report.messages:>10}"
    for name, times in sorted(report.faults.items()):
        yield f"{f'fault: {name}':<52}{times:>10}"
    for kind in ZEROS:
        yield f"{kind:<52}{report.count(kind):>10}"
    yield f"{'sessions verified and replayed':<52}{report.runs:>10}"
    yield f"{'transcripts compared with undisturbed twins':<52}{report.twins:>10}"
    yield f"{'requests':<52}{report.requests:>10}"
    yield f"{'requests made again, because a worker was lost':<52}{report.repeated_requests:>10}"
    yield f"{'requests refused by a rate limit':<52}{report.refused_requests:>10}"
    yield f"{'runs that were parked, and resumed by a person':<52}{report.parked:>10}"
    yield f"{'late effects refused by their fencing token':<52}{report.refused_effects:>10}"
    taken = report.take_overs_s
    if taken:
        yield f"{'runs taken over from killed workers':<52}{len(taken):>10}"
        yield f"{'take-over, p50, s':<52}{find_quantile(taken, 0.5):>10.2f}"
        yield f"{'take-over, p99, s':<52}{find_quantile(taken, 0.99):>10.2f}"


def find_quantile(values: Sequence[float], part: float) -> float:
    """Return a quantile of sorted values."""
    return values[min(len(values) - 1, int(part * len(values)))]


def main(argv: list[str] | None = None) -> int:
    """Run one campaign and print its table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--engine", choices=("postgres", "temporal"), default="postgres")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--runs-per-second", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="keep the folder of the campaign")
    options = parser.parse_args(argv)
    plan = CampaignPlan(
        seconds=60 * options.minutes,
        workers=options.workers,
        runs_per_s=options.runs_per_second,
        seed=options.seed,
        engine=options.engine == "temporal",
    )
    folder = Path(tempfile.mkdtemp(prefix="windlass-fleet-"))
    try:
        report = asyncio.run(run_campaign(plan, folder))
    finally:
        if options.keep:
            print(f"The campaign is kept in {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    print("\n".join(report_lines(report)))
    for violation in report.violations[:SHOWN_MAX]:
        print(f"{violation.session}: {violation.kind}: {violation.words}", file=sys.stderr)
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
