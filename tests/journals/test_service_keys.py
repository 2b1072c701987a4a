"""The keys of a service: how they are made, given and trusted."""

import stat
from pathlib import Path

import pytest

from windlass.core.errors import ConfigError
from windlass.journals.service_keys import (
    ServiceKeys,
    load_service_keys,
    make_signing_key,
    read_public_key,
)
from windlass.private_files import is_private_file

pytestmark = pytest.mark.contract("D3")


def test_a_new_key_is_for_its_owner_only_and_is_never_overwritten(tmp_path: Path) -> None:
    """D3: two services that are given the same file never end up with two keys."""
    path = tmp_path / "service.pem"
    public_key = make_signing_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_public_key(path) == public_key
    with pytest.raises(ConfigError, match="File exists"):
        make_signing_key(path)
    assert read_public_key(path) == public_key


def test_a_signature_is_for_one_key_one_purpose_and_one_value(tmp_path: Path) -> None:
    """G10: values that are joined differently are others."""
    service = ServiceKeys(signing_key=make_key(tmp_path, "a"))
    worker = ServiceKeys(verify_keys=[read_public_key(tmp_path / "a")])
    stranger = ServiceKeys(verify_keys=[read_public_key(make_key(tmp_path, "b"))])
    signature = service.sign("answer", "s", "call", 1.5)
    assert signature.startswith(f"{service.key_id}.")
    assert service.is_valid(signature, "answer", "s", "call", 1.5)
    assert worker.is_valid(signature, "answer", "s", "call", 1.5)
    assert not stranger.is_valid(signature, "answer", "s", "call", 1.5)
    assert not worker.is_valid(signature, "record", "s", "call", 1.5)
    for values in (("sc", "all", 1.5), ("s", "call", 2.5), ("s", "call"), ("s", b"call", 1.5)):
        assert not worker.is_valid(signature, "answer", *values)
    key_id, _, digits = signature.partition(".")
    # The last byte of a signature is below 16, so that some end with these digits already.
    last = "01" if digits.endswith("00") else "00"
    wrong = ("", key_id, digits, f"{key_id}.", f"{key_id}.xyz", f"{key_id}.{digits[:-2]}{last}")
    for changed in wrong:
        assert not worker.is_valid(changed, "answer", "s", "call", 1.5)


def make_key(folder: Path, name: str) -> Path:
    make_signing_key(folder / name)
    return folder / name


def test_what_a_process_signs_for_itself_counts_nowhere_else(tmp_path: Path) -> None:
    """D3: the approver of a driver counts for that driver."""
    public_key = read_public_key(make_key(tmp_path, "a"))
    one, other = (ServiceKeys(verify_keys=[public_key]) for _ in range(2))
    signature = one.sign_in_process("answer", "s")
    assert one.is_valid(signature, "answer", "s")
    assert not other.is_valid(signature, "answer", "s")
    with pytest.raises(ConfigError, match="WINDLASS_SIGNING_KEY_FILE"):
        one.sign("answer", "s")


def test_keys_come_from_the_environment_unless_they_are_given(tmp_path: Path) -> None:
    path = make_key(tmp_path, "a")
    mine, other = read_public_key(path), read_public_key(make_key(tmp_path, "b"))
    environ = {"WINDLASS_SIGNING_KEY_FILE": str(path), "WINDLASS_VERIFY_KEYS": f"{mine}, {other}"}
    assert load_service_keys(environ=environ).can_sign
    by_other = ServiceKeys(signing_key=tmp_path / "b").sign("record", 1)
    assert load_service_keys(environ=environ).is_valid(by_other, "record", 1)
    assert not load_service_keys(verify_keys=[mine], environ={}).is_valid(by_other, "record", 1)
    assert not load_service_keys(environ={}).is_configured


def test_a_private_key_is_hidden_from_the_tools_of_a_model(tmp_path: Path) -> None:
    """T13: what can read it could answer for people."""
    path = make_key(tmp_path, "a")
    assert not is_private_file(path)
    assert ServiceKeys(signing_key=path).can_sign
    assert is_private_file(path)


def test_keys_that_cannot_be_used_are_refused_in_words(tmp_path: Path) -> None:
    path = make_key(tmp_path, "a")
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        ServiceKeys(signing_key=path)
    other = tmp_path / "other"
    with pytest.raises(ConfigError, match="cannot be read"):
        ServiceKeys(signing_key=other)
    other.write_text("no key")
    other.chmod(0o600)
    with pytest.raises(ConfigError, match="windlass key new"):
        ServiceKeys(signing_key=other)
    for text in ("", "zz", "00" * 31):
        with pytest.raises(ConfigError, match="is not a public key"):
            ServiceKeys(verify_keys=[text])
