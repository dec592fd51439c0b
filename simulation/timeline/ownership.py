"""The lanes of queues: from changes of locks to periods of ownership, renewals, ends and refusals."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from lockstep.client import MessageQueue
from lockstep.remoting.texts import counted
from lockstep.simulation.timeline.evidence import Evidence, LockChange, LockEvent
from lockstep.simulation.timeline.model import Kind, Lane, LaneKind, Moment, seconds

__all__ = ["ownership", "queue_lanes"]


_RETRY = "%RETRY%"
Name = tuple[str, MessageQueue]  # group and queue


def queue_lanes(names: list[Name]) -> dict[Name, Lane]:
    """A lane for each queue, named without the parts that all of them share; retry topics are the last."""
    ordered = sorted(names, key=lambda name: (name[1].topic.startswith(_RETRY), name))
    parts = {name: (name[0], _topic(name[1]), name[1].broker_name) for name in ordered}
    usual = [words for words in parts.values() if words[1] != "retry"] or list(parts.values())
    differ = [len(set(values)) > 1 for values in zip(*usual, strict=True)]
    lanes = {}
    for (group, queue), words in parts.items():
        shown = [word for word, differs in zip(words, differ, strict=True) if differs or word == "retry"]
        name = " ".join([*shown, f"queue {queue.queue_id}"])
        lanes[group, queue] = Lane(f"{group} {queue}", LaneKind.QUEUE, name)
    return lanes


def _topic(queue: MessageQueue) -> str:
    return "retry" if queue.topic.startswith(_RETRY) else queue.topic


@dataclass
class _Period:
    begun: LockChange
    ends_ms: int
    renewals: int = 0
    draining_ms: int | None = None


class _Queue:
    """Follows the lock of one queue."""

    def __init__(self, evidence: Evidence, lane: Lane) -> None:
        self._evidence, self._lane = evidence, lane
        self._period: _Period | None = None

    def follow(self, change: LockChange) -> Iterator[Moment]:
        """The moments that a change ends or makes."""
        match change.event:
            case LockEvent.GRANTED:
                yield from self._end(change.at_ms, None)
                self._period = _Period(change, change.ends_ms)
            case LockEvent.REFUSED:
                yield from self.until(change.at_ms)
                yield self._refusal(change)
            case LockEvent.RELEASED:
                yield from self._end(change.at_ms, change)
            case _ if self._period is None:  # a lock of before the watch
                self._period = _Period(change, change.ends_ms)
            case LockEvent.DRAINING:
                self._period.draining_ms, self._period.ends_ms = change.at_ms, change.ends_ms
            case LockEvent.RENEWED:
                period = self._period
                period.renewals += 1
                period.ends_ms, period.draining_ms = change.ends_ms, None
                yield self._mark(Kind.RENEW, change.at_ms, change, "renewed the lock of",
                                 f"it lasts until {seconds(change.ends_ms)}")  # fmt: skip

    def until(self, now_ms: float) -> Iterator[Moment]:
        """The end of a period whose time is over by now."""
        if self._period is not None and self._period.ends_ms <= now_ms:
            yield from self._end(now_ms, None)

    def _end(self, now_ms: float, released: LockChange | None) -> Iterator[Moment]:
        period, self._period = self._period, None
        if period is None:
            return
        end_ms = min(now_ms, period.ends_ms)
        expired = period.ends_ms <= now_ms and (released is None or period.ends_ms < now_ms)
        how, kind = "another period began", None
        if expired:
            how, kind = ("the lock delay was over" if period.draining_ms is not None else "it expired"), Kind.EXPIRE
        elif released is not None:
            how, kind = released.why or "it was released", Kind.RELEASE
        yield from self._span(period, end_ms, how)
        if kind is not None:
            text = "lost the expired lock of" if kind is Kind.EXPIRE else "no longer has the lock of"
            yield self._mark(kind, end_ms, period.begun, text, how)

    def last(self, now_ms: float) -> Iterator[Moment]:
        """The period that lasts at the end of the run."""
        yield from self.until(now_ms)
        if self._period is not None:
            yield from self._span(self._period, now_ms, "it lasted to the end of the run")

    def _span(self, period: _Period, end_ms: float, how: str) -> Iterator[Moment]:
        begun = period.begun
        why = f"for {seconds(end_ms - begun.at_ms)}, {counted(period.renewals, 'renewal')}; end: {how}"
        yield self._mark(Kind.OWN, begun.at_ms, begun, "got the lock of", why, end_ms)
        if period.draining_ms is not None and period.draining_ms < end_ms:
            why = f"no other client gets the queue until {seconds(period.ends_ms)}"
            yield self._mark(Kind.DRAIN, period.draining_ms, begun, "may finish its calls on", why, end_ms)

    def _mark(
        self, kind: Kind, at_ms: float, change: LockChange, text: str, why: str, end_ms: float | None = None
    ) -> Moment:
        who = self._evidence.host_of(change.client_id)
        under = f" under epoch {self._evidence.epoch_name(change.epoch)}" if change.epoch else ""
        sentence = f"{who} {text} {self._lane.name}{under}"
        return Moment(at_ms, kind, (self._lane.key,), who, sentence, why, end_ms)

    def _refusal(self, change: LockChange) -> Moment:
        who = self._evidence.host_of(change.client_id)
        why = f"{self._evidence.host_of(change.other)} has it" if change.other else change.why
        if change.why in ("FENCED", "NOT_HELD", "STALE"):
            why = f"{change.why}: {why}" if change.other else change.why
        return Moment(change.at_ms, Kind.REFUSE, (self._lane.key,), who, f"{who} is refused {self._lane.name}", why)


def ownership(evidence: Evidence, lanes: dict[Name, Lane]) -> Iterator[Moment]:
    """All moments of the lanes of queues but calls."""
    queues = {name: _Queue(evidence, lane) for name, lane in lanes.items()}
    renewals: dict[tuple[float, str], list[Moment]] = {}  # by time and client: those of one request are one moment
    for change in evidence.locks:
        for moment in queues[change.group, change.queue].follow(change):
            if moment.kind is Kind.RENEW:
                renewals.setdefault((moment.at_ms, moment.who), []).append(moment)
            else:
                yield moment
    for alike in renewals.values():
        first, lanes_of_all = alike[0], tuple(lane for moment in alike for lane in moment.lanes)
        text = f"{first.who} renewed its locks of {len(alike)} queues"
        yield first if len(alike) == 1 else replace(first, lanes=lanes_of_all, text=text, count=len(alike))
    for queue in queues.values():
        yield from queue.last(evidence.elapsed_ms)
