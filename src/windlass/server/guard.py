"""What a request must pass before it reaches a route: host, origin, token, rate.

Invariant: a page of another site can do nothing here, not even by a name that it points at this
machine. A cookie is valid only together with the page key, which the browser gives to no other
origin: another port of the same host gets the cookie. No reply says why a token was refused.
"""

import ipaddress
import re
from collections.abc import Awaitable, Callable, Collection
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

import msgspec

from windlass.core.errors import ConfigError
from windlass.server.access import Caller
from windlass.server.errors import ApiError
from windlass.server.limits import RateLimiter, ServiceLimits, too_many_requests
from windlass.server.messages import HttpRequest

PAGE_KEY_HEADER = "Windlass-Page-Key"
DEFAULT_PORTS = {"http": "80", "https": "443"}
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")
_PREFIX = re.compile(r"(?=.{1,200}$)(?!.*%2[EeFf])(?:/[A-Za-z0-9_~%-][A-Za-z0-9._~%-]*)+")
"""No empty segment and none of dots, which could turn a path of ours into another address. To a
browser, an encoded dot is a dot."""
Authenticator = Callable[[str], Awaitable[Caller | None]]
"""Returns the caller of a bearer token; None if it is not one of its own."""
BrowserAuthenticator = Callable[[str, str], Awaitable[Caller | None]]
"""Returns the caller of a cookie and its page key; None if they do not belong together."""


class AccessRules(msgspec.Struct, frozen=True, kw_only=True):
    """Under which names the service answers, and which other sites may call it."""

    hosts: tuple[str, ...] = LOOPBACK_NAMES
    """Names without a port. `*` answers to every name, for a proxy that checks it."""
    public_url: str = ""
    """Where people reach the service, such as `https://ai.example:8443/windlass`. A proxy may pass
    on a host without its port and a path without its prefix, so neither can be told from the
    request alone. By default the public address of the service."""
    origins: tuple[str, ...] = ()
    """Other sites whose pages may call the service with a token, such as `https://chat.example`."""
    proxies: tuple[str, ...] = ()
    """Addresses and networks of proxies, such as `10.0.0.0/8`. Only what comes from them may say by
    `X-Forwarded-Proto`, `X-Forwarded-For` and `X-Forwarded-Prefix` how, from where and under which
    path a client reached the proxy."""


class Credentials(msgspec.Struct, frozen=True):
    """The secrets of a request."""

    token: str = ""
    cookie: str = ""
    """Of a signed-in browser. Empty if the request has a token, or no page key."""
    page_key: str = ""


class RequestGuard:
    """Checks requests for one service."""

    def __init__(
        self,
        rules: AccessRules,
        limits: ServiceLimits,
        authenticators: Collection[Authenticator],
        authenticate_browser: BrowserAuthenticator,
    ) -> None:
        self.rules = rules
        self._authenticators = tuple(authenticators)
        self._authenticate_browser = authenticate_browser
        public_host = host_name(urlsplit(rules.public_url).netloc)
        self._hosts = frozenset(host.lower() for host in (*rules.hosts, public_host) if host)
        self._own_origin = find_origin(rules.public_url)
        self._prefix = find_prefix(rules.public_url)
        self._proxies = tuple(read_network(proxy) for proxy in rules.proxies)
        self._requests = RateLimiter(limits.requests_per_s, limits.requests_at_once)
        self._open_requests = RateLimiter(limits.open_requests_per_s, limits.open_requests_at_once)
        per_s = limits.failed_logins_per_min / 60.0
        self._failures = RateLimiter(per_s, limits.failed_logins_per_min)

    def locate(self, request: HttpRequest) -> None:
        """Find out how the client reached the service, and which of its paths is meant.

        A proxy may take the prefix of the public address away or pass it on. The prefix that a
        trusted proxy names by a header was taken away by it.
        """
        request.public_url = self.rules.public_url
        if request.path == self._prefix or request.path.startswith(f"{self._prefix}/"):
            request.path = request.path.removeprefix(self._prefix)
        forwarded = ""
        if self._is_proxy(request.remote):
            forwarded = _read_prefix(request.header("x-forwarded-prefix"))
            self._read_forwarded(request)
        if forwarded and not request.prefix.startswith(forwarded):
            request.prefix = forwarded + request.prefix
        elif self._prefix and not forwarded:
            request.prefix = self._prefix

    def _read_forwarded(self, request: HttpRequest) -> None:
        """Take from a trusted proxy how its client reached it."""
        # The last value is what the proxy itself added; those before it may come from anybody.
        scheme = request.header("x-forwarded-proto").rpartition(",")[2].strip().lower()
        if scheme in ("http", "https"):
            request.scheme = scheme
        for address in reversed(request.header("x-forwarded-for").split(",")):
            if not _is_address(address.strip()):
                return
            request.remote = address.strip()
            if not self._is_proxy(request.remote):
                return

    def _is_proxy(self, remote: str) -> bool:
        if not self._proxies or not _is_address(remote):
            return False
        address = ipaddress.ip_address(remote)
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network for network in self._proxies)

    def check_source(self, request: HttpRequest) -> None:
        """Raise ApiError if the request comes under another name, or from another site's page."""
        host = request.header("host")
        is_other = bool(request.target_host) and request.target_host != host
        if is_other or ("*" not in self._hosts and host_name(host) not in self._hosts):
            raise ApiError(
                421,
                "wrong_host",
                f"The service does not answer to the name {host[:100]!r}.",
                "Use its own address, or start it with --allow-host NAME.",
            )
        origin = request.header("origin")
        if origin and not self._is_own_origin(origin, request) and not self.is_allowed(origin):
            raise ApiError(
                403,
                "foreign_origin",
                f"Pages of {origin[:100]!r} may not call this service.",
                "Start it with --allow-origin to let them.",
            )

    def is_allowed(self, origin: str) -> bool:
        """Return whether pages of another site may call the service."""
        return origin in self.rules.origins

    def _is_own_origin(self, origin: str, request: HttpRequest) -> bool:
        if origin == self._own_origin:
            return True
        parts = urlsplit(origin)
        # A proxy may end TLS, so that only the host is compared; the cookie is bound to it too.
        return parts.scheme in ("http", "https") and parts.netloc == request.header("host")

    async def authenticate(self, request: HttpRequest) -> Caller:
        """Return who makes the request. Raises ApiError 401, 403 or 429.

        The credentials are looked up first: many share an address, so the wrong tokens of one
        caller never keep the right token of another one out.
        """
        given = read_credentials(request)
        caller = await self._find_caller(given)
        if caller is None:
            if given.token or given.cookie:
                self.note_failure(request)
            raise token_needed()
        if given.cookie and request.method not in SAFE_METHODS:
            self._check_same_site(request)
        wait_s = self._requests.take(caller.counted_as)
        if wait_s:
            raise too_many_requests(wait_s)
        way = "page" if given.cookie else "API"
        return msgspec.structs.replace(caller, origin=f"{way}, {request.remote}")

    def check_open_rate(self, request: HttpRequest) -> None:
        """Count a request without a token. Raises ApiError 429 if its address sends too many."""
        wait_s = self._open_requests.take(request.remote)
        if wait_s:
            raise too_many_requests(wait_s)

    def note_failure(self, request: HttpRequest) -> None:
        """Count a wrong token, login code or link of the address that the request comes from.

        Raises ApiError 429 if there were too many: then nothing is said about this one.
        """
        wait_s = self._failures.take(request.remote)
        if wait_s:
            raise too_many_requests(wait_s)

    async def _find_caller(self, given: Credentials) -> Caller | None:
        if given.cookie:
            return await self._authenticate_browser(given.cookie, given.page_key)
        for authenticate in self._authenticators if given.token else ():
            caller = await authenticate(given.token)
            if caller is not None:
                return caller
        return None

    def _check_same_site(self, request: HttpRequest) -> None:
        """Raise ApiError 403 unless a page of this site made a request that changes something."""
        origin = request.header("origin")
        if origin and self._is_own_origin(origin, request):
            return
        raise ApiError(
            403,
            "origin_needed",
            "A change by cookie must come from the service's own page.",
            "Programs send a token: Authorization: Bearer TOKEN.",
        )


