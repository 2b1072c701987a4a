"""The routes below /v1: agents as models, chat completions, responses."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Literal

import msgspec

from windlass.core.errors import WindlassError
from windlass.server.api.session_records import session_address
from windlass.server.errors import api_error_from
from windlass.server.messages import ApiError, HttpReply, HttpRequest, Reply, StreamReply
from windlass.server.openai.following import (
    CancellingFrames,
    ChatChunks,
    ChatCompletion,
    ResponseFollower,
    find_response,
    make_completion,
)
from windlass.server.openai.input_items import (
    InputItemList,
    InputItemsQuery,
    list_input_items,
)
from windlass.server.openai.inputs import ChatRequest, ResponseRequest, RetrieveQuery
from windlass.server.openai.objects import (
    ModelList,
    ModelObject,
    OpenAIError,
    OpenAIErrorReply,
    ResponseObject,
    describe_error,
    openai_error_reply,
)
from windlass.server.openai.response_encoder import ErrorEvent, ResponseEvent, skip_seen
from windlass.server.openai.starting import (
    UNNAMED_AGENT,
    find_agent,
    start_chat,
    start_response,
)
from windlass.server.routing import Routes
from windlass.server.service import Service
from windlass.server.sse import STREAM_HEADERS

DONE = b"data: [DONE]\n\n"


class DeletedResponse(msgspec.Struct, frozen=True):
    """A response that was deleted."""

    id: str
    object: Literal["response"] = "response"
    deleted: bool = True


ROUTES = Routes()
SHAPE: dict[str, Any] = {"error_shape": openai_error_reply, "error_body": OpenAIErrorReply}


@ROUTES.add("GET", "/v1/models", role="watch", reply=ModelList, **SHAPE)
async def list_models(service: Service, _request: HttpRequest) -> Reply:
    """List the agents of the service, as models."""
    models = tuple(ModelObject(name or UNNAMED_AGENT) for name in service.agents)
    return HttpReply(200, ModelList(models))


@ROUTES.add(
    "GET",
    "/v1/models/{model}",
    role="watch",
    reply=ModelObject,
    errors=("model_not_found",),
    **SHAPE,
)
async def read_model(service: Service, request: HttpRequest) -> Reply:
    """Read an agent, as a model."""
    name = find_agent(service, request.params["model"])
    return HttpReply(200, ModelObject(name or UNNAMED_AGENT))


@ROUTES.add(
    "POST",
    "/v1/chat/completions",
    role="start",
    scope="caller",
    stored_replies=True,
    is_keyed=True,
    body=ChatRequest,
    reply=ChatCompletion,
    streams=True,
    errors=("approval_required", "model_not_found", "run_failed", "unsupported_parameter"),
    **SHAPE,
)
async def create_chat_completion(service: Service, request: HttpRequest) -> Reply:
    """Run an agent as a chat completion. A client that goes away cancels the run."""
    body = await request.decode(ChatRequest)
    follower = await start_chat(service, request, body)
    if request.header("idempotency-key"):
        # A client that names its request can send it again after a lost connection.
        follower.keep_run()
    on_question = body.windlass.on_question
    if body.stream:
        usage = body.stream_options is not None and body.stream_options.include_usage
        frames = _stream_chat(follower, ChatChunks(include_usage=usage), on_question)
        return StreamReply(CancellingFrames(frames, follower), headers=STREAM_HEADERS)
    await follower.finish_with_client(on_question=on_question)
    return HttpReply(200, make_completion(await follower.read()))


async def _stream_chat(
    follower: ResponseFollower, chunks: ChatChunks, on_question: str
) -> AsyncGenerator[bytes]:
    try:
        async with aclosing(follower.follow(on_question=on_question)) as steps:
            async for events in steps:
                for chunk in chunks.translate(events):
                    yield b"data: %b\n\n" % msgspec.json.encode(chunk)
        follower.keep_run()
    except (ApiError, WindlassError) as error:
        shown = api_error_from(error)
        if shown.code != "reply_broken":
            # A run that waits continues when it is answered.
            follower.keep_run()
        yield b"data: %b\n\n" % msgspec.json.encode({"error": describe_error(shown)})
    yield DONE


@ROUTES.add(
    "POST",
    "/v1/responses",
    role="start",
    scope="caller",
    stored_replies=True,
    is_keyed=True,
    body=ResponseRequest,
    reply=ResponseObject,
    streams=True,
    errors=("approval_required", "model_not_found", "unsupported_parameter"),
    **SHAPE,
)
async def create_response(service: Service, request: HttpRequest) -> Reply:
    """Run an agent as a response, also in the background."""
    body = await request.decode(ResponseRequest)
    follower = await start_response(service, request, body)
    # A background response waits for people as long as it takes.
    on_question = "wait" if body.background else body.windlass.on_question
    if body.stream:
        return _stream_reply(follower, on_question)
    if not body.background:
        await follower.finish(on_question=on_question)
    return HttpReply(200, await follower.read())


@ROUTES.add(
    "GET",
    "/v1/responses/{response}",
    role="watch",
    scope="caller",
    query=RetrieveQuery,
    reply=ResponseObject,
    streams=True,
    errors=("response_not_found",),
    **SHAPE,
)
async def read_response(service: Service, request: HttpRequest) -> Reply:
    """Read a response, or resume its stream after an event."""
    query = request.decode_query(RetrieveQuery)
    follower = await find_response(service, request, request.params["response"])
    if query.stream:
        return _stream_reply(follower, "wait", query.starting_after)
    return HttpReply(200, await follower.read())


@ROUTES.add(
    "GET",
    "/v1/responses/{response}/input_items",
    role="watch",
    scope="caller",
    query=InputItemsQuery,
    reply=InputItemList,
    errors=("response_not_found",),
    **SHAPE,
)
async def list_response_input(service: Service, request: HttpRequest) -> Reply:
    """List what a request gave to a response."""
    query = request.decode_query(InputItemsQuery)
    run = (await find_response(service, request, request.params["response"])).run
    return HttpReply(200, list_input_items(run.session.view, run.number, query))


@ROUTES.add(
    "DELETE",
    "/v1/responses/{response}",
    role="start",
    scope="caller",
    reply=DeletedResponse,
    errors=("response_continued", "response_not_found", "session_busy"),
    **SHAPE,
)
async def delete_response(service: Service, request: HttpRequest) -> Reply:
    """Delete a response for good. One that others continue is deleted with its conversation."""
    follower = await find_response(service, request, request.params["response"])
    session = follower.run.session
    if session.summary.runs > 1:
        raise OpenAIError(
            409,
            "response_continued",
            f"This response is one of {session.summary.runs} in a conversation, which is kept as "
            "a whole.",
            f"Delete the conversation: DELETE {session_address(session.name)}",
        )
    await service.erase(session)
    return HttpReply(200, DeletedResponse(request.params["response"]))


@ROUTES.add(
    "POST",
    "/v1/responses/{response}/cancel",
    role="start",
    scope="caller",
    stored_replies=True,
    is_keyed=True,
    reply=ResponseObject,
    errors=("response_not_found",),
    **SHAPE,
)
async def cancel_response(service: Service, request: HttpRequest) -> Reply:
    """End the run of a response. One that has ended stays as it is."""
    follower = await find_response(service, request, request.params["response"])
    await follower.run.cancel("cancelled by the client")
    return HttpReply(200, await follower.read())


def _stream_reply(
    follower: ResponseFollower, on_question: str, starting_after: int = -1
) -> StreamReply:
    frames = _stream_response(follower, on_question, starting_after)
    return StreamReply(frames, headers=STREAM_HEADERS)


async def _stream_response(
    follower: ResponseFollower, on_question: str, starting_after: int
) -> AsyncGenerator[bytes]:
    number = starting_after
    try:
        async with aclosing(follower.follow(on_question=on_question)) as steps:
            async for events in steps:
                for event in events:
                    number = event.sequence_number
                    rest = skip_seen(event, starting_after)
                    if rest is not None:
                        yield _encode_frame(rest)
    except (ApiError, WindlassError) as error:
        shown = api_error_from(error)
        yield _encode_frame(ErrorEvent(number + 1, shown.code, str(shown), describe_error(shown)))


def _encode_frame(event: ResponseEvent) -> bytes:
    return f"event: {event.type}\n".encode() + b"data: %b\n\n" % msgspec.json.encode(event)
