"""The row of a session: what a list of sessions shows, and what it can be filtered by.

Invariant: a row is made of the state, by `row_of` alone. The writer of a session has folded its
facts before it appends them, so it hands the row to the journal with them. What open, waiting and
paused mean is said here once. Listing a thousand sessions then reads a thousand rows, while folding
them would read all of their facts.

A query says which sessions a list shows. Invariant: every store lists by one order, the last change
of state first and then the name. A page begins behind the last session of the page before it. The
time of a session's last change only grows, so a session that changes while the pages are turned
moves to the front: it is shown at most once in a pass, and perhaps not at all. A new pass shows it
first.
"""

import base64
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from decimal import Decimal
from typing import Literal, NamedTuple, get_args

import msgspec
from msgspec.structs import replace

from windlass.core.control_facts import PauseCause
from windlass.core.driver_needs import find_due
from windlass.core.errors import ConfigError
from windlass.core.events import Outcome
from windlass.core.messages import EXACT_MATH
from windlass.core.state import State

TAGS_KEY = "windlass_tags"
"""The key of a run's tags in its context, where they survive queues, forks and crashes."""
TAGS_MAX = 16
NO_TAGS: Mapping[str, str] = {}
_TAG_KEY = re.compile(r"[A-Za-z0-9._/-]{1,64}")
_TAG_VALUE = re.compile(r"[^\x00-\x1f\x7f]{0,200}")
SessionState = Literal["queued", "open", "waiting", "awaiting_budget"] | Outcome
"""How the last run of a session ended, or whether it waits for a driver, is open, waits for a
person, or waits for what other runs hold of a shared budget."""
UNFINISHED_STATES: tuple[SessionState, ...] = (
    "queued",
    "open",
    "waiting",
    "paused",
    "awaiting_budget",
)
"""The states of a session whose last run has not ended."""
ENDED_STATES: tuple[SessionState, ...] = tuple(
    outcome for outcome in get_args(Outcome) if outcome != "suspended"
)
"""The states of a session whose last run has ended."""
TRIAL_PREFIX = "eval/"
"""What the names of trials of an evaluation begin with: they are not sessions of production."""


class SessionSummary(msgspec.Struct, frozen=True):
    """What a list shows about a session. Times are seconds since the epoch."""

    session: str
    state: SessionState = "open"
    """How the last run ended, or whether it is open, paused, or waits for a person."""
    changed: float = 0.0
    """When the state last changed, which is the order of every list."""
    title: str = ""
    """The beginning of the first prompt, on one line."""
    created: float = 0.0
    updated: float = 0.0
    """When the last fact was recorded: the last activity."""
    facts: int = 0
    """How many facts the session has, which is the number of the last one."""
    runs: int = 0
    steps: int = 0
    outcome: Outcome | None = None
    """How the last run ended; None while it is open."""
    asked: int = 0
    """Calls of the open step that wait for a person's answer."""
    agent: str = ""
    """The name of the agent of the last run."""
    caller: str = ""
    """On whose behalf the last run works."""
    parent: str = ""
    """The session that this one works for, if a sub-agent has it; empty for all others."""
    tokens: int = 0
    """The tokens of all attempts, input and output together."""
    usd: Decimal | None = Decimal(0)
    """The money spent, in US dollars; None as soon as one price is not known."""
    reserved_tokens: int | None = None
    """The most tokens of the attempt that is under way; None without one."""
    reserved_usd: Decimal | None = None
    """The most that this attempt may cost; None if the price is not known."""
    pause: PauseCause | Literal[""] = ""
    """Why the run is paused, or will be once its step is over; empty if it is not."""
    released: bool = False
    """The last driver released the run without ending it."""
    tags: Mapping[str, str] = {}
    """What the starter of the last run called it: keys and values of their own."""
    due: float | None = None
    """When a driver must come although the run waits: its first question expires then, or it asks
    a shared budget again."""

    def has_state_of(self, other: "SessionSummary") -> bool:
        """Return whether only fields that every append may change differ."""
        return (
            self.state == other.state
            and self.runs == other.runs
            and self.outcome == other.outcome
            and self.pause == other.pause
            and self.released == other.released
            and self.agent == other.agent
            and self.caller == other.caller
            and self.parent == other.parent
            and self.title == other.title
            and self.tags == other.tags
            and self.due == other.due
        )

    def follow(self, before: "SessionSummary") -> "SessionSummary":
        """Return the row as it follows another one: the time of a change stays if none was made."""
        if self.has_state_of(before):
            return replace(self, changed=before.changed)
        # A clock that is set back must not move a session back in a list.
        return replace(self, changed=max(self.changed, before.changed))


