"""Serving until a signal stops it: listen, report readiness, drain, hand the runs over.

Invariant: the first signal drains. Readiness goes false first, so that no new work is sent here.
Then no step begins any more, and what is under way gets some time: a reply that is cut off is paid
for twice. Clients see the rest of it. Then the socket is closed, and streams end; their clients
connect to another replica. The next process that sweeps resumes the runs. A second signal does not
wait.
"""

import asyncio
import gc
import re
import resource
import signal
import ssl
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

import windlass.server.lazy_sockets as sockets
from windlass.core.errors import ConfigError
from windlass.http.urls import is_loopback
from windlass.logs import get_logger
from windlass.server.dispatch import Dispatcher
from windlass.server.guard import (
    LOOPBACK_NAMES,
    AccessRules,
    Authenticator,
    find_origin,
    find_prefix,
    read_network,
)
from windlass.server.jwt_tokens import JwtOptions, make_jwt_authenticator
from windlass.server.service import Service

DEFAULT_PORT = 8420
DESCRIPTORS_SPARE = 512
"""Files and sockets besides those of clients: the journal, tools, providers."""
GC_THRESHOLDS = (50_000, 20, 100)
"""Allocations before the garbage collector looks, and how seldom it looks at what is older."""
_HOST_NAME = re.compile(r"\*|[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")
_log = get_logger(__name__)


def relax_garbage_collector() -> None:
    """Let the collector leave alone what a whole program keeps, and look less often at the rest.

    With a thousand runs at once it would take a third of the CPU, and find nothing: facts, messages
    and states cannot form cycles. Only a program that is ours may decide this, so a library's
    caller is not affected.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


class ServeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where and how a service listens."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    """0 takes a free one."""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    insecure: bool = False
    """Listen beyond this machine without TLS, for a proxy in front that has it."""
    hosts: tuple[str, ...] = ()
    """Further names under which the service answers; `*` for all."""
    public_url: str = ""
    """Where people reach the service, if a proxy is in front of it."""
    origins: tuple[str, ...] = ()
    """Other sites whose pages may call the service."""
    proxies: tuple[str, ...] = ()
    """Addresses and networks of proxies whose `X-Forwarded-Proto`, `-For` and `-Prefix` count."""
    jwt: JwtOptions | None = None
    """An identity provider whose tokens are accepted as well."""
    drain_delay_s: float = 0.0
    """How long to keep taking requests after readiness went false."""

    def check(self) -> None:
        """Raise ConfigError if tokens would cross a network in the clear, or TLS is half given.

        Also if a proxy, a name or an origin is not one, because it would never fit a request.
        """
        find_prefix(self.public_url)
        for proxy in self.proxies:
            read_network(proxy)
        for host in self.hosts:
            if not _HOST_NAME.fullmatch(host):
                raise ConfigError(
                    f"--allow-host {host!r} is not the name of a host: pass it without scheme, "
                    "port and path, such as ai.example, or * for every name"
                )
        for origin in self.origins:
            if find_origin(origin) != origin:
                raise ConfigError(
                    f"--allow-origin {origin!r} is not an origin: pass scheme and host, with the "
                    "port if it has one and no path, such as https://chat.example"
                )
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigError("TLS needs both --tls-cert and --tls-key")
        if self.tls_cert is None and not self.insecure and not is_loopback(self.host):
            raise ConfigError(
                f"--host {self.host} can be reached from other machines, and tokens would be sent "
                "in the clear. Give --tls-cert and --tls-key, or --insecure behind a proxy that "
                "has TLS."
            )

    def open_tls(self) -> ssl.SSLContext | None:
        """Return the certificate and key as a context; None without TLS. Raises ConfigError."""
        if self.tls_cert is None or self.tls_key is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.tls_cert, self.tls_key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"--tls-cert {self.tls_cert}, --tls-key {self.tls_key}: they cannot be used: "
                f"{error.strerror or error}"
            ) from None
        return context

    def access_rules(self) -> AccessRules:
        """Return under which names the service answers: its own, those of loopback, and more."""
        names = dict.fromkeys((*LOOPBACK_NAMES, self.host, f"[{self.host}]", *self.hosts))
        return AccessRules(
            hosts=tuple(names),
            public_url=self.public_url,
            origins=self.origins,
            proxies=self.proxies,
        )

    def page_url(self, address: str) -> str:
        """Return where people open the page, for a service that listens at an address."""
        if self.public_url:
            return self.public_url.rstrip("/")
        # Every address of this machine, which is no address to open.
        return address.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


async def serve(
    service: Service,
    options: ServeOptions | None = None,
    *,
    authenticators: Sequence[Authenticator] = (),
    on_ready: Callable[[str], Awaitable[None] | None] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, then drain and return.

    `on_ready` gets the address once requests are taken. Raises ConfigError if the service cannot
    listen there.
    """
    options = options or ServeOptions()
    options.check()
    tls = options.open_tls()
    require_sockets()
    if options.jwt is not None:
        authenticators = (*authenticators, make_jwt_authenticator(options.jwt).authenticate)
    stop = StopSignals()
    raise_descriptor_limit(service.limits.connections)
    dispatcher = Dispatcher(service, rules=options.access_rules(), authenticators=authenticators)
    with stop:
        async with service:
            try:
                async with sockets.listen(
                    dispatcher, options.host, options.port, tls=tls
                ) as address:
                    _log.info("serving", extra={"windlass": {"address": address}})
                    greeting = None if on_ready is None else on_ready(address)
                    if greeting is not None:
                        await greeting
                    await stop.wait()
                    await _drain(service, stop, options.drain_delay_s)
            except OSError as error:
                raise ConfigError(
                    f"cannot listen on {options.host} port {options.port}: "
                    f"{error.strerror or error}. Choose another one with --port."
                ) from None
    _log.info("stopped")


