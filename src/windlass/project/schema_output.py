"""A JSON Schema as a type of output, for those who have a file and no Python class."""

from typing import Any

import msgspec

from windlass.core.schema import JsonSchema


class SchemaOutput:
    """A type in name only: its values are plain JSON that fits its schema."""

    schema: JsonSchema

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        return dict(cls.schema.node)

    @classmethod
    def model_validate_json(cls, json_data: str) -> Any:  # noqa: ANN401 - what the schema allows
        """The value in a text; raises ValueError in words for the model."""
        value = msgspec.json.decode(json_data)
        faults = list(cls.schema.iter_errors(value))
        if faults:
            raise ValueError("; ".join(str(fault.message) for fault in faults[:3]))
        return value


def schema_type(schema: dict[str, Any]) -> type[Any]:
    """The type of what fits a schema; raises ConfigError if it is none."""
    return type("Fitting", (SchemaOutput,), {"schema": JsonSchema(schema)})
