"""The JSON form of events, questions and results.

One encoder writes them for programs, for the service and for `--output-format stream-json`, so that
a value has the same bytes wherever it is sent.
"""

from typing import Any, Self, TypeVar

import msgspec

ValueT = TypeVar("ValueT")


def _encode_foreign(value: object) -> object:
    """Return plain data for a value of another library: a pydantic model by its own form."""
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    return repr(value)


encode_json = msgspec.json.Encoder(decimal_format="string", enc_hook=_encode_foreign).encode


def decode_json(text: str | bytes, kind: type[ValueT], name: str = "") -> ValueT:
    """Return a value of its JSON form. Raises ValueError, which says what does not fit.

    Fields that it does not know are ignored: a later version may have written them, and a service
    lists in `hidden` what it left out.
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"It is not the JSON of {name or kind.__name__}: {error}") from error


class JsonForm:
    """Gives a value a JSON form, which is stable and documented: names are added, never changed."""

    __slots__ = ()

    def to_json(self) -> str:
        """Return this value as JSON, as a service and `stream-json` send it."""
        return encode_json(self).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the value that `to_json` wrote. Raises ValueError if it is of another kind."""
        return decode_json(text, cls)


def convert_output(value: object, output_type: Any) -> Any:  # noqa: ANN401 - whatever it is
    """Return plain data as an output type: a pydantic model, a dataclass, a struct or JSON.

    Raises ValueError if it does not fit.
    """
    validate = getattr(output_type, "model_validate", None)
    if callable(validate):
        return validate(value)
    try:
        return msgspec.convert(value, output_type, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(f"The output does not fit {output_type}: {error}") from error
