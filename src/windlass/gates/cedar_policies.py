"""Cedar policies, read and checked when a gate is made.

The law: a policy that can never be meant lets nothing start. That is a text that is no policy, what
a schema does not allow, a template that nobody fills in, a name that no request has, and a question
that would never be put. Cedar itself would let a forbid with a slip of the pen be silent.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import msgspec

from windlass.core.errors import ConfigError
from windlass.core.suggestions import suggest_names

if TYPE_CHECKING:
    from cedarpy import PolicySet, Schema

ACTION_ID = "call"
SCOPE_TYPES = {"principal": "Agent", "action": "Action", "resource": "Tool"}
CONTEXT_NAMES = (
    "agent",
    "approved",
    "arguments",
    "caller",
    "effect",
    "labels",
    "session",
    "trusted",
)
ERRORS_MAX = 3


@dataclass(frozen=True, slots=True)
class CedarPolicies:
    """A set of policies, with what is written over each."""

    handle: "PolicySet"
    json_by_id: dict[str, Any]
    """All that they say, without comments and layout."""

    @property
    def ids(self) -> list[str]:
        """As Cedar numbers them: policy0, policy1."""
        return list(self.json_by_id)

    def format_names(self, ids: Iterable[str]) -> str:
        """The policies by their `@id`, or by their number."""
        return " + ".join(sorted(self._annotation_of(one, "id") or one for one in ids))

    def annotation_texts(self, ids: Iterable[str], kind: str) -> list[str]:
        """What is written over these policies under `@kind`, each once."""
        found = (self._annotation_of(one, kind) for one in sorted(ids))
        return list(dict.fromkeys(note for note in found if note))

    def _annotation_of(self, policy: str, kind: str) -> str:
        return _read_annotations(self.json_by_id.get(policy, {})).get(kind) or ""


def load_cedar_engine() -> ModuleType:
    """The engine; it is loaded when the first gate is made."""
    try:
        import cedarpy  # noqa: PLC0415 - of the extra
    except ImportError:
        raise ConfigError("Cedar policies need an extra: pip install 'windlass[cedar]'") from None
    return cedarpy


def read_schema(schema: str | Mapping[str, Any] | None) -> "Schema | None":
    if schema is None:
        return None
    text = schema if isinstance(schema, str) else msgspec.json.encode(schema).decode()
    try:
        return load_cedar_engine().Schema.from_str(text)
    except ValueError as error:
        raise ConfigError(f"the Cedar schema cannot be read: {error}") from None


def read_policies(text: str, schema: "Schema | None") -> CedarPolicies:
    engine = load_cedar_engine()
    try:
        handle = engine.PolicySet.from_str(text)
        whole = msgspec.json.decode(engine.policies_to_json_str(text), type=dict[str, Any])
    except ValueError as error:
        told = f"the Cedar policies cannot be read: {error}"
        path = "" if "(" in text else "; for those in a file use load_cedar(path)"
        raise ConfigError(f"{told}{path}") from None
    if whole["templates"]:
        raise ConfigError("a Cedar template (?principal, ?resource) permits and forbids nothing")
    policies = CedarPolicies(handle, whole["staticPolicies"])
    for one, policy in policies.json_by_id.items():
        _check_policy(policies.format_names([one]), policy)
    if schema is not None:
        _validate_schema(text, schema)
    return policies


def _validate_schema(text: str, schema: "Schema") -> None:
    found = load_cedar_engine().validate_policies(text, schema)
    if not found.validation_passed:
        told = "; ".join(str(error.error) for error in found.errors[:ERRORS_MAX])
        raise ConfigError(f"the Cedar policies do not fit their schema: {told}")


def _check_policy(name: str, policy: dict[str, Any]) -> None:
    for variable, kind in SCOPE_TYPES.items():
        for given in _scope_types(policy[variable]):
            if given != kind:
                told = f"{variable} is always of the type {kind}, and never {given}"
                raise ConfigError(f"the Cedar policy {name} can never match: {told}")
    actions = _scope_entities(policy["action"])
    if actions and {"type": "Action", "id": ACTION_ID} not in actions:
        raise ConfigError(
            f"the Cedar policy {name} can never match: "
            f'the one action is Action::"{ACTION_ID}", and the tool is the resource'
        )
    used = set(_context_names(policy["conditions"]))
    for given in sorted(used.difference(CONTEXT_NAMES)):
        told = f"context has no {given!r}.{suggest_names(given, CONTEXT_NAMES)}"
        raise ConfigError(f"the Cedar policy {name}: {told}")
    if "ask" in _read_annotations(policy) and "approved" not in used:
        told = "@ask puts a question only where a condition speaks of context.approved"
        raise ConfigError(f"the Cedar policy {name}: {told}")


def _read_annotations(policy: Mapping[str, Any]) -> dict[str, str | None]:
    return policy.get("annotations", {})


def _scope_entities(scope: Mapping[str, Any]) -> list[dict[str, str]]:
    return [scope["entity"]] if "entity" in scope else scope.get("entities", [])


def _scope_types(scope: Mapping[str, Any]) -> Iterator[str]:
    """The types that a scope names for the thing itself; what it is in may be of any other."""
    if scope["op"] == "is":
        yield scope["entity_type"]
    elif scope["op"] == "==":
        yield scope["entity"]["type"]


def _context_names(condition: object) -> Iterator[str]:
    """What of the context a condition speaks of."""
    if isinstance(condition, list):
        for one in cast("list[object]", condition):
            yield from _context_names(one)
    elif isinstance(condition, dict):
        fields = cast("dict[str, Any]", condition)
        if fields.get("left") == {"Var": "context"} and "attr" in fields:
            yield fields["attr"]
        for one in fields.values():
            yield from _context_names(one)
