"""Refuses every connection that would leave this machine.

The tests run under it, and so does each program that they start:
`python no_network.py program.py`.
"""

import ipaddress
import runpy
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch


class NetworkRefused(RuntimeError):
    """Not an OSError, so that no retry policy takes it for bad weather."""


def is_local_host(host: object) -> bool:
    """Whether a host is loopback, or a wildcard to listen on."""
    if isinstance(host, bytes):
        host = host.decode("ascii", "replace")
    if host is None or host in ("", "localhost"):
        return True
    try:
        address = ipaddress.ip_address(str(host).partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


@contextmanager
def loopback_only() -> Iterator[list[str]]:
    """Yield the list of what was refused, so that a swallowed refusal shows as well."""
    refused: list[str] = []

    def check(host: object) -> None:
        if not is_local_host(host):
            refused.append(str(host))
            raise NetworkRefused(f"a test may not reach {host!r}")

    def checked(connect: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(sock: socket.socket, address: Any) -> Any:
            if sock.family in (socket.AF_INET, socket.AF_INET6):
                check(address[0])
            return connect(sock, address)

        return guarded

    def resolve(host: Any, *args: Any, **kwargs: Any) -> Any:
        check(host)
        return getaddrinfo(host, *args, **kwargs)

    getaddrinfo = socket.getaddrinfo
    with (
        patch.object(socket.socket, "connect", checked(socket.socket.connect)),
        patch.object(socket.socket, "connect_ex", checked(socket.socket.connect_ex)),
        patch.object(socket, "getaddrinfo", resolve),
    ):
        yield refused


if __name__ == "__main__":
    del sys.argv[0]
    with loopback_only():
        runpy.run_path(sys.argv[0], run_name="__main__")
