"""The moves are sealed: only `decide` makes one."""

import dataclasses
from typing import Any, get_args

import pytest

from facts import Story, make_call
from windlass.core import moves
from windlass.core.moves import ClearedCall, Move, ProposedCall

KINDS = (*get_args(Move), ProposedCall, ClearedCall)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_move_cannot_be_made_without_its_seal(kind: type[Any]) -> None:
    """L2: and no field of one can be set."""
    fields = {field.name: None for field in dataclasses.fields(kind)}
    with pytest.raises(TypeError, match="seal"):
        kind(**fields)
    made = kind(**fields, seal=None)
    for name in fields:
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(made, name, "another")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_no_move_can_be_subclassed_in_the_types(kind: type[Any]) -> None:
    """L2."""
    assert kind.__final__
    assert not hasattr(kind(**{f.name: None for f in dataclasses.fields(kind)}, seal=None), "seal")


def test_the_seal_is_of_a_type_that_nobody_else_can_name() -> None:
    """L2: strict types guard what begins with an underscore."""
    assert [name for name in vars(moves) if "seal" in name.lower()] == ["_MoveSeal", "_SEAL"]


@pytest.mark.parametrize(("name", "repeatable"), [("look", True), ("touch", True), ("send", False)])
def test_only_a_write_cannot_be_repeated(name: str, repeatable: bool) -> None:  # noqa: FBT001
    """J2."""
    cleared = Story().start_run().take_calls(make_call("a", name)).allow_calls("a").next_call
    assert cleared.repeatable is repeatable
