"""What crosses queues: ids at several offsets, keys in several queues, messages that no producer sent.

Spark finds the ids and keys that are in several places. They are few where all is well; their records are read again,
and go through the same `Across` as in one process.
"""

import pickle
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from lockstep.order.judge.across import Across, QueueSeen
from lockstep.order.judge.queue_judge import QueueResult
from lockstep.order.judge.sent import digest
from lockstep.order.kinds import Cause
from lockstep.order.traces.merge import timed
from lockstep.order.traces.reader import Record, TraceLines
from lockstep.pipeline.audit.judging import seen_number, topic_number
from lockstep.pipeline.audit.survey import LINE, TIME, History
from lockstep.pipeline.audit.traces import traces_of
from lockstep.pipeline.spark.arrow import map_in_arrow
from lockstep.protocol.model import MessageQueue

__all__ = ["Crossing", "cross"]

_ROWS_MAX: Final = 200_000  # first handlings of repeated ids and moved keys that are judged, the oldest ones


@dataclass(slots=True)
class Crossing:
    """What was found between the queues of one history: the judged part, and the ids that explain unsent messages."""

    across: Across = field(default_factory=Across)
    explained: set[str] = field(default_factory=set)
    unseen: list[str] = field(default_factory=list)
    retries: dict[tuple[str, str], int] = field(default_factory=dict)  # by group and topic: messages stored again


@dataclass(slots=True)
class _Wanted:
    """Records that are read again: by trace and line, by id of a sent message, by queue and offset of one."""

    lines: set[int] = field(default_factory=set)
    ids: set[str] = field(default_factory=set)
    sent: set[tuple[str, str, int, int]] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.lines or self.ids or self.sent)


def cross(
    lines: DataFrame, rows: DataFrame, histories: Mapping[str, History], results: Mapping[str, list[QueueResult]]
) -> dict[str, Crossing]:
    """Judge what crosses queues. `rows` are JUDGED; `results` by history, as the returned value."""
    topics = {
        topic_number(name, group, one.queue.topic): (name, group, one.queue.topic)
        for name, each in results.items()
        for one in each
        for group in one.groups
    }
    found = {name: Crossing() for name in histories}
    grouped = _grouped(rows)
    repeated, moved = _counts(grouped, topics, found)
    seen = {name: _seen(name, each) for name, each in results.items()}
    for name, crossing in found.items():
        crossing.across.expect(seen[name].values())
    if repeated or moved:
        _replay(lines, _several(rows, grouped, repeated, moved), histories, seen, found)
    wanted = {name: _doubts(found[name], results[name]) for name in histories}
    again = _read_again(lines, histories, wanted) if any(wanted.values()) else {}
    for name, crossing in found.items():
        _finish(crossing, histories[name], results[name], again.get(name, []))
    return found


def _grouped(rows: DataFrame) -> DataFrame:
    """(what, history, topic, number, times, low, high): ids and keys of a topic, and the places of each."""
    ids = rows.where("what = 'first' and id is not null").select("what", "history", "topic", "id", "place")
    keys = rows.where("what = 'key'").select("what", "history", "topic", "key", "place")
    both = ids.withColumnRenamed("id", "number").unionByName(keys.withColumnRenamed("key", "number"))
    return both.groupBy("what", "history", "topic", "number").agg(
        fn.count(fn.lit(1)).alias("times"), fn.min("place").alias("low"), fn.max("place").alias("high")
    )


_IS_SEVERAL = "(what = 'first' and times > 1) or (what = 'key' and low <> high)"


