"""Filters that a batch takes from Spark, so that excluded messages are not pulled (option pushFilters).

While spark.sql.python.filterPushdown.enabled is off, Spark 4.3 refuses any reader with a method `pushFilters`. So only
this reader has it, and only the option makes it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from lockstep.pipeline.errors import errors_in_one_line
from lockstep.pipeline.source.batch import LockstepReader
from lockstep.pipeline.source.planning import QueueSlice, batch_slices
from lockstep.protocol.model import MessageQueue

__all__ = ["FilteringReader", "Narrowing"]

_QUEUE_PARTS: Final[dict[str, Callable[[MessageQueue], str | int]]] = {
    "topic": lambda queue: queue.topic,
    "brokerName": lambda queue: queue.broker_name,
    "queueId": lambda queue: queue.queue_id,
    "partition": lambda queue: queue.queue_id,
}
_NEVER_NULL: Final = frozenset({*_QUEUE_PARTS, "value", "offset", "timestamp", "timestampType", "storeTimestamp",
                                "bornTimestamp", "msgId", "flag", "reconsumeTimes"})  # fmt: skip


class Narrowing:
    """The result of filters: offsets from `first` up to `end`, and queues that pass `tests`."""

    def __init__(self) -> None:
        self.first = 0
        self.end = 2**63 - 1
        self.tests: list[tuple[str, frozenset[Any]]] = []

    def take(self, condition: Filter) -> bool:
        """Use a filter if it can be applied in full. Returns whether it is; Spark evaluates the others itself."""
        attribute: Any = getattr(condition, "attribute", ())
        column = attribute[0] if len(attribute) == 1 else ""
        match condition:
            case IsNotNull():
                return column in _NEVER_NULL
            case EqualTo(value=value) if column in _QUEUE_PARTS:
                self.tests.append((column, frozenset({value})))
            case In(value=values) if column in _QUEUE_PARTS:
                self.tests.append((column, frozenset(values)))
            case EqualTo(value=value) if column == "offset":
                self._bound(value, value + 1)
            case GreaterThan(value=value) if column == "offset":
                self._bound(value + 1, self.end)
            case GreaterThanOrEqual(value=value) if column == "offset":
                self._bound(value, self.end)
            case LessThan(value=value) if column == "offset":
                self._bound(self.first, value)
            case LessThanOrEqual(value=value) if column == "offset":
                self._bound(self.first, value + 1)
            case _:
                return False
        return True

    def _bound(self, first: int, end: int) -> None:
        self.first, self.end = max(self.first, first), min(self.end, end)

    def slice(self, part: QueueSlice) -> QueueSlice | None:
        """The part of a slice that passes; None if nothing does."""
        first, end = max(part.start, self.first), min(part.end, self.end)
        passes = all(_QUEUE_PARTS[column](part.queue) in values for column, values in self.tests)
        return QueueSlice(part.queue, first, end) if passes and first < end else None


class FilteringReader(LockstepReader):
    """Handles comparisons of `offset`, and equality of topic, brokerName, queueId and partition."""

    _narrowing = Narrowing()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        self._narrowing = Narrowing()
        return [condition for condition in filters if not self._narrowing.take(condition)]

    @errors_in_one_line()
    def partitions(self) -> Sequence[InputPartition]:
        slices = map(self._narrowing.slice, batch_slices(self._options))
        return [part for part in slices if part is not None]
