"""The address of an engine: what it may say, and what it must not."""

from pathlib import Path

import pytest

from windlass.core.errors import ConfigError
from windlass.fleet.engine_address import EngineAddress, parse_engine_address


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("temporal://engine", EngineAddress(host="engine:7233")),
        ("temporal://engine:1234/", EngineAddress(host="engine:1234")),
        ("temporal://[::1]:7/team", EngineAddress(host="[::1]:7", namespace="team")),
        (
            "temporal://a.tmprl.cloud/ns.acct?tls=1&heartbeat_s=30&prefix=b",
            EngineAddress(
                host="a.tmprl.cloud:7233",
                namespace="ns.acct",
                tls=True,
                heartbeat_s=30.0,
                prefix="b",
            ),
        ),
        (
            "temporal://engine?cert=a.pem&key=b.pem",
            EngineAddress(host="engine:7233", tls=True, cert="a.pem", key="b.pem"),
        ),
    ],
)
def test_an_address_is_read(text: str, expected: EngineAddress) -> None:
    assert parse_engine_address(text) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("engine:7233", "is not an engine's address"),
        ("postgresql://engine/db", "is not an engine's address"),
        ("temporal:///default", "is not an engine's address"),
        ("temporal://engine:none", "the port is not a number"),
        ("temporal://me:secret@engine", "TEMPORAL_API_KEY"),
        ("temporal://engine?tsl=1", "unknown field `tsl`"),
        ("temporal://engine?cert=a.pem", "both cert=FILE and key=FILE"),
        ("temporal://engine?prefix=a/b", "without a slash"),
        ("temporal://engine?heartbeat_s=0", "1 to 3600 seconds"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        parse_engine_address(text)
    assert "secret" not in str(caught.value)


def test_an_api_key_is_sent_only_over_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would cross the network in the clear."""
    monkeypatch.setenv("TEMPORAL_API_KEY", "key-of-the-cloud")
    assert EngineAddress(host="engine:7233").read_api_key() is None
    assert EngineAddress(host="engine:7233", tls=True).read_api_key() == "key-of-the-cloud"


def test_a_missing_certificate_is_named(tmp_path: Path) -> None:
    address = EngineAddress(host="engine:7233", ca=str(tmp_path / "no.pem"))
    with pytest.raises(ConfigError, match=r"no\.pem: No such file"):
        address.read_file("ca")


def test_names_are_the_same_in_every_process_and_never_too_long() -> None:
    address = EngineAddress(host="engine:7233", prefix="team")
    assert address.workflow_id("desk/1") == "team/desk/1"
    assert address.task_queue("") == "team"
    assert address.task_queue("clerk") == "team/clerk"
    assert address.task_queue("clerk", "abc") == "team/clerk@abc"
    long = [address.workflow_id(f"{'ä' * 800}{end}") for end in ("1", "2")]
    assert len(set(long)) == 2
    assert max(map(len, long)) < 100
