"""Windlass beside its peers, on the same work: `make bench-peers`.

Everyone talks to the same scripted server, in turn, each in its own environment and process. The
number in brackets is the ratio to Windlass. Nothing is asserted.
"""

import argparse
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

import plots
from lines import MeasureLine, markdown_table
from measures import Course, cancel, crowd, deltas, durable, many, start, steps
from page import fill_section
from roster import PEERS, ROOT, choose_peers
from server import run_server
from titles import machine_and_day, peer_titles

Measure = Callable[[Course], list[MeasureLine]]
FULL: Mapping[str, Measure] = {
    "start": lambda c: start(c, rounds=3),
    "deltas": lambda c: deltas(c, count=1_000, apart=300, rounds=3),
    "steps": lambda c: steps(c, lengths=(10, 50, 200), rounds=3),
    "many": lambda c: many(c, count=32, rounds=5),
    "crowd": lambda c: crowd(c, sizes=((200, 1), (1_000, 1))),
    "cancel": lambda c: cancel(c, rounds=3, within_s=5),
    "durable": lambda c: durable(c, lengths=(10, 50, 200), rounds=3),
}
QUICK: Mapping[str, Measure] = {
    "start": lambda c: start(c, rounds=1),
    "deltas": lambda c: deltas(c, count=100, apart=50, rounds=1),
    "steps": lambda c: steps(c, lengths=(5, 10, 20), rounds=1),
    "many": lambda c: many(c, count=32, rounds=1),
    "crowd": lambda c: crowd(c, sizes=((10, 1), (20, 1))),
    "cancel": lambda c: cancel(c, rounds=1, within_s=2),
    "durable": lambda c: durable(c, lengths=(5, 10, 20), rounds=1),
}
PAGE = ROOT / "docs" / "peers.md"
IMAGES = ROOT / "docs" / "img"


def main() -> None:
    parser = argparse.ArgumentParser(description="Windlass beside its peers, on the same work.")
    parser.add_argument("--quick", action="store_true", help="small sizes: does it run at all?")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the lines there as well")
    parser.add_argument("--page", action="store_true", help="put tables and plots into the docs")
    parser.add_argument("--only", nargs="+", choices=FULL, metavar="NAME", default=[*FULL])
    names = [peer.name for peer in PEERS]
    parser.add_argument("--peers", nargs="+", choices=names, metavar="PEER", default=names)
    asked = parser.parse_args()
    if asked.quick and asked.page:
        parser.error("--quick is too small for the page")
    found: dict[str, list[MeasureLine]] = {}
    peers = choose_peers(asked.peers)
    titles = peer_titles(peers)
    with run_server() as server:
        course = Course(peers, server)
        try:
            for name in asked.only:
                began = time.monotonic()
                found[name] = (QUICK if asked.quick else FULL)[name](course)
                print(markdown_table(found[name], [*titles], titles), flush=True)
                print(f"\n{name}: {time.monotonic() - began:.0f} s\n", flush=True)
        finally:
            course.close()
    for what, why in course.failures.items():
        print(f"{what}: {why}")
    told = {"where": machine_and_day(), "titles": titles, "failures": course.failures}
    if asked.json:
        lines = {name: [asdict(line) for line in some] for name, some in found.items()}
        asked.json.write_text(json.dumps({**told, "lines": lines}, indent=1), "utf-8")
    if asked.page:
        publish_page(found, titles, course.failures)


def publish_page(
    found: Mapping[str, list[MeasureLine]], titles: Mapping[str, str], failures: Mapping[str, str]
) -> None:
    """Tables between their marks in the page, and plots beside it."""
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
