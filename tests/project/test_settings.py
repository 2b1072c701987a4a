"""Each setting takes what people write, and refuses the rest in words."""

from decimal import Decimal

import pytest

from windlass.project.settings import (
    KEYS,
    Settings,
    Unfit,
    choice,
    count,
    flag,
    money,
    seconds,
    text,
    texts,
)


def test_the_table_and_the_struct_have_the_same_settings() -> None:
    assert list(KEYS) == list(Settings.__struct_fields__)


def test_every_default_is_what_its_own_key_takes() -> None:
    defaults = Settings()
    for key, about in KEYS.items():
        assert about.read(getattr(defaults, key)) == getattr(defaults, key)


@pytest.mark.parametrize(
    ("read", "given", "value"),
    [
        (text, "a", "a"),
        (texts, "a, b,,c", ("a", "b", "c")),
        (texts, ["a", "b"], ("a", "b")),
        (flag, "Yes", True),
        (flag, "0", False),
        (flag, False, False),
        (count, 3, 3),
        (count, "3", 3),
        (count, "none", None),
        (money, 0.5, Decimal("0.5")),
        (money, "$0.10", Decimal("0.10")),
        (money, "none", None),
        (seconds, 90, 90.0),
        (seconds, "15m", 900.0),
        (seconds, "1.5 h", 5400.0),
        (choice("ask", "deny"), "ask", "ask"),
    ],
)
def test_a_value_is_read_as_people_write_it(read: object, given: object, value: object) -> None:
    assert callable(read)
    assert read(given) == value


@pytest.mark.parametrize(
    ("read", "given", "told"),
    [
        (text, 1, "a text"),
        (texts, [1], "a list of texts"),
        (texts, 5, "a list of texts"),
        (flag, "maybe", "true or false"),
        (flag, 1, "true or false"),
        (count, 0, "a whole number above zero"),
        (count, True, "a whole number above zero"),
        (count, "ten", "a whole number above zero"),
        (money, "much", "US dollars above zero"),
        (money, -1, "US dollars above zero"),
        (money, "NaN", "US dollars above zero"),
        (money, True, "US dollars above zero"),
        (seconds, "soon", "a time above zero"),
        (seconds, 0, "a time above zero"),
        (choice("ask", "deny"), "aks", "Did you mean ask"),
    ],
)
def test_what_does_not_fit_is_refused_in_words(read: object, given: object, told: str) -> None:
    assert callable(read)
    with pytest.raises(Unfit, match=told):
        read(given)
