"""Which addresses a tool may reach: the public internet, and what is explicitly allowed.

Invariant: the address decides, after the name is resolved, and never the name. An IPv6 address must
be in the public block, and an IPv4 address that is embedded in it is checked too.
"""

import ipaddress
from collections.abc import Collection, Iterator, Sequence
from typing import final

from windlass.core.errors import ConfigError, ModelRetry

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_PUBLIC_V6 = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
# What IANA lists as special inside the public block. It is written out, because Python knows
# only what was in the registry when it was released.
_SPECIAL_V6 = tuple(
    ipaddress.IPv6Network(block)
    for block in (
        "2001::/23",  # protocol assignments: Teredo, benchmarks, ORCHID, drone ids
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4, which leads to any IPv4 address
        "2620:4f:8000::/48",  # AS112: answered by a server nearby
        "3fff::/20",  # documentation
        "3ffe::/16",  # the 6bone, returned
        "5f00::/16",  # segment routing
    )
)
# Public according to the registry, but in fact a service of the network around this machine.
_NON_PUBLIC_BLOCKS = tuple(
    ipaddress.IPv4Network(block)
    for block in (
        "168.63.129.16/32",  # the host of a virtual machine in Azure
        "192.0.0.0/24",  # protocol assignments, and the metadata service of Oracle's cloud
        "192.88.99.0/24",  # 6to4 relays
        "192.31.196.0/24",  # AS112: answered by a server nearby
        "192.52.193.0/24",  # multicast tunnels
        "192.175.48.0/24",  # AS112, as above
        "100.64.0.0/10",  # carrier-grade NAT, and the metadata service of Alibaba's cloud
    )
)


@final
class AllowedHosts:
    """What may be reached although it is not public: hosts, addresses or networks.

    Each entry may have a port. Raises ConfigError if an entry is invalid.
    """

    def __init__(self, entries: Collection[str] = ()) -> None:
        if isinstance(entries, str):
            raise ConfigError(f"allow={entries!r}: must be a list of hosts, addresses or networks")
        self._hosts: set[tuple[str, int | None]] = set()
        self._networks: list[tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, int | None]] = []
        for entry in entries:
            host, port = _split_host_port(entry)
            try:
                self._networks.append((ipaddress.ip_network(host), port))
            except ValueError:
                if not host or "/" in host:
                    raise ConfigError(
                        f"allow: {entry!r} is not a host, an address or a network"
                    ) from None
                self._hosts.add((host.lower().rstrip("."), port))

    def check_host(self, host: str, port: int, addresses: Sequence[str]) -> None:
        """Raise ModelRetry unless all addresses of a host may be reached.

        All of them, because the connection may be opened to any one.
        """
        if not addresses:
            raise ModelRetry(f"{host!r} has no address. Check the spelling.")
        name = host.lower().rstrip(".")
        if {(name, None), (name, port)} & self._hosts:
            return
        for address in addresses:
            found = ipaddress.ip_address(address)
            if not is_public_address(found) and not any(
                found in network and at in (None, port) for network, at in self._networks
            ):
                raise ModelRetry(
                    f"{host!r} is at {address}, which is not a public address. "
                    "Only the public internet can be fetched from."
                )


def _split_host_port(entry: str) -> tuple[str, int | None]:
    """Split `host`, `host:port`, `[v6]:port`, an address or a network into host and port."""
    host, colon, port = entry.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit():
        return entry.strip("[]"), None
    if host.startswith("[") and host.endswith("]"):
        return host[1:-1], int(port)
    return (entry, None) if ":" in host else (host, int(port))


def is_public_address(address: Address) -> bool:
    """Whether an address, and each address embedded in it, belongs to the public internet."""
    if isinstance(address, ipaddress.IPv4Address):
        return _is_public_ipv4(address)
    is_wrapper = address.ipv4_mapped is not None or address in _NAT64
    is_special = any(address in block for block in _SPECIAL_V6)
    is_public = address in _PUBLIC_V6 and address.is_global and not address.is_reserved
    is_public = is_public and not is_special
    return (is_wrapper or is_public) and all(map(_is_public_ipv4, _embedded_ipv4(address)))


def _is_public_ipv4(address: ipaddress.IPv4Address) -> bool:
    is_special = address.is_multicast or address.is_reserved or address.is_unspecified
    is_local = address.is_private or address.is_loopback or address.is_link_local
    is_blocked = any(address in block for block in _NON_PUBLIC_BLOCKS)
    return address.is_global and not (is_special or is_local or is_blocked)


def _embedded_ipv4(address: ipaddress.IPv6Address) -> Iterator[ipaddress.IPv4Address]:
    if address.ipv4_mapped is not None:
        yield address.ipv4_mapped
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo
    if address in _NAT64:
        yield ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
