"""The routes of webhooks."""

import time

import msgspec
from msgspec.structs import replace

from windlass.core.errors import ModelRetry
from windlass.server.errors import ApiError
from windlass.server.messages import HttpReply, HttpRequest, Reply
from windlass.server.owned_records import PageQuery, full_name
from windlass.server.routing import Route
from windlass.server.service import Service
from windlass.server.webhooks.messages import make_test_message
from windlass.server.webhooks.records import ALL_EVENTS, HookEvent, HookFormat, Webhook
from windlass.server.webhooks.store import NewWebhook, WebhookStore


class WebhookBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A webhook that a caller wants."""

    name: str
    url: str
    """Where messages are sent. It must be a public address, unless the service allows its host."""
    events: tuple[HookEvent, ...] = ALL_EVENTS
    agent: str = ""
    """Only sessions of this agent; by default all."""
    format: HookFormat = "standard"
    content: bool = False
    """Whether messages hold what was said: the arguments of a call, the reason of an end."""
    headers: dict[str, str] = {}
    """Sent with each message, such as the token of a push service."""
    secret: str = ""
    """By default a new one, which the reply shows."""


class WebhookReply(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook. Its secret is shown once, when it is made."""

    name: str
    """Its full name, unique among all owners."""
    owner: str
    url: str
    events: tuple[HookEvent, ...]
    agent: str
    format: HookFormat
    content: bool
    created: float
    is_disabled: bool
    last_error: str
    failed: int
    """Messages that were given up."""
    secret: str | None = None


class WebhookPage(msgspec.Struct, frozen=True):
    """Some webhooks, by name."""

    webhooks: list[WebhookReply]
    cursor: str | None = None


class TestReply(msgspec.Struct, frozen=True):
    """What came of a test message."""

    delivered: bool
    error: str = ""


async def create_webhook(service: Service, request: HttpRequest) -> Reply:
    body = await request.decode(WebhookBody)
    caller = request.caller
    fields = msgspec.structs.asdict(body)
    new = NewWebhook(owner=caller.name, sees_all=caller.is_admin, **fields)
    store = _store(service)
    try:
        await service.hook_sender.check_address(body.url)
    except ModelRetry as error:
        raise ApiError(
            422,
            "address_refused",
            f"Nothing may be sent to this address: {error}",
            "Use a public address, or allow its host: windlass serve --webhook-host HOST",
        ) from None
    hook = await store.create_webhook(new)
    await store.check_count(hook, service.limits.webhooks_per_owner)
    reply = replace(webhook_reply(hook), secret=hook.secret)
    return HttpReply(201, reply, {"Location": f"/webhooks/{full_name(hook)}"})


async def list_webhooks(service: Service, request: HttpRequest) -> Reply:
    query = request.decode_query(PageQuery)
    found, cursor = await _store(service).list_for(request.caller, query)
    return HttpReply(200, WebhookPage([webhook_reply(hook) for hook in found], cursor))


async def read_webhook(service: Service, request: HttpRequest) -> Reply:
    return HttpReply(200, webhook_reply(await _find(service, request)))


async def test_webhook(service: Service, request: HttpRequest) -> Reply:
    hook = await _find(service, request)
    outcome = await service.hook_sender.send(hook, make_test_message(hook, time.time()))
    return HttpReply(200, TestReply(outcome.is_delivered, outcome.error))


async def enable_webhook(service: Service, request: HttpRequest) -> Reply:
    hook = await _find(service, request)
    changed = await _store(service).change(
        full_name(hook), lambda known: replace(known, is_disabled=False, last_error="")
    )
    return HttpReply(200, webhook_reply(changed or hook))


async def delete_webhook(service: Service, request: HttpRequest) -> Reply:
    await _store(service).remove(await _find(service, request))
    return HttpReply(204)


def webhook_reply(hook: Webhook) -> WebhookReply:
    """Return what a client is told about a webhook."""
    return WebhookReply(
        name=full_name(hook),
        owner=hook.owner,
        url=hook.url,
        events=hook.events,
        agent=hook.agent,
        format=hook.format,
        content=hook.content,
        created=hook.created,
        is_disabled=hook.is_disabled,
        last_error=hook.last_error,
        failed=hook.failed,
    )


def _store(service: Service) -> WebhookStore:
    return WebhookStore(service.journal, time.time)


async def _find(service: Service, request: HttpRequest) -> Webhook:
    return await _store(service).find(request.caller, request.params["name"])


ROUTES = (
    # Links to questions can answer them, so whoever makes a webhook must be allowed to.
    Route(
        method="POST",
        path="/webhooks",
        handler=create_webhook,
        role="answer",
        scope="caller",
        name="createWebhook",
        summary="Send messages about questions, ends and failures to an address.",
        body=WebhookBody,
        reply=WebhookReply,
        status=201,
        stored_replies=True,
        errors=("address_refused", "webhooks_full"),
    ),
    Route(
        method="GET",
        path="/webhooks",
        handler=list_webhooks,
        role="watch",
        scope="caller",
        name="listWebhooks",
        summary="List webhooks by name.",
        query=PageQuery,
        reply=WebhookPage,
    ),
    Route(
        method="GET",
        path="/webhooks/{name}",
        handler=read_webhook,
        role="watch",
        scope="caller",
        name="readWebhook",
        summary="Read a webhook, and why its messages were not taken.",
        reply=WebhookReply,
        errors=("webhook_not_found",),
    ),
    Route(
        method="POST",
        path="/webhooks/{name}/test",
        handler=test_webhook,
        role="answer",
        scope="caller",
        name="testWebhook",
        summary="Send a test message at once, and say whether it was taken.",
        stored_replies=True,
        reply=TestReply,
        errors=("webhook_not_found",),
    ),
    Route(
        method="POST",
        path="/webhooks/{name}/enable",
        handler=enable_webhook,
        role="answer",
        scope="caller",
        name="enableWebhook",
        summary="Switch a webhook on again that its receiver has switched off.",
        stored_replies=True,
        reply=WebhookReply,
        errors=("webhook_not_found",),
    ),
    Route(
        method="DELETE",
        path="/webhooks/{name}",
        handler=delete_webhook,
        role="answer",
        scope="caller",
        name="deleteWebhook",
        summary="Delete a webhook. Links that it has sent stop working.",
        stored_replies=True,
        status=204,
        errors=("webhook_not_found",),
    ),
)
