"""Docstrings of the common styles."""

import pytest

from windlass.tools.docstrings import read_docstring

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
