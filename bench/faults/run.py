"""What happens to a run when the wire or the machine fails: `make bench-faults`.

Windlass and its peers, each with its defaults and its streaming interface, get the same scripted
faults over real HTTP, and a kill in the middle of an effect. A watchdog limits everything.
"""

import argparse
import json
import os
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "peers"))

from contestant import ContestantProcess, ContestantSilent
from kill import kill_and_resume
from lines import NONE, MeasureLine, markdown_table
from page import fill_section
from roster import PEERS, ROOT, WINDLASS, Peer, choose_peers
from scenarios import EXPECTED, SCENARIOS, FaultScenario, right_answer, script_answers
from titles import machine_and_day, peer_titles

from windlass.testing.fault_server import FaultServer, serve_in_thread

WATCHDOG_S = 200.0
PAGE = ROOT / "docs" / "peers.md"
UNWATCHED = "windlass, unwatched"
BY_CALL = {"smolagents"}
"""Peers that answer by a call. The text beside it is thinking aloud and may be repeated."""


@dataclass(frozen=True, slots=True)
class FaultRunner:
    """A contestant and the way it is run."""

    name: str
    peer: Peer
    watched: bool = True


def name_outcome(scenario: FaultScenario, answer: Mapping[str, Any], *, watched: bool) -> str:
    """Return the outcome in a word or two; in capitals, with details, if it is wrong."""
    error = answer.get("error")
    ran = tuple(answer.get("arguments", ()))
    if scenario.calls is not None and set(ran) - set(scenario.calls):
        return f"WRONG: ran with {', '.join(ran)}"
    if error:
        clear = scenario.is_clear(error["type"], error["message"])
        return "clear error" if clear else f"UNCLEAR: {error['type']}"
    text = answer["text"]
    seen = answer["seen"]
    if text != EXPECTED:
        return "as if whole" if scenario.cut else f"WRONG: {text!r}"
    if scenario.calls and len(set(ran)) != len(scenario.calls):
        if answer["told"]:
            return "calls refused, told"
        return f"CALLS LOST: ran {', '.join(ran) or 'none'}"
    if watched and seen != EXPECTED:
        return "TEXT TWICE" if seen.endswith(EXPECTED) else f"WRONG: showed {seen!r}"
    return "right"


def _was_told_of_calls(server: FaultServer) -> bool:
    """Whether the last request told the model that something was wrong with its calls."""
    since = json.dumps(server.requests[-1].json["messages"][2:])
    return bool(re.search("error|invalid|fail|not exist|not found|unknown", since, re.IGNORECASE))


def warm_process(runner: FaultRunner, folder: str) -> ContestantProcess:
    """Start a process and let it run once without faults, so that start-up time does not count."""
    process = ContestantProcess(runner.peer, BENCH_EFFECTS=str(Path(folder) / "effects"))
    server = FaultServer(always=right_answer)
    with serve_in_thread(server):
        answer = process.ask("run", WATCHDOG_S, order={"url": server.url})
    if answer["error"] or answer["text"] != EXPECTED:
        raise SystemExit(f"{runner.name} fails without a fault: {answer}")
    return process


def play_scenarios(
    runner: FaultRunner, scenarios: Sequence[FaultScenario], within_s: float
) -> dict[str, Any]:
    """Play the scenarios one after the other. A contestant that hangs is replaced."""
    found: dict[str, Any] = {}
    process: ContestantProcess | None = None
    with tempfile.TemporaryDirectory() as folder:
        for scenario in scenarios:
            process = process or warm_process(runner, folder)
            server = FaultServer(always=script_answers(scenario))
            order = {"watched": runner.watched, "steps": 8}
            with serve_in_thread(server):
                try:
                    answer = process.ask("run", within_s, order={"url": server.url, **order})
                    answer["told"] = _was_told_of_calls(server)
                    word = name_outcome(scenario, answer, watched=runner.watched)
                except ContestantSilent as silent:
                    answer = {"wall_s": within_s}
                    word = f"HANG: {silent}"
                    process.kill()
                    process = None
            row = {"outcome": word, "s": answer["wall_s"], "requests": len(server.requests)}
            found[scenario.name] = row | {"answer": answer}
    if process is not None:
        process.kill()
    return found


