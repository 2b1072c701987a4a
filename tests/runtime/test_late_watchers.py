"""A watcher that comes or goes in the middle of a reply changes nothing for the others."""

import pytest
from msgspec.structs import replace

from windlass.core.events import (
    AttemptStarted,
    CallDelta,
    ContentPiece,
    Event,
    ReplyEnd,
    StepProposed,
    TextDelta,
    ThinkingDelta,
)
from windlass.core.limits import Reservation
from windlass.core.messages import AssistantMessage, TextPart
from windlass.core.secrets.mask import Mask
from windlass.core.state import State
from windlass.runtime.publisher import EventPublisher

SECRET = "hunter2-of-the-hill"


@pytest.fixture
def publisher() -> EventPublisher:
    publisher = EventPublisher(Mask({"PASSWORD": SECRET}))
    publisher.publish_facts([AttemptStarted(1, 1, "m", Reservation(1, 1))], State("s"))
    return publisher


def watch(publisher: EventPublisher, *pieces: ContentPiece) -> list[Event]:
    """Come in when the reply has these pieces; the list grows with what is shown."""
    shown: list[Event] = [*publisher.masked_so_far(pieces)]
    publisher.add_watcher(shown.append)
    return shown


def text_of(shown: list[Event]) -> str:
    return "".join(event.text for event in shown if isinstance(event, TextDelta))


@pytest.mark.contract("E5", "G8")
def test_who_comes_after_another_has_left_sees_the_whole_text(publisher: EventPublisher) -> None:
    """What was held back for the one who left is neither lost nor shown twice."""
    shown: list[Event] = []
    publisher.add_watcher(shown.append)
    publisher.show_pieces([TextDelta("The hunt")])
    publisher.remove_watcher(shown.append)
    publisher.show_pieces([TextDelta("ed fox, and ")])
    late = watch(publisher, TextDelta("The hunted fox, and "))
    for piece in ("hunter", "2-of-", "the-hill", "."):
        publisher.show_pieces([TextDelta(piece)])
    publisher.show_pieces([CallDelta(0, "c", "f")])
    assert text_of(late) == "The hunted fox, and [secret: PASSWORD]."


@pytest.mark.contract("E5")
def test_who_comes_while_the_model_thinks_repeats_nothing_for_others(
    publisher: EventPublisher,
) -> None:
    first = watch(publisher)
    publisher.show_pieces([TextDelta("I hunt")])
    publisher.show_pieces([ThinkingDelta("Hm.")])
    late = watch(publisher, TextDelta("I hunt"), ThinkingDelta("Hm."))
    publisher.show_pieces([ThinkingDelta(" Well.")])
    publisher.show_pieces([TextDelta(" foxes.")])
    assert text_of(first) == "I hunt foxes."
    assert text_of(late) == "I hunt foxes."


@pytest.mark.contract("G8")
def test_a_call_that_began_unwatched_is_masked_from_its_beginning(
    publisher: EventPublisher,
) -> None:
    """Its rest alone could be the second half of a secret."""
    begun = CallDelta(0, "c", "login", '{"password": "hunter2')
    publisher.show_pieces([begun])
    late = watch(publisher, begun)
    publisher.show_pieces([CallDelta(0, arguments='-of-the-hill"}')])
    publisher.show_pieces([CallDelta(1, "d", "look", "{}")])
    publisher.show_pieces([ReplyEnd("calls")])
    assert "hill" not in repr(late)
    calls = [event for event in late if isinstance(event, CallDelta)]
    assert "".join(call.arguments for call in calls if call.index == 0) == (
        '{"password": "[secret: PASSWORD]"}'
    )


@pytest.mark.contract("E5", "D12")
def test_who_comes_late_gets_thinking_and_calls_so_far(publisher: EventPublisher) -> None:
    """Whether or not somebody else has watched from the beginning."""
    begun = [ThinkingDelta("Hm."), TextDelta("I look."), CallDelta(0, "c", "look", '{"at": ')]
    for piece in begun:
        publisher.show_pieces([piece])
    for _ in range(2):
        late = watch(publisher, *begun)
        assert [replace(event, seq=0, nth=0) for event in late] == begun


@pytest.mark.contract("E5")
def test_who_comes_while_the_calls_of_a_reply_work_does_not_get_its_text_again(
    publisher: EventPublisher,
) -> None:
    """The reply is on record, so its fact has told the text."""
    watch(publisher)
    publisher.show_pieces([TextDelta("I look.")])
    publisher.publish_facts(
        [StepProposed(AssistantMessage((TextPart("I look."),)), "calls")], State("s")
    )
    assert watch(publisher) == []


@pytest.mark.contract("S6")
def test_a_watcher_that_does_not_count_has_seen_nothing(publisher: EventPublisher) -> None:
    shown: list[Event] = []
    publisher.add_watcher(shown.append, counts=False)
    assert not publisher.show_pieces([TextDelta("Hi")])
    assert text_of(shown) == "Hi"
    publisher.add_watcher(lambda _: None)
    assert publisher.show_pieces([TextDelta(" you")])
