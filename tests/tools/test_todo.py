"""`todo`: nothing is kept but in the record of its calls."""

from windlass.core.schema import JsonSchema
from windlass.testing.tools import call_context, cleared_call
from windlass.tools.todo import todo_tool
from windlass.tools.toolbox import Toolbox

ITEMS = [
    {"text": "Look", "status": "done"},
    {"text": "Leap\nfar", "status": "doing"},
    {"text": "Land"},
]


async def test_the_list_comes_back_as_text() -> None:
    """T13: the same from any process, as it depends on nothing but the call."""
    told: list[str] = []
    for box in (Toolbox([todo_tool()]), Toolbox([todo_tool()])):
        result = await box.run(cleared_call(box.specs[0], {"items": ITEMS}), call_context())
        told.append(result.text)
    assert told == ["1 of 3 done:\n[x] Look\n[>] Leap far\n[ ] Land"] * 2
    empty = await box.run(cleared_call(box.specs[0], {"items": []}), call_context())
    assert empty.text == "The list is empty."


def test_its_spec() -> None:
    """T2: it changes nothing."""
    spec = todo_tool().spec
    assert (spec.name, spec.effect, spec.labels) == ("todo", "read", ())
    schema = JsonSchema(spec.parameters)
    assert schema is not None
