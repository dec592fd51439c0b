"""The bytes that wait on one connection, by call."""

from lockstep.broker.fronts.grpc.http2.stream import Stream

__all__ = ["Waiting"]


class Waiting:
    """Their sum, and the calls in the order in which they began to wait: nothing looks at all calls of a connection.

    Attributes:
        bytes: Of all its calls.
    """

    def __init__(self) -> None:
        self._bytes_of: dict[Stream, int] = {}
        self.bytes = 0

    def note(self, stream: Stream, count: int) -> None:
        """So many bytes of a call wait now; 0: it waits no more."""
        before = self._bytes_of.get(stream, 0)
        if count == before:
            return
        self.bytes += count - before
        if count:
            self._bytes_of[stream] = count
        else:
            del self._bytes_of[stream]

    @property
    def first(self) -> Stream | None:
        return next(iter(self._bytes_of), None)

    def __contains__(self, stream: Stream) -> bool:
        return stream in self._bytes_of

    def calls(self) -> list[Stream]:
        """The oldest first."""
        return list(self._bytes_of)
