"""Rule (c) for groups that pop: of the messages of one key, one call runs at a time."""

from dataclasses import dataclass, field
from typing import NamedTuple

from lockstep.order.judge.period import stamp_ns
from lockstep.order.kinds import Kind
from lockstep.order.report import Findings
from lockstep.order.traces.clocks import Clocks
from lockstep.order.traces.reader import Record

__all__ = ["Fence", "KeyCalls"]


@dataclass(slots=True)
class Fence:
    """Of a fenced delivery.

    Attributes:
        acked: The broker took its answer, so it had not ended.
        beside: Its calls that ran beside one of a later delivery, both records and for how many ms.
    """

    epoch: int
    acked: bool = False
    beside: list[tuple[Record, Record, float]] = field(default_factory=list)


class _Call(NamedTuple):
    """A call that ended. `fence`: of the delivery of its message; None: it was not fenced."""

    record: Record
    clock: int
    begin_ns: int
    end_ns: int
    fence: Fence | None


class KeyCalls:
    """The last calls of each key. They are taken by their ends, so only the newest ones can overlap with the next."""

    def __init__(self, queue: str, findings: Findings, clocks: Clocks) -> None:
        """`queue` is its name in reports."""
        self._queue = queue
        self._findings = findings
        self._clocks = clocks
        # By key and clock: the newest call, and the newest one of another client.
        self._newest: dict[str | None, dict[int, tuple[_Call, _Call | None]]] = {}
        self.outlived_count = 0  # calls that ran on beside the next owner's, which a fence keeps out

    def take(self, record: Record, clock: int, begin_ns: int, fence: Fence | None) -> bool:
        """Take a call for one message. Returns whether it overlapped with another owner's."""
        call = _Call(record, clock, begin_ns, stamp_ns(record), fence)
        calls, found = self._newest.setdefault(record.get("key"), {}), False
        for pair in calls.values():
            for other in pair:
                if other is not None and (late_ns := self._overlap_ns(other, call)) > 0:
                    found |= self._found(other, call, late_ns / 1e6)
        newest, other = calls.get(clock, (None, None))
        if newest is not None and newest.record["client_id"] != record["client_id"]:
            other = newest
        calls[clock] = (call, other)
        return found

    def _overlap_ns(self, one: _Call, call: _Call) -> float:
        """For how long two calls surely ran at once; 0 or less: perhaps never."""
        if one.clock == call.clock:
            return one.end_ns - call.begin_ns if one.begin_ns < call.end_ns else 0
        if self._clocks.gap_ns(one.clock, one.begin_ns, call.clock, call.end_ns)[0] <= 0:
            return 0
        return self._clocks.gap_ns(call.clock, call.begin_ns, one.clock, one.end_ns)[0]

    def _found(self, one: _Call, call: _Call, late_ms: float) -> bool:
        """Report two calls at once. Returns whether they are of two owners."""
        first, second = sorted((one, call), key=lambda each: each.begin_ns) if one.clock == call.clock else (one, call)
        if first.record["client_id"] == second.record["client_id"] and one.begin_ns == call.begin_ns:
            return False  # one call may have several messages
        older = min((one, call), key=lambda each: each.fence.epoch if each.fence is not None else 0).fence
        if older is not None and one.fence != call.fence and not older.acked:
            # Until its broker takes the older delivery's answer: it refuses that of a delivery which has ended.
            older.beside.append((first.record, second.record, late_ms))
            self.outlived_count += 1
            return False
        return self._at_once(first.record, second.record, late_ms)

    def acked(self, fence: Fence) -> None:
        """The broker took the answer of a delivery. Its calls beside later ones were not kept out."""
        fence.acked = True
        for first, second, late_ms in fence.beside:
            self.outlived_count -= 1
            self._at_once(first, second, late_ms)
        fence.beside.clear()

    def _at_once(self, first: Record, second: Record, late_ms: float) -> bool:
        """Report it. Returns whether they are of two owners."""
        name, where = second["client_id"], f"offset {second['offset']} of {self._queue}"
        if first["client_id"] == name:
            text = f"{name} began {where} while another call of its key ran"
            self._findings.violation(Kind.CONCURRENT_CALLS, text, first, second, size=late_ms)
            return False
        other = f"offset {first['offset']} of the same key"
        text = f"{first['client_id']} was still handling {other} when {name} began {where}"
        self._findings.violation(Kind.OVERLAP, text, first, second, size=late_ms)
        return True
