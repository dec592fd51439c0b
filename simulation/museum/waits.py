"""What took too long, or was given away too early: checks of an exhibit that the judge of order does not make.

The judge knows order, and no time bounds. Here a queue that is idle although a member may handle it is a violation,
and so is a planned handover before all that was handled is committed. Where a fault disturbed the members, nothing is
said.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from lockstep.order import Record
from lockstep.simulation.lab.findings import Band, Finding, Wrong
from lockstep.simulation.lab.hosts import BROKER, PRODUCER, TOPIC
from lockstep.simulation.museum.plan import GOING
from lockstep.simulation.virtual_time.loop import START_NS

__all__ = ["IDLE", "Seen", "idle_queues", "not_drained"]

IDLE: Final = "idle-queue"
_GRANT_MS: Final = 5_000  # from a grant to the first offset
_IDLE_MS: Final = 10_000
_GIVEN_AWAY: Final = "allocated to another consumer"


class _Call(NamedTuple):
    begin_ms: int
    end_ms: int
    offset: int
    good: bool


@dataclass(eq=False)
class _Period:
    """A period of ownership, as its owner's trace has it. `evidence`: its first record."""

    host: str
    client_id: str
    queue_id: int
    acquired_ms: int
    evidence: tuple[str, int]
    positioned_ms: int | None = None
    position: int = -1
    dropped_ms: int | None = None
    why: str = ""
    calls: list[_Call] = field(default_factory=list)


class Seen:
    """The periods of all queues, from the traces of a run.

    Args:
        traces: by host; records of other topics are left out.
        bands: the faults that were played.
        until_ms: when the members began to shut down at the end.
        calm_ms: so long after a fault nothing is expected.
    """

    def __init__(
        self,
        traces: Mapping[str, Sequence[Record]],
        bands: Iterable[Band],
        until_ms: int,
        calm_ms: int,
    ) -> None:
        self._members = [host for host in traces if host != PRODUCER]
        self.until_ms = until_ms
        self._calm_ms = calm_ms
        self._bands = list(bands)
        self.stored_ms: dict[tuple[int, int], int] = {}  # (queue id, offset)
        periods: dict[tuple[str, int, int], _Period] = {}
        for host, records in traces.items():
            for number, record in enumerate(records):
                self._read(periods, host, number, record)
        self.periods = sorted(periods.values(), key=lambda period: period.acquired_ms)

    def _read(self, periods: dict[tuple[str, int, int], _Period], host: str, number: int, record: Record) -> None:
        event, at_ms = record["event"], _ms(record["mono_ns"])
        if record.get("topic") != TOPIC:
            return
        if event == "sent":
            self.stored_ms[record["queue_id"], record["offset"]] = at_ms
        if "period" not in record:
            return
        key = (record["client_id"], record["queue_id"], record["period"])
        if event == "acquired":
            evidence = (record["client_id"], number)
            periods[key] = _Period(host, record["client_id"], record["queue_id"], at_ms, evidence)
        period = periods.get(key)
        if period is None:
            return
        if event == "positioned" and period.positioned_ms is None:
            period.positioned_ms, period.position = at_ms, record["offset"]
        elif event in ("dropped", "lock_lost") and period.dropped_ms is None:
            period.dropped_ms, period.why = at_ms, record.get("why", event)
        elif event == "handled":
            good = record["status"] != "SUSPEND_CURRENT_QUEUE_A_MOMENT"
            period.calls.append(_Call(_ms(record["begin_mono_ns"]), at_ms, record["offset"], good))

    def is_calm(self, begin_ms: int, end_ms: int) -> bool:
        """Whether no fault touched this time. A member that leaves is none."""
        return not any(
            band.at_ms <= end_ms and (band.end_ms or band.at_ms) >= begin_ms
            for band in self._bands
            if band.fault != "leave"
        )

    def waiting(self, host: str, begin_ms: int, end_ms: int) -> list[str]:
        """The members besides `host` that ran all this time; one that has ended without a time to come back is gone."""
        gone = [
            band.target
            for band in self._bands
            if band.fault in GOING and band.at_ms <= end_ms and (band.end_ms is None or band.end_ms >= begin_ms)
        ]
        return [name for name in self._members if name != host and name not in gone]

    def too_long(self, begin_ms: int, end_ms: int, bound_ms: int) -> bool:
        return end_ms - begin_ms > bound_ms and self.is_calm(begin_ms - self._calm_ms, end_ms)


def _ms(mono_ns: int) -> int:
    return (mono_ns - START_NS) // 1_000_000


