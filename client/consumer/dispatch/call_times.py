"""How long calls of a listener take, and how long messages waited for them. Only kept for metrics."""

from typing import Final

from lockstep.client.histogram import Histogram

__all__ = ["CallTimes"]

# Those of RocketMQ 5's clients, in ms.
_PROCESS_MS: Final = (1.0, 5.0, 10.0, 100.0, 1000.0, 10_000.0, 60_000.0)
_AWAIT_MS: Final = (1.0, 5.0, 20.0, 100.0, 1000.0, 5000.0, 10_000.0)


class CallTimes:
    """The calls of one topic since the start.

    Attributes:
        handled, failed: how long they took, by their result.
        waits: from the arrival of a call's first message to the begin of the call.
    """

    __slots__ = ("failed", "handled", "waits")

    def __init__(self) -> None:
        self.handled = Histogram(_PROCESS_MS)
        self.failed = Histogram(_PROCESS_MS)
        self.waits = Histogram(_AWAIT_MS)
