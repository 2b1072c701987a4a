"""Secrets by name: from the system's own store, or from a command such as a password manager has.

Invariant: a value is in no file of ours, and is never shown. The file in the user's own folder
says only where each secret comes from. What the environment or a trusted `.env` sets goes first. A
project can name a secret, and never say where it comes from.
"""

import json
import os
import re
import shlex
import subprocess
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from typing_extensions import override

from windlass.core.errors import ConfigError, NothingToDo
from windlass.core.secrets.mask import VALUE_CHARS_MIN
from windlass.core.suggestions import suggest_names
from windlass.core.toml_text import read_toml
from windlass.environ import read_regular_file, xdg_folder
from windlass.private_files import make_private_folder

SECRETS_FILE = "secrets.toml"
SERVICE = "windlass"
"""The name under which the system's store keeps our secrets."""
COMMAND_S = 30.0
"""How long a command may take: a password manager may ask a person first."""
FILE_BYTES_MAX = 262_144
T = TypeVar("T")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


class SecretSource(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Where a secret comes from."""

    command: tuple[str, ...] = ()
    """What prints it; empty if the system's store has it."""

    @property
    def shown(self) -> str:
        """Where it comes from, in words."""
        return f"command: {shlex.join(self.command)}" if self.command else "keyring"


class SecretStore:
    """The secrets that a person has declared on this machine."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or xdg_folder("CONFIG", ".config") / SECRETS_FILE
        self._values: dict[str, str] = {}
        self._parts: dict[str, str] = {}
        self._sources: dict[str, SecretSource] | None = None

    @property
    def revealed(self) -> Mapping[str, str]:
        """The values that were looked up so far, which must be masked.

        Those are left out that are too short to be distinguished from ordinary words.
        """
        return {
            name: value
            for name, value in (*self._values.items(), *self._parts.items())
            if len(value.strip()) >= VALUE_CHARS_MIN
        }

    def list_sources(self) -> dict[str, SecretSource]:
        """Return where each secret comes from. Raises ConfigError if the file is wrong."""
        if self._sources is None:
            self._sources = self._read_sources()
        return dict(self._sources)

    def _read_sources(self) -> dict[str, SecretSource]:
        try:
            text = read_regular_file(self._path, bytes_max=FILE_BYTES_MAX).decode()
            return msgspec.convert(read_toml(text), dict[str, SecretSource])
        except FileNotFoundError:
            return {}
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigError(f"{self._path} cannot be read: {error}") from None
        except msgspec.ValidationError as error:
            raise ConfigError(f"{self._path}: {error}") from None

    def save_value(self, name: str, value: str) -> None:
        """Keep a value in the system's own store. Raises ConfigError if there is none."""
        _check_name(name)
        if not value:
            raise ConfigError(f"the value of {name} is empty")
        _use_keyring(lambda keyring: keyring.set_password(SERVICE, name, value))
        self._values.pop(name, None)
        if self.list_sources().get(name) != SecretSource():
            self._write({**self.list_sources(), name: SecretSource()})

    def require_keyring(self) -> None:
        """Raise ConfigError if the system has no store in which a value can be kept."""
        _use_keyring(lambda keyring: keyring.get_password(SERVICE, "OF_NOBODY"))

    def save_command(self, name: str, command: Sequence[str]) -> None:
        """Let a command print the value whenever it is needed. Nothing is put into a shell."""
        _check_name(name)
        if not command:
            raise ConfigError(f"the command for {name} is empty")
        self._write({**self.list_sources(), name: SecretSource(tuple(command))})

    def delete(self, name: str) -> None:
        """Forget a secret, and remove its value from the system's store."""
        sources = self.list_sources()
        source = sources.pop(name, None)
        if source is None:
            raise NothingToDo(f"there is no secret {name}.{suggest_names(name, sources)}")
        if not source.command:
            _use_keyring(lambda keyring: _delete_password(keyring, name))
        self._write(sources)
        self._values.pop(name, None)

    def find(self, name: str) -> str | None:
        """Return the value of a secret; None if it is not declared.

        Raises ConfigError if it is declared and not available.
        """
        if name in self._values:
            return self._values[name]
        source = self.list_sources().get(name)
        if source is None:
            return None
        if source.command:
            value = _run_command(name, source.command)
        else:
            value = _use_keyring(lambda keyring: keyring.get_password(SERVICE, name)) or ""
        if not value:
            raise ConfigError(
                f"the secret {name} is empty: set it again, windlass secrets set {name}"
            )
        self._values[name] = value
        return value

    def find_again(self, name: str) -> str | None:
        """Return a value as it is now, and do not keep it: other processes change it."""
        self._sources = None
        value = self.find(name)
        self._values.pop(name, None)
        return value

    def note_revealed(self, name: str, value: str) -> None:
        """Let a part of a value be masked like the value itself."""
        self._parts[name] = value

    def _write(self, sources: Mapping[str, SecretSource]) -> None:
        self._sources = None
        lines = ["# Where secrets come from; their values are elsewhere. windlass secrets --help"]
        for name, source in sorted(sources.items()):
            lines.append(f"\n[{name}]")
            if source.command:
                lines.append(f"command = {json.dumps(source.command)}")
        make_private_folder(self._path.parent)
        temporary = self._path.with_suffix(".tmp")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write("\n".join(lines) + "\n")
        temporary.replace(self._path)


class SecretEnvironment(Mapping[str, str]):
    """An environment in which declared secrets can be looked up by name.

    They are not among its items: what is passed on to a command or a server as a whole has none.
    """

    def __init__(self, values: Mapping[str, str], store: SecretStore) -> None:
        self._values = values
        self._store = store

    @override
    def __getitem__(self, name: str) -> str:
        value = self._values.get(name)
        if value is None:
            value = self._store.find(name)
        if value is None:
            raise KeyError(name)
        return value

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    @override
    def __len__(self) -> int:
        return len(self._values)


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} cannot be the name of a secret: use letters, digits and _")


def _run_command(name: str, command: Sequence[str]) -> str:
    """Return the first line that a command prints. What it says is never part of an error."""
    try:
        done = subprocess.run(  # noqa: S603 - the person's own command, and no shell
            command,
            stdout=subprocess.PIPE,
            timeout=COMMAND_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = type(error).__name__
        raise ConfigError(f"the secret {name}: {command[0]} failed: {reason}") from None
    if done.returncode:
        raise ConfigError(f"the secret {name}: {command[0]} ended with code {done.returncode}")
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    return lines[0].strip() if lines else ""


def _use_keyring(use: Callable[[Any], T]) -> T:
    try:
        import keyring  # noqa: PLC0415 - an extra
        from keyring.errors import KeyringError  # noqa: PLC0415 - as above
    except ImportError:
        raise ConfigError(
            "the system's store of secrets needs an extra: pip install 'windlass[keyring]'. Or "
            "give a command that prints the secret: windlass secrets set NAME --command …"
        ) from None
    try:
        return use(keyring)
    except KeyringError as error:
        raise ConfigError(
            f"the system's store of secrets cannot be used: {type(error).__name__}. Give a command "
            "that prints the secret: windlass secrets set NAME --command …"
        ) from None


def _delete_password(keyring: Any, name: str) -> None:  # noqa: ANN401 - a module of an extra
    if keyring.get_password(SERVICE, name) is not None:
        keyring.delete_password(SERVICE, name)
