"""Start the run that a request asks for: in a new session, after an earlier response, or in a fork.

Invariant: an earlier response is never changed. A request that continues one that is not the last
of its session gets its own session, which begins with all that led to that response.
"""

import hashlib
from collections.abc import Mapping, Sequence
from itertools import dropwhile
from typing import Any, NamedTuple

from windlass.core.errors import RunUnfinished, SessionBusy
from windlass.core.events import Fact, RunEnded, RunQueued, RunStarted
from windlass.core.limits import Limits
from windlass.core.projection.view import ReplyEntry
from windlass.server.client_run import ClientRun, find_known, starts_run
from windlass.server.messages import HttpRequest
from windlass.server.openai.following import (
    ResponseFollower,
    find_response,
    find_wait_error,
    not_found,
)
from windlass.server.openai.inputs import (
    ChatRequest,
    ClientInput,
    ResponseRequest,
    WindlassOptions,
    check_chat_request,
    check_response_request,
    find_references,
    read_chat_input,
    read_format,
    read_response_input,
    resolve_references,
)
from windlass.server.openai.objects import OpenAIError, read_id
from windlass.server.owned_reading import read_recorded_facts, wait_for_records
from windlass.server.run_controls import StartRequest
from windlass.server.service import Service
from windlass.server.session_directory import OwnedSession

UNNAMED_AGENT = "windlass"
"""The model that stands for an agent without a name."""
TRIES_MAX = 10
"""How often a session is read again because another request came first."""
RETRY_S = 0.2
"""How long to wait for the first record of that request."""


class WantedRun(NamedTuple):
    """The run that a request asks for."""

    agent: str
    given: ClientInput
    limits: Limits | None
    schema: Mapping[str, Any] | None
    """What the final reply must fit."""


async def start_chat(service: Service, request: HttpRequest, body: ChatRequest) -> ResponseFollower:
    """Start the run of a chat completion, in its own session."""
    check_chat_request(body)
    agent = find_agent(service, body.model)
    given = read_chat_input(body.messages)
    schema = read_format(body.response_format, "response_format")
    wanted = WantedRun(agent, given, _read_limits(body.windlass), schema)
    return ResponseFollower(await _start(service, request, wanted), request)


async def start_response(
    service: Service, request: HttpRequest, body: ResponseRequest
) -> ResponseFollower:
    """Start the run of a response."""
    check_response_request(body)
    agent = find_agent(service, body.model)
    texts = {
        each: await _read_message(service, request, each) for each in find_references(body.input)
    }
    items = resolve_references(body.input, texts)
    given = read_response_input(items, body.instructions or "")
    schema = read_format((body.text or {}).get("format"), "text.format")
    wanted = WantedRun(agent, given, _read_limits(body.windlass), schema)
    if body.previous_response_id is None:
        run = await _start(service, request, wanted)
    else:
        run = await _continue(service, request, wanted, body.previous_response_id)
    return ResponseFollower(run, request)


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
) -> ClientRun:
    given = wanted.given
    return await ClientRun.start(
        service,
        request.caller,
        StartRequest(
            prompt=given.prompt,
            agent=wanted.agent,
            session=session,
            key=request.header("idempotency-key"),
            earlier=given.earlier,
            limits=wanted.limits,
            output_schema=wanted.schema,
            trace=request.trace,
        ),
    )


async def _continue(
    service: Service, request: HttpRequest, wanted: WantedRun, previous: str
) -> ClientRun:
    """Start a run after an earlier response."""
    if wanted.given.earlier:
        raise OpenAIError(
            400,
            "history_given_twice",
            "`input` holds earlier messages, and `previous_response_id` already includes them.",
            "Send only what is new.",
            param="input",
        )
    for _ in range(TRIES_MAX):
        found = await find_response(service, request, previous)
        session = found.run.session
        facts = await read_recorded_facts(service.journal, session)
        end = _find_end(facts, found.run.number)
        if end is None:
            raise await _still_open(found)
        if _must_fork(facts, found.run.number, request.header("idempotency-key")):
            session = await _fork(service, request, session, end)
        try:
            return await _start(service, request, wanted, session.name)
        except (SessionBusy, RunUnfinished):
            # Another request continues from the same response at this moment: its run will be
            # there.
            await wait_for_records(service.journal, session, facts[-1].seq, RETRY_S)
    raise SessionBusy(f"other requests keep going on from {previous}: try again")


def _find_end(facts: Sequence[Fact], run: int) -> int | None:
    """Return the number of the fact that ended a run, or None if it is open."""
    own = dropwhile(lambda fact: not starts_run(fact, run), facts)
    return next((fact.seq for fact in own if isinstance(fact, RunEnded)), None)


def _must_fork(facts: Sequence[Fact], run: int, key: str) -> bool:
    """Return whether another request has continued from this run already."""
    begins = (fact for fact in facts if isinstance(fact, RunQueued | RunStarted))
    later = [fact for fact in begins if fact.run > run]
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
    made = await find_known(service, request.caller, name)
    return made or await service.fork(session, at, name)


async def _still_open(found: ResponseFollower) -> OpenAIError:
    response = await found.read()
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
    reference = read_id(message_id)
    session = None
    if reference is not None and reference.kind == "msg":
        session = await find_known(service, request.caller, reference.session)
    # An id holds the full name. The same text as a short name is another session.
    if reference is None or session is None or session.name != reference.session:
        raise not_found("message", message_id)
    for entry in session.view.entries:
        if isinstance(entry, ReplyEntry) and entry.kind == "reply" and entry.seq > reference.number:
            return entry.text
    raise OpenAIError(
        404,
        "message_not_found",
        f"There is no message {message_id[:200]!r} of yours.",
        "Send the text of the message instead of its id.",
        param="input",
    )
