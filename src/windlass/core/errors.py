"""What can go wrong, sorted by who must act.

WindlassError
├── ModelError            the runtime acts: it waits and asks again, or gives up (see `Fault`)
├── ForModel              the model acts: it reads the message, and the run continues
│   └── ModelRetry        raised by a tool to ask the model for a better call
├── ForOperator           a person acts: the request cannot be carried out as it is
│   ├── ConfigError       an argument, a setting, a key or a name is wrong
│   │   └── FolderNotTrusted  a folder has settings that no person has trusted
│   ├── SessionBusy       another driver holds this session
│   ├── MailboxFull       too many messages wait for this session
│   ├── MailRejected      a message could not be taken, and a fact says why
│   ├── RecordConflict    another process changed a shared record first: read it again
│   ├── UpgradeUnfinished  the journal is shared with an older version until the upgrade is finished
│   ├── RunUnfinished     the last run of this session has not ended: resume or cancel it
│   ├── NothingToDo       there is no open run or question to act on
│   │   └── QuestionDecided  the question has been decided; carries the decision
│   ├── AnswerNotQualified  other people have to answer the question
│   ├── OutputMissing     the run did not complete, so it has no output; carries its result
│   ├── SetupDrifted      the run was recorded with another configuration: consent is needed
│   ├── WorkspaceMissing  the folder that the session works in is not on this machine
│   └── JournalFailed     the store did not accept or return a record
├── JournalCorrupt        no action helps: the record contradicts itself
│   └── IllegalFact       a fact that cannot follow the facts before it
└── RunFailed             a run ended as `failed`; carries its result
    ├── FailedByModel     the provider's errors outlasted the attempts
    ├── FailedByOutput    the model's replies never fitted the output type
    ├── FailedByTools     the tools' infrastructure kept failing
    ├── FailedByJournal   the journal stopped accepting records, or no file can be opened
    └── FailedByBug       an exception that nothing in the runtime expected
"""

import errno
from collections.abc import Sequence
from typing import Literal

import msgspec

from windlass.core.rate_limits import RateLimits
from windlass.core.verdicts import Decision

FaultKind = Literal[
    "rate_limit",
    "auth",
    "context_overflow",
    "bad_request",
    "server",
    "network",
    "stalled",
    "incomplete_stream",
    "malformed_stream",
    "other",
    "output_misfit",
    "tools",
    "journal",
    "bug",
]
RETRYABLE_KINDS: frozenset[str] = frozenset(
    ("rate_limit", "server", "network", "stalled", "incomplete_stream", "malformed_stream"),
)

