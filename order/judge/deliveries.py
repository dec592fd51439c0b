"""A group of RocketMQ 5 that pops: a period is the delivery of one message, from the pop to its end.

A delivery ends when its client acknowledges it or gives it back, when its invisible time is over, when the broker
refuses an answer to it, and when the message is delivered again. What must stay in order are the messages of one key:
different keys of a queue may be at different clients. Memory grows with keys, and with deliveries under way.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

from lockstep.order.judge.across import FirstHandled, QueueSeen
from lockstep.order.judge.history import FAILED, QueueHistory
from lockstep.order.judge.key_calls import Fence, KeyCalls
from lockstep.order.judge.period import Period, stamp_ns
from lockstep.order.judge.sent import SentQueue
from lockstep.order.judge.survey import Facts
from lockstep.order.kinds import Cause, Confidence, Kind
from lockstep.order.offset_set import OffsetSet
from lockstep.order.report import Findings, Handover
from lockstep.order.traces.clocks import WALL_SKEW_MS
from lockstep.order.traces.reader import Record

__all__ = ["DeliveredHistory"]

# Deliveries that ended, and are kept for calls that begin later all the same.
_ENDED_KEPT: Final = 1000
_MS_NS: Final = 1_000_000


@dataclass(slots=True)
class _Delivery:
    """One delivery.

    Attributes:
        record: `delivered`.
        until_ns: When its invisible time is surely over, on its client's clock: it began before the answer came.
        cause: Of a repeat in it.
        resets: How many resets had been read before it.
        fence: None: it is not fenced, so the broker may take its answer after its end.
        below: A `stored` record with an offset behind it, from before the pop.
        ended: The record that ended it, and how, in words.
        newer: The next delivery of the message.
        handled: A call with it has ended.
        failed: The last such call failed.
    """

    record: Record
    clock: int
    until_ns: int
    cause: Cause
    resets: int
    fence: Fence | None
    below: Record | None = None
    ended: tuple[Record, str] | None = None
    newer: "_Delivery | None" = None
    handled: bool = False
    failed: bool = False

    @property
    def is_given_back(self) -> bool:
        """A message without an invisible time ends its delivery; any other renewal does not."""
        return self.ended is not None and self.ended[0]["event"] == "renewed"


class DeliveredHistory(QueueHistory):
    """Judges the records of one group that pops and one queue, in time order."""

    def __init__(
        self, seen: QueueSeen, sent: SentQueue, facts: Facts, findings: Findings, first_handled: FirstHandled
    ) -> None:
        """As QueueHistory."""
        super().__init__(seen, sent, facts, findings, first_handled)
        self._deliveries: dict[tuple[str, int, int], _Delivery] = {}  # client, offset, pop_ms
        self._newest_of: dict[int, _Delivery] = {}  # of each offset that is not acknowledged
        self._ended: deque[tuple[str, int, int]] = deque()
        self._acked = OffsetSet()
        self._clients: dict[str, Period] = {}
        self._calls = KeyCalls(seen.name, findings, facts.clocks)
        self._last_handover = ("", "", -1)
        self._blamed = ("", -1)  # the call that a finding named last: client, begin

    def delivered(self, record: Record, time_ns: int, clock: int) -> None:
        """Take a `delivered` record: the answer of a pop has the message."""
        offset, client_id = record["offset"], record["client_id"]
        before = self._newest_of.get(offset)
        # The pop was before the answer, so the time is over by then.
        until_ns = stamp_ns(record) + record["invisible_ms"] * _MS_NS
        fence = Fence(record["epoch"]) if "epoch" in record else None
        new = _Delivery(record, clock, until_ns, self._cause(offset, before), self._unless_reset.count, fence)
        new.below = self._stored_below(record, clock)
        if self.start < 0 or offset < self.start:
            self.start = offset
        if before is not None:
            if before.ended is None:
                self._hand_over(before.record, record, time_ns)
            if record["pop_ms"] > before.record["pop_ms"]:
                before.newer = new
                self._forget_later(before.record)
            elif record["pop_ms"] < before.record["pop_ms"]:
                # Two answers crossed: the other one has the later delivery.
                new.newer = before
        if new.newer is None:
            self._newest_of[offset] = new
        self._deliveries[client_id, offset, record["pop_ms"]] = new

    def _cause(self, offset: int, before: _Delivery | None) -> Cause:
        """Why the message may have been handled before this delivery."""
        resets = self._unless_reset.count
        if before is not None and resets > before.resets:
            return Cause.RESET
        if offset in self._acked:
            return Cause.REDELIVERED
        if before is None:
            return Cause.RESET if resets else Cause.TAKEOVER
        return Cause.SUSPEND if before.is_given_back or before.failed else Cause.TAKEOVER

    def _stored_below(self, record: Record, clock: int) -> Record | None:
        """The last stored offset, if it is behind the message, and surely older than the pop."""
        stored, its = self._commits.record, self._commits.clock
        if stored is None or record["offset"] >= stored["offset"]:
            return None
        sent_ns = record.get("begin_mono_ns")
        is_older = record["pop_ms"] > stored["wall_ms"] + WALL_SKEW_MS
        if not is_older and sent_ns is not None:
            is_older = self._facts.clocks.gap_ns(its, stamp_ns(stored), clock, sent_ns)[0] > 0
        return stored if is_older else None

    def _hand_over(self, before: Record, record: Record, time_ns: int) -> None:
        """Note a handover, once for all messages of an answer."""
        name = before["client_id"], record["client_id"], record["pop_ms"]
        if name[0] != name[1] and name != self._last_handover:
            self._last_handover = name
            waited_ms = max(0, time_ns - self._facts.activity.seen_ns(name[0], time_ns)) / 1e6
            self.findings.handovers.append(Handover(self.group, self.queue, *name[:2], waited_ms, time_ns))

    def handled(self, record: Record, time_ns: int, clock: int) -> None:
        """Take a `handled` record. Checks the rules (a), (b) and (c)."""
        delivery, offset = self._find(record), record["offset"]
        client = self._client(record, time_ns, clock)
        if delivery is not None:
            client.cause, client.resets_before = delivery.cause, delivery.resets
        # After ROLLBACK, which without pops is a matter of the offset, the same client handles the message again.
        failed, begin = record["status"] in (*FAILED, "ROLLBACK"), record.get("begin_mono_ns")
        ordering = record.get("ordering") or "key"
        if self.attempted.add(offset):
            self._take_first(client, record, offset, ordering)
        else:
            self._sent.repeated(self.group, record, offset)
            self._explain_delivered_again(delivery, record, offset)
        if begin is not None:
            self._check_call(delivery, record, clock, begin, in_order=ordering != "none")
        if delivery is not None:
            delivery.handled, delivery.failed = True, failed
        if not failed:
            self.done.add(offset)

    def _client(self, record: Record, time_ns: int, clock: int) -> Period:
        """What the rules about keys need to know of a client."""
        client_id = record["client_id"]
        client = self._clients.get(client_id)
        if client is None:
            client = self._clients[client_id] = Period(client_id, 0, last_time_ns=time_ns)
        client.clock = clock
        return client

    def _clock_of(self, record: Record) -> int:
        return self._clients[record["client_id"]].clock

    def _explain_delivered_again(self, delivery: _Delivery | None, record: Record, offset: int) -> None:
        """Rule (b): count the cause of a repeat, or report it."""
        cause = Cause.TAKEOVER if delivery is None else delivery.cause
        if delivery is not None and delivery.handled:
            cause = Cause.SUSPEND if delivery.failed else Cause.UNEXPLAINED
            if not delivery.failed:
                text = f"{_who(record)} handled offset {offset} of {self.queue} twice though the first call succeeded"
                self.findings.violation(Kind.UNEXPLAINED_REPEAT, text, delivery.record, record, size=1)
        elif delivery is not None and delivery.resets < self._unless_reset.count:
            cause = Cause.RESET
        elif delivery is not None and delivery.below is not None:
            cause, below = Cause.UNEXPLAINED, delivery.below
            text = f"{_who(record)} got offset {offset} of {self.queue}, below the stored commit {below['offset']}"
            size = below["offset"] - offset
            self.findings.violation(Kind.REWIND_BELOW_COMMIT, text, below, record, size=size)
        self.findings.duplicates[cause] += 1

    def _check_call(
        self, delivery: _Delivery | None, record: Record, clock: int, begin: int, *, in_order: bool
    ) -> None:
        """Rule (c)."""
        if stamp_ns(record) < begin:
            self._ownership.call_times(record, begin)
            return
        fence = delivery.fence if delivery is not None else None
        overlaps = in_order and self._calls.take(record, clock, begin, fence)
        if "pop_ms" not in record:
            return  # a call of a pull
        if delivery is None:
            text = f"{_who(record)} handled offset {record['offset']} of {self.queue} without a delivery"
            doubt = f"{text}; the trace may begin behind it"
            self.findings.violation(Kind.NO_GRANT, doubt, record, confidence=Confidence.UNDECIDED)
        elif not overlaps and (record["client_id"], begin) != self._blamed:
            self._check_end(delivery, record, clock, begin)

    def _check_end(self, delivery: _Delivery, record: Record, clock: int, begin: int) -> None:
        """Report a call that began after its delivery had ended. One call may have several messages."""
        after: tuple[float, str, Record] | None = None
        newer, gap_ns = delivery.newer, self._facts.clocks.gap_ns
        if delivery.ended is not None and begin > stamp_ns(delivery.ended[0]):
            after = begin - stamp_ns(delivery.ended[0]), delivery.ended[1], delivery.ended[0]
        elif clock == delivery.clock and begin > delivery.until_ns:
            after = begin - delivery.until_ns, "its invisible time was over", delivery.record
        elif newer is not None:
            least, _ = gap_ns(newer.clock, stamp_ns(newer.record), clock, begin)
            if least > 0:
                after = least, f"{_who(newer.record)} got the message", newer.record
        if after is not None:
            late_ns, what, proof = after
            self._blamed = (record["client_id"], begin)
            text = (
                f"{_who(record)} began offset {record['offset']} of {self.queue} at least {late_ns / 1e6:.3f} ms after"
            )
            self.findings.violation(Kind.STALE_OWNER, f"{text} {what}", proof, record, size=late_ns / 1e6)

    def acked(self, record: Record, time_ns: int, clock: int) -> None:
        """Take an `acked` record: the broker answered that the message is consumed."""
        self._acked.add(record["offset"])
        delivery = self._find(record)
        if delivery is not None and delivery.fence is not None:
            self._calls.acked(delivery.fence)
        self._end(record, "it had acknowledged the message")

    def refused(self, record: Record, time_ns: int, clock: int) -> None:
        """Take a `refused` record: the broker answered that the delivery had ended."""
        self._end(record, "the broker had refused its answer")

    def renewed(self, record: Record, time_ns: int, clock: int) -> None:
        """Take a `renewed` record: the invisible time begins anew. A message without such a time is given back."""
        delivery = self._find(record)
        if delivery is not None:
            delivery.until_ns = stamp_ns(record) + record["invisible_ms"] * _MS_NS
            if not record["invisible_ms"]:
                self._end(record, "it had given the message back")

    def reset(self, record: Record, time_ns: int, clock: int) -> None:
        """Take a `reset` record. What lies behind it comes again."""
        super().reset(record, time_ns, clock)
        self._acked.cut(record["offset"])

    def finish(self, end: int | None) -> None:
        """As QueueHistory. Nobody owns the queue."""
        self._rule_d.finish(self.start, end)
        self._unless_reset.finish()

    @property
    def outlived_count(self) -> int:
        """Calls that ran on beside a newer delivery of their key, and were fenced."""
        return self._calls.outlived_count

    def _find(self, record: Record) -> _Delivery | None:
        return self._deliveries.get((record["client_id"], record["offset"], record.get("pop_ms", -1)))

    def _end(self, record: Record, how: str) -> None:
        """A delivery ended by an answer."""
        delivery = self._find(record)
        if delivery is not None and delivery.ended is None:
            delivery.ended = (record, how)
            self._forget_later(record)

    def _forget_later(self, record: Record) -> None:
        """A delivery that has ended is kept for a while: a call may begin all the same."""
        self._ended.append((record["client_id"], record["offset"], record["pop_ms"]))
        if len(self._ended) > _ENDED_KEPT:
            name = self._ended.popleft()
            old = self._deliveries.pop(name, None)
            if old is not None and self._newest_of.get(name[1]) is old:
                del self._newest_of[name[1]]


def _who(record: Record) -> str:
    return f"{record['client_id']} (delivery {record.get('pop_ms', '-')})"
