"""The console on a socket: a page that is open when the console ends."""

import asyncio

import pytest

from lockstep.cli.output import StderrLog
from lockstep.console.console import Cluster
from lockstep.console.server import serve
from tests.console.pages_inside import NOWHERE


async def test_an_open_page_does_not_hold_the_end(caplog: pytest.LogCaptureFixture) -> None:
    """Its stream of events ends like any answer, and nothing is written about a task that was cut."""
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve([Cluster(NOWHERE)], "127.0.0.1", 0, StderrLog(verbose=False), ready.set_result))
    host, _, port = (await ready).removeprefix("http://").removesuffix("/").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET /events HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
    await reader.readuntil(b"retry: 1000")
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert (await reader.read()).endswith(b"0\r\n\r\n")
    writer.close()
    assert [one.message for one in caplog.records if one.name.startswith("uvicorn")] == []
