"""The measures: the same work for every peer, in turn, so that slow moments affect all alike."""

import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from copy import copy
from statistics import median
from typing import Any

from contestant import ContestantProcess, ContestantSilent, start_contestant
from lines import MeasureLine, growth_exponent
from roster import Peer
from server import ANSWER, WORD, PeerServer

Answers = dict[str, list[dict[str, Any]]]
BOUND_S = 240.0
"""After this time each measure makes one round only, so that everything ends in twelve minutes."""
CROWD_S = 40.0
"""A peer that would take longer for a crowd is left out of it, and the table says so."""
SLOW_S = 100.0
"""The time limit of one job."""


class PeerCourse:
    """The contestants with their warm processes, and their failures."""

    def __init__(self, peers: Sequence[Peer], server: PeerServer) -> None:
        self.peers = peers
        self.server = server
        self.failures: dict[str, str] = {}
        self._until = time.monotonic() + BOUND_S
        self._warm: dict[str, ContestantProcess] = {}

    def warm_process(self, peer: Peer) -> ContestantProcess:
        """Return a process that is kept and has run before."""
        if peer.name not in self._warm:
            self._warm[peer.name] = ContestantProcess(peer)
            for kind, count in (("text", 20), ("calls", 3)):
                order = {"url": self.server.url(kind, count)}
                self._warm[peer.name].ask("run", SLOW_S, order=order)
        return self._warm[peer.name]

    def close(self) -> None:
        for process in self._warm.values():
            process.kill()

    def without_peers(self, names: Collection[str]) -> "PeerCourse":
        """Return the same course with fewer contestants."""
        narrow = copy(self)
        narrow.peers = [peer for peer in self.peers if peer.name not in names]
        return narrow

    def ask_each(self, what: str, rounds: int, ask: Callable[[Peer], dict[str, Any]]) -> Answers:
        """Return the answers of all peers. One that fails is recorded, and left out from there."""
        found: Answers = {peer.name: [] for peer in self.peers}
        out: set[str] = set()
        for at in range(rounds):
            if at > 0 and time.monotonic() > self._until:
                break
            for peer in self.peers:
                if peer.name in out:
                    continue
                began = time.monotonic()
                try:
                    found[peer.name].append(_check_answer(ask(peer)))
                except (ContestantSilent, WorkNotDone) as failed:
                    self.failures[f"{what}, {peer.name}"] = str(failed)
                    out.add(peer.name)
                    if peer.name in self._warm:
                        self._warm.pop(peer.name).kill()
                if time.monotonic() - began > SLOW_S / 4:
                    out.add(peer.name)
        return found


class WorkNotDone(Exception):
    """The work was not done."""


def _check_answer(answer: dict[str, Any]) -> dict[str, Any]:
    if answer.get("error"):
        raise WorkNotDone(f"{answer['error']['type']}: {answer['error']['message']}")
    return answer


def median_of(answers: Answers, key: str, scale: float = 1.0) -> dict[str, float | None]:
    return {
        name: median(one[key] for one in some) * scale if some else None
        for name, some in answers.items()
    }


def measure_start(course: PeerCourse, rounds: int) -> list[MeasureLine]:
    """Measure from the start of a process to an agent, and to the end of its first reply."""

    def ask(peer: Peer) -> dict[str, Any]:
        with start_contestant(peer) as fresh:
            return fresh.ask("ready", SLOW_S, order={"url": course.server.url("text", 1)})

    found = course.ask_each("start", rounds, ask)
    return [
        MeasureLine(
            name="import and build an agent", unit="ms CPU", values=median_of(found, "cpu_s", 1e3)
        ),
        MeasureLine(name="memory then", unit="MB", values=median_of(found, "rss_kb", 1 / 1024)),
        MeasureLine(
            name="to the first reply", unit="ms CPU", values=median_of(found, "first_cpu_s", 1e3)
        ),
        MeasureLine(
            name="memory then", unit="MB", values=median_of(found, "first_rss_kb", 1 / 1024)
        ),
    ]


def measure_deltas(course: PeerCourse, count: int, apart: int, rounds: int) -> list[MeasureLine]:
    """Measure a reply in many pieces, each passed to a watcher."""

    def ask(peer: Peer, kind: tuple[int, int]) -> dict[str, Any]:
        order = {"url": course.server.url("text", *kind)}
        answer = course.warm_process(peer).ask("run", SLOW_S, order=order)
        if not answer["error"] and answer["shown"] != kind[0] * len(WORD):
            raise WorkNotDone(f"{answer['shown']} of {kind[0] * len(WORD)} characters were shown")
        return answer

    lines: list[MeasureLine] = []
    for size, wait_ms, manner in (
        (count, 0, "in a burst"),
        (apart, 2, "that come 2 ms apart"),
    ):
        name = f"streamed delta, of {size:,} {manner}"
        found = course.ask_each(name, rounds, lambda p, k=(size, wait_ms): ask(p, k))
        lines.append(
            MeasureLine(name=name, unit="µs CPU", values=median_of(found, "cpu_s", 1e6 / size))
        )
    return lines


