"""The files of the page: their types fit, they are small, and they can turn no text into markup."""

import gzip
import re
from pathlib import Path

import pytest

from page_types import MODULES, check_types

BYTES_MAX = 150_000
"""As a wheel carries them: compressed."""


def page_files() -> list[Path]:
    return sorted(path for path in MODULES.iterdir() if path.is_file())


@pytest.mark.contract("W1")
def test_the_page_is_small_and_has_no_code_of_others() -> None:
    assert sum(len(gzip.compress(path.read_bytes())) for path in page_files()) < BYTES_MAX
    assert {path.suffix for path in page_files()} == {".js", ".css", ".html", ".svg"}


@pytest.mark.contract("W3")
def test_no_module_can_turn_text_into_markup_or_script() -> None:
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser"
        r"|createContextualFragment|setHTML|srcdoc ?[:=]|javascript:|setTimeout\(\s*[\"'`]"
    )
    # `dom.js` names two of them to refuse them.
    allowed = {"dom.js": {"innerhtml", "outerhtml", "srcdoc"}}
    for path in page_files():
        found = {match.lower() for match in forbidden.findall(path.read_text("utf-8"))}
        assert found <= allowed.get(path.name, set()), path.name


@pytest.mark.contract("W3")
def test_the_page_names_no_other_host_and_has_nothing_inline() -> None:
    for path in page_files():
        text = path.read_text("utf-8")
        hosts = set(re.findall(r"https?://[\w.-]+", text)) - {"http://www.w3.org"}
        assert hosts == set(), path.name
    index = (MODULES / "index.html").read_text("utf-8")
    assert "<style" not in index
    assert re.findall(r"<script(?![^>]*\bsrc=)", index) == []
    assert re.findall(r"\son\w+=|\sstyle=", index) == []


@pytest.mark.contract("A4")
def test_every_request_of_the_page_sends_its_key_in_a_header() -> None:
    """A4: an `EventSource`, a link or a form sends the cookie alone, or a secret by address."""
    other_ways = re.compile(
        r"EventSource|XMLHttpRequest|WebSocket|sendBeacon|importScripts|new Worker"
        r"|location\.(href|assign|replace)\b ?[=(]|\bdownload:|action:"
    )
    for path in page_files():
        text = path.read_text("utf-8")
        words = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
        assert not other_ways.findall(words), path.name
        if path.name != "api.js":
            assert "fetch(" not in words, path.name
    assert "Windlass-Page-Key" in (MODULES / "api.js").read_text("utf-8")


@pytest.mark.slow
def test_the_types_in_the_comments_fit() -> None:
    assert check_types() == (0, "")
