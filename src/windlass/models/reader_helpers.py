"""What the readers of several dialects share.

The law: a kind of event or block that is not known is never an error, whatever is in it; providers
add new ones without asking. A known one that cannot be read is.
"""

from collections.abc import Mapping
from typing import cast

import msgspec

from windlass.core.errors import ModelError


def malformed_stream_error(error: msgspec.DecodeError) -> ModelError:
    return ModelError("malformed_stream", f"an event of the stream cannot be read: {error}")


def is_known_event(
    data: bytes, known_kinds: Mapping[str, frozenset[str]], *inner_names: str
) -> bool:
    """Whether an event that does not fit its type is one that we must be able to read.

    `known` has the kinds of events, and for each the kinds of what is inside; none is any.
    """
    event: object = msgspec.json.decode(data)
    if not isinstance(event, dict):
        return True
    fields = cast("dict[str, object]", event)
    kinds = known_kinds.get(str(fields.get("type")))
    if not kinds:
        return kinds is not None
    inner = next((fields[name] for name in inner_names if fields.get(name) is not None), None)
    return not isinstance(inner, dict) or cast("dict[str, object]", inner).get("type") in kinds
