"""The queue of a session: the prompt of a run that waits for a driver, and those behind a run."""

from collections.abc import Sequence

import msgspec

from windlass.agent import prompt_queue
from windlass.core.mail import PromptMail
from windlass.core.messages import ContentPart
from windlass.server.api.controls import ControlReply, make_control_reply
from windlass.server.errors import ApiError
from windlass.server.messages import HttpReply, HttpRequest, Reply
from windlass.server.owned_reading import read_queue
from windlass.server.routing import Routes
from windlass.server.service import Service
from windlass.server.session_directory import OwnedSession


class QueuedPrompt(msgspec.Struct, frozen=True):
    """A prompt that has not begun its run."""

    number: int
    """Its number in the queue, by which it is read and withdrawn."""
    at: float
    """When it was accepted, in seconds since the epoch."""
    agent: str
    caller: str
    run: int = 0
    """The run that waits for its first driver; 0 while the prompt is behind another run."""
    prompt: tuple[ContentPart, ...] | None = None
    """Null for those who may only watch the session."""


class QueueReply(msgspec.Struct, frozen=True):
    """The prompts of a session that are to begin, in their order."""

    session: str
    prompts: Sequence[QueuedPrompt]


ROUTES = Routes()


@ROUTES.add("GET", "/runs/{session}/queue", role="watch", scope="session", reply=QueueReply)
async def list_queue(service: Service, request: HttpRequest) -> Reply:
    """List the prompts of a session that have not begun their runs."""
    session = request.session
    return HttpReply(200, QueueReply(session.name, await _list_prompts(service, session)))


@ROUTES.add(
    "GET",
    "/runs/{session}/queue/{prompt}",
    role="watch",
    scope="session",
    reply=QueuedPrompt,
    errors=("prompt_not_found",),
)
async def read_prompt(service: Service, request: HttpRequest) -> Reply:
    """Read a prompt that has not begun its run."""
    return HttpReply(200, await _find_prompt(service, request))


@ROUTES.add(
    "DELETE",
    "/runs/{session}/queue/{prompt}",
    role="start",
    scope="session",
    reply=ControlReply,
    errors=("prompt_not_found",),
)
async def withdraw_prompt(service: Service, request: HttpRequest) -> Reply:
    """Withdraw a prompt. If it is a run that waits for its first driver, the run is cancelled."""
    found = await _find_prompt(service, request)
    session = request.session
    by = session.caller.author
    receipt = await prompt_queue.withdraw_prompt(service.journal, session.name, found.number, by=by)
    return await make_control_reply(receipt)


async def _list_prompts(service: Service, session: OwnedSession) -> list[QueuedPrompt]:
    state, letters = await read_queue(service.journal, session)
    is_shown = session.caller.may_use(None, session.owner, session.summary.agent)
    queued = state.run if state.run is not None and state.is_queued else None
    return [
        QueuedPrompt(
            letter.number,
            letter.at,
            letter.message.agent,
            letter.message.caller,
            queued.number if queued is not None and queued.queued_mail == letter.number else 0,
            letter.message.prompt if is_shown else None,
        )
        for letter in letters
        if isinstance(letter.message, PromptMail)
    ]


async def _find_prompt(service: Service, request: HttpRequest) -> QueuedPrompt:
    wanted = request.params["prompt"]
    for prompt in await _list_prompts(service, request.session):
        if str(prompt.number) == wanted:
            return prompt
    raise ApiError(
        404,
        "prompt_not_found",
        f"No prompt {wanted[:20]!r} waits in the queue of this session.",
        "GET /runs/{session}/queue lists those that wait; its run may have begun.",
    )
