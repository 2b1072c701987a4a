"""One attempt at a message of a webhook: signed, to an address that was checked."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from windlass.core.errors import ModelRetry
from windlass.server.webhooks.messages import HookMessage
from windlass.server.webhooks.signing import sign_message
from windlass.server.webhooks.store import Webhook
from windlass.tools.web.addresses import AllowedHosts
from windlass.tools.web.guarded_http import (
    HostResolver,
    open_checked,
    parse_web_url,
    resolve_checked,
    resolve_host,
)

SEND_S_MAX = 15.0
"""For one attempt, with connecting and the answer's status."""
GONE_STATUS = 410
FIRST_SUCCESS = 200
FIRST_REDIRECT = 300


@dataclass(frozen=True, slots=True)
class SendOutcome:
    """What came of an attempt."""

    is_delivered: bool
    error: str = ""
    is_gone: bool = False
    """The receiver says that nothing should be sent there any more."""


class HookSender:
    """Sends messages. Addresses inside the network are refused, unless they are allowed."""

    def __init__(
        self,
        allowed: AllowedHosts,
        now: Callable[[], float],
        *,
        resolve: HostResolver = resolve_host,
        seconds_max: float = SEND_S_MAX,
    ) -> None:
        self._allowed = allowed
        self._now = now
        self._resolve = resolve
        self._seconds_max = seconds_max

    async def check_address(self, url: str) -> None:
        """Raise ModelRetry if nothing may be sent to an address."""
        await resolve_checked(parse_web_url(url), self._allowed, self._resolve)

    async def send(self, hook: Webhook, message: HookMessage) -> SendOutcome:
        """Make one attempt. Never raises, except when it is cancelled."""
        try:
            async with asyncio.timeout(self._seconds_max):
                return await self._post(hook, message)
        except ModelRetry as error:
            return SendOutcome(is_delivered=False, error=str(error))
        except TimeoutError:
            return SendOutcome(is_delivered=False, error="the receiver did not answer in time")

    async def _post(self, hook: Webhook, message: HookMessage) -> SendOutcome:
        url = parse_web_url(hook.url)
        addresses = await resolve_checked(url, self._allowed, self._resolve)
        headers, body = encode_message(hook, message, int(self._now()))
        async with open_checked(url, addresses, headers, method="POST", data=body) as response:
            status = response.status
        if FIRST_SUCCESS <= status < FIRST_REDIRECT:
            return SendOutcome(is_delivered=True)
        error = f"the receiver answered with status {status}"
        return SendOutcome(is_delivered=False, error=error, is_gone=status == GONE_STATUS)


def encode_message(
    hook: Webhook, message: HookMessage, timestamp: int
) -> tuple[dict[str, str], bytes]:
    """Return the headers and the body of a message, in the format of its webhook."""
    headers = {"User-Agent": "windlass", **hook.headers}
    if hook.format == "ntfy":
        body = message.to_text().encode()
        is_question = message.type == "question.asked"
        headers["Content-Type"] = "text/plain; charset=utf-8"
        headers["Title"] = _TITLES[message.type]
        headers["Priority"] = "high" if is_question else "default"
        if message.data.link:
            headers["Click"] = message.data.link
    else:
        body = message.to_body()
        headers["Content-Type"] = "application/json"
    headers["webhook-id"] = message.id
    headers["webhook-timestamp"] = str(timestamp)
    headers["webhook-signature"] = sign_message(hook.secret, message.id, timestamp, body)
    return headers, body


_TITLES = {
    "question.asked": "Windlass asks",
    "run.ended": "Windlass: a run has ended",
    "run.failed": "Windlass: a run has failed",
    "webhook.test": "Windlass",
}
