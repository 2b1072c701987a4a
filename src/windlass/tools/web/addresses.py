"""Which addresses a tool may reach: the public internet, and what was allowed by name.

The law: it is the address that counts, after resolving, and never the name. Of IPv6 only what is
public by its block passes, and an IPv4 address that is wrapped in one is looked at itself.
"""

import ipaddress
from collections.abc import Collection, Iterator, Sequence
from typing import final

from windlass.core.errors import ConfigError, ModelRetry

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_PUBLIC_V6 = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
# Public by the registry, and yet a service of the network that the machine stands in.
_NON_PUBLIC_BLOCKS = tuple(
    ipaddress.IPv4Network(block)
    for block in (
        "168.63.129.16/32",  # the host of a virtual machine at Azure
        "192.0.0.0/24",  # protocols, and the metadata of Oracle's cloud
        "192.88.99.0/24",  # relays
        "100.64.0.0/10",  # between carriers and customers, and Alibaba's metadata
    )
)


@final
class AllowedHosts:
    """What may be reached although it is not public: hosts, addresses or networks, with a port."""

    def __init__(self, entries: Collection[str] = ()) -> None:
        if isinstance(entries, str):
            raise ConfigError(f"allow={entries!r}: give a list of hosts, addresses or networks")
        self._hosts: set[tuple[str, int | None]] = set()
        self._networks: list[tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, int | None]] = []
        for entry in entries:
            host, port = _split_host_port(entry)
            try:
                self._networks.append((ipaddress.ip_network(host), port))
            except ValueError:
                if not host or "/" in host:
                    raise ConfigError(f"allow: {entry!r} is no host, address or network") from None
                self._hosts.add((host.lower().rstrip("."), port))

    def check_host(self, host: str, port: int, addresses: Sequence[str]) -> None:
        """Refuse a host unless all of its addresses may be reached."""
        if not addresses:
            raise ModelRetry(f"{host!r} has no address: is it spelled right?")
        name = host.lower().rstrip(".")
        if {(name, None), (name, port)} & self._hosts:
            return
        for address in addresses:
            found = ipaddress.ip_address(address)
            if not is_public_address(found) and not self._is_allowed(found, port):
                raise ModelRetry(
                    f"{host!r} is at {address}, which is not a public address: "
                    "only the public internet can be fetched from."
                )

    def _is_allowed(self, address: Address, port: int) -> bool:
        return any(address in network and at in (None, port) for network, at in self._networks)


def _split_host_port(entry: str) -> tuple[str, int | None]:
    """`host`, `host:port`, `[v6]:port`, an address or a network."""
    host, colon, port = entry.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit():
        return entry.strip("[]"), None
    if host.startswith("[") and host.endswith("]"):
        return host[1:-1], int(port)
    return (entry, None) if ":" in host else (host, int(port))


def is_public_address(address: Address) -> bool:
    """Whether an address, and each that is wrapped in it, belongs to the public internet."""
    if isinstance(address, ipaddress.IPv4Address):
        special = address.is_multicast or address.is_reserved or address.is_unspecified
        local = address.is_private or address.is_loopback or address.is_link_local
        inside = any(address in block for block in _NON_PUBLIC_BLOCKS)
        return address.is_global and not (special or local or inside)
    wrapper = address.ipv4_mapped is not None or address in _NAT64
    public = address in _PUBLIC_V6 and address.is_global and not address.is_reserved
    return (wrapper or public) and all(map(is_public_address, _embedded_ipv4(address)))


def _embedded_ipv4(address: ipaddress.IPv6Address) -> Iterator[ipaddress.IPv4Address]:
    if address.ipv4_mapped is not None:
        yield address.ipv4_mapped
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo
    if address in _NAT64:
        yield ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
