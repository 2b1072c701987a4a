"""Start the run that a request asks for: in a new session, after an earlier response, or in a fork.

The law: an earlier response is never changed. Whoever goes on from one that is not the last of its
session gets a session of their own, which begins with all that led to that response.
"""

import hashlib
from contextlib import suppress
from typing import Any, NamedTuple

from windlass.agent.handles import RunHandle
from windlass.core.errors import RunUnfinished, SessionBusy
from windlass.core.events import Fact, RunStarted, StepProposed
from windlass.core.limits import Limits
from windlass.core.projection.project import project_events
from windlass.core.projection.view import ReplyEntry
from windlass.server.errors import ApiError
from windlass.server.messages import HttpRequest
from windlass.server.openai.chat import find_wait_error
from windlass.server.openai.errors import OpenAIError
from windlass.server.openai.following import FoundRun, RunFollower, find_end, find_run
from windlass.server.openai.inputs import (
    ClientInput,
    find_references,
    read_chat_input,
    read_response_input,
    resolve_references,
)
from windlass.server.openai.requests import (
    ChatRequest,
    ResponseRequest,
    WindlassOptions,
    check_chat_request,
    check_response_request,
)
from windlass.server.owned_reading import wait_for_records
from windlass.server.service import Service, StartRequest
from windlass.server.session_directory import OwnedSession

UNNAMED_AGENT = "windlass"
"""The model that stands for an agent without a name."""
TRIES_MAX = 10
"""How often a session is read again because another request was faster."""
RETRY_S = 0.2
"""How long to wait for the first record of that request."""


class WantedRun(NamedTuple):
    """The run that a request asks for."""

    agent: str
    given: ClientInput
    limits: Limits | None


async def start_chat(service: Service, request: HttpRequest, body: ChatRequest) -> RunFollower:
    """Start the run of a chat completion, in a session of its own."""
    check_chat_request(body)
    agent = find_agent(service, body.model)
    given = read_chat_input(body.messages)
    wanted = WantedRun(agent, given, _read_limits(body.windlass))
    return await _follow(service, request, await _start(service, request, wanted))


async def start_response(
    service: Service, request: HttpRequest, body: ResponseRequest
) -> RunFollower:
    """Start the run of a response."""
    check_response_request(body)
    agent = find_agent(service, body.model)
    texts = {
        each: await _read_message(service, request, each) for each in find_references(body.input)
    }
    items = resolve_references(body.input, texts)
    given = read_response_input(items, body.instructions or "")
    wanted = WantedRun(agent, given, _read_limits(body.windlass))
    if body.previous_response_id is None:
        handle = await _start(service, request, wanted)
    else:
        handle = await _continue(service, request, wanted, body.previous_response_id)
    return await _follow(service, request, handle)


async def _follow(service: Service, request: HttpRequest, handle: RunHandle[Any]) -> RunFollower:
    session = await service.find_session(request.caller, handle.session)
    return RunFollower(service, request, session, handle.run)


def _read_limits(options: WindlassOptions) -> Limits | None:
    return None if options.limits is None else options.limits.to_limits()


def find_agent(service: Service, model: str) -> str:
    """Return the name of the agent that a model stands for. Raises OpenAIError."""
    name = "" if model == UNNAMED_AGENT and model not in service.agents else model
    if name not in service.agents:
        known = ", ".join(each or UNNAMED_AGENT for each in service.agents)
        raise OpenAIError(
            404,
            "model_not_found",
            f"There is no model {model[:200]!r} here.",
            f"The agents of this service are its models: {known}.",
            param="model",
        )
    return name


async def _start(
    service: Service, request: HttpRequest, wanted: WantedRun, session: str = ""
) -> RunHandle[Any]:
    given = wanted.given
    return await service.start_run(
        request.caller,
        StartRequest(
            prompt=given.prompt,
            agent=wanted.agent,
            session=session,
            key=request.header("idempotency-key"),
            earlier=given.earlier,
            limits=wanted.limits,
            trace=request.trace,
        ),
    )


async def _continue(
    service: Service, request: HttpRequest, wanted: WantedRun, previous: str
) -> RunHandle[Any]:
    """Start a run after an earlier response."""
    if wanted.given.earlier:
        raise OpenAIError(
            400,
            "history_given_twice",
            "`input` holds earlier messages, and `previous_response_id` brings them along already.",
            "Send only what is new.",
            param="input",
        )
    for _ in range(TRIES_MAX):
        found = await find_run(service, request.caller, previous)
        session, number, facts = found
        end = find_end(facts, number)
        if end is None:
            raise await _still_open(service, request, found)
        if _must_fork(facts, number, request.header("idempotency-key")):
            session = await _fork(service, request, session, end)
        try:
            return await _start(service, request, wanted, session.name)
        except (SessionBusy, RunUnfinished):
            # Another request goes on from the same response at this moment: its run will be there.
            await wait_for_records(service.journal, session, facts[-1].seq, RETRY_S)
    raise SessionBusy(f"other requests keep going on from {previous}: try again")


def _must_fork(facts: list[Fact], run: int, key: str) -> bool:
    """Return whether somebody else went on from this run already."""
    later = [fact for fact in facts if isinstance(fact, RunStarted) and fact.run > run]
    # The same key finds the run that it began, and begins no second one in a fork.
    return bool(later) and not any(key and fact.key == key for fact in later)


async def _fork(
    service: Service, request: HttpRequest, session: OwnedSession, at: int
) -> OwnedSession:
    key = request.header("idempotency-key")
    if not key:
        return await service.fork(session, at)
    # A request that is sent again must find the fork that it made.
    mark = hashlib.sha256(key.encode()).hexdigest()[:16]
    name = f"{session.name}~{at}.{mark}"
    with suppress(ApiError):
        return await service.find_session(request.caller, name)
    return await service.fork(session, at, name)


async def _still_open(service: Service, request: HttpRequest, found: FoundRun) -> OpenAIError:
    follower = RunFollower(service, request, found.session, found.number)
    response = await follower.read()
    if response.windlass.state in ("waiting", "paused"):
        return find_wait_error(response.windlass)
    return OpenAIError(
        400,
        "previous_response_in_progress",
        f"The response {response.id} has not ended yet.",
        "Wait until it has, or cancel it.",
        param="previous_response_id",
        details=response.windlass,
    )


async def _read_message(service: Service, request: HttpRequest, message_id: str) -> str:
    """Return the text of a message that a response of this service holds."""
    session, number, facts = await find_run(service, request.caller, message_id, "msg")
    reply = next(
        (fact for fact in facts if isinstance(fact, StepProposed) and fact.seq > number), None
    )
    entries = project_events(facts, session.name).entries if reply is not None else ()
    for entry in entries:
        if reply is not None and isinstance(entry, ReplyEntry) and entry.seq == reply.seq:
            return entry.text
    raise OpenAIError(
        404,
        "message_not_found",
        f"There is no message {message_id[:200]!r} of yours.",
        "Send the text of the message instead of its id.",
        param="input",
    )
