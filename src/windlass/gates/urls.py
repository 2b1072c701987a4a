"""Addresses, as rules see them: scheme, host, port and path, each in its one spelling.

The law: a star in the host never reaches into the path, and what precedes an `@` is never the host.
An address that two programs could read as two hosts is matched for certain by no rule. A pattern
without a path means every path of its host; one without a port means the scheme's own.
"""

import re
import socket
import unicodedata
from dataclasses import dataclass
from ipaddress import IPv6Address
from urllib.parse import unquote

from windlass.core.errors import ConfigError
from windlass.gates.globs import MatchResult, compile_glob

DEFAULT_PORTS = {"http": "80", "https": "443", "ws": "80", "wss": "443", "ftp": "21"}

_URL_FORM = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^#]*)(?:#.*)?", re.DOTALL)
_PATTERN_FORM = re.compile(r"([A-Za-z0-9+.*-]+)://([^/]*)(/.*)?", re.DOTALL)
_HOST_PORT = re.compile(r"(.*?)(?::([0-9]*|\*))?", re.DOTALL)
_UNRESERVED = re.compile(r"%(?:2[dDeE]|3[0-9]|4[1-9a-fA-F]|5[0-9aAfF]|6[1-9a-fA-F]|7[0-9aAeE])")
_AMBIGUOUS_CHARS = frozenset("ßς\u200c\u200d\u3002")
"""Characters of which not every program makes the same host: IDNA has two editions."""


@dataclass(frozen=True, slots=True)
class UrlParts:
    scheme: str
    host: str
    port: str
    rest: str
    is_ambiguous: bool
    """Not every program reads it as we do."""


def match_url(pattern: str, url: str) -> MatchResult:
    """Whether an address is one that the pattern means."""
    wanted, given = _PATTERN_FORM.fullmatch(pattern), parse_url(url)
    if wanted is None or given is None:
        return MatchResult.MAYBE
    scheme, authority, path = wanted.groups()
    host, port = _split_authority(authority)
    found = min(
        compile_glob(scheme.lower()).match(given.scheme),
        compile_glob(_normalize_pattern_host(host)).match(given.host),
        _match_port(scheme.lower(), port, given.port),
        compile_glob(_normalize_path(path), question_mark=False).match(given.rest)
        if path
        else MatchResult.YES,
    )
    return min(found, MatchResult.MAYBE) if given.is_ambiguous else found


def check_url_pattern(pattern: str) -> None:
    """Refuse a pattern that cannot mean any address."""
    wanted = _PATTERN_FORM.fullmatch(pattern)
    if wanted is None:
        raise ConfigError("an address begins with its scheme: https://…, or *://…")
    if "@" in wanted[2] or not wanted[2]:
        raise ConfigError("between :// and the path stands a host, with no user before it")
    _normalize_pattern_host(_split_authority(wanted[2])[0])


def parse_url(url: str) -> UrlParts | None:
    """The parts of an address, or None if it is none."""
    parts = _URL_FORM.fullmatch(url)
    if parts is None or not url.isprintable() or " " in url or "\\" in url:
        return None
    scheme, authority, rest = parts[1].lower(), parts[2], parts[3]
    host, port = _split_authority(authority.rpartition("@")[2])
    try:
        known = _normalize_host(host)
    except (UnicodeError, ValueError):
        return None
    odd = "@" in authority or known[1] or bool(re.search(r"%(2f|5c|00)", rest, re.IGNORECASE))
    return UrlParts(scheme, known[0], _normalize_port(scheme, port), _normalize_path(rest), odd)


def _split_authority(authority: str) -> tuple[str, str]:
    if authority.startswith("[") and "]" in authority:
        host, _, port = authority.partition("]")
        return f"{host}]", port.removeprefix(":")
    found = _HOST_PORT.fullmatch(authority)
    return (found[1], found[2] or "") if found else (authority, "")


def _normalize_port(scheme: str, port: str) -> str:
    """A port in its one spelling; nothing for the scheme's own."""
    number = port.lstrip("0") or port[:1]
    return "" if number == DEFAULT_PORTS.get(scheme) else number


def _match_port(scheme: str, wanted: str, given: str) -> MatchResult:
    if wanted == "*" or _normalize_port(scheme, wanted) == given:
        return MatchResult.YES
    return MatchResult.NO if wanted else MatchResult.MAYBE


def _normalize_host(host: str) -> tuple[str, bool]:
    """A host in its one spelling, and whether others might spell it otherwise."""
    if host.startswith("["):
        return f"[{IPv6Address(host[1:-1]).compressed}]", False
    plain = unicodedata.normalize("NFKC", host).casefold()
    odd = plain != host.lower() or not _AMBIGUOUS_CHARS.isdisjoint(host)
    name = plain.encode("idna").decode("ascii").lower().removesuffix(".")
    if not re.fullmatch(r"[a-z0-9_.-]+", name):
        raise ValueError(host)
    if re.fullmatch(r"[0-9]+|0x[0-9a-f]*", name.rpartition(".")[2]):
        number = _normalize_ipv4(name)
        return number, odd or number != name
    return name, odd


def _normalize_ipv4(name: str) -> str:
    """A number in any of the spellings that resolvers take: `0x7f.1` is 127.0.0.1."""
    try:
        return socket.inet_ntoa(socket.inet_aton(name))
    except OSError:
        raise ValueError(name) from None


def _normalize_pattern_host(host: str) -> str:
    try:
        labels = [label if "*" in label else _encode_label(label) for label in host.split(".")]
    except UnicodeError:
        raise ConfigError(f"{host!r} is no host") from None
    return ".".join(labels).lower()


def _encode_label(label: str) -> str:
    return label if label.isascii() else label.casefold().encode("idna").decode("ascii")


def _normalize_path(rest: str) -> str:
    """A path and its query, with escapes that need none taken out, and no detours."""
    plain = _UNRESERVED.sub(lambda found: unquote(found[0]), rest)
    path, mark, query = plain.partition("?")
    names = list[str]()
    for at, name in enumerate(path.split("/")[1:]):
        if name == "..":
            del names[-1:]
        if name not in {".", ".."}:
            names.append(name)
        elif at == path.count("/") - 1:
            names.append("")
    return "/" + "/".join(names) + mark + query
