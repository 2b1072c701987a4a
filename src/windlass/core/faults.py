"""A failure as the journal keeps it, and the errors that results can raise.

The whole tree of errors is in `core/errors.py`; it knows results, so the errors that results raise
have to lie below both.
"""

from typing import Literal

import msgspec

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


class OutputMissing(ForOperator):
    """A run that did not complete has no output. Its result says how it ended."""
