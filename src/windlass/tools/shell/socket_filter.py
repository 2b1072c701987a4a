"""A filter for system calls that keeps a command away from Unix sockets, for bubblewrap.

Invariant: a command that runs under the filter cannot open a Unix socket by which it could reach
another process. Sockets that exist when a command starts are hidden by a mount. One that a service
opens later, in a folder that the command sees, is not: only the kernel's filter stops that.

A pair of connected sockets is still allowed, because runtimes use it between their own processes.
The filter also refuses io_uring, which makes sockets without the system call that is filtered.
"""

import platform
import struct
from collections.abc import Mapping
from dataclasses import dataclass

_ALLOW = 0x7FFF_0000
_REFUSE = 0x0005_0000 | 1
"""SECCOMP_RET_ERRNO with EPERM, which programs report as `Operation not permitted`."""

# Classic BPF (linux/bpf_common.h): load a word, jump if equal, jump if not below, mask, return.
_LOAD = 0x20
_JUMP_EQUAL = 0x15
_JUMP_AT_LEAST = 0x35
_AND = 0x54
_RETURN = 0x06
# Offsets in `struct seccomp_data`: the call, the architecture, and the low halves of arguments.
_CALL_OFFSET = 0
_ARCHITECTURE_OFFSET = 4
_DOMAIN_OFFSET = 16
_TYPE_OFFSET = 24

_AF_UNIX = 1
_TYPE_MASK = 0xF
_SOCK_STREAM = 1
_SOCK_SEQPACKET = 5
_IO_URING_SETUP = 425
_SECOND_ABI = 0x4000_0000
"""System calls of x32 have this bit: the same calls by other numbers."""


@dataclass(frozen=True, slots=True)
class _Machine:
    """The numbers of a processor architecture (`AUDIT_ARCH_*` and system calls)."""

    architecture: int
    socket: int
    socketpair: int


_MACHINES: Mapping[str, _Machine] = {
    "x86_64": _Machine(0xC000_003E, 41, 53),
    "aarch64": _Machine(0xC000_00B7, 198, 199),
}


_Line = tuple[int, int, str | None, str | None]
"""An operation, its value, and the blocks to go to if a comparison is true, and if it is false.

None is the next line.
"""


def build_socket_filter(machine: str | None = None) -> bytes:
    """Return the filter as bubblewrap reads it; empty for a machine whose numbers are not known.

    `machine`: as `platform.machine()` says, which is the default.
    """
    known = _MACHINES.get(machine or platform.machine())
    if known is None:
        return b""
    starts: dict[str, int] = {}
    program: list[_Line] = []
    for name, lines in _write_blocks(known).items():
        starts[name] = len(program)
        program += lines
    return b"".join(
        struct.pack("=HBBI", code, _jump(starts, yes, at), _jump(starts, no, at), value)
        for at, (code, value, yes, no) in enumerate(program)
    )


def _write_blocks(machine: _Machine) -> dict[str, list[_Line]]:
    """Return the lines of the filter, by the names of their blocks. It can only jump forward."""
    return {
        "start": [
            (_LOAD, _ARCHITECTURE_OFFSET, None, None),
            # Calls of another architecture, such as 32-bit ones, have other numbers.
            (_JUMP_EQUAL, machine.architecture, None, "refuse"),
            (_LOAD, _CALL_OFFSET, None, None),
            (_JUMP_AT_LEAST, _SECOND_ABI, "refuse", None),
            (_JUMP_EQUAL, _IO_URING_SETUP, "refuse", None),
            (_JUMP_EQUAL, machine.socket, "socket", None),
            (_JUMP_EQUAL, machine.socketpair, "socketpair", "allow"),
        ],
        "socket": [
            (_LOAD, _DOMAIN_OFFSET, None, None),
            (_JUMP_EQUAL, _AF_UNIX, "refuse", "allow"),
        ],
        "socketpair": [
            (_LOAD, _DOMAIN_OFFSET, None, None),
            (_JUMP_EQUAL, _AF_UNIX, None, "allow"),
            # A datagram socket of a pair can send to any other address. The others cannot.
            (_LOAD, _TYPE_OFFSET, None, None),
            (_AND, _TYPE_MASK, None, None),
            (_JUMP_EQUAL, _SOCK_STREAM, "allow", None),
            (_JUMP_EQUAL, _SOCK_SEQPACKET, "allow", "refuse"),
        ],
        "allow": [(_RETURN, _ALLOW, None, None)],
        "refuse": [(_RETURN, _REFUSE, None, None)],
    }


def _jump(starts: Mapping[str, int], target: str | None, at: int) -> int:
    """Return how many lines are skipped; None goes to the next one."""
    return 0 if target is None else starts[target] - at - 1
