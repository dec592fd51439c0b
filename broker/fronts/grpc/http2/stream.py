"""One call on a connection of HTTP/2: its messages in both directions, and what waits for the peer's window."""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from lockstep.broker.peer import Peer
from lockstep.protocol.grpc.wire import GrpcStatus, MessageReader, encode_message, encode_text

__all__ = ["Headers", "Stream", "Writer"]

Headers = list[tuple[str, str]]
_FIRST: Final[Headers] = [
    (":status", "200"),
    ("content-type", "application/grpc"),
    ("grpc-accept-encoding", "identity"),
]


class Writer(Protocol):
    """What a stream writes to: its connection, which knows the windows."""

    def headers(self, stream_id: int, headers: Headers, *, end: bool) -> None: ...
    def data(self, stream_id: int, data: memoryview) -> None: ...
    def window(self, stream_id: int) -> int:
        """How many bytes may be written to a stream now."""

    def blocked(self, stream: "Stream") -> None:
        """The stream waits for a window."""

    def changed(self, stream: "Stream") -> None:
        """Something was written outside a read, or the stream ended."""


def _nothing(_now_ms: int) -> None:
    """The call has nothing to clear up."""


class Stream:
    """See `Call`.

    Attributes:
        half_closed: The client has ended its side.
        waiting_bytes: Of its answer, for the client's window.
    """

    def __init__(
        self,
        writer: Writer,
        peer: Peer,
        stream_id: int,
        method: str,
        metadata: Mapping[str, str],
        received_ms: int,
        timeout_ms: int | None,
        bytes_max: int,
    ) -> None:
        self._writer = writer
        self.peer = peer
        self.stream_id = stream_id
        self.method = method
        self.metadata = metadata
        self.received_ms = received_ms
        self.deadline_ms = None if timeout_ms is None else received_ms + timeout_ms
        self.on_gone: Callable[[int], object] = _nothing
        self.reader = MessageReader(bytes_max)
        self.request: bytes | None = None
        self.half_closed = False
        self.waiting_bytes = 0
        self._begun = False
        self._waiting: deque[memoryview] = deque()
        self._end: Headers | None = None
        self._open = True

    @property
    def is_open(self) -> bool:
        return self._open

    def send(self, message: bytes) -> None:
        if self._open:
            if not self._begun:
                self._begun = True
                self._writer.headers(self.stream_id, _FIRST, end=False)
            self._waiting.append(memoryview(encode_message(message)))
            self.waiting_bytes += len(self._waiting[-1])
            self.pump()
            self._writer.changed(self)

    def finish(self, status: GrpcStatus = GrpcStatus.OK, text: str = "") -> None:
        if self._open:
            self._open = False
            end: Headers = [("grpc-status", str(int(status)))]
            if text:
                end.append(("grpc-message", encode_text(text)))
            self._end = end if self._begun else [*_FIRST, *end]
            self.pump()
            self._writer.changed(self)

    def gone(self, now_ms: int) -> None:
        """The client, or the connection, ended it."""
        self._waiting.clear()
        self._end, self.waiting_bytes = None, 0
        if self._open:
            self._open = False
            self.on_gone(now_ms)
        # What it held of the request and its session is not needed any more.
        self.on_gone, self.request = _nothing, None

    @property
    def is_written(self) -> bool:
        """Whether it has ended, and all of it was written."""
        return not self._open and self._end is None

    def pump(self) -> None:
        """Write what the window allows."""
        while self._waiting:
            room = self._writer.window(self.stream_id)
            if room <= 0:
                self._writer.blocked(self)
                return
            part = self._waiting.popleft()
            if len(part) > room:
                self._waiting.appendleft(part[room:])
                part = part[:room]
            self.waiting_bytes -= len(part)
            self._writer.data(self.stream_id, part)
        if self._end is not None:
            end, self._end = self._end, None
            self._writer.headers(self.stream_id, end, end=True)
