"""What every test stands on: no network, and as many random cases as the place asks for."""

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from no_network import loopback_only

pytest_plugins = ["windlass.testing.plugin"]
"""Each `async def test_*` runs on virtual time, and leaves no task behind."""

# Time on a shared machine is not a property of the code, so nothing here has a deadline.
_SLOW_MACHINE = [HealthCheck.too_slow]
settings.register_profile(
    "dev", max_examples=50, deadline=None, suppress_health_check=_SLOW_MACHINE
)
settings.register_profile("ci", settings.get_profile("dev"), max_examples=100, print_blob=True)
settings.register_profile("night", settings.get_profile("ci"), max_examples=5_000)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") == "true" else "dev")
)


def pytest_configure(config: pytest.Config) -> None:
    # A shell that runs us in the background has us ignore Ctrl-C, and so would our children.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # The sockets of drivers and the key of the user are put into folders of the user: not into the
    # real ones.
    if not hasattr(config, "workerinput"):
        folder = tempfile.mkdtemp(prefix="windlass-state-")
        os.environ["XDG_STATE_HOME"] = folder
        os.environ["XDG_DATA_HOME"] = f"{folder}/data"
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def pytest_sessionfinish() -> None:
    """End the Postgres server of this process, if a test has started it."""
    if servers := sys.modules.get("postgres"):
        servers.stop_server()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--live", action="store_true", help="run the tests that need a key")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--live"):
        for item in items:
            if item.get_closest_marker("live"):
                item.add_marker(pytest.mark.skip(reason="talks to a real provider: --live"))


@pytest.fixture(autouse=True)
def no_network(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that tried to leave this machine, even if the code under test hid it."""
    if request.node.get_closest_marker("live"):
        yield
        return
    with loopback_only() as refused:
        yield
    assert refused == []
