"""A session in a reply: what every list and every stream says of it."""

from decimal import Decimal
from urllib.parse import quote

import msgspec

from windlass.core.session_summary import SessionState, SessionSummary


class SessionReply(msgspec.Struct, frozen=True):
    """A session in a list."""

    session: str
    title: str
    state: SessionState
    agent: str
    owner: str
    created: float
    updated: float
    seq: int
    runs: int
    steps: int
    tokens: int
    usd: Decimal | None
    parent: str = ""


def session_reply(summary: SessionSummary, owner: str | None = None) -> SessionReply:
    """Return what a list shows of a session."""
    return SessionReply(
        session=summary.session,
        title=summary.title,
        state=summary.state,
        agent=summary.agent,
        owner=summary.caller if owner is None else owner,
        created=summary.created,
        updated=summary.updated,
        seq=summary.facts,
        runs=summary.runs,
        steps=summary.steps,
        tokens=summary.tokens,
        usd=summary.usd,
        parent=summary.parent,
    )


def session_address(session: str) -> str:
    """Return the path of a session, whatever its name contains."""
    return f"/runs/{quote(session, safe='')}"
