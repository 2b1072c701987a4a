"""Addresses of requests: one form, whatever they were written as."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.http.errors import HttpError
from windlass.http.urls import parse_url


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("http://Host.Example", "http://host.example/"),
        ("https://host:443/a", "https://host/a"),
        ("https://host:8443/a?b#c", "https://host:8443/a?b"),
        ("http://[::0001]:80/", "http://[::1]/"),
        ("http://bücher.example/ü?ü=ü", "http://xn--bcher-kva.example/%C3%BC?%C3%BC=%C3%BC"),
        ("http://①②⑦.0.0.1/", "http://127.0.0.1/"),
        ("http://h/a b\n%2f%zz", "http://h/a%20b%2f%zz"),
        ("http://me:you@h/", "http://h/"),
        (" http://h/ ", "http://h/"),
    ],
)
def test_an_address_has_one_form(text: str, parsed: str) -> None:
    assert str(parse_url(text)) == parsed


@pytest.mark.parametrize(
    "text",
    [
        *("", "h", "//h/", "ftp://h/", "http://", "http:///p", "http://h:0/", "http://h:99999/"),
        *("http://h:x/", "http://[::1/", "http://[::1%25eth0]/", "http://a b/", "http://a\\b/"),
        *("http://h/\ud800", "http://\ud800@h/"),
        *("http://a%2eb/", "http://a\u2024\ufffd/", "http://" + "a" * 300 + "/", "http://a<b/"),
    ],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(HttpError) as caught:
        parse_url(text)
    assert caught.value.problem == "url"


def test_credentials_are_not_shown() -> None:
    url = parse_url("http://me:p%40ss@h/")
    assert url.credentials == "me:p@ss"
    assert "ss" not in str(url)


@pytest.mark.parametrize(
    ("reference", "joined"),
    [
        ("/x", "http://h:81/x"),
        ("c?d", "http://h:81/a/c?d"),
        ("../x", "http://h:81/x"),
        ("//other/y", "http://other/y"),
        ("https://other", "https://other/"),
    ],
)
def test_a_redirect_is_relative(reference: str, joined: str) -> None:
    assert str(parse_url("http://h:81/a/b?q").join(reference)) == joined


@pytest.mark.parametrize("reference", ["file:///etc/passwd", "http://[", "http://h:x/"])
def test_a_redirect_that_leads_nowhere(reference: str) -> None:
    with pytest.raises(HttpError):
        parse_url("http://h/").join(reference)


@given(st.text(max_size=30))
def test_what_is_sent_is_one_word(text: str) -> None:
    """No address can end the request line, or begin another header."""
    try:
        url = parse_url(f"http://h{text}")
    except HttpError:
        return
    sent = f"{url.target}{url.authority}"
    assert sent.isascii()
    assert not set(sent) & set(" \t\r\n\0")
    assert parse_url(str(url)).host == url.host
