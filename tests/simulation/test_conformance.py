"""One body, three arms: what protocols see is the same on asyncio, on uvloop and in the simulation."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count, pairwise

import pytest
import uvloop

from lockstep.remoting.host.runtime import AsyncioRuntime, Runtime
from lockstep.simulation import SimulationOptions, World, simulate
from tests.simulation.peers import Echo, Recorder

Story = Callable[[Runtime, Runtime, str], Awaitable[list[str]]]
SMALL_WINDOW = SimulationOptions(window_bytes=3_000)


async def open_pair(
    client: Runtime, server: Runtime, address: str, make: Callable[[], Recorder] = Recorder
) -> tuple[Recorder, Recorder]:
    accepted: asyncio.Future[Recorder] = asyncio.get_running_loop().create_future()

    def accept() -> Recorder:
        recorder = make()
        accepted.set_result(recorder)
        return recorder

    listening = await server.create_server(accept, address, 0)
    _, protocol = await client.create_connection(Recorder, address, listening.port)
    assert isinstance(protocol, Recorder)
    recorder = await accepted
    await until(lambda: recorder.events)
    listening.close()
    return protocol, recorder


async def until(condition: Callable[[], object]) -> None:
    """On a real loop and on virtual time alike."""
    for _ in count():
        if condition():
            return
        await asyncio.sleep(0.001)


def summary(*recorders: Recorder) -> list[str]:
    """Events and totals of each end; reads joined, and buffer marks left out: both depend on kernels."""
    lines = []
    for recorder in recorders:
        events = [event.split()[0] if event.startswith("data") else event for event in recorder.events]
        events = [event for event in events if event not in ("pause", "resume")]
        joined = events[:1] + [event for last, event in pairwise(events) if (last, event) != ("data", "data")]
        lines.append(f"{' '.join(joined)}: {len(recorder.received)}")
    return lines


async def echo_then_close(client: Runtime, server: Runtime, address: str) -> list[str]:
    near, far = await open_pair(client, server, address, Echo)
    near.transport.writelines([b"a" * 5_000, bytearray(b"b" * 5_000), memoryview(b"c" * 10)])
    await until(lambda: len(near.received) == 10_010)
    near.transport.close()
    near.transport.close()
    near.transport.abort()
    await asyncio.gather(near.lost, far.lost)
    return summary(near, far)


async def close_flushes(client: Runtime, server: Runtime, address: str) -> list[str]:
    near, far = await open_pair(client, server, address)
    near.transport.write(bytes(300_000))
    near.transport.close()
    await asyncio.gather(near.lost, far.lost)
    return summary(near, far)


async def abort_of_an_idle_connection(client: Runtime, server: Runtime, address: str) -> list[str]:
    near, far = await open_pair(client, server, address)
    far.transport.abort()
    far.transport.write(b"too late")
    await asyncio.gather(near.lost, far.lost)
    return summary(near, far)


async def half_close(client: Runtime, server: Runtime, address: str) -> list[str]:
    near, far = await open_pair(client, server, address, lambda: Recorder(keep_open_at_eof=True))
    near.transport.write(b"question")
    near.transport.write_eof()
    with pytest.raises(RuntimeError, match="after write_eof"):
        near.transport.write(b"more")
    await until(lambda: "eof" in far.events)
    far.transport.write(b"the answer")
    far.transport.close()
    await asyncio.gather(near.lost, far.lost)
    return summary(near, far)


async def close_with_bytes_unread(client: Runtime, server: Runtime, address: str) -> list[str]:
    near, far = await open_pair(client, server, address)
    far.transport.pause_reading()
    near.transport.write(b"never read")
    await asyncio.sleep(0.05)
    far.transport.close()
    await asyncio.gather(near.lost, far.lost)
    return summary(near, far)


async def pause_then_resume(client: Runtime, server: Runtime, address: str) -> list[str]:
    near, far = await open_pair(client, server, address)
    far.transport.pause_reading()
    near.transport.write(bytes(1_000))
    near.transport.close()
    await asyncio.sleep(0.05)
    before = summary(far)
    far.transport.resume_reading()
    await asyncio.gather(near.lost, far.lost)
    return before + summary(near, far)


async def refused(client: Runtime, server: Runtime, address: str) -> list[str]:
    listening = await server.create_server(Recorder, address, 0)
    port = listening.port
    taken = pytest.raises(OSError, match="attempting to bind")
    with taken:
        await server.create_server(Recorder, address, port)
    listening.close()
    await listening.wait_closed()
    with pytest.raises(ConnectionRefusedError) as caught:
        await client.create_connection(Recorder, address, port)
    return [type(caught.value).__name__]


STORIES: list[Story] = [
    echo_then_close,
    close_flushes,
    abort_of_an_idle_connection,
    half_close,
    close_with_bytes_unread,
    pause_then_resume,
    refused,
]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_the_simulation_predicts_reality(story: Story) -> None:
    """Both real loops tell the story alike, and the simulation tells it so under every seed and window."""

    async def real() -> list[str]:
        runtime = AsyncioRuntime()
        return await asyncio.wait_for(story(runtime, runtime, "127.0.0.1"), 100)

    async def scenario(world: World) -> list[str]:
        client, server = world.host("c1"), world.host("broker")
        return await story(client, server, server.address)

    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        on_asyncio = runner.run(real())
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        on_uvloop = runner.run(real())
    assert on_asyncio == on_uvloop
    for seed in range(10):
        for options in (SimulationOptions(), SMALL_WINDOW):
            assert simulate(scenario, seed=seed, options=options).value == on_asyncio
