"""URLs as rules see them: scheme, host, port and path, each in its normal form.

Invariant: a star in the host never matches a part of the path, and what precedes an `@` is never
the host. A URL that two programs could read as two different hosts never matches for certain. A
pattern without a path matches every path of its host; one without a port means the port of the
scheme.
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
"""Characters that the two editions of IDNA turn into different hosts."""


_WRITTEN_URL = re.compile(r"https?://[^\s<>\"`]+", re.IGNORECASE)
_WRITTEN_HOST = re.compile(r"(?<![\w@./:-])[\w-]+(?:\.[\w-]+)+(?:[:/?][^\s<>\"`]*)?")
_CLOSING_CHARS = ".,;:!?)]}'*_"
"""Characters that end a sentence or a quotation rather than an address."""
WRITTEN_ADDRESSES_MAX = 16


def find_addresses(text: str) -> tuple[str, ...]:
    """The web addresses in a text that a person wrote, each as `plain_address` spells it.

    An address without a scheme counts with both. What may be the end of the sentence, or of the
    address, is counted with and without it. At most WRITTEN_ADDRESSES_MAX are returned: which one
    of them is fetched is all that a model can tell by it, and should not become an alphabet.
    """
    urls = [ending for url in _WRITTEN_URL.findall(text) for ending in _possible_ends(url)]
    hosts = [ending for host in _WRITTEN_HOST.findall(text) for ending in _possible_ends(host)]
    with_scheme = [f"{scheme}://{host}" for host in hosts for scheme in ("https", "http")]
    found = dict.fromkeys(map(plain_address, [*urls, *with_scheme]))
    return tuple(found)[:WRITTEN_ADDRESSES_MAX]


def _possible_ends(written: str) -> list[str]:
    """An address without more and more of the characters that may not belong to it."""
    ends = [written]
    while written[-1:] and written[-1] in _CLOSING_CHARS:
        written = written[:-1]
        ends.insert(0, written)
    return ends


def plain_address(url: str) -> str:
    """A URL as it is requested: without its fragment, and with a path if it has none."""
    plain = url.strip().partition("#")[0]
    return f"{plain}/" if re.fullmatch(r"https?://[^/?]+", plain) else plain


@dataclass(frozen=True, slots=True)
class UrlParts:
    """A URL in its normal form."""

    scheme: str
    host: str
    port: str
    rest: str
    is_ambiguous: bool
    """Another program might read another host or path."""


def match_url(pattern: str, url: str) -> MatchResult:
    """Whether a URL matches a pattern."""
    wanted = _PATTERN_FORM.fullmatch(pattern)
    given = parse_url(url)
    if wanted is None or given is None:
        return MatchResult.MAYBE
    scheme, authority, path = wanted.groups()
    host, port = _split_authority(authority)
    found = min(
        compile_glob(scheme.lower()).match(given.scheme),
        compile_glob(_normalize_pattern_host(host)).match(given.host),
        _match_port(scheme.lower(), port, given.port),
    )
    if path:
        # In a URL, `?` starts the query, so it does not match any character.
        glob = compile_glob(_normalize_path(path), question_mark=False)
        found = min(found, glob.match(given.rest))
    return found.doubted_if(given.is_ambiguous)


def check_url_pattern(pattern: str) -> None:
    """Raise ConfigError for a pattern that no URL can match."""
    wanted = _PATTERN_FORM.fullmatch(pattern)
    if wanted is None:
        raise ConfigError("a URL starts with its scheme: https://…, or *://…")
    if "@" in wanted[2] or not wanted[2]:
        raise ConfigError("a URL has a host after ://, without a user before it")
    _normalize_pattern_host(_split_authority(wanted[2])[0])


def parse_url(url: str) -> UrlParts | None:
    """The parts of a URL; None if it is not one."""
    parts = _URL_FORM.fullmatch(url)
    if parts is None or not url.isprintable() or " " in url or "\\" in url:
        return None
    scheme = parts[1].lower()
    authority = parts[2]
    rest = parts[3]
    host, port = _split_authority(authority.rpartition("@")[2])
    try:
        host, is_host_ambiguous = _normalize_host(host)
    except (UnicodeError, ValueError):
        return None
    # Servers decode an escaped slash, backslash or zero byte at different times.
    has_odd_escape = bool(re.search(r"%(2f|5c|00)", rest, re.IGNORECASE))
    is_ambiguous = "@" in authority or is_host_ambiguous or has_odd_escape
    port = _normalize_port(scheme, port)
    return UrlParts(scheme, host, port, _normalize_path(rest), is_ambiguous)


def _split_authority(authority: str) -> tuple[str, str]:
    if authority.startswith("[") and "]" in authority:
        host, _, port = authority.partition("]")
        return f"{host}]", port.removeprefix(":")
    found = _HOST_PORT.fullmatch(authority)
    if found is None:
        return authority, ""
    return found[1], found[2] or ""


def _normalize_port(scheme: str, port: str) -> str:
    """A port without leading zeros; empty for the default port of the scheme."""
    number = port.lstrip("0") or port[:1]
    return "" if number == DEFAULT_PORTS.get(scheme) else number


def _match_port(scheme: str, wanted: str, given: str) -> MatchResult:
    if wanted == "*" or _normalize_port(scheme, wanted) == given:
        return MatchResult.YES
    return MatchResult.NO if wanted else MatchResult.MAYBE


def _normalize_host(host: str) -> tuple[str, bool]:
    """A host in its normal form, and whether other programs might read another host."""
    if host.startswith("["):
        return f"[{IPv6Address(host[1:-1]).compressed}]", False
    plain = unicodedata.normalize("NFKC", host).casefold()
    is_ambiguous = plain != host.lower() or not _AMBIGUOUS_CHARS.isdisjoint(host)
    name = plain.encode("idna").decode("ascii").lower().removesuffix(".")
    if not re.fullmatch(r"[a-z0-9_.-]+", name):
        raise ValueError(host)
    if re.fullmatch(r"[0-9]+|0x[0-9a-f]*", name.rpartition(".")[2]):
        number = _normalize_ipv4(name)
        return number, is_ambiguous or number != name
    return name, is_ambiguous


def _normalize_ipv4(name: str) -> str:
    """An IPv4 address from any form that resolvers accept: `0x7f.1` is 127.0.0.1."""
    try:
        return socket.inet_ntoa(socket.inet_aton(name))
    except OSError:
        raise ValueError(name) from None


def _normalize_pattern_host(host: str) -> str:
    try:
        labels = [label if "*" in label else _encode_label(label) for label in host.split(".")]
    except UnicodeError:
        raise ConfigError(f"{host!r} is not a host") from None
    return ".".join(labels).lower()


def _encode_label(label: str) -> str:
    return label if label.isascii() else label.casefold().encode("idna").decode("ascii")


def _normalize_path(rest: str) -> str:
    """A path and its query, with needless escapes decoded and `.` and `..` resolved."""
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
