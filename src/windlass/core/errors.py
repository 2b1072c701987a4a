"""What can go wrong, sorted by who must act.

WindlassError
├── ModelError            the runtime acts: it waits and asks again, or gives up (see `Fault`)
├── ForModel              the model acts: it is told, and the run goes on
│   └── ModelRetry        raised by a tool to ask the model for a better call
├── ForOperator           a person acts: what was asked for cannot be done as it stands
│   ├── ConfigError       an argument, a setting, a key or a name is wrong
│   ├── SessionBusy       another driver holds this session
│   ├── RunUnfinished     the last run of this session has not ended: resume or cancel it
│   ├── NothingToDo       there is no open run or question to act on
│   ├── SetupDrifted      the run was recorded with another set-up: consent is needed
│   └── JournalFailed     the store did not take or give a record
├── JournalCorrupt        nobody can act: the record contradicts itself
│   └── IllegalFact       a fact that cannot follow the facts before it
└── RunFailed             a run ended as `failed`; carries its result
    ├── FailedByModel     the provider's errors outlasted the attempts
    ├── FailedByOutput    the model's replies never fitted the output type
    ├── FailedByTools     the tools' infrastructure kept failing
    ├── FailedByJournal   the journal stopped taking records
    └── FailedByBug       an exception that nothing in the runtime expected
"""

from collections.abc import Sequence
from typing import Any

from windlass.core.faults import RETRYABLE_KINDS, Fault, FaultKind
from windlass.core.result import RunResult


class WindlassError(Exception):
    """The root of all errors of this package."""


class ModelError(WindlassError):
    """One request to a model failed."""

    def __init__(
        self,
        kind: FaultKind,
        message: str,
        *,
        retryable: bool | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        known = kind in RETRYABLE_KINDS
        self.fault = Fault(kind, message, known if retryable is None else retryable, retry_after_s)


class ForModel(WindlassError):
    """The model acts: it is told, and the run goes on."""


class ModelRetry(ForModel):
    """Raised by a tool: the call was understood, cannot be done so, and should be made anew."""


class ForOperator(WindlassError):
    """A person acts; nothing was lost."""


class ConfigError(ForOperator):
    """An argument, a setting, a key or a name is wrong."""


class SessionBusy(ForOperator):
    """Another driver holds this session; its records and ours are never merged."""


class RunUnfinished(ForOperator):
    """The session's last run has not ended."""


class NothingToDo(ForOperator):
    """There is no open run, or no such question, to act on."""


class SetupDrifted(ForOperator):
    """The run was recorded with another set-up than the one that would go on with it."""

    def __init__(self, drift: Sequence[str]) -> None:
        self.drift = tuple(drift)
        changes = "; ".join(self.drift)
        super().__init__(f"the set-up changed since this run began: {changes}. Pass consent=True.")


class JournalFailed(ForOperator):
    """The store did not take or give a record."""


class JournalCorrupt(WindlassError):
    """The record contradicts itself."""


class IllegalFact(JournalCorrupt):
    """A fact that cannot follow the facts before it; it was not written."""


class RunFailed(WindlassError):
    """A run ended as `failed`. `result` holds all that it did and paid for."""

    def __init__(self, fault: Fault, result: RunResult[Any]) -> None:
        super().__init__(fault.message)
        self.fault = fault
        self.result = result


class FailedByModel(RunFailed):
    """The provider's errors outlasted the attempts."""


class FailedByOutput(RunFailed):
    """The model's replies never fitted the output type."""


class FailedByTools(RunFailed):
    """The tools' infrastructure kept failing."""


class FailedByJournal(RunFailed):
    """The journal stopped taking records."""


class FailedByBug(RunFailed):
    """An exception that nothing in the runtime expected."""


def failure_error(fault: Fault, result: RunResult[Any]) -> RunFailed:
    """The error to raise for a run that failed so."""
    return _FAILURE_BY_KIND.get(fault.kind, FailedByModel)(fault, result)


_FAILURE_BY_KIND: dict[str, type[RunFailed]] = {
    "output_misfit": FailedByOutput,
    "tools": FailedByTools,
    "journal": FailedByJournal,
    "bug": FailedByBug,
}
