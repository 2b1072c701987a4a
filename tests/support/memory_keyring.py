"""The system's store of secrets, as a test has one."""

from collections.abc import Iterator
from contextlib import contextmanager

import keyring
from keyring.backend import KeyringBackend
from typing_extensions import override


class MemoryKeyring(KeyringBackend):
    """Keeps secrets as long as the test runs."""

    priority = 1.0  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[tuple[str, str], str] = {}

    @override
    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get((service, username))

    @override
    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[service, username] = password

    @override
    def delete_password(self, service: str, username: str) -> None:
        del self.kept[service, username]


@contextmanager
def use_memory_keyring() -> Iterator[MemoryKeyring]:
    """Let the process use a store of its own."""
    before = keyring.get_keyring()
    backend = MemoryKeyring()
    keyring.set_keyring(backend)
    try:
        yield backend
    finally:
        keyring.set_keyring(before)
