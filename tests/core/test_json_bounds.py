"""Counting the keys of JSON without parsing it agrees with parsing it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.json_repair.strict import count_keys, cut_escapes, cut_strings, has_many_keys

TEXTS = st.text(alphabet='ab:,[]{}"\\/\n', max_size=12)
VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


def count_in_value(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + len(value) + sum(map(count_in_value, value.values()))
    if isinstance(value, list):
        return 1 + sum(map(count_in_value, value))
    return 0


@given(value=VALUES, ascii_only=st.booleans())
def test_keys_and_lists_are_counted_as_a_parser_finds_them(value: Any, *, ascii_only: bool) -> None:
    """T18: whatever is in strings, and however it is escaped."""
    data = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert count_keys(cut_strings(cut_escapes(data))) == count_in_value(value)


@pytest.mark.contract("T18")
def test_only_more_keys_than_the_limit_are_many() -> None:
    data = json.dumps({"text": "[{:" * 100, "list": [[]] * 6}).encode()
    assert not has_many_keys(data, 10)
    assert has_many_keys(data, 9)
    # Strings cost as well, so a list of them is refused when it is long.
    assert not has_many_keys(json.dumps(["::"] * 20).encode(), 10)
    assert has_many_keys(json.dumps(["::"] * 21).encode(), 10)
