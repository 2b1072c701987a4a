"""The server of tests closes all that it opened."""

import asyncio
import gc
import warnings
from typing import cast

import pytest

from windlass.testing.fault_server import FaultServer
from windlass.testing.wire import stream_answer

pytestmark = pytest.mark.slow


async def leave_a_client_that_does_not_read() -> None:
    async with FaultServer(stream_answer(b"x" * 20_000_000)) as server:
        port = int(server.url.rpartition(":")[2].partition("/")[0])
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        cast("asyncio.Transport", writer.transport).pause_reading()
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(20):
            while not server.requests:  # noqa: ASYNC110 - the server writes it
                await asyncio.sleep(0.01)
    writer.transport.abort()
    await asyncio.sleep(0)


def test_a_stopped_server_leaves_no_connection_behind() -> None:
    """Whichever test happens to collect it would fail."""
    loop = asyncio.new_event_loop()
    loop.run_until_complete(leave_a_client_that_does_not_read())
    loop.close()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        gc.collect()
    assert [str(warning.message) for warning in caught] == []
