"""Errors of the service: every one has a code, a sentence and what to do.

Invariant: a caller's mistake is reported to the caller; a failure of the service is reported
without its content.
"""

from collections.abc import Mapping

import msgspec
from msgspec import UNSET, UnsetType
from typing_extensions import override

from windlass.core.errors import (
    AnswerNotQualified,
    ConfigError,
    JournalCorrupt,
    JournalFailed,
    MailboxFull,
    MailRejected,
    NothingToDo,
    QuestionDecided,
    RunUnfinished,
    SessionBusy,
    SetupDrifted,
    UpgradeUnfinished,
    WindlassError,
    WorkspaceMissing,
)
from windlass.core.verdicts import Decision
from windlass.logs import get_logger

_log = get_logger(__name__)


class ApiError(Exception):
    """A request that is refused: what happened, and what to do."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        hint: str = "",
        *,
        retry_after: float | None = None,
        headers: Mapping[str, str] | None = None,
        decision: Decision | None = None,
    ) -> None:
        """Make an error of a status, a code for programs, a sentence and what to do.

        `retry_after`: seconds after which the same request may succeed. `decision`: how a question
        was decided before this answer came.
        """
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.hint = hint
        self.retry_after = retry_after
        self.headers = dict(headers or {})
        self.decision = decision

    @override
    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


class ErrorBody(msgspec.Struct, frozen=True):
    """What went wrong."""

    code: str
    """For programs; it does not change."""
    message: str
    """What happened and why, in a sentence."""
    hint: str = ""
    """What to do."""
    decision: Decision | UnsetType = UNSET
    """How the question was decided, if an answer to it came too late."""


class ErrorReply(msgspec.Struct, frozen=True):
    """The body of every error."""

    error: ErrorBody


def api_error_from(error: WindlassError | ApiError) -> ApiError:
    """Return what a client sees of an error: an error of the service is sent as it is.

    What the journal says names files, servers and their errors, so it is only logged.
    """
    if isinstance(error, ApiError):
        return error
    message = _as_sentence(str(error))
    if isinstance(error, JournalFailed | JournalCorrupt):
        _log.warning("%s: %s", type(error).__name__, error)
        message = "The journal of the service cannot do this now."
    elif isinstance(error, SetupDrifted):
        # How it differs tells about the policy and the tools: the record has it.
        _log.info("SetupDrifted: %s", error)
        message = "The configuration of the agent is not the one that the run was started with."
    for kind, status, code, hint, retry_after in _KNOWN_ERRORS:
        if isinstance(error, kind):
            decision = error.decision if isinstance(error, QuestionDecided) else None
            return ApiError(status, code, message, hint, retry_after=retry_after, decision=decision)
    return ApiError(500, "internal_error", message, "See the log of the service.")


def _as_sentence(text: str) -> str:
    """Return a message of the runtime, which may be a part of a sentence, as a sentence."""
    text = text.strip()
    end = "" if text.endswith((".", "?", "!")) else "."
    return f"{text[:1].upper()}{text[1:]}{end}"


_KNOWN_ERRORS: tuple[tuple[type[WindlassError], int, str, str, float | None], ...] = (
    (SessionBusy, 409, "session_busy", "Wait, or send on_busy: queue, steer or replace.", None),
    (RunUnfinished, 409, "run_unfinished", "Answer, resume or cancel the open run first.", None),
    (MailboxFull, 429, "mailbox_full", "Wait until the run has taken its messages.", 5.0),
    (MailRejected, 409, "message_refused", "Read the session, and send it again if it fits.", None),
    (UpgradeUnfinished, 409, "upgrade_unfinished", "Run: windlass migrate --finish", None),
    (QuestionDecided, 409, "question_decided", "Nothing is left to answer.", None),
    (NothingToDo, 409, "nothing_to_do", "Read the session to see its present state.", None),
    (AnswerNotQualified, 403, "not_qualified", "Somebody else has to answer this one.", None),
    (SetupDrifted, 409, "setup_drifted", "Send consent: true to go on all the same.", None),
    (WorkspaceMissing, 409, "workspace_missing", "Go on where its folder is.", None),
    (JournalFailed, 503, "journal_failed", "Try again; see /readyz and the log.", 2.0),
    (JournalCorrupt, 500, "journal_corrupt", "Verify the session and restore a backup.", None),
    (ConfigError, 422, "invalid_request", "Correct the request and send it again.", None),
)


def draining_error() -> ApiError:
    """Return the error for new work that comes while the service stops."""
    hint = "Use another replica, or wait for the next one."
    return ApiError(503, "draining", "The service is stopping.", hint, retry_after=1.0)


def body_cut() -> ApiError:
    """Return the error for a request whose client went away before all of its body had come."""
    return ApiError(
        400,
        "body_cut",
        "The connection was cut before the whole body had arrived.",
        "Send the request again.",
        headers={"Connection": "close"},
    )
