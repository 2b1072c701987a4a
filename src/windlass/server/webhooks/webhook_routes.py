"""The routes of webhooks."""

import time

import msgspec
from msgspec.structs import replace

from windlass.core.errors import ModelRetry
from windlass.server.errors import ApiError
from windlass.server.messages import HttpReply, HttpRequest, Reply
from windlass.server.owned_records import full_name
from windlass.server.resources import Resource, fill_reply
from windlass.server.service import Service
from windlass.server.webhooks.messages import make_test_message
from windlass.server.webhooks.store import (
    ALL_EVENTS,
    HookEvent,
    HookFormat,
    NewWebhook,
    Webhook,
    WebhookStore,
)


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


class TestReply(msgspec.Struct, frozen=True):
    """What came of a test message."""

    delivered: bool
    error: str = ""


def open_webhooks(service: Service) -> WebhookStore:
    return WebhookStore(service.journal, time.time)


def describe_webhook(hook: Webhook) -> WebhookReply:
    # A reply has a field for the secret, which only the one that makes a webhook shows.
    return fill_reply(WebhookReply, hook, name=full_name(hook), secret=None)


# Links to questions can answer them, so the caller who makes a webhook must be allowed to.
WEBHOOKS = Resource("webhook", WebhookReply, describe_webhook, open_webhooks, role="answer")


@WEBHOOKS.create(body=WebhookBody, errors=("address_refused", "webhooks_full"))
async def create_webhook(service: Service, request: HttpRequest) -> Reply:
    """Send messages about questions, ends and failures to an address."""
    body = await request.decode(WebhookBody)
    caller = request.caller
    fields = msgspec.structs.asdict(body)
    new = NewWebhook(owner=caller.name, sees_all=caller.is_admin, **fields)
    store = open_webhooks(service)
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
    reply = replace(describe_webhook(hook), secret=hook.secret)
    return HttpReply(201, reply, {"Location": f"/webhooks/{full_name(hook)}"})


WEBHOOKS.add_list("List webhooks by name.")
WEBHOOKS.add_read("Read a webhook, and why its messages were not taken.")


@WEBHOOKS.change("test", reply=TestReply)
async def test_webhook(service: Service, request: HttpRequest) -> Reply:
    """Send a test message at once, and say whether it was taken."""
    hook = await WEBHOOKS.find(service, request)
    outcome = await service.hook_sender.send(hook, make_test_message(hook, time.time()))
    return HttpReply(200, TestReply(outcome.is_delivered, outcome.error))


@WEBHOOKS.change("enable")
async def enable_webhook(service: Service, request: HttpRequest) -> Reply:
    """Switch a webhook on again that its receiver has switched off."""
    hook = await WEBHOOKS.find(service, request)
    changed = await open_webhooks(service).change(
        full_name(hook), lambda known: replace(known, is_disabled=False, last_error="")
    )
    return HttpReply(200, describe_webhook(changed or hook))


WEBHOOKS.add_delete("Delete a webhook. Links that it has sent stop working.")
