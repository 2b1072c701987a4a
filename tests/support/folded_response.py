"""A response made from the events of a session, without a service."""

from collections.abc import Iterator

from windlass import Event
from windlass.core.projection.project import apply_event
from windlass.core.projection.view import Projection
from windlass.core.question import Question
from windlass.server.openai.objects import ResponseObject
from windlass.server.openai.response_encoder import ResponseEncoder, ResponseEvent


def link(question: Question) -> str:
    return f"http://host/questions/{question.call_id}"


class FoldedResponse:
    """One run as a response, with the view that its events add up to."""

    def __init__(self, session: str, run: int = 1) -> None:
        self._view = Projection(session)
        self._encoder = ResponseEncoder(run, link, self._view)

    def apply(self, event: Event) -> Iterator[ResponseEvent]:
        """Yield what one more event means for the response."""
        self._view = apply_event(self._view, event)
        yield from self._encoder.encode(event, self._view)

    def read_response(self) -> ResponseObject:
        return self._encoder.read_response(self._view)

    @property
    def waits(self) -> bool:
        return self._encoder.waits(self._view)
