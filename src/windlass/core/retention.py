"""How long sessions are kept once they have ended: by the state they ended in, and by agent."""

from collections.abc import Mapping

import msgspec

from windlass.core.session_summary import ENDED_STATES, SessionState, SessionSummary


class Retention(msgspec.Struct, frozen=True):
    """How long the sessions of an agent are kept, in seconds; None means for ever."""

    seconds: float | None = None
    by_state: Mapping[SessionState, float | None] = {}
    """For sessions that ended so, instead."""


class RetentionRules(msgspec.Struct, frozen=True):
    """How long all sessions of a journal are kept."""

    default: Retention = Retention()
    agents: Mapping[str, Retention] = {}
    """By the name that is recorded with the runs of an agent, instead."""

    def find_kept_s(self, session: SessionSummary) -> float | None:
        """Return how long a session is kept after its last change; None means for ever."""
        rule = self.agents.get(session.agent, self.default)
        return rule.by_state.get(session.state, rule.seconds)

    def is_due(self, session: SessionSummary, now: float) -> bool:
        """Whether a session has ended, and its time is over."""
        kept_s = self.find_kept_s(session)
        has_ended = session.state in ENDED_STATES
        return has_ended and kept_s is not None and session.changed < now - kept_s

    @property
    def shortest_s(self) -> float | None:
        """The shortest time that any session is kept; None if all are kept for ever."""
        rules = (self.default, *self.agents.values())
        times = [time for rule in rules for time in (rule.seconds, *rule.by_state.values())]
        return min((time for time in times if time is not None), default=None)
