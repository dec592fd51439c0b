"""Selects the records of one offset or key from many traces, sorts them by time, and describes each as text."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.order.judge.survey import survey
from lockstep.order.traces.clocks import WALL_SKEW_MS
from lockstep.order.traces.merge import merge_traces
from lockstep.order.traces.reader import Record, TraceFile
from lockstep.protocol.model import MessageQueue

__all__ = ["Moment", "StoryOf", "story"]

_LIFE = frozenset({"acquired", "positioned", "lock_lost", "dropped", "reset", "broker_restarted"})
_OFFSETS_AROUND = 3
_LIFE_AROUND_NS = 2_000_000_000


@dataclass(frozen=True, slots=True)
class StoryOf:
    """Selects records; a field that is None selects all. `around` selects near offsets and changes of owners."""

    queue: MessageQueue | None = None
    group: str | None = None
    key: str | None = None
    around: int | None = None

    def has(self, record: Record) -> bool:
        """Whether a record belongs to the queue, group and key."""
        queue, event = self.queue, record["event"]
        if queue is not None and event != "broker_restarted":
            place = (record.get("topic"), record.get("broker"), record.get("queue_id"))
            if place != (queue.topic, queue.broker_name, queue.queue_id):
                return False
        if self.group is not None and event not in ("sent", "broker_restarted") and record.get("group") != self.group:
            return False
        return self.key is None or record.get("key") == self.key

    def is_near(self, record: Record) -> bool:
        """Whether a record's offset is near `around`."""
        offset = record.get("offset")
        return self.around is None or (offset is not None and abs(offset - self.around) <= _OFFSETS_AROUND)


@dataclass(frozen=True, slots=True)
class Moment:
    """A record with its time on the common axis."""

    time_ns: int
    record: Record

    def text(self) -> str:
        """A description of the record in one line."""
        record = self.record
        parts = [record["event"]]
        if record.get("offset") is not None:
            parts.append(f"offset {record['offset']}")
        names = ("key", "msg_id", "status", "outcome", "epoch", "ordering", "why")
        parts += [f"{name} {record[name]}" for name in names if record.get(name) is not None]
        if record.get("begin_mono_ns") is not None and record.get("mono_ns") is not None:
            parts.append(f"call of {(record['mono_ns'] - record['begin_mono_ns']) / 1e6:.3f} ms")
        return ", ".join(parts)

    def owner(self) -> str:
        """The client and period of the record; "-" without a client."""
        record = self.record
        period = f" (period {record['period']})" if "period" in record else ""
        return f"{record.get('client_id', '-')}{period}"

    def place(self) -> str:
        """The queue of the record, as text."""
        record = self.record
        return f"{record['topic']}@{record['broker']}:{record['queue_id']}" if "queue_id" in record else "-"

    def as_json(self) -> dict[str, Any]:
        """The record, with `time_ns` on the common axis."""
        return {"time_ns": self.time_ns, **self.record}


def story(paths: Sequence[Path | str], wanted: StoryOf, wall_skew_ms: int = WALL_SKEW_MS) -> Iterator[Moment]:
    """Yield the selected records in time order. Raises OSError."""
    files = [TraceFile(path) for path in dict.fromkeys(Path(path) for path in paths)]
    waiting: list[Moment] = []  # records of owners since the last selected record
    until_ns: int | None = None
    for time_ns, _, _, record in merge_traces(files, survey(files, wall_skew_ms).clocks):
        if not wanted.has(record):
            continue
        moment = Moment(time_ns, record)
        if wanted.is_near(record):
            yield from waiting
            waiting.clear()
            yield moment
            until_ns = time_ns + _LIFE_AROUND_NS
        elif record["event"] in _LIFE:
            if until_ns is not None and time_ns <= until_ns:
                yield moment
            else:
                waiting = [one for one in waiting if one.time_ns >= time_ns - _LIFE_AROUND_NS]
                waiting.append(moment)
