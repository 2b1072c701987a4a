"""Fields that a tool does not know, inside of its arguments, at every depth."""

from dataclasses import dataclass, field
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

from windlass import Agent, CallJudged, tool
from windlass.core.verdicts import InvalidCall
from windlass.journals.memory import MemoryJournal
from windlass.testing import ScriptedModel, VirtualClock, call
from windlass.tools.todo import todo_tool

pytestmark = pytest.mark.contract("T19")


@dataclass
class InnerData:
    colour: str = "red"


@dataclass
class OuterData:
    inner: InnerData = field(default_factory=InnerData)
    others: list[InnerData] = field(default_factory=list[InnerData])
    maybe: InnerData | None = None
    by_name: dict[str, InnerData] = field(default_factory=dict[str, InnerData])


class InnerDict(TypedDict, total=False):
    colour: str


class OuterDict(TypedDict, total=False):
    inner: InnerDict
    others: list[InnerDict]
    maybe: InnerDict | None
    by_name: dict[str, InnerDict]


class InnerModel(pydantic.BaseModel):
    colour: str = "red"


class OuterModel(pydantic.BaseModel):
    inner: InnerModel = InnerModel()
    others: list[InnerModel] = []
    maybe: InnerModel | None = None
    by_name: dict[str, InnerModel] = {}


class InnerStruct(msgspec.Struct):
    colour: str = "red"


class OuterStruct(msgspec.Struct):
    inner: InnerStruct = msgspec.field(default_factory=InnerStruct)
    others: list[InnerStruct] = []
    maybe: InnerStruct | None = None
    by_name: dict[str, InnerStruct] = {}


WRONG = {"culor": "blue"}
PLACES: dict[str, dict[str, Any]] = {
    "paint.inner": {"inner": WRONG},
    "paint.others[1]": {"others": [{"colour": "green"}, WRONG]},
    "paint.maybe": {"maybe": WRONG},
    "paint.by_name.door": {"by_name": {"door": WRONG}},
}


async def refusal_of(kind: Any, paint: dict[str, Any], clock: VirtualClock) -> str:
    """What the model is told about its call; it must not have run."""
    ran: list[object] = []

    def apply(paint: Any) -> str:
        """Apply the paint."""
        ran.append(paint)
        return "done"

    apply.__annotations__["paint"] = kind
    journal = MemoryJournal()
    with ScriptedModel([call("apply", {"paint": paint}), "Done."]) as model:
        agent = Agent(model, tools=[tool(apply)], journal=journal, clock=clock)
        await agent.run("Paint it.", session="s")
    assert ran == []
    [verdict] = [fact.verdict for fact in await journal.read("s") if isinstance(fact, CallJudged)]
    assert isinstance(verdict, InvalidCall)
    return verdict.message


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", [OuterData, OuterDict, OuterModel, OuterStruct])
async def test_an_unknown_field_inside_arguments_is_refused(
    kind: Any, place: str, clock: VirtualClock
) -> None:
    """T19: with its path and the near name, instead of a default in its place."""
    message = await refusal_of(kind, PLACES[place], clock)
    assert f"{place}: has fields that do not exist: culor (did you mean colour?)" in message


@pytest.mark.parametrize("kind", [OuterData, OuterDict, OuterModel, OuterStruct])
async def test_a_field_without_a_near_name_gets_the_known_ones(
    kind: Any, clock: VirtualClock
) -> None:
    """T19."""
    message = await refusal_of(kind, {"inner": {"weight": 3}}, clock)
    assert "paint.inner: has fields that do not exist: weight (known: colour)" in message


class OpenModel(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    colour: str = "red"


async def test_a_type_that_takes_any_field_takes_it(clock: VirtualClock) -> None:
    """T19: what the type says counts."""
    seen: list[object] = []

    @tool
    def apply(paint: OpenModel, notes: dict[str, str]) -> str:
        """Apply the paint."""
        seen.append((paint.model_extra, notes))
        return "done"

    arguments = {"paint": {"culor": "blue"}, "notes": {"any": "thing"}}
    with ScriptedModel([call("apply", arguments), "Done."]) as model:
        await Agent(model, tools=[apply], clock=clock).run("Paint it.")
    assert seen == [({"culor": "blue"}, {"any": "thing"})]


async def test_the_to_do_list_refuses_unknown_fields(clock: VirtualClock) -> None:
    """T19: `state` is not `status`, and the item is not quietly open."""
    items = {"items": [{"text": "Paint.", "state": "done"}]}
    journal = MemoryJournal()
    with ScriptedModel([call("todo", items), "Done."]) as model:
        agent = Agent(model, tools=[todo_tool()], journal=journal, clock=clock)
        await agent.run("Go.", session="s")
    [judged] = [fact for fact in await journal.read("s") if isinstance(fact, CallJudged)]
    assert isinstance(judged.verdict, InvalidCall)
    assert "items[0]: has fields that do not exist: state (did you mean status?)" in (
        judged.verdict.message
    )
