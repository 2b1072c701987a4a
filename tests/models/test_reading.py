"""What is said about an event of a reply that cannot be parsed."""

import pytest

from windlass.models.reading import malformed_stream_error


@pytest.mark.contract("U1")
def test_a_broken_event_is_named_with_what_to_do() -> None:
    """U1: what happened, why, and what to check."""
    message = str(malformed_stream_error(ValueError("Input data was truncated")))
    assert "not the JSON of a reply (Input data was truncated)" in message
    assert "check base_url" in message