def run_all(
    runners: Sequence[FaultRunner], scenarios: Sequence[FaultScenario], within_s: float
) -> dict:
    """Run all contestants. The slow scenarios run side by side, because they only wait."""
    quick = [scenario for scenario in scenarios if not scenario.slow]
    slow = [scenario for scenario in scenarios if scenario.slow]
    with ThreadPoolExecutor(64) as pool:
        waiting = [
            (runner.name, pool.submit(play_scenarios, runner, [scenario], within_s))
            for runner in runners
            for scenario in slow
        ]
        found: dict[str, dict[str, Any]] = {runner.name: {} for runner in runners}
        # Two at a time, because the machine may be small and no scenario is about speed.
        with ThreadPoolExecutor(2) as narrow:
            done = narrow.map(lambda runner: play_scenarios(runner, quick, within_s), runners)
            for runner, some in zip(runners, done, strict=True):
                found[runner.name].update(some)
        for name, future in waiting:
            found[name].update(future.result())
    return found


def format_cell(row: Mapping[str, Any]) -> str:
    """Return the outcome, with the time if it is long."""
    word, colon, rest = row["outcome"].partition(":")
    if word == "HANG":
        return f"**HANG** (over {row['s']:.0f} s)"
    late = f" after {row['s']:.0f} s" if row["s"] >= 10 else ""
    return (f"**{word}**" if word.isupper() else word) + colon + rest + late


def main() -> None:
    parser = argparse.ArgumentParser(description="What happens to a run when the wire fails.")
    parser.add_argument("--quick", action="store_true", help="without the scenarios that wait")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all answers to this file")
    parser.add_argument("--page", action="store_true", help="put the tables into the docs")
    names = [peer.name for peer in PEERS]
    parser.add_argument("--peers", nargs="*", choices=names, metavar="PEER", default=names)
    parser.add_argument("--only", nargs="+", metavar="SCENARIO", help="only these scenarios")
    options = parser.parse_args()
    peers = choose_peers(options.peers or ["none"])
    scenarios = [one for one in SCENARIOS if not (options.quick and one.slow)]
    if options.only:
        scenarios = [one for one in scenarios if one.name in options.only]
    runners = [FaultRunner(peer.name, peer, watched=peer.name not in BY_CALL) for peer in peers]
    runners.insert(1, FaultRunner(UNWATCHED, WINDLASS, watched=False))
    found = run_all(runners, scenarios, WATCHDOG_S)
    titles = peer_titles(peers) | {UNWATCHED: "the same, unwatched"}
    columns = [runner.name for runner in runners]
    lines = [
        MeasureLine(
            name=one.name, values={}, words={p: format_cell(found[p][one.name]) for p in columns}
        )
        for one in scenarios
    ]
    print(markdown_table(lines, columns, titles), "\n", flush=True)
    kills = {peer.name: kill_and_resume(peer) for peer in peers}
    after = markdown_table(_kill_lines(kills), [peer.name for peer in peers], titles)
    print(after)
    if options.json:
        options.json.write_text(json.dumps({"faults": found, "kill": kills}, indent=1), "utf-8")
    if options.page:
        fill_section(PAGE, "faults", markdown_table(lines, columns, titles))
        fill_section(PAGE, "kill", after)
        fill_section(PAGE, "faults-where", machine_and_day())


def _kill_lines(kills: Mapping[str, Mapping[str, str]]) -> list[MeasureLine]:
    rows = ("kept by", "outcome", "effects", "requests", "told of the payment", "answer")
    return [
        MeasureLine(
            name=row, values={}, words={p: str(one.get(row, NONE)) for p, one in kills.items()}
        )
        for row in rows
    ]


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    main()
