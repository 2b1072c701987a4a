"""Ends the Postgres server that services of these tests may have started."""

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def stop_server_at_the_end() -> Iterator[None]:
    yield
    servers = sys.modules.get("postgres")
    if servers is not None and servers.start_server.cache_info().currsize:
        servers.stop_server()
