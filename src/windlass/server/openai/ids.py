"""Ids of responses, chat completions and messages, from which their run is found again.

Invariant: an id is only a name. The caller must still own the session that it leads to.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Literal, NamedTuple

IdKind = Literal["resp", "chatcmpl", "msg"]


class RunReference(NamedTuple):
    """What an id leads to."""

    kind: IdKind
    session: str
    number: int
    """Of the run in its session; for a message, of the fact that began its attempt."""


def make_id(kind: IdKind, session: str, number: int) -> str:
    """Return the id of a run or message, such as `resp_1_c2Vzc2lvbg`."""
    # The name of a session is any text, and an id is used in URLs.
    name = urlsafe_b64encode(session.encode()).rstrip(b"=").decode()
    mark = "-" if kind == "chatcmpl" else "_"
    return f"{kind}{mark}{number}_{name}"


def read_id(text: str) -> RunReference | None:
    """Return what an id leads to, or None if it is not one of ours."""
    for kind in ("resp", "chatcmpl", "msg"):
        mark = "-" if kind == "chatcmpl" else "_"
        number, found, name = text.removeprefix(f"{kind}{mark}").partition("_")
        if not text.startswith(f"{kind}{mark}") or not found or not number.isascii():
            continue
        if not number.isdigit() or len(number) > 15:  # noqa: PLR2004 - no session has as many facts
            return None
        try:
            session = urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode()
        except ValueError:
            return None
        reference = RunReference(kind, session, int(number))
        # Base64 has several spellings of one text. An id has one.
        return reference if make_id(*reference) == text else None
    return None
