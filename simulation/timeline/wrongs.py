"""The violations of a run, linked to the moments with their records."""

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from lockstep.order import Kind, Record
from lockstep.order.report import Violation
from lockstep.simulation.lab.findings import Finding
from lockstep.simulation.timeline.evidence import Evidence
from lockstep.simulation.timeline.model import Kind as Shown
from lockstep.simulation.timeline.model import Lane, LaneKind, Moment, Wrong
from lockstep.simulation.timeline.processes import at_ms, queue_of, record_ref

__all__ = ["Named", "named_records", "record_moments", "wrongs"]

_AROUND_MS: Final = 1.0
_AROUND_MAX: Final = 2
_PATH: Final = r"^(.+)/(.+)/(\d+)$"
_QUEUE: Final = re.compile(r"[^\s:]+@[^\s:]+:\d+")  # as a MessageQueue is written in a text


class Named(NamedTuple):
    """A violation and the records that it names."""

    at_ms: float
    kind: str
    text: str
    queue: str  # empty: none
    records: tuple[Record, ...]


def named_records(evidence: Evidence) -> list[Named]:
    """All violations in the order of time."""
    found = [_of_judge(violation, evidence.elapsed_ms) for violation in evidence.violations]
    by_client: dict[str, list[Record]] = {}
    for records in evidence.records.values():
        for record in records:
            by_client.setdefault(str(record.get("client_id")), []).append(record)
    found += [_of_lab(finding, by_client) for finding in evidence.findings]
    found = [one._replace(text=evidence.named(one.text)) for one in found]
    return sorted(found, key=lambda one: (one.at_ms, one.kind, one.text))


def _of_judge(violation: Violation, run_end_ms: float) -> Named:
    records = tuple(record for record in violation.evidence if "mono_ns" in record)
    time_ms = max(map(at_ms, records), default=run_end_ms)
    queue = next((str(name[1]) for name in map(queue_of, reversed(records)) if name is not None), "")
    return Named(time_ms, str(violation.kind), violation.sentence, queue, records)


def _of_lab(finding: Finding, by_client: dict[str, list[Record]]) -> Named:
    records = tuple(
        by_client[client][number]
        for client, number in finding.evidence
        if client in by_client and 0 <= number < len(by_client[client])
    )
    named = _QUEUE.search(finding.text)
    queue = re.sub(_PATH, r"\1@\2:\3", finding.queue) if finding.queue else named[0] if named else ""
    is_of_judge = records and finding.kind in set(Kind)  # it finds at the end what was before
    time_ms = max(map(at_ms, records)) if is_of_judge else finding.at_ms
    return Named(time_ms, str(finding.kind), finding.text, queue, records)


def record_moments(
    named: Iterable[Named], moments: Iterable[Moment], lanes: Sequence[Lane], evidence: Evidence
) -> list[Moment]:
    """Marks for records of violations that no moment stands for, such as commits and positions."""
    known = {ref for moment in moments for ref in moment.refs}
    queues = {lane.key: lane for lane in lanes if lane.kind is LaneKind.QUEUE}
    hosts = {lane.key for lane in lanes if lane.kind is not LaneKind.QUEUE}
    found: dict[object, Moment] = {}
    for violation in named:
        for record in violation.records:
            ref = record_ref(record)
            if ref in known or ref in found:
                continue
            name = queue_of(record)
            queue = queues.get(f"{name[0]} {name[1]}") if name is not None else None
            client_id = str(record.get("client_id", ""))
            host = evidence.host_of(client_id) if client_id else str(record.get("broker", ""))
            own = (host,) if host in hosts else ()
            shown = ((queue.key,) if queue is not None else ()) + own
            if shown:
                text = _sentence(host, record, queue)
                found[ref] = Moment(
                    at_ms(record), Shown.RECORD, shown, host if own else "", text, refs=frozenset((ref,))
                )
    return list(found.values())


def _sentence(host: str, record: Record, queue: Lane | None) -> str:
    offset = f" offset {record['offset']}" if "offset" in record else ""
    return f"{host} recorded: {str(record['event']).replace('_', ' ')}{offset}" + (f", {queue.name}" if queue else "")


def wrongs(named: Iterable[Named], moments: Sequence[Moment]) -> list[Wrong]:
    """Violations with the numbers of their moments."""
    by_ref = {ref: moment.number for moment in moments for ref in moment.refs}
    found = []
    for one in named:
        steps = list(dict.fromkeys(by_ref[ref] for ref in map(record_ref, one.records) if ref in by_ref))
        around = not steps
        if around:
            at_once = [moment.number for moment in moments if _is_around(moment, one)]
            before = [moment.number for moment in moments if _is_owner_before(moment, one)]
            steps = (at_once or before)[-_AROUND_MAX:]
        chosen = [moment for moment in moments if moment.number in steps and _is_of_queue(moment, one)]
        lane = next((lane for moment in chosen for lane in moment.lanes if lane.endswith(f" {one.queue}")), "")
        found.append(Wrong(one.at_ms, one.kind, one.text, lane, tuple(sorted(steps)), around and bool(steps)))
    return found


def _is_of_queue(moment: Moment, one: Named) -> bool:
    return bool(one.queue) and any(lane.endswith(f" {one.queue}") for lane in moment.lanes)


def _is_around(moment: Moment, one: Named) -> bool:
    """Whether a call runs, or a lock changes, on the queue of a violation at its time."""
    if not _is_of_queue(moment, one) or moment.kind is Shown.RENEW:
        return False
    is_call = moment.kind in (Shown.CALL, Shown.FAILED)
    end_ms = moment.end_ms if moment.end_ms is not None and is_call else moment.at_ms
    return moment.at_ms - _AROUND_MS <= one.at_ms <= end_ms + _AROUND_MS


def _is_owner_before(moment: Moment, one: Named) -> bool:
    return moment.kind is Shown.OWN and moment.at_ms <= one.at_ms and _is_of_queue(moment, one)
