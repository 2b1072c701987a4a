"""The guard itself: loopback passes, everything else is refused and remembered."""

import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from no_network import NetworkRefused, is_local_host, loopback_only

# An address that is set aside for documentation: nobody answers there.
OUTSIDE = "192.0.2.1"


def test_loopback_and_unix_sockets_pass(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), timeout=5).close()
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        client.connect(str(tmp_path / "s"))


@pytest.mark.parametrize(
    "reach",
    [
        lambda: socket.socket().connect((OUTSIDE, 80)),
        lambda: socket.socket().connect_ex((OUTSIDE, 80)),
        lambda: socket.getaddrinfo("example.com", 80),
    ],
    ids=["connect", "connect_ex", "getaddrinfo"],
)
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_the_outside_is_refused_and_remembered(reach: Callable[[], object]) -> None:
    with loopback_only() as refused:
        with pytest.raises(NetworkRefused):
            reach()
        assert len(refused) == 1


@pytest.mark.parametrize(
    ("host", "stays"),
    [("::1", True), ("fe80::1%eth0", False), (None, True), (b"localhost", True), ("a.b", False)],
)
def test_what_stays_here(host: object, stays: bool) -> None:  # noqa: FBT001
    assert is_local_host(host) is stays


def test_a_started_program_is_held_to_it_too(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"import socket\nsocket.create_connection(({OUTSIDE!r}, 80))\n")
    guard = Path(__file__).parent / "support" / "no_network.py"
    done = subprocess.run(
        [sys.executable, guard, program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "NetworkRefused" in done.stderr
