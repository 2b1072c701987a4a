"""Which sessions a list shows, in which order, and where its next page begins.

Invariant: every store lists by this order, the last change of state first and then the name. A page
begins behind the last session of the page before it. The time of a session's last change only
grows, so a session that changes while the pages are turned moves to the front: it is shown at most
once in a pass, and perhaps not at all. A new pass shows it first.
"""

import base64
from collections.abc import Collection, Iterable
from typing import NamedTuple

import msgspec

from windlass.core.errors import ConfigError
from windlass.core.session_summary import SessionState, SessionSummary

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
                f"cursor={cursor!r} is not the cursor of a page: give the one of the page before, "
                "or none for the first page"
            ) from None


class SessionPage(list[SessionSummary]):
    """Some sessions of a list, and where the next page begins."""

    def __init__(self, sessions: Iterable[SessionSummary] = (), cursor: str | None = None) -> None:
        super().__init__(sessions)
        self.cursor = cursor
        """Hand it to the same query for the next page; None if this is the last one."""


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
    )


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