def _finding(kind: str, at_ms: int, text: str, *periods: _Period) -> Finding:
    evidence = tuple(period.evidence for period in periods)
    return Finding(kind, at_ms, text, f"{TOPIC}/{BROKER}/{periods[0].queue_id}", evidence)


def _s(duration_ms: int) -> str:
    return f"{duration_ms / 1000:.1f} s"


# Idle queues ----------------------------------------------------------------------------------------------------------


def idle_queues(seen: Seen) -> Iterator[Finding]:
    """Queues that nobody handled for too long, although a member could have."""
    for period in seen.periods:
        yield from _not_read(seen, period)
        yield from _not_handled(seen, period)
        yield from _not_taken(seen, period)


def _not_read(seen: Seen, period: _Period) -> Iterator[Finding]:
    end_ms = _first(period.positioned_ms, period.dropped_ms, seen.until_ms)
    if seen.too_long(period.acquired_ms, end_ms, _GRANT_MS):
        text = (
            f"{period.host} was granted queue {period.queue_id} at {_s(period.acquired_ms)} "
            f"and did not read it for {_s(end_ms - period.acquired_ms)}"
        )
        yield _finding(IDLE, end_ms, text, period)


def _not_handled(seen: Seen, period: _Period) -> Iterator[Finding]:
    """Messages that wait for an owner who does nothing."""
    if period.positioned_ms is None:
        return
    free_ms, end_ms = period.positioned_ms, _first(period.dropped_ms, seen.until_ms)
    for offset in range(period.position, period.position + len(seen.stored_ms)):
        stored_ms = seen.stored_ms.get((period.queue_id, offset))
        if stored_ms is None:
            return
        calls = [call for call in period.calls if call.offset == offset]
        ready_ms, begin_ms = max(free_ms, stored_ms), calls[0].begin_ms if calls else end_ms
        if seen.too_long(ready_ms, begin_ms, _IDLE_MS):
            text = (
                f"{period.host} owned queue {period.queue_id}, and offset {offset} waited {_s(begin_ms - ready_ms)} "
                f"from {_s(ready_ms)} on, while no call ran"
            )
            yield _finding(IDLE, begin_ms, text, period)
        if not calls:
            return
        free_ms = max(call.end_ms for call in calls)


def _not_taken(seen: Seen, period: _Period) -> Iterator[Finding]:
    """Queues of a member that left, while another member waited for them."""
    left_ms = period.dropped_ms
    if period.why != "shutdown" or left_ms is None or left_ms >= seen.until_ms:
        return
    after = [one for one in seen.periods if one.queue_id == period.queue_id and one.acquired_ms >= left_ms]
    end_ms = after[0].acquired_ms if after else seen.until_ms
    waiting = seen.waiting(period.host, left_ms - _GRANT_MS, left_ms + _IDLE_MS)
    if waiting and seen.too_long(left_ms, end_ms, _IDLE_MS):
        text = (
            f"{period.host} left at {_s(left_ms)}, and queue {period.queue_id} had no owner "
            f"for {_s(end_ms - left_ms)}, although {waiting[0]} could own it"
        )
        yield _finding(IDLE, end_ms, text, period, *after[:1])


def _first(*times_ms: int | None) -> int:
    return next(time_ms for time_ms in times_ms if time_ms is not None)


# Handovers ------------------------------------------------------------------------------------------------------------


def not_drained(seen: Seen) -> Iterator[Finding]:
    """Planned handovers after which the next owner began below what the last one had handled."""
    for period in seen.periods:
        given_ms = period.dropped_ms
        if period.why != _GIVEN_AWAY or given_ms is None:
            continue
        # Times are whole milliseconds: a call that ended in the one of the drop may have ended behind it.
        handled = [call.offset for call in period.calls if call.good and call.end_ms < given_ms]
        after = next(
            (
                one
                for one in seen.periods
                if one.queue_id == period.queue_id and one is not period and (one.positioned_ms or 0) > given_ms
            ),
            None,
        )
        if not handled or after is None or after.positioned_ms is None or after.position > max(handled):
            continue
        if seen.is_calm(given_ms - _IDLE_MS, after.positioned_ms):
            text = (
                f"{period.host} had handled offset {max(handled)} of queue {period.queue_id} when it gave the queue "
                f"away at {_s(given_ms)}, and {after.host} began at offset {after.position}"
            )
            yield _finding(Wrong.NOT_DRAINED, after.positioned_ms, text, period, after)
