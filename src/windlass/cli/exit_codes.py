"""Exit codes: one for each kind of outcome.

0   the run completed
1   the run failed: the model, the tools or the runtime gave up
2   usage error: a wrong flag, name, key or file
3   the run waits for your answer: windlass approve, windlass deny
4   a limit was reached: steps, money, tokens
5   the time limit was reached
6   the model refused, or its reply was empty
7   the reply was cut off at the model's own limit
8   the run was stuck: the model repeated itself
9   the policy denied the reply
10  the journal cannot be read or written
11  the session is busy, or its last run is still open
12  there is nothing to do: no such session, run or question
13  the project is not trusted: windlass trust
14  the run is paused, or was released by its driver: windlass resume
129 the terminal was closed; the run is still open: windlass resume
130 interrupted (Ctrl-C)
143 ended by SIGTERM; the run is still open: windlass resume
"""

from collections.abc import Mapping
from textwrap import dedent, indent
from typing import Final

from windlass.core.errors import (
    ConfigError,
    FolderNotTrusted,
    JournalCorrupt,
    JournalFailed,
    NothingToDo,
    RunUnfinished,
    SessionBusy,
    SetupDrifted,
    WorkspaceMissing,
)
from windlass.core.events import Outcome

DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
WAITS: Final = 3
LIMIT: Final = 4
TIME_UP: Final = 5
REFUSED: Final = 6
TRUNCATED: Final = 7
STUCK: Final = 8
DENIED: Final = 9
JOURNAL: Final = 10
BUSY: Final = 11
NOTHING: Final = 12
UNTRUSTED: Final = 13
LET_GO: Final = 14
HUNG_UP: Final = 129
INTERRUPTED: Final = 130
ENDED: Final = 143

OUTCOME_CODES: Mapping[Outcome, int] = {
    "completed": DONE,
    "max_steps": LIMIT,
    "budget_exceeded": LIMIT,
    "timed_out": TIME_UP,
    "cancelled": INTERRUPTED,
    "refused": REFUSED,
    "truncated": TRUNCATED,
    "empty_reply": REFUSED,
    "stuck": STUCK,
    "policy_denied": DENIED,
    "failed": FAILED,
    "suspended": WAITS,
    "paused": LET_GO,
    "released": LET_GO,
}
EXIT_CODE_TABLE = indent(dedent((__doc__ or "").partition("\n\n")[2]), "  ")
"""The exit codes, for the help of `windlass run`."""
ERROR_CODES: Mapping[type[Exception], int] = {
    FolderNotTrusted: UNTRUSTED,  # Before ConfigError, which it is too.
    ConfigError: USAGE,
    SetupDrifted: USAGE,
    WorkspaceMissing: USAGE,
    JournalFailed: JOURNAL,
    JournalCorrupt: JOURNAL,
    SessionBusy: BUSY,
    RunUnfinished: BUSY,
    NothingToDo: NOTHING,
}


def exit_code_for(error: BaseException) -> int:
    """The exit code for an error that ended a command."""
    return next((code for kind, code in ERROR_CODES.items() if isinstance(error, kind)), FAILED)
