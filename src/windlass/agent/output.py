"""Structured output: the schema that the model gets, and the check of its final reply."""

import re
from typing import Any, Generic, Protocol, cast

import msgspec

from windlass.core.errors import ConfigError
from windlass.core.result import OutputT

JSON_FENCE = re.compile(r"\s*```(?:json)?\s*\n(.*?)\n?\s*```\s*", re.DOTALL)
MISMATCH_CHARS_MAX = 600


class OutputType(Generic[OutputT]):
    """The type that a final reply must have."""

    def __init__(self, output_type: type[OutputT]) -> None:
        self._type = output_type
        self.is_text = output_type is str
        self.schema: dict[str, Any] | None = None if self.is_text else _schema_of(output_type)

    def describe_mismatch(self, text: str) -> str | None:
        """Return what is wrong with a reply, in words for the model; None if it fits."""
        try:
            self.parse(text)
        except ValueError as error:
            problem = str(error)[:MISMATCH_CHARS_MAX]
            return f"Your reply does not fit the schema: {problem}. Reply with only the JSON value."
        return None

    def parse(self, text: str) -> OutputT:
        """Return the value in a reply. Raises ValueError if the reply does not fit."""
        if self.is_text:
            return cast("OutputT", text)
        fenced = JSON_FENCE.fullmatch(text)
        body = fenced.group(1) if fenced else text
        if _is_pydantic(self._type):
            return cast("_PydanticModel", self._type).model_validate_json(body)
        return msgspec.json.decode(body, type=self._type)


class _PydanticModel(Protocol):
    def model_json_schema(self) -> dict[str, Any]: ...

    def model_validate_json(self, json_data: str) -> Any: ...  # noqa: ANN401 - of the user's type


def _is_pydantic(output_type: object) -> bool:
    """Recognized by its methods, so that pydantic need not be imported."""
    return hasattr(output_type, "model_json_schema")


def _schema_of(output_type: type[Any]) -> dict[str, Any]:
    if _is_pydantic(output_type):
        return cast("_PydanticModel", output_type).model_json_schema()
    try:
        return msgspec.json.schema(output_type)
    except TypeError as error:
        raise ConfigError(f"output_type={output_type!r} has no JSON schema: {error}") from error
