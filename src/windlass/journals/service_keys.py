"""The keys of a service: they prove in a shared database that a service wrote a row.

A login of the database can insert any row, but it cannot sign one. A service holds the private key,
in a file outside the database. A worker holds only public keys, from its own configuration. No
key is ever read from the database.

Invariant: each purpose has signatures of its own. A signature names its key, so that keys rotate: a
row counts while the key that signed it is among those that are given.
"""

import hashlib
import os
import stat
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from windlass.core.errors import ConfigError
from windlass.environ import private_registry_folder, read_process_environment
from windlass.private_files import register_private

SIGNING_KEY_VARIABLE = "WINDLASS_SIGNING_KEY_FILE"
VERIFY_KEYS_VARIABLE = "WINDLASS_VERIFY_KEYS"
KEY_ID_CHARS = 16
_PUBLIC_KEY_BYTES = 32
_DOMAIN = "windlass"


class ServiceKeys:
    """Signs with the private key of a service, if it is given, and verifies with public keys.

    A process also has its own key that only its memory holds. It signs what the approver of a
    driver answers: that counts for this process, and for no other.
    """

    def __init__(
        self,
        *,
        signing_key: str | os.PathLike[str] | None = None,
        verify_keys: Sequence[str] = (),
    ) -> None:
        """Load the keys. Raises ConfigError if one cannot be used.

        Args:
            signing_key: a file with the private key, as `windlass key new` writes it. Its public
                key is trusted as well.
            verify_keys: public keys that are trusted, as `windlass key new` prints them.
        """
        self._signing: Any = None if signing_key is None else _read_private_key(Path(signing_key))
        self._own: Any = None
        self._trusted: dict[str, Any] = {}
        for text in verify_keys:
            raw = _parse_public_key(text)
            self._trusted[identify_key(raw)] = _load_ed25519().Ed25519PublicKey.from_public_bytes(
                raw
            )
        if self._signing is not None:
            self._trusted[self.key_id] = self._signing.public_key()

    @property
    def is_configured(self) -> bool:
        """Whether signatures are required: any key was given."""
        return bool(self._trusted)

    @property
    def can_sign(self) -> bool:
        """Whether this process is a service: it has the private key."""
        return self._signing is not None

    @property
    def key_id(self) -> str:
        """The id of the private key; empty without one."""
        if self._signing is None:
            return ""
        return identify_key(self._signing.public_key().public_bytes_raw())

    def sign(self, purpose: str, *values: object) -> str:
        """Return the signature of a service: the id of its key, a dot, and hex digits.

        Raises ConfigError without the private key.
        """
        if self._signing is None:
            raise ConfigError(f"nothing can be signed: {SIGNING_KEY_VARIABLE} names no key")
        return _sign(self._signing, purpose, values)

    def sign_in_process(self, purpose: str, *values: object) -> str:
        """Return a signature that counts in this process alone."""
        if self._own is None:
            self._own = _load_ed25519().Ed25519PrivateKey.generate()
        return _sign(self._own, purpose, values)

    def is_valid(self, signature: str, purpose: str, *values: object) -> bool:
        """Whether a service that is trusted, or this process, signed these values."""
        key_id, _, digits = signature.partition(".")
        key = self._trusted.get(key_id)
        if key is None and self._own is not None:
            own = self._own.public_key()
            key = own if key_id == identify_key(own.public_bytes_raw()) else None
        if key is None:
            return False
        try:
            key.verify(bytes.fromhex(digits), _encode(purpose, values))
        except (ValueError, import_module("cryptography.exceptions").InvalidSignature):
            return False
        return True


def load_service_keys(
    *,
    signing_key: str | os.PathLike[str] | None = None,
    verify_keys: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> ServiceKeys:
    """Return the keys that are given, or else those that the environment names.

    Raises ConfigError if one cannot be used.
    """
    if environ is None:
        environ = read_process_environment()
    path = signing_key or environ.get(SIGNING_KEY_VARIABLE) or None
    listed = environ.get(VERIFY_KEYS_VARIABLE, "").replace(",", " ").split()
    return ServiceKeys(signing_key=path, verify_keys=tuple(verify_keys) or listed)


def make_signing_key(path: Path) -> str:
    """Write a new private key into a file that only its owner can read; return its public key.

    Raises ConfigError if the file exists or cannot be written.
    """
    key = _load_ed25519().Ed25519PrivateKey.generate()
    forms = import_module("cryptography.hazmat.primitives.serialization")
    data: bytes = key.private_bytes(
        forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption()
    )
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(f"the key cannot be written to {path}: {error.strerror}") from None
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return key.public_key().public_bytes_raw().hex()


def read_public_key(path: Path) -> str:
    """Return the public key of a file with a private key. Raises ConfigError."""
    return _read_private_key(path).public_key().public_bytes_raw().hex()


def identify_key(public_key: bytes) -> str:
    """Return the id of a key: the first hex digits of the hash of its public key."""
    return hashlib.sha256(public_key).hexdigest()[:KEY_ID_CHARS]


def _sign(key: Any, purpose: str, values: tuple[object, ...]) -> str:  # noqa: ANN401 - imported when used
    key_id = identify_key(key.public_key().public_bytes_raw())
    return f"{key_id}.{key.sign(_encode(purpose, values)).hex()}"


def _encode(purpose: str, values: tuple[object, ...]) -> bytes:
    return msgspec.msgpack.encode((_DOMAIN, purpose, *values))


def _parse_public_key(text: str) -> bytes:
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = b""
    if len(raw) != _PUBLIC_KEY_BYTES:
        raise ConfigError(
            f"{text[:80]!r} is not a public key: pass the 64 hex digits that `windlass key new` "
            "prints"
        )
    return raw


def _read_private_key(path: Path) -> Any:  # noqa: ANN401 - imported when used
    """Read a private key. No command and no tool of a model sees its file from then on."""
    ed25519 = _load_ed25519()
    register_private(path, private_registry_folder())
    try:
        data = path.read_bytes()
        is_open = bool(path.stat().st_mode & stat.S_IRWXO)
    except OSError as error:
        raise ConfigError(f"the signing key {path} cannot be read: {error.strerror}") from None
    if is_open:
        raise ConfigError(
            f"the signing key {path} can be read by every user of this machine: chmod 600 {path}"
        )
    forms = import_module("cryptography.hazmat.primitives.serialization")
    try:
        key = forms.load_pem_private_key(data, None)
    except (TypeError, ValueError):
        key = None
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise ConfigError(
            f"{path} holds no Ed25519 private key: make one with `windlass key new FILE`"
        )
    return key


def _load_ed25519() -> Any:  # noqa: ANN401 - imported when used
    try:
        return import_module("cryptography.hazmat.primitives.asymmetric.ed25519")
    except ImportError:
        raise ConfigError(
            "signing keys need an extra package: pip install 'windlass[postgres]'"
        ) from None
