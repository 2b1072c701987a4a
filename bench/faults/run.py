"""What becomes of a run when the wire or the machine fails: `make bench-faults`.

Windlass and its peers, each with its defaults and its streaming interface, against the same
scripted faults over real HTTP; and a kill in the middle of an effect. A watchdog bounds everything.
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

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "peers"))

from contestant import Contestant, Silent
from kill import kill_and_resume
from lines import NONE, Line, table
from page import fill
from roster import PEERS, ROOT, WINDLASS, Peer, chosen
from scenarios import EXPECTED, SCENARIOS, FaultScenario, right_answer, script_answers
from titles import titles_of, where

from windlass.testing.fault_server import FaultServer, serve_in_thread

WATCHDOG_S = 200.0
PAGE = ROOT / "docs" / "peers.md"
UNWATCHED = "windlass, unwatched"
BY_CALL = {"smolagents"}
"""Its answer is a call; the text beside it is thinking aloud, and may come again."""


@dataclass(frozen=True, slots=True)
class FaultRunner:
    """A contestant, in one way of running it."""

    name: str
    peer: Peer
    watched: bool = True


def name_outcome(scenario: FaultScenario, answer: Mapping[str, Any], *, watched: bool) -> str:
    """One word for what happened, and what it was if it is not what it should be."""
    error = answer.get("error")
    ran = tuple(answer.get("arguments", ()))
    if scenario.calls is not None and set(ran) - set(scenario.calls):
        return f"WRONG: ran with {', '.join(ran)}"
    if error:
        clear = scenario.is_clear(error["type"], error["message"])
        return "clear error" if clear else f"UNCLEAR: {error['type']}"
    text, seen = answer["text"], answer["seen"]
    if text != EXPECTED:
        return "as if whole" if scenario.cut else f"WRONG: {text!r}"
    if scenario.calls and len(set(ran)) != len(scenario.calls):
        return (
            "calls refused, told"
            if answer["told"]
            else f"CALLS LOST: ran {', '.join(ran) or 'none'}"
        )
    if watched and seen != EXPECTED:
        return "TEXT TWICE" if seen.endswith(EXPECTED) else f"WRONG: showed {seen!r}"
    return "right"


def _was_told_of_calls(server: FaultServer) -> bool:
    """Whether the model was told in the last request that something was wrong with its calls."""
    since = json.dumps(server.requests[-1].json["messages"][2:])
    return bool(re.search("error|invalid|fail|not exist|not found|unknown", since, re.IGNORECASE))


def warm_process(runner: FaultRunner, folder: str) -> Contestant:
    """A process that has run once, against a server without faults: what follows is no start-up."""
    one = Contestant(runner.peer, BENCH_EFFECTS=str(Path(folder) / "effects"))
    server = FaultServer(always=right_answer)
    with serve_in_thread(server):
        answer = one.ask("run", WATCHDOG_S, order={"url": server.url})
    if answer["error"] or answer["text"] != EXPECTED:
        raise SystemExit(f"{runner.name} fails without a fault: {answer}")
    return one


def play_scenarios(
    runner: FaultRunner, scenarios: Sequence[FaultScenario], within_s: float
) -> dict[str, Any]:
    """The scenarios one after the other; a contestant that hangs is replaced."""
    found: dict[str, Any] = {}
    one: Contestant | None = None
    with tempfile.TemporaryDirectory() as folder:
        for scenario in scenarios:
            one = one or warm_process(runner, folder)
            server = FaultServer(always=script_answers(scenario))
            order = {"watched": runner.watched, "steps": 8}
            with serve_in_thread(server):
                try:
                    answer = one.ask("run", within_s, order={"url": server.url, **order})
                    answer["told"] = _was_told_of_calls(server)
                    word = name_outcome(scenario, answer, watched=runner.watched)
                except Silent as silent:
                    answer, word = {"wall_s": within_s}, f"HANG: {silent}"
                    one.kill()
                    one = None
            row = {"outcome": word, "s": answer["wall_s"], "requests": len(server.requests)}
            found[scenario.name] = row | {"answer": answer}
    if one is not None:
        one.kill()
    return found


def run_all(
    runners: Sequence[FaultRunner], scenarios: Sequence[FaultScenario], within_s: float
) -> dict:
    """All contestants, the slow scenarios side by side, since they only wait."""
    quick = [one for one in scenarios if not one.slow]
    slow = [one for one in scenarios if one.slow]
    with ThreadPoolExecutor(64) as pool:
        waiting = [
            (runner.name, pool.submit(play_scenarios, runner, [one], within_s))
            for runner in runners
            for one in slow
        ]
        found: dict[str, dict[str, Any]] = {runner.name: {} for runner in runners}
        # Two at a time: the machine may be small, and no scenario is about speed.
        with ThreadPoolExecutor(2) as narrow:
            done = narrow.map(lambda runner: play_scenarios(runner, quick, within_s), runners)
            for runner, some in zip(runners, done, strict=True):
                found[runner.name].update(some)
        for name, one in waiting:
            found[name].update(one.result())
    return found


def format_cell(row: Mapping[str, Any]) -> str:
    """The outcome, with the time where it is long."""
    word, colon, rest = row["outcome"].partition(":")
    if word == "HANG":
        return f"**HANG** (over {row['s']:.0f} s)"
    late = f" after {row['s']:.0f} s" if row["s"] >= 10 else ""
    return (f"**{word}**" if word.isupper() else word) + colon + rest + late


def main() -> None:
    parser = argparse.ArgumentParser(description="What becomes of a run when the wire fails.")
    parser.add_argument("--quick", action="store_true", help="leave out the silences")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all answers there")
    parser.add_argument("--page", action="store_true", help="put the tables into the docs")
    names = [peer.name for peer in PEERS]
    parser.add_argument("--peers", nargs="*", choices=names, metavar="PEER", default=names)
    parser.add_argument("--only", nargs="+", metavar="SCENARIO", help="these scenarios alone")
    asked = parser.parse_args()
    peers = chosen(asked.peers or ["none"])
    scenarios = [one for one in SCENARIOS if not (asked.quick and one.slow)]
    if asked.only:
        scenarios = [one for one in scenarios if one.name in asked.only]
    runners = [FaultRunner(peer.name, peer, watched=peer.name not in BY_CALL) for peer in peers]
    runners.insert(1, FaultRunner(UNWATCHED, WINDLASS, watched=False))
    found = run_all(runners, scenarios, WATCHDOG_S)
    titles = titles_of(peers) | {UNWATCHED: "the same, unwatched"}
    columns = [runner.name for runner in runners]
    lines = [
        Line(name=one.name, values={}, words={p: format_cell(found[p][one.name]) for p in columns})
        for one in scenarios
    ]
    print(table(lines, columns, titles), "\n", flush=True)
    kills = {peer.name: kill_and_resume(peer) for peer in peers}
    after = table(_kill_lines(kills), [peer.name for peer in peers], titles)
    print(after)
    if asked.json:
        asked.json.write_text(json.dumps({"faults": found, "kill": kills}, indent=1), "utf-8")
    if asked.page:
        fill(PAGE, "faults", table(lines, columns, titles))
        fill(PAGE, "kill", after)
        fill(PAGE, "faults-where", where())


def _kill_lines(kills: Mapping[str, Mapping[str, str]]) -> list[Line]:
    rows = ("kept by", "outcome", "effects", "requests", "told of the payment", "answer")
    return [
        Line(name=row, values={}, words={p: str(one.get(row, NONE)) for p, one in kills.items()})
        for row in rows
    ]


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    main()
