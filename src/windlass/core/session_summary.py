"""The row of a session: what a list of sessions shows, and what it can be filtered by.

Invariant: a row is made of the state, by `row_of` alone. The writer of a session has folded its
facts before it appends them, so it hands the row to the journal with them. What open, waiting and
paused mean is said here once. Listing a thousand sessions then reads a thousand rows, while folding
them would read all of their facts.
"""

from decimal import Decimal
from typing import Literal, get_args

import msgspec
from msgspec.structs import replace

from windlass.core.control_facts import PauseCause
from windlass.core.errors import ConfigError
from windlass.core.events import Outcome
from windlass.core.messages import EXACT_MATH
from windlass.core.state import State

SessionState = Literal["open", "waiting"] | Outcome
"""How the last run of a session ended, or whether it is open or waits for a person."""
UNFINISHED_STATES: tuple[SessionState, ...] = ("open", "waiting", "paused")
"""The states of a session whose last run has not ended."""
ENDED_STATES: tuple[SessionState, ...] = tuple(
    outcome for outcome in get_args(Outcome) if outcome != "suspended"
)
"""The states of a session whose last run has ended."""


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

    def has_state_of(self, other: "SessionSummary") -> bool:
        """Return whether nothing differs but what each append may change."""
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
    tokens, usd = _add_up(state)
    return SessionSummary(
        state.session,
        state=outcome or _open_state(state),
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
    )


def _open_state(state: State) -> SessionState:
    """Return the state of a session whose last run has not ended."""
    if state.is_waiting:
        return "waiting"
    return "paused" if state.is_paused else "open"


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
            raise ConfigError(
                f"{name}= cannot be recorded: it has half of a character at {error.start} "
                f"({text[error.start]!r})"
            ) from None
    return text
