"""An endpoint without a network: a clock that tests move, a transport that records, a peer made of frames."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from lockstep.protocol.codes import RequestCode, ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand, decode_command, encode_command
from lockstep.protocol.frame import FrameDecoder
from lockstep.remoting.connections.byte_budget import ConnectionBounds
from lockstep.remoting.connections.endpoint import Endpoint, EndpointCallbacks, EndpointSettings, TakesBytes
from lockstep.remoting.host.runtime import AsyncioRuntime, Runtime

__all__ = [
    "ECHO",
    "ENCODINGS",
    "FakeTransport",
    "Peer",
    "RecordingLog",
    "SteppedRuntime",
    "echo",
    "frame_of",
    "linked",
    "refuse",
    "until",
]

ECHO = int(RequestCode.GET_MAX_OFFSET)  # any code that a handler below answers with the request's body
ENCODINGS = tuple(SerializeType)
Handler = Callable[[Endpoint, RemotingCommand], RemotingCommand | None]


def echo(_endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand:
    """A handler: the request's body comes back."""
    return command.reply(ResponseCode.SUCCESS, body=command.body)


def refuse(_endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand:
    return command.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark="no")


class RecordingLog:
    """`events`: (level, event, fields) in order."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, dict[str, Any]]] = []

    def debug(self, event: str, **fields: Any) -> None:
        self.events.append(("debug", event, fields))

    def info(self, event: str, **fields: Any) -> None:
        self.events.append(("info", event, fields))

    def warning(self, event: str, **fields: Any) -> None:
        self.events.append(("warning", event, fields))

    def error(self, event: str, **fields: Any) -> None:
        self.events.append(("error", event, fields))


class _Timer:
    def __init__(self, due_ms: int, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.due_ms = due_ms
        self.callback = callback
        self.args = args
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class SteppedRuntime(AsyncioRuntime):
    """Real sockets and tasks under a clock that only `advance` moves."""

    def __init__(self) -> None:
        super().__init__(seed=1)
        self.clock_ms = 1_700_000_000_000
        self.timers: list[_Timer] = []

    def now_ms(self) -> int:
        return self.clock_ms

    def monotonic_ns(self) -> int:
        return self.clock_ms * 1_000_000

    def call_later_ms(self, delay_ms: int, callback: Callable[..., object], *args: Any) -> _Timer:
        timer = _Timer(self.clock_ms + delay_ms, callback, args)
        self.timers.append(timer)
        return timer

    def advance(self, duration_ms: int) -> None:
        """Move the clock, stopping at every timer that comes due on the way."""
        end_ms = self.clock_ms + duration_ms
        while due := [timer for timer in self.live_timers() if timer.due_ms <= end_ms]:
            timer = min(due, key=lambda timer: timer.due_ms)
            self.timers.remove(timer)
            self.clock_ms = max(self.clock_ms, timer.due_ms)
            timer.callback(*timer.args)
        self.clock_ms = end_ms

    def live_timers(self) -> list[_Timer]:
        self.timers = [timer for timer in self.timers if not timer.cancelled]
        return self.timers


class FakeTransport(asyncio.Transport):
    """Takes everything at once, or with `stuck` nothing; pauses its protocol by the water marks, as a real one."""

    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.9", 4711)})
        self.calls: list[tuple[str, bytes]] = []
        self.stuck = False
        self.buffered = 0
        self.reading = True
        self.ended = ""
        self.protocol: Endpoint | None = None
        self._high = self._low = 0
        self._protocol_paused = False

    @property
    def sent(self) -> bytes:
        return b"".join(data for _, data in self.calls)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None
        assert low is not None
        self._high, self._low = high, low

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._record("write", bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self._record("writelines", b"".join(list_of_data))

    def _record(self, call: str, data: bytes) -> None:
        assert not self.ended, "written to after its end"
        self.calls.append((call, data))
        if self.stuck:
            self.buffered += len(data)
            if self.buffered > self._high and not self._protocol_paused:
                self._protocol_paused = True
                assert self.protocol is not None
                self.protocol.pause_writing()

    def drain(self) -> None:
        """The peer has read everything."""
        self.stuck, self.buffered = False, 0
        if self._protocol_paused:
            self._protocol_paused = False
            assert self.protocol is not None
            self.protocol.resume_writing()

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_reading(self) -> bool:
        return self.reading and not self.ended

    def is_closing(self) -> bool:
        return bool(self.ended)

    def close(self) -> None:
        self.ended = self.ended or "close"

    def abort(self) -> None:
        self.ended = "abort"


class Peer:
    """The other end of an endpoint on a FakeTransport, as frames."""

    def __init__(
        self,
        on_request: Handler = refuse,
        *,
        server: bool = True,
        offer: SerializeType | None = None,
        runtime: SteppedRuntime | None = None,
        bounds: ConnectionBounds | None = None,
        on_bytes: TakesBytes | None = None,
        **settings: Any,
    ) -> None:
        self.log = RecordingLog()
        self.runtime = runtime or SteppedRuntime()
        self.closed: list[Endpoint] = []
        self.reads = 0
        self.transport = FakeTransport()
        self.endpoint = Endpoint(
            self.runtime,
            EndpointSettings(server=server, offer=offer, **settings),
            EndpointCallbacks(on_request, None, self.closed.append, self._count_read, on_bytes),
            self.log,
            bounds,
        )
        self.transport.protocol = self.endpoint
        self._decoder = FrameDecoder()
        self._taken = 0
        self.endpoint.connection_made(self.transport)

    def _count_read(self) -> None:
        self.reads += 1

    def send(self, *commands: RemotingCommand) -> None:
        """All of them in one read."""
        self.endpoint.data_received(b"".join(frame_of(command) for command in commands))

    def received(self) -> list[RemotingCommand]:
        """What the endpoint has written since the last look."""
        self._decoder.feed(self.transport.sent[self._taken :])
        self._taken = len(self.transport.sent)
        commands = []
        while (frame := self._decoder.next_frame()) is not None:
            commands.append(decode_command(frame))
        return commands

    def lose(self, error: Exception | None = None) -> None:
        self.transport.ended = self.transport.ended or "lost"
        self.endpoint.connection_lost(error)


def frame_of(command: RemotingCommand) -> bytes:
    return encode_command(command) + command.body


async def until(condition: Callable[[], object]) -> None:
    """Let the loop work until `condition` holds; the test's own time-out is the limit."""
    while not condition():  # noqa: ASYNC110 - conditions of many kinds, and nobody to set an event
        await asyncio.sleep(0.001)  # sockets need the loop to look at them, not time to pass


