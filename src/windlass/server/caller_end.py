"""End a caller: tokens, login links, webhooks, schedules, and runs if they are to end too.

Invariant: when it has returned, nothing that the caller made can start a run or answer a question.
A service may know a token for `CACHE_S` seconds after it was deleted, and the caller could make a
schedule or a webhook with it. A token is checked again when the body of its request has arrived, so
that such a request needs only the time to write, for which `WRITE_S` seconds are left. Then all is
deleted again, and runs are cancelled.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Literal

import msgspec

from windlass.agent import control, prompt_queue
from windlass.core.errors import ForOperator, NothingToDo
from windlass.core.session_summary import UNFINISHED_STATES, SessionSummary
from windlass.ports import Journal
from windlass.server.access import check_caller_name
from windlass.server.owned_records import DocumentT, OwnedRecords
from windlass.server.people import PeopleStore
from windlass.server.schedules.schedule import ScheduleStore
from windlass.server.tokens import CACHE_S, TokenStore
from windlass.server.webhooks.store import WebhookStore

RunChoice = Literal["keep", "cancel"]
"""What becomes of the open runs of a caller."""
DriveSession = Callable[[str, str], None]
"""Has a session driven soon, by its name and that of its agent."""
WRITE_S = 2.0
"""How long a request may take to write what it makes, after its token was checked."""
TAKEN_S = 10.0
"""How long to wait for the driver of a run to end it."""
ROUNDS_MAX = 20
"""How often to look for runs: a prompt that waited begins when the run before it has ended."""
ROUND_S = 0.25
PAGE_SESSIONS = 200
REASON = "the caller was ended"


class CallerEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a caller was ended."""

    caller: str
    tokens: int = 0
    """With those of browsers that were logged in."""
    logins: int = 0
    """Login links that were not used yet."""
    webhooks: int = 0
    """The links that they have sent work no more."""
    schedules: int = 0
    runs: int = 0
    """Runs that were cancelled."""
    open: int = 0
    """Sessions whose last run has not ended."""
    queued: int = 0
    """Prompts that wait in the queues of these sessions, or of those whose run was cancelled."""


async def end_caller(
    journal: Journal,
    tokens: TokenStore,
    caller: str,
    *,
    runs: RunChoice = "keep",
    by: str = "",
    drive: DriveSession | None = None,
) -> CallerEnd:
    """End a caller, and return how much there was. Takes some seconds.

    `by`: who is recorded as the author of a cancel. `drive`: has a session driven, so that a prompt
    in its queue begins and is cancelled too. Raises ConfigError if this cannot be a name.
    """
    check_caller_name(caller)
    first = await _delete_all(journal, tokens, caller)
    await asyncio.sleep(CACHE_S + WRITE_S)
    second = await _delete_all(journal, tokens, caller)
    cancelled: dict[str, set[int]] = {}
    if runs == "cancel":
        cancelled = await _cancel_runs(journal, caller, by, drive)
    left = await _list_open(journal, caller)
    queued = await prompt_queue.count_queued(
        journal, {*cancelled, *(each.session for each in left)}
    )
    return CallerEnd(
        caller=caller,
        tokens=first.tokens + second.tokens,
        logins=first.logins + second.logins,
        webhooks=first.webhooks + second.webhooks,
        schedules=first.schedules + second.schedules,
        runs=sum(map(len, cancelled.values())),
        open=len(left),
        queued=sum(queued.values()),
    )


async def _delete_all(journal: Journal, tokens: TokenStore, caller: str) -> CallerEnd:
    # A login link makes a token, so the links are deleted first.
    logins = await tokens.delete_logins(caller)
    revoked = await tokens.revoke_all(caller)
    await PeopleStore(journal).forget_person(caller)
    return CallerEnd(
        caller=caller,
        tokens=revoked,
        logins=logins,
        webhooks=await _delete_owned(WebhookStore(journal, time.time), caller),
        schedules=await _delete_owned(ScheduleStore(journal, time.time), caller),
    )


async def _delete_owned(store: OwnedRecords[DocumentT], caller: str) -> int:
    documents = [document async for document in store.walk(caller)]
    for document in documents:
        with suppress(NothingToDo):
            await store.remove(document)
    return len(documents)


async def _cancel_runs(
    journal: Journal, caller: str, by: str, drive: DriveSession | None
) -> dict[str, set[int]]:
    """Cancel the open runs of a caller, and those of prompts that waited for them."""
    cancelled: dict[str, set[int]] = {}
    for _ in range(ROUNDS_MAX):
        found = await _list_open(journal, caller)
        if not found and not await prompt_queue.count_queued(journal, cancelled):
            break
        for summary in found:
            session = summary.session
            with suppress(ForOperator, TimeoutError):
                receipt = await control.cancel(journal, session, REASON, by=by)
                cancelled.setdefault(session, set()).add(receipt.run)
                await receipt.taken(TAKEN_S)
            if drive is not None:
                drive(session, summary.agent)
        await asyncio.sleep(ROUND_S)
    return cancelled


async def _list_open(journal: Journal, caller: str) -> list[SessionSummary]:
    """Return the sessions of a caller whose last run has not ended."""
    found: list[SessionSummary] = []
    cursor: str | None = None
    while True:
        page = await journal.sessions(
            caller=caller, state=UNFINISHED_STATES, parent="", limit=PAGE_SESSIONS, cursor=cursor
        )
        found += page
        cursor = page.cursor
        if cursor is None:
            return found