def row_of(state: State) -> SessionSummary:
    """Return the row of a session in this state, as if it had just changed."""
    run = state.run
    # Until its calls are undone, the session needs a driver like one with an open run.
    outcome = None if run is None or run.undo_due else run.outcome
    attempt = run.attempt if run else None
    shown: SessionState | None = outcome
    if shown is None:
        shown = "waiting" if state.is_waiting else "paused" if state.is_paused else "open"
        if state.is_queued and shown == "open":
            shown = "queued"
        elif shown == "open" and run and run.budget_wait and state.awaits_budget:
            shown = "awaiting_budget"
    tokens, usd = _add_up(state)
    return SessionSummary(
        state.session,
        state=shown,
        changed=state.updated,
        title=state.title,
        created=state.created,
        updated=state.updated,
        facts=state.seq,
        runs=state.runs,
        steps=state.steps,
        outcome=outcome,
        asked=[call.phase for call in state.step_calls].count("asked"),
        agent=state.agent,
        caller=run.caller if run else "",
        parent=state.parent,
        tokens=tokens,
        usd=usd,
        reserved_tokens=attempt.reserved.input + attempt.reserved.output if attempt else None,
        reserved_usd=attempt.reserved.usd if attempt else None,
        pause=run.pause.cause if run and run.pause else "",
        released=run is not None and run.is_released,
        tags=run.context.get(TAGS_KEY, NO_TAGS) if run else NO_TAGS,
        due=find_due(state) if shown in ("waiting", "awaiting_budget") else None,
    )


def _add_up(state: State) -> tuple[int, Decimal | None]:
    """Return the tokens and the money of all charges; None as soon as one price is not known."""
    tokens = 0
    usd: Decimal | None = Decimal(0)
    for charge in state.ledger.charges:
        if charge.usage is not None:
            tokens += charge.usage.total
            if usd is not None and charge.usd is not None:
                usd = EXACT_MATH.add(usd, charge.usd)
            else:
                usd = None
    return tokens, usd


def check_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Return the tags of a run. Raises ConfigError if they are not short texts."""
    if not isinstance(tags, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - users need not check types
        raise ConfigError(f"tags={tags!r} is not a mapping of keys to values")
    if len(tags) > TAGS_MAX:
        raise ConfigError(f"tags= has {len(tags)} tags, and a run has at most {TAGS_MAX}")
    for key, value in tags.items():
        if not isinstance(key, str) or not _TAG_KEY.fullmatch(key):  # pyright: ignore[reportUnnecessaryIsInstance] - users need not check types
            raise ConfigError(
                f"tags= has the key {key!r}: use 1 to 64 letters, digits, dots, dashes, slashes "
                "and underscores"
            )
        if not isinstance(value, str) or not _TAG_VALUE.fullmatch(value):  # pyright: ignore[reportUnnecessaryIsInstance] - as above
            raise ConfigError(
                f"tags= has the value {value!r} for {key!r}: use a text of one line with at most "
                "200 characters"
            )
        check_text("tags", value)
    return dict(tags)


def read_tag_pairs(pairs: Iterable[str]) -> dict[str, str]:
    """Return tags that are written as KEY=VALUE. Raises ConfigError."""
    tags: dict[str, str] = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign:
            raise ConfigError(f"{pair!r} is not a tag: write it as KEY=VALUE")
        tags[key] = value
    return check_tags(tags)


def check_session(session: str) -> str:
    """Return the name of a session. Raises ConfigError if it is empty or not a str."""
    if not isinstance(session, str):  # pyright: ignore[reportUnnecessaryIsInstance] - users need not check types
        raise ConfigError(f"session={session!r}: the name of a session must be a str")
    if not session.strip():
        raise ConfigError(f"session={session!r}: the name of the session is empty")
    return check_text("session", session)


def check_text(name: str, text: str) -> str:
    """Return a text that a caller gave as `name`. Raises ConfigError if it cannot be recorded."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ConfigError(describe_half(name, error)) from None
    return text


def describe_half(name: str, error: UnicodeEncodeError) -> str:
    """Say where a text that a caller gave as `name` has half of a surrogate pair."""
    half = error.object[error.start]
    return f"{name}= cannot be recorded: it has half of a character at {error.start} ({half!r})"


PAGE_SESSIONS = 50
"""Sessions of a page, if the caller does not say how many."""
ABANDONED_SESSIONS = 100
"""Abandoned sessions of a list, if the caller does not say how many."""

StateFilter = SessionState | Collection[SessionState]
"""A state, or several of which a session must have one."""


class PagePlace(NamedTuple):
    """A place in the order of sessions: behind this one."""

    changed: float
    session: str

    @classmethod
    def of(cls, summary: SessionSummary) -> "PagePlace":
        """Return the place behind a session."""
        return cls(summary.changed, summary.session)

    def to_cursor(self) -> str:
        """Return the place as a text that a caller hands back to get the next page."""
        return base64.urlsafe_b64encode(msgspec.json.encode(tuple(self))).decode().rstrip("=")

    @classmethod
    def from_cursor(cls, cursor: str) -> "PagePlace":
        """Read a cursor; raises ConfigError if it is not one."""
        try:
            padded = cursor + "=" * (-len(cursor) % 4)
            data = base64.urlsafe_b64decode(padded)
            return cls(*msgspec.json.decode(data, type=tuple[float, str]))
        except (ValueError, msgspec.MsgspecError):
            raise ConfigError(
                f"cursor={cursor!r} is not the cursor of a page: pass the one of the page before, "
                "or none for the first page"
            ) from None


