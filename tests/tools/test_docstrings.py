"""Docstrings of the common styles."""

import pytest

from windlass.tools.signature import read_docstring

GOOGLE = """Read a file.

    More words: with a colon.

    Args:
        path (str, optional): The file
            to read.
        *rest: Others: many.

    Returns:
        The text.

    Raises:
        OSError: If it cannot.
    """
NUMPY = """Read a file.

    More words: with a colon.

    Parameters
    ----------
    path : str, optional
        The file
        to read.
    *rest
        Others: many.

    Returns
    -------
    str
        The text.

    Raises
    ------
    OSError
        If it cannot.
    """
SPHINX = """Read a file.

    More words: with a colon.

    :param str path: The file
        to read.
    :type path: str
    :param rest: Others: many.
    :raises OSError: If it cannot.
    :returns: The text.
    """


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_the_three_styles_say_the_same(text: str) -> None:
    """T1: parameter docs in the common docstring styles."""
    docs = read_docstring(text)
    assert docs.parameters == {"path": "The file to read.", "rest": "Others: many."}
    assert docs.prose.startswith("Read a file.\n\nMore words: with a colon.\n\n")
    assert "The text." in docs.prose
    for word in ("path", "OSError", ":param", "Parameters", "Args", "cannot"):
        assert word not in docs.prose


@pytest.mark.parametrize(
    ("text", "prose"),
    [
        (None, ""),
        ("", ""),
        ("One line.", "One line."),
        ("Sum.\n\nNotes:\n  Kept.", "Sum.\n\nNotes:\n  Kept."),
        ("Sum.\n\nArgs:\n    x: Ex.\n\nAnd after.", "Sum.\n\nAnd after."),
        ("Parameters are odd.", "Parameters are odd."),
    ],
)
def test_prose_stays(text: str | None, prose: str) -> None:
    assert read_docstring(text).prose == prose


def test_a_type_may_have_brackets_of_its_own() -> None:
    text = "Draw.\n\nArgs:\n    point (tuple(int, int)): Where.\n    size (int): How large."
    assert read_docstring(text).parameters == {"point": "Where.", "size": "How large."}


def test_a_field_of_another_kind_stays_prose() -> None:
    text = "Draw.\n\n:param x: Where.\n    On the left.\n:meta private:\n    Kept."
    docs = read_docstring(text)
    assert (docs.prose, docs.parameters) == (
        "Draw.\n\n:meta private:\n    Kept.",
        {"x": "Where. On the left."},
    )