def token_needed() -> ApiError:
    return ApiError(
        401,
        "token_needed",
        "The request has no valid token.",
        "Send Authorization: Bearer TOKEN; make one with: windlass token create",
    )


def read_credentials(request: HttpRequest) -> Credentials:
    """Return the secrets of a request. A token goes before a cookie.

    A cookie without a page key is ignored: a browser also sends it to other ports of this host, and
    for pages of those to this one.
    """
    scheme, _, secret = request.header("authorization").partition(" ")
    if scheme.lower() == "bearer" and secret.strip():
        return Credentials(token=secret.strip())
    token = request.header("x-api-key")
    page_key = request.header(PAGE_KEY_HEADER)
    if token or not page_key:
        return Credentials(token=token)
    try:
        cookies = SimpleCookie(request.header("cookie"))
    except CookieError:
        return Credentials()
    cookie = cookies.get(cookie_name(request))
    return Credentials(cookie=cookie.value, page_key=page_key) if cookie else Credentials()


def cookie_name(request: HttpRequest) -> str:
    """Return the name of the cookie, which has port and prefix: a host's services share cookies."""
    port = request.header("host").rpartition(":")[2]
    is_port = port.isascii() and port.isdigit()
    place = request.prefix.replace("/", ".")
    return f"windlass_{port if is_port else DEFAULT_PORTS.get(request.scheme, '')}{place}"


def host_name(host: str) -> str:
    """Return the name in a Host header without its port, in lower case; empty if it is not one."""
    found = _HOST.fullmatch(host)
    return found["name"].lower() if found is not None else ""


def find_origin(url: str) -> str:
    """Return the origin of an address, as browsers write it; empty if it has none."""
    parts = urlsplit(url)
    is_web = parts.scheme in ("http", "https") and parts.hostname
    return f"{parts.scheme}://{parts.netloc.lower()}" if is_web else ""


def find_prefix(url: str) -> str:
    """Return the path of a public address without its last slash. Raises ConfigError."""
    path = urlsplit(url).path.rstrip("/")
    if path and not _read_prefix(path):
        raise ConfigError(
            f"the public address {url!r} has a path that cannot be a prefix: use letters, digits, "
            "dots and dashes, such as https://host/windlass"
        )
    return path


def _read_prefix(header: str) -> str:
    """Return the prefix that a header names; empty if it is not one."""
    # The last value is what the proxy itself added.
    prefix = header.rpartition(",")[2].strip().rstrip("/")
    return prefix if _PREFIX.fullmatch(prefix) else ""


def read_network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    """Return an address or a network. Raises ConfigError if it is neither."""
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise ConfigError(
            f"{text!r} is not the address or the network of a proxy: {error}"
        ) from None


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
