"""Token usage as both of OpenAI's APIs report it."""

import msgspec

from windlass.core.messages import Usage


class InputTokenDetails(msgspec.Struct):
    """How much of the input came from the prompt cache or was written to it."""

    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class OutputTokenDetails(msgspec.Struct):
    """How much of the output was reasoning."""

    reasoning_tokens: int | None = None


def build_usage(
    input_tokens: int,
    output_tokens: int,
    input_details: InputTokenDetails | None,
    output_details: OutputTokenDetails | None,
) -> Usage:
    """Build the usage of one reply. Details that a server leaves out count as zero."""
    input_details = input_details or InputTokenDetails()
    output_details = output_details or OutputTokenDetails()
    return Usage(
        input=input_tokens,
        output=output_tokens,
        cache_read=input_details.cached_tokens or 0,
        cache_write=input_details.cache_write_tokens or 0,
        reasoning=output_details.reasoning_tokens or 0,
    )
