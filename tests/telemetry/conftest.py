"""A collector for each test, in none of which telemetry may break unheard."""

from collections.abc import Iterator

import pytest

from collector import SpanCollector


@pytest.fixture
def collector() -> SpanCollector:
    return SpanCollector()


@pytest.fixture(autouse=True)
def unbroken(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """A watcher that fails is only told of in the log."""
    yield
    ours = ("windlass.runtime.recorder", "opentelemetry")
    told = [record for record in caplog.get_records("call") if record.name.startswith(ours)]
    assert [record.message for record in told] == []