class SessionPage(list[SessionSummary]):
    """Some sessions of a list, and where the next page begins."""

    def __init__(self, sessions: Iterable[SessionSummary] = (), cursor: str | None = None) -> None:
        super().__init__(sessions)
        self.cursor = cursor
        """Hand it to the same query for the next page; None if this is the last one."""


Wanted = Callable[[SessionSummary], bool] | None
"""Chooses sessions by their rows; None takes all."""


class SessionQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What a session must be to be listed. None lets every session pass."""

    text: str = ""
    """Part of the name or of the title, in any case."""
    states: tuple[SessionState, ...] = ()
    """Empty for all states."""
    agent: str | None = None
    caller: str | None = None
    parent: str | None = None
    """The session that it works for; empty for sessions that no sub-agent has."""
    since: float | None = None
    """The earliest last change of state, in seconds since the epoch."""
    until: float | None = None
    """The last change of state was before this time."""
    prefix: str = ""
    """The beginning of the name."""
    tags: Mapping[str, str] = {}
    """Tags that the last run must have, each with this value."""
    due_by: float | None = None
    """Sessions whose run waits for a budget longer than until this time are not listed."""

    def matches(self, summary: SessionSummary) -> bool:
        """Return whether a session is listed."""
        wanted = self.text.casefold()
        return (
            wanted in f"{summary.session}\n{summary.title}".casefold()
            and summary.session.startswith(self.prefix)
            and (self.since is None or summary.changed >= self.since)
            and (self.until is None or summary.changed < self.until)
            and (not self.states or summary.state in self.states)
            and self.agent in (None, summary.agent)
            and self.caller in (None, summary.caller)
            and self.parent in (None, summary.parent)
            and self.tags.items() <= summary.tags.items()
            and (self.due_by is None or summary.due is None or summary.due <= self.due_by)
        )


def make_query(
    text: str | None = None,
    *,
    state: StateFilter | None = None,
    agent: str | None = None,
    caller: str | None = None,
    since: float | None = None,
    until: float | None = None,
    parent: str | None = None,
    tags: Mapping[str, str] | None = None,
) -> SessionQuery:
    """Return the query of these filters."""
    if state is None:
        states = ()
    else:
        states = (state,) if isinstance(state, str) else tuple(state)
    return SessionQuery(
        text=text or "",
        states=states,
        agent=agent,
        caller=caller,
        since=since,
        until=until,
        parent=parent,
        tags=tags or NO_TAGS,
    )


def query_undriven(agent: str | None, parent: str | None, now: float) -> SessionQuery:
    """Return the query of runs that need a driver: open, or due to ask a shared budget again."""
    return SessionQuery(states=("open", "awaiting_budget"), agent=agent, parent=parent, due_by=now)


def sort_sessions(summaries: Iterable[SessionSummary]) -> list[SessionSummary]:
    """Return the sessions in the order of every list: last change first, then by name."""
    return sorted(summaries, key=lambda summary: (-summary.changed, summary.session))


def cut_page(found: Iterable[SessionSummary], limit: int, place: PagePlace | None) -> SessionPage:
    """Return the page of sorted sessions that begins behind a place."""
    if place is not None:
        found = (
            summary
            for summary in found
            if (-summary.changed, summary.session) > (-place.changed, place.session)
        )
    return make_page(list(found), limit)


def make_page(found: list[SessionSummary], limit: int) -> SessionPage:
    """Return the first `limit` sessions as a page. If more were found, it has a cursor."""
    page = found[:limit]
    cursor = PagePlace.of(page[-1]).to_cursor() if page and len(found) > limit else None
    return SessionPage(page, cursor)


def find_tree(root: str, summaries: Iterable[SessionSummary]) -> list[str]:
    """Return the names of all sessions that work for a session, directly or through others."""
    children: dict[str, list[str]] = {}
    for summary in summaries:
        children.setdefault(summary.parent, []).append(summary.session)
    found: list[str] = []
    waiting = [root]
    while waiting:
        below = [name for name in children.pop(waiting.pop(), []) if name != root]
        found += below
        waiting += below
    return found


def list_roots(summaries: Iterable[SessionSummary]) -> list[SessionSummary]:
    """Return the sessions that work for none of the others, in the same order."""
    listed = list(summaries)
    names = {summary.session for summary in listed}
    return [summary for summary in listed if summary.parent not in names]
