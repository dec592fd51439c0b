"""The judge of each queue, on executors: records of one queue after the other, in the order of time."""

import json
import pickle
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from lockstep.order.judge.across import FirstHandled, QueueSeen
from lockstep.order.judge.queue_judge import QueueJudge, QueueResult
from lockstep.order.offset_set import OffsetSet
from lockstep.order.traces.copies import Copies
from lockstep.order.traces.format import SENT_LATER
from lockstep.order.traces.reader import Record
from lockstep.pipeline.audit.measures import Measures
from lockstep.pipeline.audit.placing import is_of_queue
from lockstep.pipeline.audit.survey import LINE, TIME, History, queue_number, stable_number
from lockstep.protocol.model import MessageQueue

__all__ = ["JUDGED", "Contents", "Tally", "finished", "judged", "seen_number", "topic_number"]

JUDGED: Final = (
    "what string, history int, topic long, id long, key long, place long, time_ns long, line long, last long, "
    "text string, payload binary"
)
"""What judges give. `what`:

- "first": a message that was handled for the first time: `topic` (and group), `id`, `key`, `place` (`seen_number`),
  `time_ns`, its `line`, and the line of the `last` message of its key (LINE).
- "key": a key in a queue: `topic`, `key`, and `place`, the number of the queue.
- "queue": a pickled QueueResult. "file": a pickled FileCounts. "tally": a pickled Tally.
- The name of a table: `text` is a row of it, as JSON.
"""

_SCHEMA: Final = pa.schema([
    ("what", pa.string()), ("history", pa.int32()),
    *[(name, pa.int64()) for name in ("topic", "id", "key", "place", "time_ns", "line", "last")],
    ("text", pa.string()), ("payload", pa.binary()),
])  # fmt: skip
_scan = json.JSONDecoder().raw_decode

Contents = Mapping[MessageQueue, tuple[OffsetSet, dict[int, int]]]
"""What a topic holds: the offsets of each queue, and when some of them were stored, in milliseconds."""


def topic_number(history: str, group: str, topic: str) -> int:
    """A number for a topic in a group."""
    return stable_number(f"{history}\0{group}\0{topic}")


def seen_number(history: str, seen: QueueSeen) -> int:
    """A number for a queue in a group and one store."""
    return stable_number(f"{history}\0{seen.group}\0{seen.queue}\0{seen.generation}")


@dataclass(slots=True)
class Tally:
    """What one task counted of a history."""

    events: Counter[str] = field(default_factory=Counter)
    send_failures: Counter[str] = field(default_factory=Counter)
    copies: Copies = field(default_factory=Copies)

    def note(self, record: Record) -> None:
        """Count a record that is no copy."""
        self.events[record["event"]] += 1
        if record["event"] == "send_failed" and record["outcome"] != SENT_LATER:
            self.send_failures[record["outcome"]] += 1


class _Output:
    """Rows of JUDGED."""

    def __init__(self) -> None:
        self._rows: list[tuple[Any, ...]] = []

    def add(self, what: str, history: int, text: str | None = None, payload: bytes | None = None) -> None:
        self._rows.append((what, history, None, None, None, None, None, None, None, text, payload))

    def key(self, history: int, topic: int, key: int, queue: int) -> None:
        self._rows.append(("key", history, topic, None, key, queue, None, None, None, None, None))

    def firsts(self, history: History) -> Callable[[QueueSeen], FirstHandled]:
        """As `Across.of`: rows are joined later."""

        def of(seen: QueueSeen) -> FirstHandled:
            topic = topic_number(history.name, seen.group, seen.queue.topic)
            place, number, add = seen_number(history.name, seen), history.number, self._rows.append

            def first_handled(record: Record, offset: int, ordering: str, last: Record | None) -> None:
                key, msg_id = record.get("key"), record.get("msg_id")
                add((
                    "first", number, topic,
                    stable_number(msg_id) if msg_id is not None else None,
                    stable_number(key) if key is not None and ordering != "none" else None,
                    place, record[TIME], record[LINE], last[LINE] if last is not None else None, None, None,
                ))  # fmt: skip

            return first_handled

        return of

    def take(self) -> pa.RecordBatch:
        """All rows; none are left."""
        columns = list(zip(*self._rows, strict=True)) or [()] * len(_SCHEMA)
        self._rows.clear()
        arrays = [pa.array(values, field.type) for values, field in zip(columns, _SCHEMA, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


class _Queue:
    """One queue that is judged, and its measures."""

    def __init__(
        self, queue: MessageQueue, history: History, contents: Contents, every: int, output: _Output
    ) -> None:  # fmt: skip
        self._history = history
        self._queue = queue
        self._output = output
        self._judge = QueueJudge(queue, history.facts, output.firsts(history))
        held, stored_ms = contents.get(queue, (None, {}))
        self._judge.content = held
        self.measures = Measures(history.name, queue, self._judge.repeats, stored_ms, every)
        self.feed = self._judge.feed

    def finish(self) -> None:
        """Give the verdict and the rows of the tables."""
        history, output, measures = self._history, self._output, self.measures
        q = queue_number(history.name, self._queue)
        for group, key in dict.fromkeys(self._judge.keys()):
            topic = topic_number(history.name, group, self._queue.topic)
            output.key(history.number, topic, stable_number(key), q)
        result = self._judge.finish()
        for name, rows in measures.tables(result, history.facts.clocks).items():
            for row in rows:
                output.add(name, history.number, json.dumps(row))
        for one in result.groups.values():
            one.periods = []  # rows of a table by now
        output.add("queue", history.number, payload=pickle.dumps(result))


def judged(
    histories: Mapping[str, History],
    contents: Mapping[str, Contents],
    every: int,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Make JUDGED rows of PLACED rows, which are sorted by queue, time, trace and line.

    Args:
        contents: What the topics hold, by history.
        every: How long messages waited is measured for every so many offsets.
    """
    by_number = {history.number: history for history in histories.values()}
    output = _Output()
    tallies: defaultdict[int, Tally] = defaultdict(Tally)
    now, queue = 0, None
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in _SCHEMA_IN]
        for q, number, time_ns, source, line_number, clock, line in zip(*columns, strict=True):
            if q == 0:
                output.add("file", number, payload=line)
                continue
            record = _scan(line.decode("utf-8", "surrogatepass"), 0)[0]
            tally = tallies[number]
            if tally.copies.has(time_ns, source, record):
                continue
            tally.note(record)
            if not is_of_queue(record):
                continue
            record = {**record, LINE: source << 40 | line_number, TIME: time_ns}
            if q != now or queue is None:
                if queue is not None:
                    queue.finish()
                history = by_number[number]
                name = MessageQueue(record["topic"], record["broker"], record["queue_id"])
                now, queue = q, _Queue(name, history, contents.get(history.name, {}), every, output)
            queue.feed(record, time_ns, clock, source)
            queue.measures.note(record, time_ns)
        yield output.take()
    if queue is not None:
        queue.finish()
    for number, tally in tallies.items():
        output.add("tally", number, payload=pickle.dumps(tally))
    yield output.take()


_SCHEMA_IN: Final = ("q", "history", "time_ns", "source", "number", "clock", "line")


def finished(queue: MessageQueue, history: History, held: OffsetSet) -> QueueResult:
    """The verdict over a queue that has messages, and no record in the traces."""
    judge = QueueJudge(queue, history.facts, _Output().firsts(history))
    judge.content = held
    return judge.finish()
