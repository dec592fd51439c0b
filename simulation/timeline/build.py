"""Makes the timeline of a run from its evidence."""

from collections.abc import Iterator

from lockstep.protocol.epochs import boot_of
from lockstep.simulation.timeline.evidence import Evidence, Role
from lockstep.simulation.timeline.model import Kind, Lane, LaneKind, Moment, Timeline, numbered, seconds
from lockstep.simulation.timeline.ownership import ownership, queue_lanes
from lockstep.simulation.timeline.processes import calls, lives, logged, queue_of, record_ref, sends
from lockstep.simulation.timeline.thin import MOMENTS_MAX, thin
from lockstep.simulation.timeline.wrongs import named_records, record_moments, wrongs

__all__ = ["timeline_of"]

_OF_CONSUMER = ("acquired", "handled")
FAULTS = Lane("*", LaneKind.FAULTS, "faults")  # no host has this name


def timeline_of(evidence: Evidence, moments_max: int = MOMENTS_MAX) -> Timeline:
    """The timeline of a run.

    Args:
        moments_max: what is beyond it is drawn as one with its neighbours, or left out; `thinned` says how much.
    """
    evidence.boots = sorted({boot_of(change.epoch) for change in evidence.locks if change.epoch})
    hosts = {host: _host_lane(host, evidence) for host in _hosts(evidence)}
    names = {(change.group, change.queue): None for change in evidence.locks}
    for records in evidence.records.values():
        names.update({name: None for record in records if record["event"] == "handled" and (name := queue_of(record))})
    queues = queue_lanes(list(names))
    faults = [FAULTS] if evidence.bands or evidence.error else []
    lanes = _in_order([*faults, *hosts.values(), *queues.values()], evidence)
    moments = [
        *_faults(evidence, set(hosts)),
        *lives(evidence, hosts),
        *calls(evidence, hosts, queues),
        *sends(evidence, hosts),
        *logged(evidence, hosts),
        *ownership(evidence, queues),
    ]
    named = named_records(evidence)
    moments += record_moments(named, moments, lanes, evidence)
    refs = {record_ref(record) for one in named for record in one.records}
    thinned = thin(moments, refs, moments_max, evidence.elapsed_ms)
    ordered = numbered(thinned.moments, lanes)
    return Timeline(
        evidence.label,
        max(float(evidence.elapsed_ms), 1.0),
        lanes,
        ordered,
        wrongs(named, ordered),
        [lane.key for lane in lanes if lane.kind in (LaneKind.PROCESS, LaneKind.BROKER)],
        [(key, str(value)) for key, value in evidence.settings.items()],
        _notes(evidence),
        thinned.drawn,
        thinned.notes,
    )


def _hosts(evidence: Evidence) -> list[str]:
    """The hosts on which something ran."""
    active = {*evidence.roles, *evidence.records, *(line.host for line in evidence.log)}
    return [host for host in dict.fromkeys(change.host for change in evidence.hosts) if host in active]


def _role(host: str, evidence: Evidence) -> Role:
    """A consumer that an application made itself is known by its records."""
    if host not in evidence.roles and any(one["event"] in _OF_CONSUMER for one in evidence.records.get(host, ())):
        return Role.CONSUMER
    return evidence.roles.get(host, Role.OTHER)


def _host_lane(host: str, evidence: Evidence) -> Lane:
    role = _role(host, evidence)
    kind = LaneKind.BROKER if role in (Role.BROKER, Role.NAME_SERVER) else LaneKind.PROCESS
    return Lane(host, kind, host, "" if role is Role.OTHER or host == str(role) else str(role))


def _in_order(lanes: list[Lane], evidence: Evidence) -> list[Lane]:
    """Faults, brokers, consumers, other clients, queues; queues are sorted already."""
    kinds, roles = list(LaneKind), list(Role)

    def place(lane: Lane) -> tuple[int, int, str]:
        role = _role(lane.key, evidence)
        return kinds.index(lane.kind), roles.index(role), "" if lane.kind is LaneKind.QUEUE else lane.key

    return sorted(lanes, key=place)


def _faults(evidence: Evidence, hosts: set[str]) -> Iterator[Moment]:
    for band in evidence.bands:
        ends = [name for name in (band.target, band.other) if name]
        text = f"fault: {band.fault}" + (f" {' and '.join(ends)}" if ends else "")
        text += f" = {band.amount}" if band.amount else ""
        why = f"for {seconds(band.end_ms - band.at_ms)}" if band.end_ms is not None and band.end_ms > band.at_ms else ""
        lanes = (FAULTS.key, *(name for name in ends if name in hosts))
        yield Moment(band.at_ms, Kind.FAULT, lanes, band.target, text, why, band.end_ms)
    if evidence.error:
        yield Moment(evidence.elapsed_ms, Kind.ERROR, (FAULTS.key,), "", "the run ended before its end", evidence.error)


def _notes(evidence: Evidence) -> list[str]:
    notes = [f"The run ended before its end: {evidence.error}"] if evidence.error else []
    if evidence.allowed:
        notes.append(
            f"The judge of order found {evidence.allowed:,} more, which are no violations here: a fence keeps late "
            "calls and commits without effect, or the experiment lost the messages on purpose."
        )
    return notes
