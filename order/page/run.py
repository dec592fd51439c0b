"""The data of a report page: an OrderReport, and what happened when, on the common time axis."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from lockstep.order.kinds import Kind
from lockstep.order.report import OrderReport, Violation
from lockstep.order.story import Moment
from lockstep.protocol.model import MessageQueue

__all__ = ["Found", "JudgedRun", "Latency", "OwnerBar", "Rates", "span_of"]

_AT_ONCE: Final = (Kind.OVERLAP, Kind.CONCURRENT_CALLS)


class OwnerBar(NamedTuple):
    """An ownership period, from its first record to its last."""

    group: str
    queue: MessageQueue
    client_id: str
    period: int
    from_ns: int
    to_ns: int
    first_offset: int | None = None  # of the messages that it handled
    last_offset: int | None = None
    attempts: int = 0


class Rates(NamedTuple):
    """Listener calls in bins of equal width. `calls` has only bins with calls: begin -> (calls, repeats of them)."""

    bin_ns: int
    calls: Mapping[int, tuple[int, int]]


class Found(NamedTuple):
    """A finding with its time: a span for calls that overlap, else a point. None: no record of it has a time."""

    violation: Violation
    moments: tuple[Moment, ...]  # the evidence
    span_ns: tuple[int, int] | None


class Latency(NamedTuple):
    """Percentiles of one measure in one queue, in milliseconds. `measure`: "handling" or "lag"."""

    measure: str
    queue: str
    messages: int
    p50_ms: float | None
    p90_ms: float | None
    p99_ms: float | None
    max_ms: float | None


@dataclass(slots=True)
class JudgedRun:
    """One history. `found` has the findings of `report.violations` and `report.undecided` in their order.

    Attributes:
        name: Shown as the heading if a page has several runs.
        files: The names for the commands that show a story.
        waiting: Messages sent and not yet handled: curve name -> (time in ns, messages).
    """

    name: str
    report: OrderReport
    files: Sequence[str] = ("FILE...",)
    owners: Sequence[OwnerBar] = ()
    rates: Rates = field(default_factory=lambda: Rates(1, {}))
    waiting: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)
    found: Sequence[Found] = ()
    latency: Sequence[Latency] = ()


def span_of(kind: Kind, moments: Sequence[Moment]) -> tuple[int, int] | None:
    """The time of a finding: of calls at the same time the time that they share, else the begin of the last record."""
    if not moments:
        return None
    begins = [moment.time_ns - _length_ns(moment) for moment in moments]
    begin, end = max(begins), min(moment.time_ns for moment in moments)
    if kind in _AT_ONCE and len(moments) > 1:
        return (begin, max(begin, end))
    return (begins[-1], begins[-1])


def _length_ns(moment: Moment) -> int:
    """The length of a call; 0 for other records."""
    begin, end = moment.record.get("begin_mono_ns"), moment.record.get("mono_ns")
    return 0 if begin is None or end is None else max(int(end) - int(begin), 0)
