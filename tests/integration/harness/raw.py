"""A raw peer over a socket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from lockstep.testing.peer import Peer

__all__ = ["raw_peer"]


@asynccontextmanager
async def raw_peer(port: int, host: str = "127.0.0.1") -> AsyncIterator[Peer]:
    """Connected until the end of the block. `host`: the address of this machine that it comes from."""
    peer = Peer(*await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0)))
    try:
        yield peer
    finally:
        peer.abort()
