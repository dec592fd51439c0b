"""The tables of an audit as a run of the report page, with the OrderReport that `lockstep trace check` would print."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from lockstep.order import BrokenLine, Cause, Confidence, Handover, Kind, OrderReport, Violation
from lockstep.order.page import Found, JudgedRun, Latency, OwnerBar, Rates
from lockstep.order.page.run import span_of
from lockstep.order.story import Moment
from lockstep.pipeline.report.findings import AuditFindings, Row
from lockstep.protocol.model import MessageQueue

__all__ = ["judged_run"]

_AROUND: Final = re.compile(r"--around (\d+)$")
_ONE_CLOCK_NS: Final = 2_000_000  # times in milliseconds of one clock differ by less from its monotonic clock


def judged_run(findings: AuditFindings, files: Sequence[str] = ("FILE...",)) -> JudgedRun:
    """The data of a page, from the rows of one history.

    Args:
        findings: The rows.
        files: The names of the traces, for the commands that show a story.
    """
    found = [_found(row) for row in (*findings.violations, *findings.undecided)]
    return JudgedRun(
        findings.history,
        _report(findings, [one.violation for one in found]),
        files,
        owners=[_owner(row) for row in findings.owners],
        rates=Rates(
            findings.rate_bin_s * 1_000_000_000,
            {row["second_ms"] * 1_000_000: (row["attempts"], row["repeats"]) for row in findings.rates},
        ),
        waiting=_waiting(findings.lag),
        found=found,
        latency=[
            Latency(row["measure"], str(_queue(row)), row["messages"], *[row[f"{name}_ms"] for name in _PERCENTILES])
            for row in findings.latency
        ],
    )


_PERCENTILES: Final = ("p50", "p90", "p99", "max")


def _report(findings: AuditFindings, found: Iterable[Violation]) -> OrderReport:
    by_kind: dict[bool, dict[Kind, int]] = {False: {}, True: {}}
    for row in findings.kinds:
        by_kind[bool(row["undecided"])][Kind(row["kind"])] = row["findings"]
    undecided = [one for one in found if one.confidence is Confidence.UNDECIDED]
    summary = {name: value or 0 for name, value in findings.summary.items()}
    return OrderReport(
        **{name: summary[name] for name in _COUNTS},
        send_failures={},
        duplicates={Cause(row["cause"]): row["messages"] for row in findings.duplicates},
        handovers=tuple(_handover(row) for row in findings.handovers),
        violations=tuple(one for one in found if one.confidence is not Confidence.UNDECIDED),
        violation_counts=by_kind[False],
        events={},
        undecided=tuple(undecided),
        undecided_counts=by_kind[True],
        broken=tuple(
            BrokenLine(row["file"], row["line"], row.get("why") or "no record")
            for row in findings.broken_lines
            if not row["torn"]
        ),
        unseen=tuple(findings.unseen),
        clocks=tuple(findings.clocks),
    )


_COUNTS: Final = (
    "sent", "handled", "attempts", "dead_lettered", "lost", "before_start", "skipped", "emptied", "queues", "keys",
    "copies", "torn_lines", "broken_lines",
)  # fmt: skip


def _queue(row: Row) -> MessageQueue:
    return MessageQueue(row["topic"] or "", row["broker"] or "", -1 if row["queue_id"] is None else row["queue_id"])


def _handover(row: Row) -> Handover:
    return Handover(
        row["group"],
        _queue(row),
        row["from_client_id"],
        row["to_client_id"],
        row["duration_ms"],
        _ns(row.get("end_ms"), row["at_ms"]),
    )


def _owner(row: Row) -> OwnerBar:
    return OwnerBar(
        row["group"],
        _queue(row),
        row["client_id"],
        row["period"] or 0,
        _ns(row.get("begin_ms"), row["from_ms"]),
        _ns(row.get("end_ms"), row["to_ms"]),
        row["first_offset"],
        row["last_offset"],
        row["attempts"] or 0,
    )


def _ns(exact_ms: float | None, whole_ms: int) -> int:
    """A time in nanoseconds; without the exact one, the whole milliseconds."""
    return whole_ms * 1_000_000 if exact_ms is None else round(exact_ms * 1000) * 1000


def _found(row: Row) -> Found:
    records = [json.loads(text) for text in row.get("records") or ()]
    times = [time_ms for time_ms in row["times_ms"] or () if time_ms is not None]
    around = _AROUND.search(row.get("story") or "")
    violation = Violation(
        Kind(row["kind"]),
        tuple(records) or (_place(row),),
        row["evidence"],
        Confidence(row.get("confidence") or Confidence.CERTAIN),
        row.get("size") or 0,
        int(around[1]) if around else None,
    )
    moments = _moments(records, times) if len(records) == len(times) else ()
    span = span_of(violation.kind, moments)
    if span is None and times:
        begin_ns = _ns(row.get("begin_ms"), times[0])
        span = (begin_ns, begin_ns)
    return Found(violation, moments, span)


def _place(row: Row) -> Mapping[str, Any]:
    """The place of a finding whose records are not in the table, as a record."""
    offsets = [offset for offset in row["offsets"] or () if offset is not None]
    names = ("group", "topic", "broker", "queue_id")
    return {"event": "", **{name: row[name] for name in names if row[name] is not None},
            **({"offset": offsets[0]} if offsets else {})}  # fmt: skip


def _moments(records: Sequence[Mapping[str, Any]], times_ms: Sequence[int]) -> tuple[Moment, ...]:
    """Records with their times: exact against each other where one monotonic clock timed them."""
    known: list[int] = []  # what is added to the monotonic clocks seen so far
    moments = []
    for record, time_ms in zip(records, times_ms, strict=True):
        mono = record.get("mono_ns")
        time_ns = time_ms * 1_000_000
        if mono is not None:
            near = [axis for axis in known if abs(axis + mono - time_ns) < _ONE_CLOCK_NS]
            known += [] if near else [time_ns - mono]
            time_ns = mono + (near or known[-1:])[0]
        moments.append(Moment(time_ns, record))
    return tuple(moments)


def _waiting(rows: Iterable[Row]) -> dict[str, list[tuple[int, int]]]:
    curves: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for row in rows:
        curves[str(_queue(row))].append((row["at_ms"] * 1_000_000, row["lag"]))
    return dict(curves)
