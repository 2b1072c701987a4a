"""Windlass beside its peers, on the same work: `make bench-peers`.

All runtimes talk to the same scripted server, in turn, each in its own environment and process. The
number in brackets is the ratio to Windlass. Nothing is asserted.
"""

import argparse
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

import plots
from comparisons import (
    PeerCourse,
    measure_cancel,
    measure_crowd,
    measure_deltas,
    measure_durable,
    measure_many_calls,
    measure_start,
    measure_steps,
)
from lines import MeasureLine, markdown_table
from page import fill_section
from roster import PEERS, ROOT, choose_peers
from server import run_server
from titles import machine_and_day, peer_titles

Measure = Callable[[PeerCourse], list[MeasureLine]]
FULL: Mapping[str, Measure] = {
    "start": lambda course: measure_start(course, rounds=3),
    "deltas": lambda course: measure_deltas(course, count=1_000, apart=300, rounds=3),
    "steps": lambda course: measure_steps(course, lengths=(10, 50, 200), rounds=3),
    "many": lambda course: measure_many_calls(course, count=32, rounds=5),
    "crowd": lambda course: measure_crowd(course, sizes=((200, 1), (1_000, 1))),
    "cancel": lambda course: measure_cancel(course, rounds=3, within_s=5),
    "durable": lambda course: measure_durable(course, lengths=(10, 50, 200), rounds=3),
}
QUICK: Mapping[str, Measure] = {
    "start": lambda course: measure_start(course, rounds=1),
    "deltas": lambda course: measure_deltas(course, count=100, apart=50, rounds=1),
    "steps": lambda course: measure_steps(course, lengths=(5, 10, 20), rounds=1),
    "many": lambda course: measure_many_calls(course, count=32, rounds=1),
    "crowd": lambda course: measure_crowd(course, sizes=((10, 1), (20, 1))),
    "cancel": lambda course: measure_cancel(course, rounds=1, within_s=2),
    "durable": lambda course: measure_durable(course, lengths=(5, 10, 20), rounds=1),
}
PAGE = ROOT / "docs" / "peers.md"
IMAGES = ROOT / "docs" / "img"


def main() -> None:
    parser = argparse.ArgumentParser(description="Windlass beside its peers, on the same work.")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the lines to a file")
    parser.add_argument("--page", action="store_true", help="put tables and plots into the docs")
    parser.add_argument("--only", nargs="+", choices=FULL, metavar="NAME", default=[*FULL])
    names = [peer.name for peer in PEERS]
    parser.add_argument("--peers", nargs="+", choices=names, metavar="PEER", default=names)
    options = parser.parse_args()
    if options.quick and options.page:
        parser.error("--quick is too small for the page")
    found: dict[str, list[MeasureLine]] = {}
    peers = choose_peers(options.peers)
    titles = peer_titles(peers)
    with run_server() as server:
        course = PeerCourse(peers, server)
        try:
            for name in options.only:
                began = time.monotonic()
                found[name] = (QUICK if options.quick else FULL)[name](course)
                print(markdown_table(found[name], [*titles], titles), flush=True)
                print(f"\n{name}: {time.monotonic() - began:.0f} s\n", flush=True)
        finally:
            course.close()
    for what, why in course.failures.items():
        print(f"{what}: {why}")
    about = {"where": machine_and_day(), "titles": titles, "failures": course.failures}
    if options.json:
        lines = {name: [asdict(line) for line in some] for name, some in found.items()}
        options.json.write_text(json.dumps({**about, "lines": lines}, indent=1), "utf-8")
    if options.page:
        publish_page(found, titles, course.failures)


def publish_page(
    found: Mapping[str, list[MeasureLine]], titles: Mapping[str, str], failures: Mapping[str, str]
) -> None:
    """Write the tables between their marks in the page, and the plots beside it."""
    fill_section(PAGE, "where", machine_and_day())
    for name, lines in found.items():
        notes = [f"- {what}: {why}" for what, why in failures.items() if _find_line(what, lines)]
        fill_section(
            PAGE, name, "\n".join([markdown_table(lines, [*titles], titles), "", *notes]).rstrip()
        )
    IMAGES.mkdir(exist_ok=True)
    for name, drawing in draw_plots(found).items():
        (IMAGES / f"peers-{name}.svg").write_text(drawing, "utf-8")


def draw_plots(found: Mapping[str, list[MeasureLine]]) -> dict[str, str]:
    drawn: dict[str, str] = {}
    if lines := found.get("start"):
        drawn["start"] = plots.draw_bars(
            "From nothing to the first reply", "ms CPU", lines[2].values
        )
    if lines := found.get("crowd"):
        drawn["crowd"] = plots.draw_bars("A run, of 1,000 at once", "ms CPU", lines[-4].values)
    for name, title, unit in (
        ("steps", "CPU of a step, by the length of the run", "ms CPU"),
        ("durable", "Written for a durable step, by the length of the run", "kB"),
    ):
        lines = [one for one in found.get(name, []) if one.unit == unit and "sent" not in one.name]
        if lines:
            sizes = [10, 50, 200][: len(lines)]
            by_peer = {p: [one.values.get(p) for one in lines] for p in lines[0].values}
            drawn[name] = plots.draw_curves(title, unit, sizes, by_peer)
    return drawn


def _find_line(what: str, lines: list[MeasureLine]) -> bool:
    return any(what.startswith(line.name) for line in lines)


if __name__ == "__main__":
    main()
