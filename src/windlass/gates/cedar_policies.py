"""Cedar policies, read and checked when a gate is created.

Invariant: a policy that can have no effect is an error at the start. That is a text that is not a
policy, one that does not fit the schema, a template that is not filled in, a name that no request
has, and a question that would never be asked. Cedar itself would ignore a `forbid` with a typo.
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
    """A set of policies, with their annotations."""

    handle: "PolicySet"
    json_by_id: dict[str, Any]
    """The policies as Cedar's JSON, without comments and layout."""

    @property
    def ids(self) -> list[str]:
        """The ids that Cedar gives them: policy0, policy1."""
        return list(self.json_by_id)

    def format_names(self, ids: Iterable[str]) -> str:
        """The names of policies: their `@id`, or else the id that Cedar gives them."""
        return " + ".join(sorted(self._annotation_of(policy, "id") or policy for policy in ids))

    def annotation_texts(self, ids: Iterable[str], kind: str) -> list[str]:
        """The annotations `@kind` of these policies, without repetitions."""
        texts = (self._annotation_of(policy, kind) for policy in sorted(ids))
        return list(dict.fromkeys(text for text in texts if text))

    def _annotation_of(self, policy: str, kind: str) -> str:
        return _read_annotations(self.json_by_id.get(policy, {})).get(kind) or ""


def load_cedar_engine() -> ModuleType:
    """The module `cedarpy`, imported with the first gate. Raises ConfigError if it is missing."""
    try:
        import cedarpy  # noqa: PLC0415 - an extra, and slow to import
    except ImportError:
        raise ConfigError("Cedar policies need an extra: pip install 'windlass[cedar]'") from None
    return cedarpy


def read_schema(schema: str | Mapping[str, Any] | None) -> "Schema | None":
    """Parse a schema, given as Cedar's text, as its JSON or as data. Raises ConfigError."""
    if schema is None:
        return None
    if isinstance(schema, str):
        text = schema
    else:
        text = msgspec.json.encode(schema).decode()
    try:
        return load_cedar_engine().Schema.from_str(text)
    except ValueError as error:
        raise ConfigError(f"the Cedar schema cannot be read: {error}") from None


def read_policies(text: str, schema: "Schema | None") -> CedarPolicies:
    """Parse policies and check that each can have an effect. Raises ConfigError."""
    engine = load_cedar_engine()
    try:
        handle = engine.PolicySet.from_str(text)
        whole = msgspec.json.decode(engine.policies_to_json_str(text), type=dict[str, Any])
    except ValueError as error:
        # Every policy has parentheses; a text without any is probably the path of a file.
        if "(" in text:
            hint = ""
        else:
            hint = "; for those in a file use load_cedar(path)"
        raise ConfigError(f"the Cedar policies cannot be read: {error}{hint}") from None
    if whole["templates"]:
        raise ConfigError("a Cedar template (?principal, ?resource) has no effect: write a policy")
    policies = CedarPolicies(handle, whole["staticPolicies"])
    for policy_id, policy in policies.json_by_id.items():
        _check_policy(policies.format_names([policy_id]), policy)
    if schema is not None:
        _validate_schema(text, schema)
    return policies


def _validate_schema(text: str, schema: "Schema") -> None:
    result = load_cedar_engine().validate_policies(text, schema)
    if not result.validation_passed:
        errors = "; ".join(str(error.error) for error in result.errors[:ERRORS_MAX])
        raise ConfigError(f"the Cedar policies do not fit their schema: {errors}")


def _check_policy(name: str, policy: dict[str, Any]) -> None:
    for variable, kind in SCOPE_TYPES.items():
        for given in _scope_types(policy[variable]):
            if given != kind:
                reason = f"the type of {variable} is always {kind}, never {given}"
                raise ConfigError(f"the Cedar policy {name} can never match: {reason}")
    scope = policy["action"]
    actions = [scope["entity"]] if "entity" in scope else scope.get("entities", [])
    if actions and {"type": "Action", "id": ACTION_ID} not in actions:
        raise ConfigError(
            f"the Cedar policy {name} can never match: "
            f'the only action is Action::"{ACTION_ID}", and the tool is the resource'
        )
    used = set(_context_names(policy["conditions"]))
    for given in sorted(used.difference(CONTEXT_NAMES)):
        hint = suggest_names(given, CONTEXT_NAMES)
        raise ConfigError(f"the Cedar policy {name}: context has no {given!r}.{hint}")
    if "ask" in _read_annotations(policy) and "approved" not in used:
        reason = "@ask has no effect unless a condition uses context.approved"
        raise ConfigError(f"the Cedar policy {name}: {reason}")


def _read_annotations(policy: Mapping[str, Any]) -> dict[str, str | None]:
    return policy.get("annotations", {})


def _scope_types(scope: Mapping[str, Any]) -> Iterator[str]:
    """The types that a scope requires of the entity itself; groups in `in` may have any type."""
    if scope["op"] == "is":
        yield scope["entity_type"]
    elif scope["op"] == "==":
        yield scope["entity"]["type"]


def _context_names(condition: object) -> Iterator[str]:
    """The attributes of the context that a condition uses."""
    if isinstance(condition, list):
        for item in cast("list[object]", condition):
            yield from _context_names(item)
    elif isinstance(condition, dict):
        fields = cast("dict[str, Any]", condition)
        if fields.get("left") == {"Var": "context"} and "attr" in fields:
            yield fields["attr"]
        for value in fields.values():
            yield from _context_names(value)
