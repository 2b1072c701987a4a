"""The states of sessions that were folded lately, so that nobody reads a whole session twice.

The law: the journal decides. A cached state counts only if the journal still goes on from its last
fact; otherwise the session is read from the start. What others have written into the journal is
masked before it is folded, so that the model never sees a secret of the agent in it.
"""

from collections import OrderedDict
from collections.abc import Sequence
from functools import reduce

from windlass.core.events import Fact
from windlass.core.fold.run import apply_fact
from windlass.core.secrets.mask import Mask
from windlass.core.state import State
from windlass.ports import Journal
from windlass.runtime.recorder import Recorder

CACHED_SESSIONS_MAX = 64


class StateCache:
    """The last states of the sessions that an agent read or drove; the oldest are dropped first."""

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self._states: OrderedDict[str, tuple[State, Fact]] = OrderedDict()

    def remember(self, recorder: Recorder) -> None:
        """Keep the state of a recorder's session, if it is the one on disk."""
        session = recorder.session
        state = recorder.state
        last_fact = recorder.last_fact
        if last_fact is None or last_fact.seq != state.seq:
            self._states.pop(session, None)
            return
        self._keep(state, last_fact)

    async def read_state(self, journal: Journal, session: str) -> State:
        """Return the state of a session as the journal has it now. Raises JournalFailed."""
        cached = self._states.get(session)
        if cached is not None:
            state, last_fact = cached
            # The last fact is read again: it shows that this is still the same session.
            facts = await journal.read(session, state.seq - 1)
            if facts and facts[0] == last_fact:
                return self._add_facts(state, facts[1:])
        return self._add_facts(State(session), await journal.read(session))

    def _add_facts(self, state: State, facts: Sequence[Fact]) -> State:
        """Fold facts as they were read, and keep the state for the next one who asks."""
        if facts:
            state = reduce(apply_fact, self._mask.mask_foreign(facts), state)
            self._keep(state, facts[-1])
        return state

    def _keep(self, state: State, last_fact: Fact) -> None:
        """Keep a state with its last fact as it is in the journal."""
        self._states[state.session] = (state, last_fact)
        self._states.move_to_end(state.session)
        if len(self._states) > CACHED_SESSIONS_MAX:
            self._states.popitem(last=False)
