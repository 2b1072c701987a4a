"""Which session is a sub-agent's own: the one that was begun for this very call.

The law: a name proves nothing. Whoever may name sessions can have made one of that name, and a
session that is deleted leaves those of its sub-agents behind. What was not begun for this call and
this task is passed by, and the next name is taken.
"""

from collections.abc import Iterator

from windlass.core.errors import ConfigError
from windlass.core.events import Fact, RunStarted
from windlass.core.fold.run import fold
from windlass.core.messages import TextPart
from windlass.core.state import State
from windlass.ports import Journal

SESSION_NAMES_MAX = 100


async def find_own_session(journal: Journal, call: str, task: str) -> State:
    """The session of a call, as far as it has come: found by what it was begun for, or new."""
    for name in _candidate_names(call):
        facts = await journal.read(name)
        if not facts or _was_begun_for(facts[0], call, task):
            return fold(name, facts)
    raise ConfigError(f"{SESSION_NAMES_MAX} sessions of other work are named after {call}")


def _was_begun_for(first: Fact, call: str, task: str) -> bool:
    wanted = call, (TextPart(task),)
    return isinstance(first, RunStarted) and (first.parent, first.prompt) == wanted


def _candidate_names(call: str) -> Iterator[str]:
    yield call
    yield from (f"{call}.{nth}" for nth in range(2, SESSION_NAMES_MAX + 1))
