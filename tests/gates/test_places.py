"""Paths and addresses are matched by where they lead, not by how they are spelled."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.errors import ConfigError
from windlass.gates.globs import MatchResult
from windlass.gates.paths import match_path, simplify_path
from windlass.gates.urls import check_url_pattern, match_url, parse_url

YES, MAYBE, NO = MatchResult.YES, MatchResult.MAYBE, MatchResult.NO


@pytest.mark.contract("G4")
@pytest.mark.parametrize(
    ("pattern", "path", "found"),
    [
        ("src/**", "src/a/b.py", YES),
        ("src/**", "src", YES),
        ("src/**", "src/", YES),
        ("src/**", "./src//a", YES),
        ("./src/**", "src/a", YES),
        ("src/**", "srcs/a", NO),
        ("src/**", "src/../etc/passwd", NO),
        ("src/**", "a/../src/b", YES),
        ("src/*", "src/a/b", NO),
        ("src/*.py", "src/a.py", YES),
        ("src/?.py", "src/a.py", YES),
        ("**/.env", ".env", YES),
        ("**/.env", "a/b/.env", YES),
        ("**/.env", "a/b.env", NO),
        ("a/**/b", "a/b", YES),
        ("a/**/b", "a/x/y/b", YES),
        ("a/**/**/b", "a/b", YES),
        ("a/**/b", "ax/b", NO),
        ("a/**/b", "a/xb", NO),
        ("**", "", YES),
        ("**", "../x", MAYBE),
        ("**", "/etc/passwd", MAYBE),
        ("/etc/**", "/etc/passwd", YES),
        ("/etc/**", "/etc/../home", NO),
        ("/etc/**", "/../etc/passwd", YES),
        ("/etc/**", "../../etc/passwd", MAYBE),
        ("/etc/**", "src/a", NO),
        ("/**/src/*", "src/a", MAYBE),
        ("/etc/x", "src/a", NO),
        ("src/**", "/ws/src/a", MAYBE),
        ("src/**", "/ws/lib/a", NO),
        ("src/**", "../ws/src/a", MAYBE),
        ("../lib/**", "../lib/a", YES),
        (".git/**", ".GIT/config", MAYBE),
        ("src/**", "src\\a", MAYBE),
        ("src/**", "src\\..\\etc", NO),
        ("src/**", "src/a ", MAYBE),
        ("src/**", "src/a\x00", MAYBE),
        ("src/**", "src/a\nb", MAYBE),
        ("**", "~/.ssh/id", MAYBE),
        ("~/.ssh/**", "~/.ssh/id", MAYBE),
        ("~/.ssh/**", "~ann/.ssh/id", MAYBE),
        ("src/**", "a/" * 100, NO),
        ("src/**", "/" + "a/" * 100, MAYBE),
    ],
)
def test_a_path_is_matched(pattern: str, path: str, found: MatchResult) -> None:
    assert match_path(pattern, path) is found


@pytest.mark.parametrize(
    ("pattern", "path", "found"),
    [
        ("src/**", "/ws/src/a", YES),
        ("src/**", "/ws/../ws/src/a", YES),
        ("src/**", "/wsx/src/a", NO),
        ("src/**", "../src/a", NO),
        ("src/**", "../ws/src/a", YES),
        ("/ws/src/**", "src/a", YES),
        ("/etc/**", "../etc/passwd", YES),
        ("/etc/**", "src/a", NO),
        ("**", "../x", NO),
    ],
)
def test_with_a_root_it_is_known_where_a_path_leads(
    pattern: str, path: str, found: MatchResult
) -> None:
    assert match_path(pattern, path, "/ws") is found


def test_a_home_folder_is_known_by_its_path() -> None:
    assert match_path("~/.ssh/**", f"{Path.home()}/.ssh/id") is YES


SPELLINGS = st.lists(st.sampled_from(["a", "b", "..", ".", ""]), max_size=8).map("/".join)


@given(SPELLINGS)
def test_the_shortest_spelling_is_a_fixed_point(path: str) -> None:
    assert simplify_path(simplify_path(path)) == simplify_path(path)
    assert match_path("a/**", path) is match_path("a/**", simplify_path(path))


@pytest.mark.contract("G4")
@pytest.mark.parametrize(
    ("pattern", "url", "found"),
    [
        ("https://docs.*", "https://docs.python.org/3/x?y#z", YES),
        ("https://docs.python.org", "https://docs.python.org/3/", YES),
        ("https://docs.python.org/*", "https://docs.python.org", YES),
        ("https://docs.python.org/*", "HTTPS://Docs.Python.ORG:443/a", YES),
        ("https://docs.python.org/*", "https://docs.python.org./a", YES),
        ("https://docs.python.org/*", "https://docs.python.org:8443/a", MAYBE),
        ("https://docs.python.org:8443/*", "https://docs.python.org:8443/a", YES),
        ("https://docs.python.org:8443/*", "https://docs.python.org/a", NO),
        ("http://localhost:*/*", "http://localhost:8080/a", YES),
        ("https://docs.python.org/*", "http://docs.python.org/a", NO),
        ("*://docs.python.org/*", "http://docs.python.org/a", YES),
        ("https://docs.python.org/*", "https://docs.python.org@evil.com/a", NO),
        ("https://docs.*", "https://docs.python.org:x@evil.com/a", NO),
        ("https://evil.com", "https://docs.python.org@evil.com/a", MAYBE),
        ("https://docs.python.org/*", "https://docs.python.org.evil.com/a", NO),
        ("https://*.python.org/*", "https://evil.com/x.python.org/", NO),
        ("https://*.python.org/*", "https://evil.com?x.python.org/", NO),
        ("https://*.python.org/*", "https://evil.com#x.python.org/", NO),
        ("https://docs.python.org/*", "https://evil.com\\@docs.python.org/", MAYBE),
        ("https://docs.python.org/*", "https:docs.python.org/", MAYBE),
        ("https://docs.python.org/*", " https://docs.python.org/", MAYBE),
        ("https://docs.python.org/*", "https://docs.python.org/\n", MAYBE),
        ("https://a.b/3/*", "https://a.b/3/../2/x", NO),
        ("https://a.b/3/*", "https://a.b/3/%2e%2E/2/x", NO),
        ("https://a.b/3/*", "https://a.b/%33/x", YES),
        ("https://a.b/3/*", "https://a.b/3/..%2f..%2fx", MAYBE),
        ("https://a.b/x?q=*", "https://a.b/x?q=1", YES),
        ("https://a.b/x?q=*", "https://a.b/xyq=1", NO),
        ("https://bücher.de/*", "https://xn--bcher-kva.de/x", YES),
        ("https://bücher.de/*", "https://BÜCHER.de/x", YES),
        ("https://xn--bcher-kva.de/*", "https://bücher.de/x", YES),
        ("https://python.org/*", "https://\uff50ython.org/x", MAYBE),
        ("https://python.org/*", "https://pyth\u043en.org/x", NO),
        ("https://fass.de/*", "https://faß.de/x", MAYBE),
        ("http://127.0.0.1", "http://2130706433/", MAYBE),
        ("http://127.0.0.1", "http://0x7f.1/", MAYBE),
        ("http://127.0.0.1", "http://0177.0.0.1/", MAYBE),
        ("http://[::1]/*", "http://[0:0::1]:80/x", YES),
        ("https://docs.python.org", "not an address", MAYBE),
        ("https://docs.python.org", "https://999.999.999.999/", MAYBE),
    ],
)
def test_an_address_is_matched(pattern: str, url: str, found: MatchResult) -> None:
    assert match_url(pattern, url) is found


@pytest.mark.parametrize("pattern", ["docs.python.org", "https*", "https://a@b.c/*", "https:///x"])
def test_a_pattern_that_means_no_address_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError):
        check_url_pattern(pattern)


@given(st.text("htps:/@.ab%2eE[]#?\\0x", max_size=20))
def test_no_text_breaks_the_reader_of_addresses(text: str) -> None:
    found = parse_url(f"http://{text}")
    assert found is None or match_url(f"http://{found.host}:*", f"http://{text}") is not NO
