"""What an agent may need and most do not: loaded by name when it is first used.

The wire and the reading of rules are more than half of what there is to load; who brings a model of
their own, or sets no gate, does not wait for them.
"""

from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any

from windlass.core.messages import Label, ToolSpec
from windlass.core.verdicts import Grant
from windlass.ports import Gate, Model


def resolve_model(name: str, **options: Any) -> Model:  # noqa: ANN401 - as `models.resolve` takes them
    """The model of a name."""
    resolving: Callable[..., Model] = import_module("windlass.models.resolve").resolve_model
    return resolving(name, **options)


def grant_gate(gate: Gate) -> Gate:
    """A gate whose questions a person may have answered for the session."""
    return import_module("windlass.gates.grants").Granted(gate)


def ask_gate() -> Gate:
    """The gate of an agent that has nobody's rules but somebody to ask."""
    return import_module("windlass.gates.presets").ask()


def combine_gates(outer: Gate | None, inner: Gate | None) -> Gate | None:
    """Both gates as one, of which the stricter counts."""
    if outer is None and inner is None:
        return None
    return import_module("windlass.gates.combined").stricter(outer, inner)


def make_grant(
    tool: ToolSpec, arguments: Mapping[str, Any], pattern: str, labels: Collection[Label]
) -> Grant:
    """The grant that a yes for more than one call gives."""
    return import_module("windlass.gates.grants").grant_for(tool, arguments, pattern, labels)
