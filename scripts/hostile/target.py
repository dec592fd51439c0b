"""What an attack is aimed at: a process, and the connections that an attack opens to it."""

import asyncio
from types import TracebackType
from typing import Self

from lockstep.testing.peer import Peer

__all__ = ["Target"]


class Target:
    """An attacked process and its ports: `port` is the broker's or the console's, `grpc_port` 0 without one.

    It closes all connections of an attack when the attack has ended.
    """

    def __init__(self, pid: int, port: int, name_server_port: int, grpc_port: int = 0) -> None:
        self.pid, self.port, self.name_server_port, self.grpc_port = pid, port, name_server_port, grpc_port
        self._peers: list[Peer] = []

    async def connect(self, *, name_server: bool = False, grpc: bool = False, host: str = "127.0.0.1") -> Peer:
        """`host` is the address to come from. Raises OSError when the broker does not accept."""
        port = self.name_server_port if name_server else self.grpc_port if grpc else self.port
        peer = Peer(*await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0)))
        self._peers.append(peer)
        return peer

    async def ask(self, data: bytes, *, name_server: bool = False) -> str:
        """One request on a connection of its own; its outcome in a few words."""
        return await (await self.connect(name_server=name_server)).outcome(data)

    def close(self) -> None:
        for peer in self._peers:
            peer.abort()
        self._peers.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
