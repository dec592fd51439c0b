"""One call on a connection of HTTP/2: its messages in both directions, and what waits for the peer's window."""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from hpack import NeverIndexedHeaderTuple

from lockstep.broker.fronts.grpc.call import Call
from lockstep.broker.peer import Peer
from lockstep.protocol.grpc.wire import GrpcStatus, MessageReader, encode_message, encode_text

__all__ = ["Headers", "Stream", "Writer"]

Headers = list[tuple[bytes, bytes]]
_FIRST: Final[Headers] = [
    (b":status", b"200"),
    (b"content-type", b"application/grpc"),
    (b"grpc-accept-encoding", b"identity"),
]


class Writer(Protocol):
    """What a stream writes to: its connection, which knows the windows."""

    def headers(self, stream_id: int, headers: Headers, *, end: bool) -> None: ...
    def data(self, stream_id: int, data: memoryview) -> None: ...
    def window(self, stream_id: int) -> int:
        """How many bytes may be written to a stream now."""

    def changed(self, stream: "Stream") -> None:
        """Something was written or waits for a window, or the stream ended."""


def _nothing(*_: object) -> None:
    """The call has nothing to clear up, and nobody counts it."""


class Stream:
    """See `Call`.

    Attributes:
        half_closed: The client has ended its side.
        waiting_bytes: Of its answer, for the client's window.
        metadata_bytes: What it keeps of its headers.
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
        self.code = 0
        self.on_end: Callable[[Call, GrpcStatus | None], object] = _nothing
        self.on_gone: Callable[[int], object] = _nothing
        self.on_unsent: Callable[[int, int], object] = _nothing
        self.reader = MessageReader(bytes_max)
        self.request: bytes | None = None
        self.half_closed = False
        self.waiting_bytes = 0
        self.metadata_bytes = sum(map(len, metadata.values()))
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
            self.on_end(self, status)
            end: Headers = [(b"grpc-status", b"%d" % status)]
            if text:
                # Not for the table, where it would push others out.
                end.append(NeverIndexedHeaderTuple(b"grpc-message", encode_text(text).encode()))
            self._end = end if self._begun else [*_FIRST, *end]
            self.pump()
            self._writer.changed(self)

    def is_late(self, now_ms: int) -> bool:
        """Whether the client waits no more."""
        return self.deadline_ms is not None and now_ms >= self.deadline_ms

    def cut(self, status: GrpcStatus, text: str, now_ms: int) -> None:
        """It ends before its answer: say so, then clear up what waits for it."""
        on_gone, self.on_gone, self.request = self.on_gone, _nothing, None
        self.finish(status, text)
        on_gone(now_ms)

    def gone(self, now_ms: int) -> None:
        """The client, or the connection, ended it."""
        unsent_count = len(self._waiting)
        self._waiting.clear()
        self._end, self.waiting_bytes = None, 0
        if self._open:
            self._open = False
            self.on_end(self, None)
            self.on_gone(now_ms)
        elif unsent_count:
            self.on_unsent(unsent_count, now_ms)
        # What it held of the request and its session is not needed any more.
        self.on_gone, self.on_unsent, self.request = _nothing, _nothing, None

    @property
    def is_written(self) -> bool:
        """Whether it has ended, and all of it was written."""
        return not self._open and self._end is None

    def pump(self) -> None:
        """Write what the window allows."""
        while self._waiting:
            room = self._writer.window(self.stream_id)
            if room <= 0:
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
