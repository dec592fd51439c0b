"""The lanes of processes: their lives, stops and crashes, listener calls, sends, and what they logged."""

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, Final

from lockstep.client import MessageQueue
from lockstep.order import Record
from lockstep.order.traces.format import SENT_LATER
from lockstep.simulation.lab.cluster_log import LogLine
from lockstep.simulation.machine.host import HostEvent
from lockstep.simulation.timeline.evidence import Evidence, HostChange
from lockstep.simulation.timeline.model import Kind, Lane, Moment, seconds
from lockstep.simulation.virtual_time.loop import START_NS

__all__ = ["at_ms", "calls", "lives", "logged", "queue_of", "record_ref", "sends"]

_ENDS: Final = {  # of a life: what it is, and in words
    HostEvent.CRASHED: (Kind.CRASH, "is killed (SIGKILL)"),
    HostEvent.POWERED_OFF: (Kind.CRASH, "stops with its machine; its peers get no answer"),
    HostEvent.LOST_POWER: (Kind.CRASH, "loses power; its disk loses what was not synced"),
    HostEvent.LEFT: (Kind.LEAVE, "ends by an orderly shutdown"),
}
_PAUSES: Final = {  # begin -> end, what it is, and in words
    HostEvent.STOPPED: (HostEvent.CONTINUED, Kind.STOP, "is stopped (SIGSTOP)"),
    HostEvent.SLEPT: (HostEvent.WOKE, Kind.SLEEP, "sleeps: its machine is suspended"),
}
# Of level info; of warnings and errors all are shown. Those about locks are in the lanes of queues.
_INFOS: Final = frozenset(
    ("rebalanced", "offsets_reset", "call_not_begun", "lock_not_asked", "registered_again", "queue_unblocked")
)
_IN_QUEUES: Final = ("lock_granted", "lock_taken_over", "lock_reacquired", "lock_released", "lock_ended")
_FIELDS_MAX: Final = 500
_GOOD: Final = ("SUCCESS", "COMMIT", "CONSUME_SUCCESS")


def at_ms(record: Record, field: str = "mono_ns") -> float:
    """When a record of a trace was made, in virtual ms since the start."""
    return (int(record[field]) - START_NS) / 1e6


def record_ref(record: Record) -> object:
    """What tells a record of a trace apart from all others."""
    fields = ("client_id", "event", "mono_ns", "topic", "broker", "queue_id", "offset", "begin_mono_ns")
    return tuple(record.get(field) for field in fields)


def queue_of(record: Record) -> tuple[str, MessageQueue] | None:
    """The group and the queue that a record is about, if it is about one."""
    if "group" not in record or "queue_id" not in record:
        return None
    return str(record["group"]), MessageQueue(str(record["topic"]), str(record["broker"]), int(record["queue_id"]))


# Lives -------------------------------------------------------------------------------------------------------


def lives(evidence: Evidence, lanes: Mapping[str, Lane]) -> Iterator[Moment]:
    """Lives of processes, their stops and ends."""
    by_host: dict[str, list[HostChange]] = {}
    for change in evidence.hosts:
        if change.host in lanes:
            by_host.setdefault(change.host, []).append(change)
    for host, changes in by_host.items():
        yield from _lives_of(host, (lanes[host].key,), changes, evidence.elapsed_ms)


def _lives_of(host: str, lane: tuple[str, ...], changes: list[HostChange], run_end_ms: float) -> Iterator[Moment]:
    begun_ms, count = None, 0
    pauses: dict[HostEvent, float] = {}  # by what ends them

    def ended(now_ms: float) -> Iterator[Moment]:
        for until, since_ms in pauses.items():
            yield _pause(host, lane, until, since_ms, now_ms)
        pauses.clear()

    for change in changes:
        now_ms, event = change.at_ms, change.event
        if event is HostEvent.STARTED and begun_ms is None:
            begun_ms, count = now_ms, count + 1
        elif event in _ENDS and begun_ms is not None:
            yield from ended(now_ms)
            yield _life(host, lane, count, begun_ms, now_ms)
            kind, text = _ENDS[event]
            yield Moment(now_ms, kind, lane, host, f"{host} {text}", change.text)
            begun_ms = None
        elif event in _PAUSES and _PAUSES[event][0] not in pauses:
            pauses[_PAUSES[event][0]] = now_ms
        elif event in pauses:
            yield _pause(host, lane, event, pauses.pop(event), now_ms)
        elif event is HostEvent.CLOCK_SET:
            yield Moment(now_ms, Kind.LOG, lane, host, f"the clock of {host} is set", change.text)
    yield from ended(run_end_ms)
    if begun_ms is not None:
        yield _life(host, lane, count, begun_ms, run_end_ms)


