"""A transport's promises under every fault at once: whatever the seed does to a connection, these hold."""

import asyncio
from itertools import pairwise

import pytest

from lockstep.simulation import SimulationOptions, World, simulate
from tests.simulation.peers import Recorder, connect

SEEDS = range(20)


async def trouble(world: World) -> None:
    """Half a minute of faults, each of which ends."""
    rng = world.rng
    while world.elapsed_ms < 30_000:
        await world.sleep_ms(rng.randrange(1, 400))
        match rng.randrange(5):
            case 0:
                world.partition("c1", "broker")
                await world.sleep_ms(rng.randrange(1_000))
                world.repair("c1", "broker")
            case 1:
                source, target = rng.choice([("c1", "broker"), ("broker", "c1")])
                world.hold(source, target)
                await world.sleep_ms(rng.randrange(1_000))
                world.release(source, target)
            case 2:
                world.stall(rng.choice(["c1", "broker"]), 200)
                await world.sleep_ms(200)
            case 3 if rng.random() < 0.2:
                world.cut("c1")


async def use(world: World, near: Recorder, far: Recorder) -> tuple[bytes, bool]:
    """Write, pause and resume, then end the connection: what was written, and whether all of it was to arrive."""
    rng, sent = world.rng, bytearray()
    far_transport = far.transport
    for _ in range(rng.randrange(200)):
        data = rng.randbytes(rng.randrange(3_000))
        near.transport.write(data)
        sent += data
        if rng.random() < 0.1:
            rng.choice([far_transport.pause_reading, far_transport.resume_reading])()
        await asyncio.sleep(rng.random() / 50)
    far_transport.resume_reading()
    polite = rng.random() < 0.5
    rude_ends = [near.transport.abort, far_transport.abort, far_transport.close]
    rng.choice([near.transport.close, near.transport.write_eof] if polite else rude_ends)()
    return bytes(sent), polite


def check(near: Recorder, far: Recorder, sent: bytes, *, polite: bool) -> None:
    assert sent.startswith(far.received)
    if polite and near.events[-1] == far.events[-1] == "lost":
        assert far.received == sent
    for recorder in (near, far):
        assert recorder.events[0] == "made"
        assert [event for event in recorder.events if event.startswith("lost")] == recorder.events[-1:]
        marks = [event for event in recorder.events if event in ("pause", "resume")]
        assert marks[:1] != ["resume"]
        assert all(last != event for last, event in pairwise(marks))
        if "eof" in recorder.events:
            assert not any(event.startswith("data") for event in recorder.events[recorder.events.index("eof") :])


@pytest.mark.parametrize("window_bytes", [1_500, 131_072])
def test_promises_hold_whatever_happens(window_bytes: int) -> None:
    """What arrives is a prefix of what was sent; every connection begins once, ends once, and marks alternate."""
    endings: set[str] = set()

    async def scenario(world: World) -> None:
        client, broker = world.host("c1"), world.host("broker")
        troubling = world.start(trouble(world), name="trouble")
        while world.elapsed_ms < 30_000:
            try:
                near, far = await connect(world, client, broker)
            except ConnectionResetError:
                continue
            sent, polite = await use(world, near, far)
            await asyncio.gather(near.lost, far.lost)
            check(near, far, sent, polite=polite)
            endings.update((near.events[-1], far.events[-1]))
        await troubling

    options = SimulationOptions(window_bytes=window_bytes)
    hashes = {simulate(scenario, seed=seed, options=options).trace_hash for seed in SEEDS}
    assert len(hashes) == len(SEEDS)
    assert endings == {"lost", "lost ConnectionResetError"}
