"""What is measured: the same work for everyone, in turn, so that the weather strikes all alike."""

import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from copy import copy
from statistics import median
from typing import Any

from contestant import Contestant, Silent, contestant
from lines import Line, exponent
from roster import Peer
from server import ANSWER, WORD, Server

Answers = dict[str, list[dict[str, Any]]]
BOUND_S = 240.0
"""Past this, everything is done once more at the most: the whole must end in twelve minutes."""
CROWD_S = 40.0
"""Who would take longer than this for a crowd is left out of it, and the table says so."""
SLOW_S = 100.0
"""Longer than this for one job, and a contestant is given no more of its kind."""


class Course:
    """The contestants, warm, and what became of them."""

    def __init__(self, peers: Sequence[Peer], server: Server) -> None:
        self.peers = peers
        self.server = server
        self.failures: dict[str, str] = {}
        self._until = time.monotonic() + BOUND_S
        self._warm: dict[str, Contestant] = {}

    def warm(self, peer: Peer) -> Contestant:
        """A process that lives on and has run before."""
        if peer.name not in self._warm:
            self._warm[peer.name] = Contestant(peer)
            for kind, count in (("text", 20), ("calls", 3)):
                order = {"url": self.server.url(kind, count)}
                self._warm[peer.name].ask("run", SLOW_S, order=order)
        return self._warm[peer.name]

    def close(self) -> None:
        for one in self._warm.values():
            one.kill()

    def without(self, names: Collection[str]) -> "Course":
        """The same course with fewer contestants."""
        narrow = copy(self)
        narrow.peers = [peer for peer in self.peers if peer.name not in names]
        return narrow

    def each(self, what: str, rounds: int, ask: Callable[[Peer], dict[str, Any]]) -> Answers:
        """The answers of everyone, round by round. Who fails is named, and left out from there."""
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
                    found[peer.name].append(_sound(ask(peer)))
                except (Silent, Wrong) as failed:
                    self.failures[f"{what}, {peer.name}"] = str(failed)
                    out.add(peer.name)
                    if peer.name in self._warm:
                        self._warm.pop(peer.name).kill()
                if time.monotonic() - began > SLOW_S / 4:
                    out.add(peer.name)
        return found


class Wrong(Exception):
    """The work was not done."""


def _sound(answer: dict[str, Any]) -> dict[str, Any]:
    if answer.get("error"):
        raise Wrong(f"{answer['error']['type']}: {answer['error']['message']}")
    return answer


def middle(answers: Answers, key: str, scale: float = 1.0) -> dict[str, float | None]:
    return {
        name: median(one[key] for one in some) * scale if some else None
        for name, some in answers.items()
    }


def start(course: Course, rounds: int) -> list[Line]:
    """From nothing to an agent, and to the end of its first reply."""

    def ask(peer: Peer) -> dict[str, Any]:
        with contestant(peer) as fresh:
            return fresh.ask("ready", SLOW_S, order={"url": course.server.url("text", 1)})

    found = course.each("start", rounds, ask)
    return [
        Line(name="import and build an agent", unit="ms CPU", values=middle(found, "cpu_s", 1e3)),
        Line(name="memory then", unit="MB", values=middle(found, "rss_kb", 1 / 1024)),
        Line(name="to the first reply", unit="ms CPU", values=middle(found, "first_cpu_s", 1e3)),
        Line(name="memory then", unit="MB", values=middle(found, "first_rss_kb", 1 / 1024)),
    ]


def deltas(course: Course, count: int, apart: int, rounds: int) -> list[Line]:
    """A reply in many pieces, each handed to whoever watches."""

    def ask(peer: Peer, kind: tuple[int, int]) -> dict[str, Any]:
        order = {"url": course.server.url("text", *kind)}
        answer = course.warm(peer).ask("run", SLOW_S, order=order)
        if not answer["error"] and answer["shown"] != kind[0] * len(WORD):
            raise Wrong(f"{answer['shown']} of {kind[0] * len(WORD)} characters were shown")
        return answer

    lines: list[Line] = []
    for size, wait_ms, manner in (
        (count, 0, "in a burst"),
        (apart, 2, "that come 2 ms apart"),
    ):
        name = f"streamed delta, of {size:,} {manner}"
        found = course.each(name, rounds, lambda p, k=(size, wait_ms): ask(p, k))
        lines.append(Line(name=name, unit="µs CPU", values=middle(found, "cpu_s", 1e6 / size)))
    return lines


