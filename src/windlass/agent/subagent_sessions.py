"""Which session is a sub-agent's own: the one that was begun for this very call.

The law: a name proves nothing. Whoever may name sessions can have made one of that name, and a
session that is deleted leaves those of its sub-agents behind. What was not begun for this call and
this task is passed by, and the next name is taken.
"""

from collections.abc import Iterator

from windlass.core.errors import ConfigError
from windlass.core.events import Fact, RunStarted
from windlass.core.fold.run import fold
from windlass.core.messages import Text
from windlass.core.state import State
from windlass.ports import Journal

NAMES_MAX = 100


async def own_session(journal: Journal, call: str, task: str) -> State:
    """The session of a call, as far as it has come: found by what it was begun for, or new."""
    for name in _names(call):
        facts = await journal.read(name)
        if not facts or _begun_for(facts[0], call, task):
            return fold(name, facts)
    raise ConfigError(f"{NAMES_MAX} sessions of other work are named after {call}")


def _begun_for(first: Fact, call: str, task: str) -> bool:
    wanted = call, (Text(task),)
    return isinstance(first, RunStarted) and (first.parent, first.prompt) == wanted


def _names(call: str) -> Iterator[str]:
    yield call
    yield from (f"{call}.{nth}" for nth in range(2, NAMES_MAX + 1))
