"""How far a stream of `format("lockstep")` is: offsets, lag and times of its micro-batches.

Spark 4.3 gives a source in Python no way to add metrics to the progress of a query, nor to name its topics in the
`description`. But the progress has the offsets, and these say it all.
"""

from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from lockstep.pipeline.offsets import from_json
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.logs import EventLog, StdlibLog

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress

__all__ = ["QueueProgress", "StreamLog", "StreamProgress", "stream_progress"]

_TRIGGER: Final = "triggerExecution"  # Spark's name of the time of a whole micro-batch


class QueueProgress(NamedTuple):
    """Offsets of one queue: `consumed` is the next one to read, `latest` the one that the next message will have."""

    queue: MessageQueue
    consumed: int
    latest: int

    @property
    def lag(self) -> int:
        """Messages that wait."""
        return max(0, self.latest - self.consumed)


class StreamProgress(NamedTuple):
    """One micro-batch of a query.

    Args:
        query: The query's name, or its id where it has none.
        batch_id: Spark's number of the micro-batch.
        rows: Rows that the micro-batch read, from all sources of the query.
        rows_per_s: Rows a second of processing.
        batch_ms: How long the micro-batch took, planning and commit included.
        times_ms: Parts of that time by Spark's names, such as addBatch.
        queues: The queues of all Lockstep sources of the query, sorted.
    """

    query: str
    batch_id: int
    rows: int
    rows_per_s: float
    batch_ms: int
    times_ms: dict[str, int]
    queues: tuple[QueueProgress, ...]

    @property
    def topics(self) -> tuple[str, ...]:
        """Names of the topics, sorted."""
        return tuple(sorted({one.queue.topic for one in self.queues}))

    @property
    def lag(self) -> int:
        """Messages that wait in all queues."""
        return sum(one.lag for one in self.queues)


def stream_progress(progress: "StreamingQueryProgress") -> StreamProgress:
    """Make the figures of `query.lastProgress`, or of the `progress` of a listener's event."""
    queues: list[QueueProgress] = []
    for source in progress.sources:
        consumed, latest = from_json(source.endOffset), from_json(source.latestOffset)
        queues += [QueueProgress(queue, offset, latest.get(queue, offset)) for queue, offset in consumed.items()]
    return StreamProgress(
        progress.name or str(progress.id),
        progress.batchId,
        progress.numInputRows or 0,
        progress.processedRowsPerSecond or 0.0,
        progress.durationMs.get(_TRIGGER, 0),
        dict(progress.durationMs),
        tuple(sorted(queues)),
    )


class StreamLog(StreamingQueryListener):
    """Logs `stream_batch` for each micro-batch of every query that reads a topic.

    Add it with `spark.streams.addListener(StreamLog())`; the logger is `lockstep.pipeline.streams`, the level INFO.
    """

    def __init__(self, log: EventLog | None = None) -> None:
        self._log = log or StdlibLog("lockstep.pipeline.streams")

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        found = stream_progress(event.progress)
        if not found.queues:  # of another source
            return
        self._log.info("stream_batch", query=found.query, topics=",".join(found.topics), batch_id=found.batch_id,
            rows=found.rows, rows_per_s=round(found.rows_per_s), batch_ms=found.batch_ms, lag=found.lag)  # fmt: skip

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Nothing to log."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing to log."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Nothing to log."""