def steps(course: Course, lengths: Sequence[int], rounds: int) -> list[Line]:
    """Runs of several lengths: each step is a reply with one call, and its result."""
    sent: dict[str, float | None] = {}

    def ask(peer: Peer, length: int, times: int) -> dict[str, Any]:
        one = course.warm(peer)
        course.server.counted()
        order = {"url": course.server.url("calls", length)}
        answer = _finished(one.ask("run", SLOW_S, order=order, times=times))
        if answer["ran"] != length * times:
            raise Wrong(f"{answer['ran']} of {length * times} calls were run")
        sent[peer.name] = course.server.counted().body_bytes / times / 1024
        return answer

    lines: list[Line] = []
    totals: dict[str, list[float]] = {}
    for length in lengths:
        times = max(1, 50 // length)
        name = f"step, of {length}"
        # What grows with the square takes most of the time: the longest is run less often.
        often = rounds if length < 100 else 2
        found = course.each(name, often, lambda p, n=length, t=times: ask(p, n, t))
        values = middle(found, "cpu_s", 1e3 / length / times)
        for peer, value in values.items():
            totals.setdefault(peer, []).extend([] if value is None else [value * length])
        lines.append(Line(name=name, unit="ms CPU", values=values))
    grown = {p: exponent(lengths, t) for p, t in totals.items() if len(t) == len(lengths)}
    name = f"growth of the total, {lengths[0]} to {lengths[-1]} steps (1: in step)"
    lines.append(Line(name=name, values=grown, ratio=False))
    lines.append(Line(name=f"sent in {lengths[-1]} steps", unit="kB", values=sent))
    return lines


def many(course: Course, count: int, rounds: int) -> list[Line]:
    """One reply with many calls that wait 50 ms each."""
    lines: list[Line] = []
    for wide, manner in ((False, "as it comes"), (True, "as many at once as asked for")):

        def ask(peer: Peer, wide: bool = wide) -> dict[str, Any]:  # noqa: FBT001
            order = {"url": course.server.url("many", count), "wide": wide}
            return _finished(course.warm(peer).ask("run", SLOW_S, order=order))

        name = f"{count} calls of 50 ms in one reply, {manner}"
        found = course.each(name, rounds, ask)
        widest = middle(found, "at_once")
        words = {p: f"[{n:.0f} at once]" for p, n in widest.items() if n}
        wall = middle(found, "wall_s", 1e3)
        lines.append(Line(name=name, unit="ms", values=wall, words=words))
        lines.append(Line(name="the same", unit="ms CPU", values=middle(found, "cpu_s", 1e3)))
    return lines


def crowd(course: Course, sizes: Sequence[tuple[int, int]]) -> list[Line]:
    """Many runs at once, each of three replies that come after 50 ms, in a fresh process."""
    lines: list[Line] = []
    took: dict[str, float | None] = {}
    before = 0
    for runs, rounds in sizes:
        # Who is slow already is not asked for more.
        slow = {p: s for p, s in took.items() if s and s * runs / before > CROWD_S}
        words = {p: f"left out: {before:,} took {s:.0f} s" for p, s in slow.items()}
        narrow = course.without(slow)
        most: dict[str, float] = {}
        name = f"run, of {runs:,} at once, 3 replies"
        found = narrow.each(name, rounds, lambda p, n=runs, m=most: _crowd(course, p, n, m))
        each, took = middle(found, "cpu_s", 1e3 / runs), middle(found, "wall_s")
        memory, before = middle(found, "peak_kb", 1 / runs), runs
        lines += [
            Line(name=name, unit="ms CPU", values=each, words=words),
            Line(name=f"all {runs:,}", unit="s", values=took),
            Line(name=f"memory, each of {runs:,}", unit="kB", values=memory),
            Line(name="requests at once, at the most", values=most, ratio=False),
        ]
    return lines


def _crowd(course: Course, peer: Peer, runs: int, most: dict[str, float]) -> dict[str, Any]:
    order = {"url": course.server.url("calls", 2, 50)}
    with contestant(peer) as fresh:
        course.server.counted()
        answer = fresh.ask("crowd", SLOW_S, order=order, runs=runs)
    most[peer.name] = course.server.counted().at_once
    if answer["lost"]:
        why = answer["why"]
        raise Wrong(f"{answer['lost']} of {runs} failed: {why['type']}: {why['message']}")
    return answer


def cancel(course: Course, rounds: int, within_s: float) -> list[Line]:
    """The model has begun to speak and is silent; then the run is cancelled."""
    closed: dict[str, list[float]] = {}

    def ask(peer: Peer) -> dict[str, Any]:
        with contestant(peer) as fresh:
            course.server.counted()
            order = {"url": course.server.url("hush", 3)}
            answer = fresh.ask("cancel", within_s + SLOW_S, order=order, within_s=within_s)
            time.sleep(0.5)
            left = course.server.counted().left_at
        if answer.get("took_s") is None:
            raise Silent(f"no control within {within_s:g} s")
        closed.setdefault(peer.name, []).extend((left[0] - answer["at"]) * 1e3 for _ in left[:1])
        return answer

    found = course.each("cancel", rounds, ask)
    late = {peer: f"not within {within_s:g} s" for peer, some in found.items() if not some}
    how = {peer: f"[{some[0]['how']}]" for peer, some in found.items() if some}
    shut = {p: median(closed[p]) if closed.get(p) else None for p in found}
    unshut = {p: late.get(p, "not within 0.5 s") for p in found if not closed.get(p)}
    took = middle(found, "took_s", 1e3)
    return [
        Line(name="from cancel to control", unit="ms", values=took, words=late, ratio=False),
        Line(name="how it says so", values=dict.fromkeys(found), words=how | late),
        Line(
            name="from cancel to a closed connection",
            unit="ms",
            values=shut,
            words=unshut,
            ratio=False,
        ),
    ]


def durable(course: Course, lengths: Sequence[int], rounds: int) -> list[Line]:
    """The same steps, kept on disk by what the peer has for it."""
    narrow = course.without({peer.name for peer in course.peers} - set(STORES))

    def ask(peer: Peer, length: int) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            order = {"url": course.server.url("calls", length), "store": folder}
            return _finished(course.warm(peer).ask("run", SLOW_S, order=order))

    lines: list[Line] = []
    wrote: dict[str, list[float]] = {}
    for length in lengths:
        name = f"durable step, of {length}"
        often = rounds if length < 100 else 2
        found = narrow.each(name, often, lambda p, n=length: ask(p, n))
        lines.append(Line(name=name, unit="ms CPU", values=middle(found, "cpu_s", 1e3 / length)))
        written = middle(found, "wrote", 1 / 1024 / length)
        for peer, value in written.items():
            wrote.setdefault(peer, []).extend([] if value is None else [value * length])
        lines.append(Line(name="written for each", unit="kB", values=written))
    wall = Line(
        name=f"wall time of a durable step, of {lengths[-1]}",
        unit="ms",
        values=middle(found, "wall_s", 1e3 / lengths[-1]),
    )
    grown = {p: exponent(lengths, t) for p, t in wrote.items() if len(t) == len(lengths)}
    name = f"growth of what is written, {lengths[0]} to {lengths[-1]} steps (1: in step)"
    stores = Line(name="kept by", values={}, words=STORES)
    return [stores, *lines, wall, Line(name=name, values=grown, ratio=False)]


STORES = {
    "windlass": "SqliteJournal",
    "pydantic-ai": "DBOS on SQLite",
    "openai-agents": "SQLiteSession",
    "langgraph": "AsyncSqliteSaver",
    "strands": "FileSessionManager (JSON files)",
}


def _finished(answer: dict[str, Any]) -> dict[str, Any]:
    if not answer["error"] and answer["text"] != ANSWER:
        raise Wrong(f"ended with {answer['text']!r}")
    return answer
