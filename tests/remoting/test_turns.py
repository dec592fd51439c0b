"""A server works on one connection for a turn's time, then every other has its turn."""

import struct

from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.remoting.connections.byte_budget import ByteBudget, ConnectionBounds, Inbound
from lockstep.remoting.connections.endpoint import Endpoint, EndpointCallbacks, EndpointSettings
from lockstep.remoting.host.runtime import AsyncioRuntime
from lockstep.remoting.limit_log import LimitLog
from tests.remoting.helpers import ECHO, Peer, RecordingLog, SteppedRuntime, echo, frame_of, until

COUNT = 20


class WorkedRuntime(SteppedRuntime):
    """Its clock for intervals moves with the work that is done, and with nothing else."""

    work_ns = 0

    def monotonic_ns(self) -> int:
        return self.work_ns

    def slow(self, _: Endpoint, command: RemotingCommand) -> RemotingCommand:
        """A handler whose every request takes 2 ms."""
        self.work_ns += 2_000_000
        return command.reply(ResponseCode.SUCCESS)


def requests(count: int = COUNT) -> list[RemotingCommand]:
    return [RemotingCommand(ECHO, opaque=i) for i in range(count)]


async def test_a_read_of_many_slow_requests_is_worked_on_in_turns() -> None:
    """One a turn, and no reading between turns; at the end all are answered in order and reading goes on."""
    runtime = WorkedRuntime()
    peer = Peer(runtime.slow, runtime=runtime)
    peer.send(*requests())
    assert len(peer.transport.calls) == 1
    assert not peer.transport.reading
    runtime.advance(0)
    assert [reply.opaque for reply in peer.received()] == list(range(COUNT))
    assert len(peer.transport.calls) == COUNT
    assert peer.transport.reading


async def test_fast_requests_take_one_turn() -> None:
    """What takes no time is answered in one go, with one write."""
    peer = Peer(echo)
    peer.send(*requests())
    assert peer.transport.reading
    assert len(peer.transport.calls) == 1


async def test_a_connection_that_sends_much_gives_way_too() -> None:
    """Bytes that only wait take time as well: after half a MiB of a frame the others have their turn."""
    runtime = WorkedRuntime()
    peer = Peer(runtime.slow, runtime=runtime)
    reading = []
    for data in (struct.pack(">II", 4 << 20, 0) + bytes(512 * 1024 - 8), b"x", b""):
        if data:
            peer.endpoint.data_received(data)
        else:
            runtime.advance(0)
        reading.append(peer.transport.reading)
    assert reading == [True, False, True]


async def test_a_client_does_not_give_way() -> None:
    """Its replies come in one go: nobody else waits for its loop."""
    runtime = WorkedRuntime()
    peer = Peer(runtime.slow, runtime=runtime, server=False)
    peer.send(*requests())
    assert len(peer.transport.calls) == 1
    assert len(peer.received()) == COUNT


async def test_turns_and_a_peer_that_does_not_read() -> None:
    """Both at once: the connection waits for its turn and for the peer; nothing is lost or answered twice."""
    runtime = WorkedRuntime()
    peer = Peer(runtime.slow, runtime=runtime, write_high_water_bytes=1)
    peer.transport.stuck = True
    peer.send(*requests())
    while (answered := len(peer.transport.calls)) < COUNT:
        assert not peer.transport.reading
        runtime.advance(0)
        if peer.endpoint.write_paused:
            runtime.advance(0)  # its turn came, and it waits for the peer
            peer.transport.drain()
            peer.transport.stuck = True
        assert answered < len(peer.transport.calls) <= answered + 2
    assert [reply.opaque for reply in peer.received()] == list(range(COUNT))


async def test_a_connection_that_is_lost_between_turns() -> None:
    """Its frames are dropped, its bytes are given back, and its next turn does nothing."""
    runtime = WorkedRuntime()
    limits = LimitLog(RecordingLog())
    inbound = Inbound(ByteBudget("inbound_bytes", 1 << 20, "frames", limits), 60_000, RecordingLog())
    bounds = ConnectionBounds(inbound, ByteBudget("outbound_bytes", 1 << 20, "replies", limits))
    peer = Peer(runtime.slow, runtime=runtime, bounds=bounds)
    peer.send(*requests())
    assert inbound.bytes > 0
    peer.lose()
    assert inbound.bytes == 0
    runtime.advance(0)
    assert len(peer.received()) == 1


async def test_turns_over_sockets() -> None:
    """A peer sends 200 requests of 2 ms at once; another, with one request, does not wait for all of them."""
    order: list[int] = []

    class Worked(AsyncioRuntime):
        work_ns = 0

        def monotonic_ns(self) -> int:
            return self.work_ns

    served, real = Worked(), AsyncioRuntime()

    def handle(_: Endpoint, command: RemotingCommand) -> RemotingCommand:
        served.work_ns += 2_000_000
        order.append(command.opaque)
        return command.reply(ResponseCode.SUCCESS)

    settings = EndpointSettings(server=True)
    listening = await served.create_server(
        lambda: Endpoint(served, settings, EndpointCallbacks(handle), RecordingLog()), "127.0.0.1", 0
    )
    quiet_settings = EndpointSettings(server=False)
    clients = [Endpoint(real, quiet_settings, EndpointCallbacks(echo), RecordingLog()) for _ in range(2)]
    try:
        for client in clients:
            await real.create_connection(lambda client=client: client, "127.0.0.1", listening.port)  # type: ignore[misc]
        greedy, quiet = clients
        greedy._transport.write(b"".join(frame_of(RemotingCommand(ECHO, opaque=i)) for i in range(200)))  # type: ignore[union-attr]
        quiet._transport.write(frame_of(RemotingCommand(ECHO, opaque=1000)))  # type: ignore[union-attr]
        await until(lambda: len(order) == 201)
        assert order.index(1000) < 100
        assert [opaque for opaque in order if opaque < 1000] == list(range(200))
    finally:
        listening.close()
        for client in clients:
            client.abort("the test ends")