@asynccontextmanager
async def linked(
    server_handler: Handler = echo,
    client_handler: Handler = refuse,
    *,
    runtime: Runtime | None = None,
    offer: SerializeType | None = None,
    server_log: RecordingLog | None = None,
) -> AsyncIterator[tuple[Endpoint, Endpoint]]:
    """A client endpoint and a server endpoint over a real localhost connection."""
    runtime = runtime or AsyncioRuntime()
    accepted: list[Endpoint] = []
    log = server_log or RecordingLog()

    def accept() -> Endpoint:
        callbacks = EndpointCallbacks(server_handler, on_opened=accepted.append)
        return Endpoint(runtime, EndpointSettings(server=True), callbacks, log)

    listening = await runtime.create_server(accept, "127.0.0.1", 0)
    settings = EndpointSettings(server=False, offer=offer)
    client = Endpoint(runtime, settings, EndpointCallbacks(client_handler), RecordingLog())
    try:
        await runtime.create_connection(lambda: client, "127.0.0.1", listening.port)
        await until(lambda: accepted)
        yield client, accepted[0]
    finally:
        listening.close()
        ends = [client, *accepted]
        for endpoint in ends:
            endpoint.abort("the test is over")
        await until(lambda: not any(endpoint.is_open for endpoint in ends))
        await listening.wait_closed()
