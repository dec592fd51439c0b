"""`lockstep-broker --brokers N` that is ended while its processes begin."""

import asyncio
import signal

import pytest

from lockstep.broker.multi_process.command import ManyBrokers
from lockstep.broker.options import parse_options
from lockstep.remoting.host.runtime import AsyncioRuntime
from tests.broker.helpers import RecordingLog


@pytest.mark.parametrize("turns", [0, *(pytest.param(turns, marks=pytest.mark.long) for turns in range(1, 4))])
async def test_an_end_while_processes_begin(turns: int) -> None:
    """So many turns of the event loop after the start: no process is missed, which would be killed after a minute."""
    arguments = ["--brokers", "2", "--port", "0", "--name-server", "127.0.0.1:1"]
    stopped = asyncio.get_running_loop().create_future()
    many = ManyBrokers(parse_options(arguments), arguments, AsyncioRuntime(), RecordingLog())
    running = asyncio.create_task(many.run(stopped, lambda: None))
    for _ in range(turns):
        await asyncio.sleep(0)
    stopped.set_result(signal.SIGTERM)
    await running
    assert many.failure == ""
