"""Protocols that write down what happens to them, for tests of the simulated network."""

import asyncio
from typing import cast

from lockstep.simulation import SimRuntime, World

Connected = tuple["Recorder", "Recorder"]  # the client's end, the server's end


class Recorder(asyncio.Protocol):
    """Events in order: "made", byte counts of what was read, "eof", "lost ErrorName", "pause", "resume"."""

    def __init__(self, *, keep_open_at_eof: bool = False) -> None:
        self.events: list[str] = []
        self.chunks: list[bytes] = []
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport
        self._keep_open_at_eof = keep_open_at_eof

    @property
    def received(self) -> bytes:
        return b"".join(self.chunks)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.chunks.append(data)
        self.events.append(f"data {len(data)}")

    def eof_received(self) -> bool:
        self.events.append("eof")
        return self._keep_open_at_eof

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append(f"lost {type(exc).__name__}" if exc else "lost")
        self.lost.set_result(exc)


class Echo(Recorder):
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.transport.write(data)


async def connect(world: World, client: SimRuntime, server: SimRuntime) -> Connected:
    """One connection, its listener closed again. Raises ConnectionResetError when it is cut before it began."""
    accepted: list[Recorder] = []

    def accept() -> Recorder:
        accepted.append(Recorder())
        return accepted[-1]

    listening = await server.create_server(accept, "0.0.0.0", 0)
    try:
        _, protocol = await client.create_connection(Recorder, server.name, listening.port)
        await world.until(lambda: accepted and accepted[0].events)
    finally:
        listening.close()
    assert isinstance(protocol, Recorder)
    return protocol, accepted[0]
