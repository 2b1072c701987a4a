"""Errors as an editor shows them: a code of JSON-RPC, a sentence, and what to do."""

from typing import Any

from acp import RequestError

from windlass.core.errors import (
    FolderNotTrusted,
    ForOperator,
    NothingToDo,
    RunFailed,
    SessionBusy,
    SetupDrifted,
    WindlassError,
)
from windlass.project.snapshot import ProjectSnapshot
from windlass.project.trust import explain_no_trust

INVALID_PARAMS = -32602
INVALID_REQUEST = -32600
INTERNAL_ERROR = -32603
NOT_FOUND = -32002
NOT_TRUSTED = -32003


def make_error(code: int, kind: str, message: str, **data: Any) -> RequestError:  # noqa: ANN401 - JSON
    """Return an error. `kind` names it for programs, in `data.code`."""
    return RequestError(code, message, {"code": kind, **data})


def explain_trust(snapshot: ProjectSnapshot) -> RequestError:
    """Return the error for a folder that no person has trusted."""
    first = explain_no_trust(snapshot).partition("\n")[0]
    return make_error(
        NOT_TRUSTED,
        "folder_not_trusted",
        f"{first[:1].upper()}{first[1:]} Windlass does nothing in this folder until you decide. "
        f"To see what the settings would do, and to trust them, run `windlass trust` in "
        f"{snapshot.folder}. To work without them, start `windlass acp --no-trust`.",
        folder=str(snapshot.folder),
    )


def convert_error(error: WindlassError) -> RequestError:
    """Return an error of Windlass as one of the protocol."""
    text = str(error)
    sentence = text[:1].upper() + text[1:]
    match error:
        case FolderNotTrusted():
            return make_error(NOT_TRUSTED, "folder_not_trusted", sentence)
        case NothingToDo():
            return make_error(NOT_FOUND, "not_found", sentence)
        case SessionBusy():
            return make_error(INVALID_REQUEST, "session_busy", sentence)
        case SetupDrifted():
            changes = "; ".join(error.drift)
            return make_error(
                INVALID_REQUEST,
                "setup_drifted",
                "The settings differ from those that the open run was started with: "
                f"{changes}. To go on with it all the same: windlass resume --consent",
            )
        case ForOperator():
            return make_error(INVALID_PARAMS, "not_possible", sentence)
        case RunFailed():
            return make_error(
                INTERNAL_ERROR,
                "run_failed",
                f"The run failed: {text}",
                session=error.result.session_id,
                fault=error.fault.kind,
            )
        case _:
            return make_error(INTERNAL_ERROR, "internal_error", sentence)