async def _drain(service: Service, stop: "StopSignals", delay_s: float) -> None:
    """Hand the runs over while requests are still answered. A second signal hurries it."""
    service.stop_accepting()
    _log.info("draining")
    await stop.wait_again(delay_s)
    draining = asyncio.create_task(service.drain())
    await stop.wait_again_or_for(draining)
    service.release_runs()
    await draining


def require_sockets() -> None:
    """Raise ConfigError if the package that a service listens with is missing."""
    try:
        _ = sockets.listen
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "aiohttp":
            raise
        raise ConfigError("the service needs an extra: pip install 'windlass[serve]'") from None


def raise_descriptor_limit(connections: int) -> None:
    """Let this process have this many connections, as far as the system allows it.

    Many systems begin with 1,024 files and sockets, and allow far more to those who ask.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + DESCRIPTORS_SPARE
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < wanted:
        _log.warning(
            "the system allows %d open files and sockets, and %d connections need %d: raise its "
            "limit (LimitNOFILE, ulimit -n)",
            allowed,
            connections,
            wanted,
        )


class StopSignals:
    """SIGTERM and SIGINT, as something to wait for."""

    def __init__(self) -> None:
        self._first = asyncio.Event()
        self._second = asyncio.Event()

    def __enter__(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._note)

    def __exit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)

    def _note(self) -> None:
        if self._first.is_set():
            self._second.set()
        self._first.set()

    async def wait(self) -> None:
        """Return at the first signal."""
        await self._first.wait()

    async def wait_again_or_for(
        self, work: "asyncio.Task[None]", timeout_s: float | None = None
    ) -> None:
        """Return when some work is done, at the second signal, or after some time."""
        again = asyncio.create_task(self._second.wait())
        await asyncio.wait({work, again}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        again.cancel()

    async def wait_again(self, seconds: float) -> None:
        """Return after some time, or at the second signal."""
        try:
            async with asyncio.timeout(seconds):
                await self._second.wait()
        except TimeoutError:
            return
