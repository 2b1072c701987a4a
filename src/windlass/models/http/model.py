"""A model behind HTTP: a dialect, a vendor's address and a key, as one `Model`.

The law: single-shot. One call of `stream` is one request; what comes of it is pieces, or one
classified error (S1). A reply whose end has been told is whole, whatever the connection does then.
"""

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable
from urllib.parse import urlsplit

from typing_extensions import override

from windlass.core.errors import ModelError
from windlass.core.events import ReplyEnd, ReplyPiece
from windlass.core.messages import ContentPart, TextPart, UserMessage
from windlass.core.secrets.secret import Secret
from windlass.core.setup import ModelInfo
from windlass.core.view import Prompt
from windlass.models.dialect import Dialect, ModelOptions
from windlass.models.effort import choose_effort
from windlass.models.http.errors import RequestTarget, mask_keys
from windlass.models.http.post import post_sse
from windlass.ports import Timeouts

_DEFAULT_TIMEOUTS = Timeouts()
_SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie", re.IGNORECASE)
"""The headers that hold secrets."""


@runtime_checkable
class FinishingReader(Protocol):
    """A reader that has something to say when the stream is over."""

    def finish(self) -> Sequence[ReplyPiece]: ...


@runtime_checkable
class Choosy(Protocol):
    """A model that can tell, before it is asked, what it cannot take."""

    def refusal(self, parts: Sequence[ContentPart]) -> str | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEndpoint:
    """Where requests go, and with which credentials."""

    site: RequestTarget
    key: Secret | None = None
    key_header: str = "Authorization"
    extra_headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Headers that this server wants."""
    proxy: str | None = None
    timeouts: Timeouts = _DEFAULT_TIMEOUTS

    @property
    def request_headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", **self.extra_headers}
        if self.key:
            value = self.key.reveal()
            bearer = self.key_header == "Authorization"
            headers[self.key_header] = f"Bearer {value}" if bearer else value
        return headers


class HttpModel:
    """A model of some vendor. With `policy`, the prompt decides on an effort that nobody set."""

    def __init__(
        self,
        info: ModelInfo,
        dialect: Dialect,
        endpoint: ModelEndpoint,
        options: ModelOptions | None = None,
        *,
        effort_policy: bool = False,
    ) -> None:
        self._info = info
        self._dialect = dialect
        self._endpoint = endpoint
        self._options = options or ModelOptions()
        self._chooses_effort = effort_policy and self._options.effort is None

    @property
    def info(self) -> ModelInfo:
        return self._info

    @property
    def secrets(self) -> Mapping[str, Secret]:
        """What must not be seen of how it is asked, by name."""
        site, key = self._endpoint.site, self._endpoint.key
        held = {site.key_env or f"{site.vendor}-key": key} if key else dict[str, Secret]()
        if password := urlsplit(site.url).password:
            held[f"{site.vendor}-password"] = Secret(password)
        sent = {**self._endpoint.extra_headers, **self._options.extra_headers}
        for name, value in sent.items():
            if _SECRET_HEADER.search(name):
                held[name] = Secret(value.removeprefix("Bearer ").strip())
        return held

    @override
    def __repr__(self) -> str:
        return f"HttpModel({self._info.name!r}, {mask_keys(self._endpoint.site.url)!r})"

    def refusal(self, parts: Sequence[ContentPart]) -> str | None:
        """Why a prompt of these parts cannot be sent, with the part's name; None if it can (P7).

        The encoder itself is asked, so that the two never disagree. What is once on record is part
        of every later request, so that a prompt is to be refused before it is.
        """
        media = tuple(part for part in parts if not isinstance(part, TextPart))
        if not media:
            return None
        prompt = Prompt(
            self._info.name, "", [UserMessage(media)], (), "auto", self._info.output_max
        )
        try:
            self._dialect.encode_request(prompt, self._endpoint.site.model, self._options)
        except ModelError as error:
            return str(error)
        return None

    async def stream(self, prompt: Prompt) -> AsyncGenerator[ReplyPiece]:
        # What a model may be shown of its own past depends on which model is asked (S11).
        prompt = replace(prompt, model=self._info.name)
        reader = self._dialect.new_reader(prompt)
        ended = False
        fault: ModelError | None = None
        try:
            async with aclosing(self._request_events(prompt)) as events:
                async for event, data in events:
                    for piece in reader.read_event(event, data):
                        ended = ended or type(piece) is ReplyEnd
                        yield piece
        except ModelError as error:
            fault = error
        if not ended and isinstance(reader, FinishingReader):
            for piece in reader.finish():
                ended = True
                yield piece
        if fault is not None and not ended:
            raise fault

    def _request_events(self, prompt: Prompt) -> AsyncGenerator[tuple[str, bytes]]:
        """One request on its way; nothing is sent before the first event is asked for."""
        options = (
            replace(self._options, effort=choose_effort(prompt))
            if self._chooses_effort
            else self._options
        )
        at = self._endpoint
        request = self._dialect.encode_request(prompt, at.site.model, options)
        return post_sse(
            at.site.url + request.path,
            request.body,
            at.request_headers | request.headers,
            site=at.site,
            timeouts=at.timeouts,
            proxy=at.proxy,
        )