def measure_steps(course: PeerCourse, lengths: Sequence[int], rounds: int) -> list[MeasureLine]:
    """Measure runs of several lengths. Each step is a reply with one call, and its result."""
    sent: dict[str, float | None] = {}

    def ask(peer: Peer, length: int, times: int) -> dict[str, Any]:
        one = course.warm_process(peer)
        course.server.take_counts()
        order = {"url": course.server.url("calls", length)}
        answer = _check_finished(one.ask("run", SLOW_S, order=order, times=times))
        if answer["ran"] != length * times:
            raise WorkNotDone(f"{answer['ran']} of {length * times} calls were run")
        sent[peer.name] = course.server.take_counts().body_bytes / times / 1024
        return answer

    lines: list[MeasureLine] = []
    totals: dict[str, list[float]] = {}
    for length in lengths:
        times = max(1, 50 // length)
        name = f"step, of {length}"
        # Quadratic growth makes the longest run take most of the time, so it has fewer rounds.
        often = rounds if length < 100 else 2
        found = course.ask_each(name, often, lambda p, n=length, t=times: ask(p, n, t))
        values = median_of(found, "cpu_s", 1e3 / length / times)
        for peer, value in values.items():
            totals.setdefault(peer, []).extend([] if value is None else [value * length])
        lines.append(MeasureLine(name=name, unit="ms CPU", values=values))
    grown = {p: growth_exponent(lengths, t) for p, t in totals.items() if len(t) == len(lengths)}
    name = f"growth of the total, {lengths[0]} to {lengths[-1]} steps (1: in step)"
    lines.append(MeasureLine(name=name, values=grown, ratio=False))
    lines.append(MeasureLine(name=f"sent in {lengths[-1]} steps", unit="kB", values=sent))
    return lines


def measure_many_calls(course: PeerCourse, count: int, rounds: int) -> list[MeasureLine]:
    """Measure one reply with many calls that wait 50 ms each."""
    lines: list[MeasureLine] = []
    for wide, manner in ((False, "as it comes"), (True, "as many at once as asked for")):

        def ask(peer: Peer, wide: bool = wide) -> dict[str, Any]:  # noqa: FBT001
            order = {"url": course.server.url("many", count), "wide": wide}
            return _check_finished(course.warm_process(peer).ask("run", SLOW_S, order=order))

        name = f"{count} calls of 50 ms in one reply, {manner}"
        found = course.ask_each(name, rounds, ask)
        widest = median_of(found, "at_once")
        words = {p: f"[{n:.0f} at once]" for p, n in widest.items() if n}
        wall = median_of(found, "wall_s", 1e3)
        lines.append(MeasureLine(name=name, unit="ms", values=wall, words=words))
        lines.append(
            MeasureLine(name="the same", unit="ms CPU", values=median_of(found, "cpu_s", 1e3))
        )
    return lines


def measure_crowd(course: PeerCourse, sizes: Sequence[tuple[int, int]]) -> list[MeasureLine]:
    """Measure many runs at once in a fresh process, each with three replies after 50 ms."""
    lines: list[MeasureLine] = []
    took: dict[str, float | None] = {}
    before = 0
    for runs, rounds in sizes:
        # A peer that is slow already is left out of the larger crowd.
        slow = {p: s for p, s in took.items() if s and s * runs / before > CROWD_S}
        words = {p: f"left out: {before:,} took {s:.0f} s" for p, s in slow.items()}
        narrow = course.without_peers(slow)
        most: dict[str, float] = {}
        name = f"run, of {runs:,} at once, 3 replies"
        found = narrow.ask_each(name, rounds, lambda p, n=runs, m=most: _ask_crowd(course, p, n, m))
        each = median_of(found, "cpu_s", 1e3 / runs)
        took = median_of(found, "wall_s")
        memory = median_of(found, "peak_kb", 1 / runs)
        before = runs
        lines += [
            MeasureLine(name=name, unit="ms CPU", values=each, words=words),
            MeasureLine(name=f"all {runs:,}", unit="s", values=took),
            MeasureLine(name=f"memory, each of {runs:,}", unit="kB", values=memory),
            MeasureLine(name="requests at once, at the most", values=most, ratio=False),
        ]
    return lines


def _ask_crowd(course: PeerCourse, peer: Peer, runs: int, most: dict[str, float]) -> dict[str, Any]:
    order = {"url": course.server.url("calls", 2, 50)}
    with start_contestant(peer) as fresh:
        course.server.take_counts()
        answer = fresh.ask("crowd", SLOW_S, order=order, runs=runs)
    most[peer.name] = course.server.take_counts().at_once
    if answer["lost"]:
        why = answer["why"]
        raise WorkNotDone(f"{answer['lost']} of {runs} failed: {why['type']}: {why['message']}")
    return answer


def measure_cancel(course: PeerCourse, rounds: int, within_s: float) -> list[MeasureLine]:
    """Measure a cancel after the model has begun a reply and fallen silent."""
    closed: dict[str, list[float]] = {}

    def ask(peer: Peer) -> dict[str, Any]:
        with start_contestant(peer) as fresh:
            course.server.take_counts()
            order = {"url": course.server.url("hush", 3)}
            answer = fresh.ask("cancel", within_s + SLOW_S, order=order, within_s=within_s)
            time.sleep(0.5)
            left = course.server.take_counts().left_at
        if answer.get("took_s") is None:
            raise ContestantSilent(f"no control within {within_s:g} s")
        closed.setdefault(peer.name, []).extend((left[0] - answer["at"]) * 1e3 for _ in left[:1])
        return answer

    found = course.ask_each("cancel", rounds, ask)
    late = {peer: f"not within {within_s:g} s" for peer, some in found.items() if not some}
    how = {peer: f"[{some[0]['how']}]" for peer, some in found.items() if some}
    shut = {p: median(closed[p]) if closed.get(p) else None for p in found}
    unshut = {p: late.get(p, "not within 0.5 s") for p in found if not closed.get(p)}
    took = median_of(found, "took_s", 1e3)
    return [
        MeasureLine(name="from cancel to control", unit="ms", values=took, words=late, ratio=False),
        MeasureLine(name="how it says so", values=dict.fromkeys(found), words=how | late),
        MeasureLine(
            name="from cancel to a closed connection",
            unit="ms",
            values=shut,
            words=unshut,
            ratio=False,
        ),
    ]


def measure_durable(course: PeerCourse, lengths: Sequence[int], rounds: int) -> list[MeasureLine]:
    """Measure the same steps with the durable store that the peer has."""
    narrow = course.without_peers({peer.name for peer in course.peers} - set(STORES))

    def ask(peer: Peer, length: int) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            order = {"url": course.server.url("calls", length), "store": folder}
            return _check_finished(course.warm_process(peer).ask("run", SLOW_S, order=order))

    lines: list[MeasureLine] = []
    wrote: dict[str, list[float]] = {}
    for length in lengths:
        name = f"durable step, of {length}"
        often = rounds if length < 100 else 2
        found = narrow.ask_each(name, often, lambda p, n=length: ask(p, n))
        lines.append(
            MeasureLine(name=name, unit="ms CPU", values=median_of(found, "cpu_s", 1e3 / length))
        )
        written = median_of(found, "wrote", 1 / 1024 / length)
        for peer, value in written.items():
            wrote.setdefault(peer, []).extend([] if value is None else [value * length])
        lines.append(MeasureLine(name="written for each", unit="kB", values=written))
    wall = MeasureLine(
        name=f"wall time of a durable step, of {lengths[-1]}",
        unit="ms",
        values=median_of(found, "wall_s", 1e3 / lengths[-1]),
    )
    grown = {p: growth_exponent(lengths, t) for p, t in wrote.items() if len(t) == len(lengths)}
    name = f"growth of what is written, {lengths[0]} to {lengths[-1]} steps (1: in step)"
    stores = MeasureLine(name="kept by", values={}, words=STORES)
    return [stores, *lines, wall, MeasureLine(name=name, values=grown, ratio=False)]


STORES = {
    "windlass": "SqliteJournal",
    "pydantic-ai": "DBOS on SQLite",
    "openai-agents": "SQLiteSession",
    "langgraph": "AsyncSqliteSaver",
    "strands": "FileSessionManager (JSON files)",
}


def _check_finished(answer: dict[str, Any]) -> dict[str, Any]:
    if not answer["error"] and answer["text"] != ANSWER:
        raise WorkNotDone(f"ended with {answer['text']!r}")
    return answer
