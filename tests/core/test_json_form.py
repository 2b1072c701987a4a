"""Events, questions and results as JSON: one shape, read back as the same value (A5, L5)."""

import dataclasses
from decimal import Decimal
from typing import Any

import msgspec
import pytest

import windlass
from windlass import Agent, Question, RunResult, tool
from windlass.core.disclosure import NOTHING, show_event
from windlass.core.errors import Fault
from windlass.core.events import Delta, Event, NestedEvent, RunStarted, RunSuspended, TextDelta
from windlass.core.messages import Charge, Ledger, TextPart, Usage, UserMessage
from windlass.core.setup import ModelInfo, Setup
from windlass.core.verdicts import Approval, CallPreview
from windlass.gates import ask
from windlass.server.frames import encode_event
from windlass.testing import ScriptedModel, call
from windlass.testing.live import ITEMS
from windlass.testing.samples import facts_of_every_kind

QUESTION = Question(
    "s/c1_0",
    "c1_0",
    "send",
    {"to": "ann", "usd": 3},
    "May I?",
    "digest",
    "rule",
    2e9,
    ("boss", "clerk"),
    CallPreview("it would be sent"),
    (Approval("money", 2),),
    ("ann",),
    {"type": "object"},
    is_live=True,
)


def make_result(**changes: Any) -> RunResult[Any]:
    known: RunResult[Any] = RunResult(
        outcome="completed",
        reason="",
        output_or_none="Done.",
        text="Done.",
        partial_text="Do",
        messages=(UserMessage((TextPart("Go."),)),),
        new_from=0,
        ledger=Ledger((Charge("m", "main", Usage(3, 1), Decimal("0.000010")),)),
        steps=1,
        model_calls=2,
        duration_s=0.1234567,
        session_id="s",
        run=1,
        error=Fault("server", "busy"),
        gated=True,
        recorded=False,
        questions=(QUESTION,),
        undo_due=True,
        still_running=("c1",),
    )
    return dataclasses.replace(known, **changes)


def list_events() -> list[Event]:
    nested = NestedEvent(
        "c", "clerk", "s/c", NestedEvent("d", "x", "s/c/d", TextDelta("Hi", nth=1))
    )
    deltas = [item for item in ITEMS if isinstance(item, Delta)]
    return [*facts_of_every_kind(), *deltas, nested, RunSuspended((QUESTION,), seq=3, nth=1)]


@pytest.mark.contract("A5")
@pytest.mark.parametrize("event", list_events(), ids=lambda event: type(event).__name__)
def test_an_event_is_read_back_from_its_json_and_a_service_sends_the_same_bytes(
    event: Event,
) -> None:
    text = event.to_json()
    assert windlass.parse_event(text) == event
    assert type(event).from_json(text.encode()) == event
    assert text.encode() in encode_event(event).splitlines()[-2]


@pytest.mark.contract("A11")
def test_what_a_service_hides_is_read_as_empty() -> None:
    setup = Setup(model=ModelInfo("m"), instructions="Secret.")
    fact = RunStarted(1, (TextPart("Go."),), setup, seq=1)
    sent = msgspec.json.decode(fact.to_json())
    del sent["setup"]["instructions"]
    sent["hidden"] = ["setup.instructions"]
    read = RunStarted.from_json(msgspec.json.encode(sent))
    assert read.setup is not None
    assert (read.run, read.setup.instructions) == (1, "")


@pytest.mark.contract("L5")
def test_a_question_and_a_result_are_read_back_from_their_json() -> None:
    assert Question.from_json(QUESTION.to_json()) == QUESTION
    result = make_result()
    assert RunResult.from_json(result.to_json(messages=True)) == result
    short = RunResult.from_json(result.to_json())
    assert short == dataclasses.replace(result, messages=(), new_from=0)
    assert '"cost_usd":"0.000010"' in result.to_json()


@pytest.mark.contract("A11")
def test_the_rule_of_a_question_is_hidden_in_the_event_too() -> None:
    shown = show_event(RunSuspended((QUESTION,), seq=3, nth=1), NOTHING)
    assert (shown.questions[0].rule, shown.hidden) == ("", ("questions.rule",))
    assert windlass.parse_event(shown.to_json()) == shown


class Order(msgspec.Struct):
    """An output with a type."""

    number: int


@pytest.mark.contract("L5")
def test_an_output_of_any_type_has_a_json_form() -> None:
    order = make_result(output_or_none=Order(7)).to_json()
    assert RunResult.from_json(order, Order).output == Order(7)
    assert RunResult.from_json(order).output == {"number": 7}
    assert '"output":null' in make_result(outcome="failed", output_or_none=None).to_json()
    odd = make_result(output_or_none={(1, 2): "\ud800"}).to_json()
    assert RunResult.from_json(odd).output == repr({(1, 2): "\ud800"})


@pytest.mark.parametrize(
    ("read", "name"),
    [(windlass.parse_event, "an event"), (Question.from_json, "Question")],
)
def test_what_is_no_json_of_it_is_refused(read: Any, name: str) -> None:
    for text in ("", "{", "[]", '{"type":"Unheard"}', b"\xff"):
        with pytest.raises(ValueError, match=name):
            read(text)
    with pytest.raises(ValueError, match="nested event"):
        windlass.parse_event('{"type":"Nested","call_id":"","agent":"","session":"","event":{}}')


@pytest.mark.contract("L5")
async def test_a_question_is_the_same_in_the_result_the_view_and_the_event() -> None:
    @tool
    def send(to: str) -> str:
        return f"sent to {to}"

    model = ScriptedModel([call("send", {"to": "ann"})])
    agent = Agent(model, tools=[send], gate=ask())
    seen: list[Event] = []
    result = await agent.run("Send it.", on_event=seen.append)
    last = seen[-1]
    assert isinstance(last, RunSuspended)
    [question] = result.questions
    assert (question.session, question.tool) == (result.session_id, "send")
    view = windlass.project_events(seen, result.session_id)
    assert (question,) == last.questions == view.questions