def _life(host: str, lane: tuple[str, ...], count: int, begun_ms: float, end_ms: float) -> Moment:
    again = f" again, as process {count}" if count > 1 else ""
    return Moment(begun_ms, Kind.LIFE, lane, host, f"{host} starts{again}", f"for {seconds(end_ms - begun_ms)}", end_ms)


def _pause(host: str, lane: tuple[str, ...], until: HostEvent, since_ms: float, end_ms: float) -> Moment:
    kind, text = next((kind, text) for end, kind, text in _PAUSES.values() if end is until)
    return Moment(since_ms, kind, lane, host, f"{host} {text}", f"for {seconds(end_ms - since_ms)}", end_ms)


# Records -----------------------------------------------------------------------------------------------------


def calls(evidence: Evidence, hosts: Mapping[str, Lane], queues: Mapping[Any, Lane]) -> Iterator[Moment]:
    """Listener calls that ended. A call that was running when its process ended left no record."""
    for host, records in evidence.records.items():
        handled = [record for record in records if record["event"] == "handled" and "begin_mono_ns" in record]
        for _, alike in groupby(handled, lambda one: (queue_of(one), one["client_id"], one["begin_mono_ns"])):
            batch = list(alike)
            first, last = batch[0], batch[-1]
            name = queue_of(first)
            queue = queues[name]
            begin_ms, end_ms = at_ms(first, "begin_mono_ns"), at_ms(last)
            offsets = f"offset {first['offset']}"
            if len(batch) > 1:
                offsets = f"offsets {first['offset']} to {last['offset']}"
            text = f"{host} handled {offsets} of {queue.name}"
            kind = Kind.CALL if first.get("status") in _GOOD else Kind.FAILED
            yield Moment(begin_ms, kind, (hosts[host].key, queue.key), host, text, _about(first, end_ms - begin_ms),
                         end_ms, frozenset(map(record_ref, batch)))  # fmt: skip


def _about(record: Record, took_ms: float) -> str:
    words = [f"took {took_ms:,.0f} ms" if took_ms >= 1 else "took no time"]
    if record.get("status") not in _GOOD:
        words.append(f"answered {record.get('status')}")
    if record.get("reconsume_times"):
        words.append(f"attempt {int(record['reconsume_times']) + 1}")
    if record.get("key") is not None:
        words.append(f"key {record['key']}")
    if record.get("outlived_ms"):
        words.append(f"ran {record['outlived_ms']:,} ms beyond its lease")
    return ", ".join(words)


def sends(evidence: Evidence, hosts: Mapping[str, Lane]) -> Iterator[Moment]:
    """Messages that a producer sent, and sends that failed."""
    for host, records in evidence.records.items():
        for record in records:
            if record["event"] == "sent":
                text = f"{host} sent a message to queue {record['queue_id']}"
                why = f"offset {record['offset']}" + (f", key {record['key']}" if record.get("key") is not None else "")
            elif record["event"] == "send_failed":
                is_later = record["outcome"] == SENT_LATER
                text = f"{host} sent a message for later" if is_later else f"a send of {host} failed"
                why = f"outcome: {record['outcome']}"
            else:
                continue
            kind = Kind.SEND if record["event"] == "sent" else Kind.LOG
            refs = frozenset((record_ref(record),))
            yield Moment(at_ms(record), kind, (hosts[host].key,), host, text, why, refs=refs)


# Log events --------------------------------------------------------------------------------------------------


def logged(evidence: Evidence, hosts: Mapping[str, Lane]) -> Iterator[Moment]:
    """Warnings, errors, and the events of level info that tell a story."""
    for line in evidence.log:
        if line.host in hosts and _is_shown(line):
            fields = [f"{name} {value}" for name, value in line.fields.items() if _says(name, value)]
            why = evidence.named(", ".join(fields))[:_FIELDS_MAX]
            text = f"{line.host} logs {line.event}"
            yield Moment(line.at_ms, Kind.LOG, (hosts[line.host].key,), line.host, text, why)


def _says(name: str, value: object) -> bool:
    return name != "exc_info" and value not in ("", None, [], ())


def _is_shown(line: LogLine) -> bool:
    if line.event.startswith(_IN_QUEUES):
        return False
    return line.level in ("warning", "error") or line.event in _INFOS or line.event == "fence_refused"
