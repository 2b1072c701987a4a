"""Each setting takes what people write, and refuses the rest in words."""

from decimal import Decimal

import pytest

from windlass.project.settings import (
    SETTING_KEYS,
    InvalidSetting,
    Settings,
    parse_choice,
    parse_count,
    parse_flag,
    parse_seconds,
    parse_text,
    parse_texts,
    parse_usd,
)


def test_the_table_and_the_struct_have_the_same_settings() -> None:
    assert list(SETTING_KEYS) == list(Settings.__struct_fields__)


def test_every_default_is_what_its_own_key_takes() -> None:
    defaults = Settings()
    for key, about in SETTING_KEYS.items():
        assert about.parse(getattr(defaults, key)) == getattr(defaults, key)


@pytest.mark.parametrize(
    ("read", "given", "value"),
    [
        (parse_text, "a", "a"),
        (parse_texts, "a, b,,c", ("a", "b", "c")),
        (parse_texts, ["a", "b"], ("a", "b")),
        (parse_flag, "Yes", True),
        (parse_flag, "0", False),
        (parse_flag, False, False),
        (parse_count, 3, 3),
        (parse_count, "3", 3),
        (parse_count, "none", None),
        (parse_usd, 0.5, Decimal("0.5")),
        (parse_usd, "$0.10", Decimal("0.10")),
        (parse_usd, "none", None),
        (parse_seconds, 90, 90.0),
        (parse_seconds, "15m", 900.0),
        (parse_seconds, "1.5 h", 5400.0),
        (parse_choice("ask", "deny"), "ask", "ask"),
    ],
)
def test_a_value_is_read_as_people_write_it(read: object, given: object, value: object) -> None:
    assert callable(read)
    assert read(given) == value


@pytest.mark.parametrize(
    ("read", "given", "told"),
    [
        (parse_text, 1, "a string"),
        (parse_texts, [1], "a list of strings"),
        (parse_texts, 5, "a list of strings"),
        (parse_flag, "maybe", "true or false"),
        (parse_flag, 1, "true or false"),
        (parse_count, 0, "a whole number above zero"),
        (parse_count, True, "a whole number above zero"),
        (parse_count, "ten", "a whole number above zero"),
        (parse_usd, "much", "US dollars above zero"),
        (parse_usd, -1, "US dollars above zero"),
        (parse_usd, "NaN", "US dollars above zero"),
        (parse_usd, True, "US dollars above zero"),
        (parse_seconds, "soon", "a time above zero"),
        (parse_seconds, 0, "a time above zero"),
        (parse_choice("ask", "deny"), "aks", "Did you mean ask"),
    ],
)
def test_what_does_not_fit_is_refused_in_words(read: object, given: object, told: str) -> None:
    assert callable(read)
    with pytest.raises(InvalidSetting, match=told):
        read(given)
