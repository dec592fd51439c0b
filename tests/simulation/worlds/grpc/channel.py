"""A channel to a broker, as gRPC's are: one connection, made anew when it has ended, and calls with deadlines."""

import asyncio
from contextlib import suppress
from typing import Any, Final

from h2.exceptions import ProtocolError
from hyperframe.frame import GoAwayFrame

from lockstep.client import ClientError
from lockstep.simulation.runtime import SimRuntime
from tests.broker.fronts.grpc.grpc_client import Calling, GrpcClient

__all__ = ["CallError", "Channel"]

_CONNECT_MS: Final = 3000  # as the Java SDK waits


class CallError(ClientError):
    """A call got no whole answer: its deadline is over, its stream was reset, or its connection ended."""


class Channel:
    """`window`: how many bytes of an answer may come before the client reads on; None: HTTP/2's own number."""

    def __init__(self, runtime: SimRuntime, address: str, client_id: str, window: int | None = None) -> None:
        self._runtime = runtime
        self._address = address
        self._client_id = client_id
        self._window = window
        self._client: GrpcClient | None = None
        self._turn = asyncio.Lock()
        self.is_closed = False

    @property
    def client(self) -> GrpcClient | None:
        """The connection there is now."""
        return self._client if self._client is not None and self._client.is_usable else None

    async def connected(self) -> GrpcClient:
        """Raises CallError."""
        async with self._turn:
            if self.is_closed:
                raise CallError("the channel is closed")
            if self.client is None:
                try:
                    async with asyncio.timeout(_CONNECT_MS / 1000):
                        self._client = await GrpcClient.connect(
                            self._runtime, self._address, self._client_id, window=self._window
                        )
                except (OSError, TimeoutError) as error:
                    raise CallError(f"no connection: {error!r}") from error
        if self.client is None:
            # It ended before anybody could use it: nothing would end a call on it.
            raise CallError("the connection has ended")
        return self.client

    async def begin(self, method: str, request: Any, timeout_ms: int) -> Calling:
        """Send a call with one message. Raises CallError."""
        client = await self.connected()
        try:
            return client.start(method, request, timeout_ms)
        except ProtocolError as error:
            raise CallError(f"the connection has ended: {error}") from error

    async def call(self, method: str, request: Any, timeout_ms: int) -> Any:
        """A call with one answer. Raises CallError."""
        call = await self.begin(method, request, timeout_ms)
        await self.end_of(call, timeout_ms)
        return call.messages[0]

    async def end_of(self, call: Calling, timeout_ms: int) -> None:
        """Wait for the end of a call. Raises CallError when it is none with status 0."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await asyncio.shield(call.ended)
        except TimeoutError:
            self.cancel(call)
            raise CallError("the deadline is over") from None
        finally:
            call.forget()
        if call.status[0] != "0":
            raise CallError(f"status {call.status}, reset {call.reset}")

    def cancel(self, call: Calling) -> None:
        """Reset its stream: what is under way of the answer is lost."""
        with suppress(ProtocolError):
            call.cancel()
        call.forget()

    def go_away(self) -> None:
        """Say that the connection ends, in the middle of all calls."""
        client = self.client
        if client is not None and client.transport is not None:
            client.transport.write(GoAwayFrame(stream_id=0, last_stream_id=0, error_code=0).serialize())
            # The next call has a connection of its own, and on this one nothing follows.
            client.goaway, client.is_corked = 0, True

    def abort(self) -> None:
        """The connection is given up."""
        if self._client is not None and self._client.transport is not None:
            self._client.transport.abort()

    def close(self) -> None:
        self.is_closed = True
        if self._client is not None:
            self._client.close()
