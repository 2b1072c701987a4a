"""A failure as the journal keeps it."""

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


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error as the journal keeps it: its kind, its words, and whether asking again may help."""

    kind: FaultKind
    message: str
    retryable: bool = False
    retry_after_s: float | None = None