def _counts(
    grouped: DataFrame, topics: Mapping[int, tuple[str, str, str]], found: Mapping[str, Crossing]
) -> tuple[bool, list[int]]:
    """Set the counts of each topic. Returns whether an id is in several places, and the topics with moved keys."""
    several = fn.expr(_IS_SEVERAL)
    sums = grouped.groupBy("what", "topic").agg(
        fn.count(fn.lit(1)).alias("numbers"),
        fn.sum(several.cast("long")).alias("several"),
        fn.sum(fn.when(several, fn.col("times") - 1).otherwise(0)).alias("more"),
    )
    repeated, moved = False, []
    for row in sums.collect():
        if row.topic not in topics:
            continue  # of a group that is not judged
        history, group, topic = topics[row.topic]
        if row.what == "key":
            found[history].across.key_counts[group, topic] = (row.numbers, row.several)
            if 0 < row.several <= max(2, row.numbers // 4):  # with more, their order is not judged
                moved.append(row.topic)
        elif row.several:
            repeated = True
            found[history].retries[group, topic] = row.more
    return repeated, moved


def _seen(history: str, results: list[QueueResult]) -> dict[int, QueueSeen]:
    return {
        seen_number(history, seen): seen for one in results for group in one.groups.values() for seen in group.seen
    }  # fmt: skip


def _several(rows: DataFrame, grouped: DataFrame, repeated: bool, moved: list[int]) -> DataFrame:
    """The first handlings of ids and keys in several places, the oldest ones."""
    several = grouped.where(_IS_SEVERAL)
    firsts = rows.where("what = 'first'").select("history", "topic", "id", "key", "place", "time_ns", "line", "last")
    parts = []
    if repeated:
        ids = several.where("what = 'first'").select("topic", fn.col("number").alias("id"))
        parts.append(firsts.join(ids, ["topic", "id"], "left_semi"))
    if moved:
        of_keys = several.where((fn.col("what") == "key") & fn.col("topic").isin(moved))
        keys = of_keys.select("topic", fn.col("number").alias("key"))
        parts.append(firsts.join(keys, ["topic", "key"], "left_semi"))
    names = ("history", "place", "time_ns", "line", "last")
    chosen = parts[0].select(*names)
    for part in parts[1:]:
        chosen = chosen.unionByName(part.select(*names)).distinct()
    return chosen.orderBy("time_ns", "line").limit(_ROWS_MAX)


def _replay(
    lines: DataFrame,
    chosen: DataFrame,
    histories: Mapping[str, History],
    seen: Mapping[str, Mapping[int, QueueSeen]],
    found: Mapping[str, Crossing],
) -> None:
    """Pass the chosen messages to `Across`, in the order of time."""
    names = {history.number: name for name, history in histories.items()}
    rows = [row for row in chosen.collect() if row.place in seen[names[row.history]]]
    wanted: defaultdict[str, _Wanted] = defaultdict(_Wanted)
    for row in rows:
        wanted[names[row.history]].lines |= {row.line} if row.last is None else {row.line, row.last}
    records = {
        name: {record[LINE]: record for record in each}
        for name, each in _read_again(lines, histories, wanted).items()
    }  # fmt: skip
    for row in rows:
        name = names[row.history]
        take = found[name].across.of(seen[name][row.place])
        record = records[name][row.line]
        take(record, record["offset"], record.get("ordering") or "queue", records[name].get(row.last))


def _doubts(crossing: Crossing, results: list[QueueResult]) -> _Wanted:
    wanted = _Wanted()
    wanted.ids = {record["msg_id"] for one in results for record in one.unsent_records()}
    wanted.sent = {(*seen.queue, offset) for seen, offset in crossing.across.doubted()}
    return wanted


def _finish(crossing: Crossing, history: History, results: list[QueueResult], again: Collection[Record]) -> None:
    ids: defaultdict[tuple[MessageQueue, int], dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for record in again:
        if record["event"] == "sent":
            queue = MessageQueue(record["topic"], record["broker"], record["queue_id"])
            ids[queue, _generation(history, queue, record)][record["offset"]].add(record["msg_id"])
    crossing.across.finish(lambda seen: _SentIds(ids[seen.queue, seen.generation]), crossing.unseen)
    known = {record["msg_id"] for record in again}
    crossing.explained = {
        record["msg_id"]
        for one in results
        for record in one.unsent_records()
        if record["msg_id"] in known or crossing.across.repeated(record["msg_id"])
    }
    duplicates = crossing.across.findings.duplicates
    del duplicates[Cause.PRODUCER_RETRY]
    if crossing.retries:
        duplicates[Cause.PRODUCER_RETRY] = sum(crossing.retries.values())


class _SentIds:
    def __init__(self, ids: Mapping[int, set[str]]) -> None:
        self._ids = ids

    def id_at(self, offset: int) -> int:
        ids = self._ids.get(offset, set())
        return digest(next(iter(ids))) if len(ids) == 1 else 0


def _generation(history: History, queue: MessageQueue, record: Record) -> int:
    at = record[TIME], history.place_of(record)[0]
    return sum((one.at_ns, one.source) <= at for one in history.facts.restarts_of(queue.broker_name))


def _read_again(
    lines: DataFrame, histories: Mapping[str, History], wanted: Mapping[str, _Wanted]
) -> dict[str, list[Record]]:
    """The wanted records by history, with their time and LINE."""
    found: defaultdict[str, list[Record]] = defaultdict(list)
    for row in map_in_arrow(
        lines, partial(_found_again, histories, dict(wanted)), "history string, record binary"
    ).collect():
        found[row.history].append(pickle.loads(row.record))
    return dict(found)


def _found_again(
    histories: Mapping[str, History], wanted: Mapping[str, _Wanted], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    for trace in traces_of(batches):
        history, what = histories[trace.history], wanted.get(trace.history)
        if not what:
            continue
        source, reader = history.source_of()[trace.file], TraceLines(trace.file)
        found = []
        for time_ns, _, _, record in timed(source, reader.read(trace.lines), history.facts.clocks):
            line = source << 40 | reader.number
            if line in what.lines or _is_wanted(record, what):
                found.append(pickle.dumps({**record, LINE: line, TIME: time_ns}))
        yield pa.RecordBatch.from_pydict({
            "history": pa.array([trace.history] * len(found), pa.string()), "record": pa.array(found, pa.binary()),
        })  # fmt: skip


def _is_wanted(record: Record, what: _Wanted) -> bool:
    event = record["event"]
    if event not in ("sent", "send_failed") or record.get("msg_id") is None:
        return False
    if record["msg_id"] in what.ids:
        return True
    return event == "sent" and (record["topic"], record["broker"], record["queue_id"], record["offset"]) in what.sent
