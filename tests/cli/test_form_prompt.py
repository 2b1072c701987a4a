"""Forms that a person fills in at the terminal."""

import io
from contextlib import nullcontext
from typing import Any, cast

import pytest
from typing_extensions import override

from windlass import Modify, Question
from windlass.cli.form_prompt import fill_form, read_value
from windlass.cli.question_prompt import QuestionPrompt
from windlass.cli.screen import Screen
from windlass.cli.status import StatusLine
from windlass.cli.terminal import Keyboard

NAMED = [{"const": "a", "title": "One"}, {"const": "b", "title": "Two"}]
FORM = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 2, "description": "Where to?\x1b[2J"},
        "nights": {"type": "integer", "minimum": 1, "default": 2},
        "quiet": {"type": "boolean"},
    },
    "required": ["city"],
}


@pytest.mark.parametrize(
    ("field", "typed", "value"),
    [
        ({"type": "string"}, " Oslo ", "Oslo"),
        ({"type": "integer"}, "3", 3),
        ({"type": "number"}, "3.5", 3.5),
        ({"type": "boolean"}, "Yes", True),
        ({"type": "boolean"}, "n", False),
        ({"type": "string", "enum": ["cat"], "enumNames": ["Cats"]}, "cats", "cat"),
        ({"type": "string", "oneOf": NAMED}, "two", "b"),
        ({"type": "array", "items": {"anyOf": NAMED}}, "One, b", ["a", "b"]),
    ],
)
def test_what_is_typed_becomes_a_value(field: dict[str, Any], typed: str, value: object) -> None:
    assert read_value(field, typed) == value


@pytest.mark.parametrize(
    ("field", "typed"),
    [
        ({"type": "integer"}, "three"),
        ({"type": "integer", "maximum": 2}, "3"),
        ({"type": "boolean"}, "perhaps"),
        ({"type": "string", "enum": ["cat"]}, "dog"),
        ({"type": "array", "items": {"type": "string", "enum": ["cat"]}}, "cat, dog"),
    ],
)
def test_what_does_not_fit_is_said_at_once(field: dict[str, Any], typed: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        read_value(field, typed)


class Typist(Keyboard):
    """Presses keys and types lines."""

    def __init__(self, keys: str, *lines: str) -> None:
        self.keys = list(keys)
        self.lines = list(lines)
        self.labels: list[str] = []

    @override
    async def read_key(self, show: Any = None) -> str:
        if show is not None:
            show()
        return self.keys.pop(0)

    @override
    async def read_line(self, label: str, default: str = "") -> str | None:
        self.labels.append(label)
        return self.lines.pop(0) or default


class QuietStatus:
    def pause(self) -> Any:
        return nullcontext()


async def answer(keyboard: Typist, **more: Any) -> tuple[Any, str]:
    page = io.StringIO()
    prompt = QuestionPrompt(Screen(page), cast("StatusLine", QuietStatus()), keyboard)
    call = ("s", "c1.question1", "mcp_elicitation")
    question = Question(*call, {"nights": 2}, "MCP server 'trips' asks: Where?", "d", **more)
    return await prompt(question), page.getvalue()


async def test_a_person_fills_in_a_form() -> None:
    """T15: a wrong value is asked for again, an empty field is left out or has its default."""
    keyboard = Typist("aey", "X", "Oslo", "", "")
    reply, page = await answer(keyboard, form=FORM, is_live=True)
    assert reply == Modify({"city": "Oslo", "nights": 2}, "The user filled in the form.", "person")
    assert "fill it in" in page
    assert "always" not in page
    assert len(keyboard.labels) == 4
    assert "\x1b" not in "".join(keyboard.labels)


async def test_what_a_running_call_asks_is_for_this_once() -> None:
    """G4: there is no "always", and "not now" postpones no other question."""
    reply, page = await answer(Typist("aq"), is_live=True)
    assert reply is None
    assert "always" not in page
    nobody = await fill_form(FORM, _give_up, print)
    assert nobody is None


async def _give_up(_label: str, _default: str) -> str | None:
    return None