Outcome = Literal[
    "completed",
    "max_steps",
    "budget_exceeded",
    "timed_out",
    "cancelled",
    "refused",
    "truncated",
    "empty_reply",
    "stuck",
    "policy_denied",
    "failed",
    "suspended",
    "paused",
    "released",
]
"""How a run ended, or why it stopped without an end.

`suspended` waits for a person, `paused` until a caller continues it, `released` for any driver.
"""


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error as the journal keeps it: its kind, its words, and whether asking again may help."""

    kind: FaultKind
    message: str
    retryable: bool = False
    retry_after_s: float | None = None
    """Seconds that the provider asked to wait."""
    note: str = ""
    """A note for the model before it is asked again, if the fault is a mistake of its own."""
    address: str = ""
    """Where the request went, if the message names it: a service does not show it to callers."""

    @property
    def is_of_host(self) -> bool:
        """Whether its words come from the process or its disk, and may name files."""
        return self.kind in ("journal", "bug")


class WindlassError(Exception):
    """The root of all errors of this package."""


class ForOperator(WindlassError):
    """A person must act. Nothing was lost."""

    def _render_traceback_(self) -> list[str]:
        """Show what to do, and where, instead of a traceback: a notebook calls this."""
        place = ""
        step = self.__traceback__
        while step is not None:
            # What a person wrote in a cell has no file of its own.
            if "ipykernel" in step.tb_frame.f_code.co_filename:
                place = f" (line {step.tb_lineno} of this cell)"
            step = step.tb_next
        return [f"{type(self).__name__}: {self}{place}"]


class ModelError(WindlassError):
    """One request to a model failed."""

    def __init__(
        self,
        kind: FaultKind,
        message: str,
        *,
        retryable: bool | None = None,
        retry_after_s: float | None = None,
        limits: RateLimits | None = None,
        note: str = "",
        address: str = "",
    ) -> None:
        """Build the error. `retryable` follows from the kind, unless it is given.

        `limits` is what the response said about the provider's rate limits. `note` is for the
        model, if the error is a mistake of its own: it reads it before it is asked again.
        `address` is where the request went, if the message names it.
        """
        super().__init__(message)
        if retryable is None:
            retryable = kind in RETRYABLE_KINDS
        self.fault = Fault(kind, message, retryable, retry_after_s, note, address)
        self.limits = limits


class ForModel(WindlassError):
    """The model must act: it reads the message, and the run continues."""


class ModelRetry(ForModel):
    """Raised by a tool: the call cannot be carried out like this, and should be made again."""


class ConfigError(ForOperator):
    """An argument, a setting, a key or a name is wrong."""


class FolderNotTrusted(ConfigError):
    """A folder has settings of its own, and no person has trusted them yet."""


class SessionBusy(ForOperator):
    """Another driver holds this session. Records of two drivers are never merged."""


class MailboxFull(ForOperator):
    """Too many messages wait for this session. Nothing was kept."""


class MailRejected(ForOperator):
    """A message was durable but could not be taken: it was for another run, or too late."""


class RecordConflict(ForOperator):
    """A shared record is not the one that was read. Nothing was written: read it again."""


class UpgradeUnfinished(ForOperator):
    """The journal may still be read by an older version, which does not know what was asked for."""


class RunUnfinished(ForOperator):
    """The session's last run has not ended. Resume or cancel it first."""


class NothingToDo(ForOperator):
    """There is no open run, or no such question, to act on."""


class QuestionDecided(NothingToDo):
    """An answer came too late: the question has been decided. Carries the decision."""

    def __init__(self, call_id: str, decision: Decision) -> None:
        self.call_id = call_id
        self.decision = decision
        super().__init__(f"the question about call {call_id} is closed: {decision.describe()}")


class AnswerNotQualified(ForOperator):
    """Other people have to answer this question: of a role, several, or not who started the run."""

    def __init__(self, call_id: str, reason: str) -> None:
        self.call_id = call_id
        super().__init__(
            f"this answer to the question about call {call_id} does not count: {reason}; "
            "people answer on the page of the service, or with a token of their own"
        )


class SetupDrifted(ForOperator):
    """The run was recorded with another configuration than that of the agent that resumes it."""

    def __init__(self, drift: Sequence[str]) -> None:
        self.drift = tuple(drift)
        changes = "; ".join(self.drift)
        super().__init__(
            "This agent's configuration differs from the one the run was started with: "
            f"{changes}. Pass consent=True to continue."
        )


class WorkspaceMissing(ForOperator):
    """The folder that the session works in is not here. Nothing begins in an empty one instead."""


class JournalFailed(ForOperator):
    """The store did not accept or return a record."""


class JournalCorrupt(WindlassError):
    """The record contradicts itself."""


class IllegalFact(JournalCorrupt):
    """A fact that cannot follow the facts before it. It was not written."""


OUT_OF_FILES = (
    "this process has no file descriptors left. The run is open: close files or raise the limit "
    "(ulimit -n), then resume it"
)


def is_out_of_files(error: BaseException | None) -> bool:
    """Whether an exception comes from a process or a machine that can open no more files."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            return True
        error = error.__cause__ or error.__context__
    return False


def fault_from_error(error: BaseException) -> Fault:
    """Return the fault of a run that an exception ended: of its journal, or a bug."""
    if is_out_of_files(error):
        return Fault("journal", OUT_OF_FILES)
    if isinstance(error, ForOperator):
        return Fault("journal", str(error))
    return Fault("bug", f"{type(error).__name__}: {error}")
