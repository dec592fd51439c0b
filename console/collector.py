"""Keeps what brokers answered: who owned which queue when, handovers, refusals, the lag of groups.

A plain synchronous core. Its memory is bounded, whatever it is given.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from typing import Final, Self

from lockstep.console.bounds import TEXT_MAX, Limits, size_of
from lockstep.console.flows import Flows
from lockstep.console.model import (
    HISTORY_MS,
    BrokerState,
    GroupReading,
    GroupState,
    Handover,
    Mark,
    MarkKind,
    QueueKey,
    QueueState,
    Span,
)
from lockstep.console.owners import Owner, Owners
from lockstep.protocol.bodies.lock_changes import LockChange
from lockstep.protocol.bodies.locks import LockTableRow
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.logs import StdlibLog
from lockstep.remoting.texts import whole_number

__all__ = ["Collector"]

_QUEUES_MAX: Final = 20_000
_GROUPS_MAX: Final = 1000
_BROKERS_MAX: Final = 256
_HISTORY_MAX: Final = 300_000  # spans, marks and times of handovers of all queues
_READINGS_BYTES_MAX: Final = 256 * 1024 * 1024  # of memory
_FENCES_MAX: Final = 100  # counters of one broker; it has some twenty
_HANDOVERS_MAX: Final = 500
_REFUSALS_MAX: Final = 500
_LEASE_MS: Final = 60_000  # until a lock row says another one
_SLACK_MS: Final = 5000  # between the beginning of a period by the lock table and by the journal
_EXPIRED: Final = "expired"
_SEEN: Final = "seen"
_ENDS: Final[Mapping[str, MarkKind]] = {
    "unlocked": MarkKind.RELEASED,
    "left": MarkKind.RELEASED,
    "withdrawn": MarkKind.RELEASED,
    "connection lost": MarkKind.EXPIRED,
    "lease ended": MarkKind.EXPIRED,
}


class Collector:
    """
    Attributes:
        queues: Every queue of which a lock was seen, the one that changed longest ago first.
        groups: By name.
        handovers, refusals: The last ones, the newest last.
        flows: Messages in and out, and lag over time.
        limits: The bounds that were met; pages show them.
        groups_unnamed: Which brokers and name server did not say the last time which groups they have, and why.
    """

    def __init__(
        self,
        queues_max: int = _QUEUES_MAX,
        limits: Limits | None = None,
        readings_bytes_max: int = _READINGS_BYTES_MAX,
        history_max: int = _HISTORY_MAX,
    ) -> None:
        self.queues: OrderedDict[QueueKey, QueueState] = OrderedDict()
        self.groups: OrderedDict[str, GroupState] = OrderedDict()
        self.handovers: deque[Handover] = deque(maxlen=_HANDOVERS_MAX)
        self.refusals: deque[tuple[QueueKey, Mark]] = deque(maxlen=_REFUSALS_MAX)
        self.flows = Flows()
        self._owners = Owners()
        self.limits = limits or Limits(StdlibLog("lockstep.console"))
        self.groups_unnamed: dict[str, str] = {}
        self._queues_max = queues_max
        self._readings_bytes_max = readings_bytes_max
        self._history_max = history_max
        self._reading_bytes: dict[str, int] = {}  # by group
        self._brokers: dict[str, BrokerState] = {}
        self._looks: dict[str, int] = {}  # broker name -> number of its last lock table
        self._lease_ms = _LEASE_MS

    @classmethod
    def one_of(cls, count: int, limits: Limits) -> Self:
        """The collector of one of so many clusters. Together they keep as much as one, but for groups and topics."""
        one = cls(_QUEUES_MAX // count, limits, _READINGS_BYTES_MAX // count, _HISTORY_MAX // count)
        one.flows = Flows(count)
        return one

    # Brokers -------------------------------------------------------------------------------------------------

    def brokers(self) -> list[BrokerState]:
        """Sorted by name."""
        return [self._brokers[name] for name in sorted(self._brokers)]

    def broker(self, name: str) -> BrokerState | None:
        return self._brokers.get(name)

    def broker_answered(self, state: BrokerState, now_ms: int) -> None:
        if state.name not in self._brokers and len(self._brokers) >= _BROKERS_MAX:
            return
        fences = state.fenced_counts
        if fences is not None and (len(fences) > _FENCES_MAX or not _are_short(*fences)):
            self.limits.met("names", TEXT_MAX, now_ms, state.address)
            fences = {name: fences[name] for name in sorted(fences)[:_FENCES_MAX] if _are_short(name)}
        self._brokers[state.name] = state._replace(answered_ms=now_ms, gone_ms=None, error="", fenced_counts=fences)

    def broker_failed(self, name: str, address: str, error: str, now_ms: int) -> None:
        """It did not answer. What was known of its locks stays, with its age."""
        known = self._brokers.get(name)
        if known is None and len(self._brokers) >= _BROKERS_MAX:
            return
        state = known or BrokerState(name, address)
        if state.gone_ms is None:
            self.flows.broker_silent(name, now_ms)
        gone_ms = now_ms if state.gone_ms is None else state.gone_ms
        self._brokers[name] = state._replace(address=address, gone_ms=gone_ms, error=error[:TEXT_MAX])

    def is_gone(self, broker_name: str) -> bool:
        state = self._brokers.get(broker_name)
        return state is not None and state.gone_ms is not None

    def broker_counted(self, name: str, runtime: Mapping[str, str], now_ms: int) -> None:
        """What a broker's runtime info says of the messages since its start; Apache's has the same names."""
        put, got = (whole_number(runtime.get(f"msg{what}TotalTodayNow", "")) for what in ("Put", "Get"))
        if put is not None and got is not None and name in self._brokers:
            self.flows.broker_counted(name, put, got, now_ms)

    def forget_broker(self, name: str) -> None:
        """Drop the broker and its queues: nobody says any more who owns them."""
        self._brokers.pop(name, None)
        self._looks.pop(name, None)
        self.flows.forget_broker(name)
        for key in [key for key in self.queues if key[1].broker_name == name]:
            del self.queues[key]

    # Owners --------------------------------------------------------------------------------------------------

    def changed(self, changes: Iterable[LockChange], ahead_ms: int, now_ms: int) -> None:
        """What a broker's journal says, oldest first.

        Args:
            ahead_ms: How far the broker's clock is ahead of `now_ms`.
        """
        for change in changes:
            queue = change.queue
            names = change.consumer_group, queue.topic, queue.broker_name, change.old, change.new, change.cause
            if not _are_short(*names):
                self.limits.met("names", TEXT_MAX, now_ms, queue.broker_name)
                continue
            self._change(change, min(change.at_ms - ahead_ms, now_ms), now_ms)

    def _change(self, change: LockChange, at_ms: int, now_ms: int) -> None:
        key = (change.consumer_group, change.queue)
        queue = self._queue(key, now_ms)
        old, new, epoch, cause = change.old, change.new, change.epoch, change.cause
        if not change.is_refusal:
            self._unsee(queue, change, at_ms)
        if change.is_refusal:
            mark = Mark(at_ms, MarkKind.REFUSED, old, new, None, cause)
            self.refusals.append((key, mark))
        elif new is None:
            self._end(queue, at_ms, old, cause)
            mark = Mark(at_ms, _ENDS.get(cause, MarkKind.RELEASED), old, None, epoch, cause)
        elif cause == MarkKind.RESET.value:
            self._end(queue, at_ms, old, cause)
            queue.spans.append(Span(at_ms, None, new, epoch))
            mark = Mark(at_ms, MarkKind.RESET, old, new, epoch, cause)
        else:
            kind = self._grant(key, queue, change, at_ms)
            why = queue.last_cause if kind is MarkKind.TAKEN_OVER else cause
            mark = Mark(at_ms, kind, queue.last_owner, new, epoch, why, change.rest_ms)
        self._add(queue, mark, now_ms)

    def _unsee(self, queue: QueueState, change: LockChange, at_ms: int) -> None:
        """A table can show a period before the journal tells how it began: what the journal tells takes its place."""
        seen, queue.seen_span = queue.seen_span, None
        if seen is None or queue.open_span is not seen:
            return
        is_near = at_ms <= seen.from_ms + _SLACK_MS
        if seen.owner == change.new:
            is_told = is_near if seen.epoch is None else change.epoch == seen.epoch
        else:
            is_told = is_near and seen.owner != change.old
        if not is_told:
            return
        queue.spans.pop()
        if queue.last_cause == _SEEN and queue.spans:  # the table ended the span before it too
            queue.spans[-1] = queue.spans[-1]._replace(to_ms=None)

    def _grant(self, key: QueueKey, queue: QueueState, change: LockChange, at_ms: int) -> MarkKind:
        assert change.new is not None
        if queue.open_span is not None:  # a lock without a lease ends silently
            self._end(queue, min(at_ms - change.rest_ms + self._lease_ms, at_ms), queue.open_span.owner, _EXPIRED)
        elif queue.last_owner is None and change.old is not None:
            queue.last_owner, queue.last_cause = change.old, _EXPIRED
        queue.spans.append(Span(at_ms, None, change.new, change.epoch))
        if queue.last_owner in (None, change.new):
            return MarkKind.GRANTED
        self._handed_over(key, queue, at_ms, change.new, change.epoch, change.rest_ms)
        return MarkKind.TAKEN_OVER

    def _handed_over(
        self, key: QueueKey, queue: QueueState, at_ms: int, new: str, epoch: int | None, rest_ms: int
    ) -> None:
        assert queue.last_owner is not None
        queue.flaps_ms.append(at_ms)
        self.handovers.append(Handover(at_ms, *key, queue.last_owner, new, epoch, queue.last_cause, rest_ms))

    def _end(self, queue: QueueState, at_ms: int, owner: str | None, cause: str) -> None:
        span = queue.open_span
        if span is not None:
            queue.spans[-1] = span._replace(to_ms=max(at_ms, span.from_ms))
        queue.last_owner, queue.last_cause = owner or (span.owner if span else None), cause

    def _add(self, queue: QueueState, mark: Mark, now_ms: int) -> None:
        queue.marks.append(mark)
        self._forget(queue, now_ms)

    def locked(self, broker_name: str, rows: Iterable[LockTableRow], now_ms: int) -> None:
        """The whole lock table of a broker. What the journal does not say is read from it: silent ends."""
        look = self._looks[broker_name] = self._looks.get(broker_name, 0) + 1
        for row in rows:
            if not _are_short(row.consumer_group, row.queue.topic, row.queue.broker_name, row.client_id):
                self.limits.met("names", TEXT_MAX, now_ms, broker_name)
                continue
            queue = self._queue((row.consumer_group, row.queue), now_ms)
            queue.row, queue.row_ms, queue.look = row, now_ms, look
            if row.is_held and not row.draining:
                self._lease_ms = row.age_ms + row.remaining_ms
            self._compare(queue, row, now_ms)

    def _compare(self, queue: QueueState, row: LockTableRow, now_ms: int) -> None:
        span = queue.open_span
        if not row.is_held:
            if span is not None and span.owner == row.client_id:
                at_ms = now_ms + row.remaining_ms
                self._end(queue, at_ms, span.owner, _EXPIRED)
                self._add(queue, Mark(at_ms, MarkKind.EXPIRED, span.owner, None, span.epoch, _EXPIRED), now_ms)
        elif span is None or span.owner != row.client_id or (row.epoch is not None and span.epoch != row.epoch):
            # The console started later than the journal begins, or the journal lost changes.
            from_ms = now_ms - row.held_ms
            if span is not None:
                self._end(queue, from_ms, span.owner, _SEEN)
            queue.seen_span = Span(from_ms, None, row.client_id, row.epoch)
            queue.spans.append(queue.seen_span)

    def owner(self, group: str, client_id: str) -> Owner:
        """The letter and the colour that pages show for a client of a group."""
        return self._owners.owner(group, client_id)

    def row_of(self, key: QueueKey) -> LockTableRow | None:
        """The lock in the last lock table of its broker."""
        queue = self.queues.get(key)
        broker_name = key[1].broker_name
        if queue is None or queue.look != self._looks.get(broker_name, 0):
            return None
        return queue.row

    # Groups --------------------------------------------------------------------------------------------------

    def group(self, reading: GroupReading, now_ms: int, *, is_whole: bool = True) -> None:
        """Members and progress of a group.

        Args:
            is_whole: False: an answer was too large, or did not come, so offsets are missing or old. Then no lag is
                noted.
        """
        whole, reading = reading, self._within_bounds(reading, now_ms)
        state = self.groups.get(reading.name)
        if state is None:
            state = self.groups[reading.name] = GroupState(GroupReading(reading.name))
            if len(self.groups) > _GROUPS_MAX:
                self._forget_group(next(iter(self.groups)))
                self.limits.met("groups", _GROUPS_MAX, now_ms)
        is_whole = is_whole and reading is whole
        self.flows.group_read(reading.name, state.reading.offsets, reading.offsets, now_ms, is_whole=is_whole)
        state.reading, state.at_ms = reading, now_ms
        self.groups.move_to_end(reading.name)
        self._claimed(reading, now_ms)

    def group_silent(self, name: str, now_ms: int) -> None:
        """No broker said anything about a group: what was known of it stays."""
        self.flows.group_silent(name, now_ms)

    def _forget_group(self, name: str) -> None:
        self.flows.forget_group(name, self.groups.pop(name).reading.offsets)
        self._reading_bytes.pop(name, None)

    def _within_bounds(self, reading: GroupReading, now_ms: int) -> GroupReading:
        """Without what is in its queues, and then without its members, if it takes too much memory with the others."""
        self._reading_bytes.pop(reading.name, None)
        room = self._readings_bytes_max - sum(self._reading_bytes.values())
        for one in (reading, reading._replace(infos={}, offsets={}), GroupReading(reading.name)):
            size = size_of(one, room)
            if size <= room:
                break
        if one is not reading:
            self.limits.met("readings", self._readings_bytes_max, now_ms, f"group {reading.name}")
        self._reading_bytes[reading.name] = size
        return one

    def groups_not_named(self, errors: Mapping[str, str]) -> None:
        """These did not say which groups they have, and why; all others did."""
        self.groups_unnamed = {name: errors[name][:TEXT_MAX] for name in sorted(errors)}

    def forget_groups(self, known: Iterable[str]) -> None:
        """Groups that no broker names any more are dropped."""
        kept = set(known)
        for name in [name for name in self.groups if name not in kept]:
            self._forget_group(name)

    def _claimed(self, reading: GroupReading, now_ms: int) -> None:
        """From brokers without a lock list: what members say of their locks."""
        claims: dict[MessageQueue, list[tuple[int, str]]] = {}
        for client_id, info in reading.infos.items():
            for queue, of in info.mq_table.items():
                broker = self._brokers.get(queue.broker_name)
                if not _are_short(queue.topic, queue.broker_name, client_id):
                    self.limits.met("names", TEXT_MAX, now_ms, f"group {reading.name}")
                elif of.locked and not of.dropped and broker is not None and broker.is_lockstep is False:
                    claims.setdefault(queue, []).append((of.last_lock_timestamp, client_id))
        for queue, found in claims.items():
            key = (reading.name, queue)
            state = self._queue(key, now_ms)
            locked_ms, owner = max(found)
            span = state.open_span
            if span is None or span.owner != owner:
                if span is not None:
                    self._end(state, now_ms, span.owner, _SEEN)
                other = state.last_owner not in (None, owner)
                kind = MarkKind.TAKEN_OVER if other else MarkKind.GRANTED
                self._add(state, Mark(now_ms, kind, state.last_owner, owner, None, _SEEN), now_ms)
                if other:
                    self._handed_over(key, state, now_ms, owner, None, 0)
                state.spans.append(Span(now_ms, None, owner, None))
            age_ms = max(now_ms - locked_ms, 0)
            held_ms = now_ms - state.spans[-1].from_ms
            state.row = LockTableRow(reading.name, queue, owner, age_ms, _LEASE_MS - age_ms, held_ms)
            state.row_ms, state.look = now_ms, self._looks.get(queue.broker_name, 0)
            state.claims = tuple(client_id for _, client_id in sorted(found, reverse=True))

    # Bounds --------------------------------------------------------------------------------------------------

    def _queue(self, key: QueueKey, now_ms: int) -> QueueState:
        state = self.queues.get(key)
        if state is None:
            state = self.queues[key] = QueueState()
            if len(self.queues) > self._queues_max:
                self.queues.popitem(last=False)
                self.limits.met("queues", self._queues_max, now_ms)
        else:
            self.queues.move_to_end(key)
        state.seen_ms = now_ms
        return state

    def _forget(self, queue: QueueState, now_ms: int) -> None:
        """Drop what no page shows any more."""
        while queue.spans and (to_ms := queue.spans[0].to_ms) is not None and to_ms < now_ms - HISTORY_MS:
            queue.spans.popleft()
        while queue.marks and queue.marks[0].at_ms < now_ms - HISTORY_MS:
            queue.marks.popleft()
        while queue.flaps_ms and queue.flaps_ms[0] < now_ms - HISTORY_MS:
            queue.flaps_ms.popleft()

    def turn(self, now_ms: int) -> None:
        """Once a second or two: drop queues whose locks were not seen for an hour, and what is too old."""
        while self.queues:
            key, queue = next(iter(self.queues.items()))
            if now_ms - queue.seen_ms < HISTORY_MS:
                break
            del self.queues[key]
        self._shorten(now_ms)

    def _shorten(self, now_ms: int) -> None:
        """Drop histories of the queues that changed longest ago, while all together are too long."""
        kept = sum(len(one.spans) + len(one.marks) + len(one.flaps_ms) for one in self.queues.values())
        for queue in self.queues.values() if kept > self._history_max else ():
            kept -= len(queue.spans) + len(queue.marks) + len(queue.flaps_ms)
            last = queue.open_span
            for table in (queue.spans, queue.marks, queue.flaps_ms):
                table.clear()
            if last is not None:
                queue.spans.append(last)
                kept += 1
            self.limits.met("history", self._history_max, now_ms)
            if kept <= self._history_max:
                break


def _are_short(*texts: str | None) -> bool:
    return all(text is None or len(text) <= TEXT_MAX for text in texts)
