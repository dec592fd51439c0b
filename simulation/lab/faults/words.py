"""Faults as sentences of the domain, for a fault of any experiment."""

from collections.abc import Iterable

from lockstep.simulation.lab.durations import duration_words
from lockstep.simulation.lab.faults.fault import Fault, Halts, Lasts
from lockstep.simulation.lab.faults.table import FAULTS, fault_named
from lockstep.simulation.lab.findings import Band
from lockstep.simulation.lab.hosts import BROKER
from lockstep.simulation.lab.said import Said, say
from lockstep.simulation.lab.setup import FaultEvent

__all__ = ["begin_sentence", "end_sentence", "end_words", "event_words", "fault_words", "named"]

_STAYS_DOWN = "{a} stayed down{again}"
_UNKNOWN = Fault("")


def named(host: str) -> str:
    """A host in a sentence."""
    return f"the {host}" if host == BROKER else host


def event_words(event: FaultEvent) -> str:
    """A fault as it was planned: its name, its hosts, how long, how much."""
    if event.fault.startswith("broker ") or event.fault == "reset":  # of a world: its name has the host already
        return f"{event.fault} {event.duration_ms} ms"
    hosts = f"{event.target}-{event.other}" if event.other else event.target
    kind = FAULTS[event.fault].amount if event.fault in FAULTS else None
    amount = f" {kind.text(event.amount)}" if kind is not None and event.amount else ""
    fault = FAULTS.get(event.fault)
    endless = fault is not None and fault.lasts is Lasts.UNTIL_ENDED and not event.duration_ms
    return f"{event.fault} {hosts} {'until it is ended' if endless else f'{event.duration_ms} ms'}{amount}"


def begin_sentence(band: Band) -> Said:
    """A fault that begins: its name, its hosts, and what it is."""
    amount, summary = f" = {band.amount}" if band.amount else "", _row(band).summary
    fault = f"{_name_and_hosts(band)}{amount}"
    if summary:
        return say("{fault}. {what}", fault=fault, what=summary)
    return say("{fault}: {what}.", fault=fault, what=fault_words(band))


def end_sentence(band: Band) -> Said:
    return say("{fault} is over.", fault=_name_and_hosts(band))


def _name_and_hosts(band: Band) -> str:
    return f"{band.fault} {band.target} - {band.other}" if band.other else f"{band.fault} {band.target}"


def fault_words(band: Band) -> Said:
    """What a fault did, as it was played."""
    lasted = "" if band.end_ms is None else duration_words(band.end_ms - band.at_ms)
    a, b = named(band.target), named(band.other)
    fault = fault_named(band.fault)
    did = fault.did if fault is not None else f"{band.fault}: {' and '.join(filter(None, (a, b)))}{{for_}}"
    for_ = say(" for {lasted}", lasted=lasted) if lasted else ""
    again = say(", and started again after {lasted}", lasted=lasted) if lasted else ""
    return say(_STAYS_DOWN if band.was_down else did, a=a, b=b, for_=for_, again=again)


def end_words(band: Band, bands: Iterable[Band]) -> str:
    """What the end of a fault changed; empty: nothing, or its words say it already.

    Args:
        bands: all that were played: another one may last longer, or have ended the process meanwhile.
    """
    if any(_hides_the_end(other, band) for other in bands if other is not band):
        return ""
    return _row(band).ended.format(a=named(band.target), b=named(band.other))


def _row(band: Band) -> Fault:
    return fault_named(band.fault) or _UNKNOWN


def _hides_the_end(other: Band, band: Band) -> bool:
    assert band.end_ms is not None
    if _row(band).halts is Halts.HOST and _row(other).ends_process and other.target == band.target:
        return band.at_ms <= other.at_ms < band.end_ms
    lasts = other.at_ms <= band.end_ms and (other.end_ms is None or other.end_ms > band.end_ms)
    return lasts and not _stopped_by(band).isdisjoint(_stopped_by(other))


def _stopped_by(band: Band) -> set[tuple[str, str]]:
    """What stands still while a fault lasts: a host, or the bytes from one host to another."""
    there, back = (band.target, band.other), (band.other, band.target)
    match _row(band).halts:
        case Halts.HOST:
            return {(band.target, "")}
        case Halts.BOTH_WAYS:
            return {there, back}
        case Halts.THERE:
            return {there}
        case Halts.BACK:
            return {back}
    return set()
