"""Faults as sentences of the domain."""

from collections.abc import Iterable
from typing import Final

from lockstep.simulation.lab.cluster import BROKER
from lockstep.simulation.lab.experiment import FaultEvent
from lockstep.simulation.lab.faults.by_name import FAULTS
from lockstep.simulation.lab.findings import Band

__all__ = ["end_words", "event_words", "fault_words", "is_known", "named", "seconds"]

_ONE_SIDED: Final = ("cut-one-side", "cut at the member", "cut at the broker")  # the first host is the one that hears
_HOLDS: Final = ("hold", "hold to the broker", "hold to the member")  # the first host is the sender
# Fault -> what happened. {a}: its host, {b}: the other one, {for_}: " for 61.2 s", {again}: when it started again.
_WORDS: Final = {
    "join": "{a} joined the group",
    "leave": "{a} was shut down{again}",
    "crash": "{a}'s process was killed",
    **dict.fromkeys(("kill", "restart", "broker kill"), "{a}'s process was killed{again}"),
    **dict.fromkeys(("power off", "power-off", "broker power cut"), "{a}'s machine lost its power{again}"),
    **dict.fromkeys(("broker stop", "restart-broker"), "{a} was shut down{again}"),
    **dict.fromkeys(("stall", "broker stall"), "{a} was stopped{for_} (SIGSTOP)"),
    **dict.fromkeys(("clock", "broker clock"), "{a}'s clock was set, and its process started again"),
    "broker table lost": "{a}'s process was killed, its file of locks was lost{again}",
    "sleep": "{a}'s machine slept{for_}",
    "drift": "the clocks of {a} ran at a wrong speed{for_}",
    "slow-cpu": "each callback of {a} took long{for_}",
    "slow-disk": "{a}'s disk was slow{for_}",
    "hang-disk": "no sync of {a}'s disk ended{for_}",
    "cut": "the connections between {a} and {b} were cut",
    **dict.fromkeys(_ONE_SIDED, "the connections between {a} and {b} ended at {a}; {b} did not hear of it"),
    "partition": "no bytes passed between {a} and {b}{for_}",
    **dict.fromkeys(_HOLDS, "nothing that {a} sent reached {b}{for_}"),
    "slow answers": "the answers of {b} reached {a} late, and then not at all{for_}",
    "slow": "all bytes between {a} and {b} were late{for_}",
    "late": "all bytes from {a} to {b} were late{for_}",
    "jitter": "the delay between {a} and {b} changed again and again{for_}",
    "slow-link": "{a} could send few bytes a second to {b}{for_}",
    "nat": "idle connections between {a} and {b} were forgotten{for_}; neither side heard of it",
    "nat-reset": "idle connections between {a} and {b} were forgotten{for_}; the next sender got a reset",
    "stale-routes": "{a} answered old routes{for_}",
    "reset": "an administrator moved the group's offsets back",
    "busy": "{a} refused some requests unread, because it was busy{for_}",
    "full": "the store of {a} refused some messages{for_}",
    "close": "something between {a} and {b} closed their connections; what was under way still arrived",
}
_STAYS_DOWN: Final = "{a} stayed down{again}"
_END_WORDS: Final = {
    **dict.fromkeys(("stall", "sleep", "broker stall"), "{a} went on"),
    "partition": "bytes passed between {a} and {b} again",
    **dict.fromkeys(_HOLDS, "what {a} had sent went on to {b}"),
    "slow answers": "the answers of {b} reached {a} again",
}
_STOPS: Final = ("stall", "sleep", "broker stall")
_ENDS_PROCESS: Final = (
    *("leave", "crash", "kill", "restart", "broker kill", "power off", "power-off", "broker power cut", "broker stop"),
    *("restart-broker", "clock", "broker clock", "broker table lost"),
)


def is_known(fault: str) -> bool:
    """Whether there is a fault with this name in some world."""
    return fault in _WORDS


def named(host: str) -> str:
    """A host in a sentence."""
    return f"the {host}" if host == BROKER else host


def seconds(duration_ms: int) -> str:
    """A duration as people say it."""
    return f"{duration_ms} ms" if duration_ms < 1000 else f"{duration_ms / 1000:.1f} s"


def event_words(event: FaultEvent) -> str:
    """A fault as it was planned: its name, its hosts, how long, how much."""
    if event.fault.startswith("broker ") or event.fault == "reset":  # of a world: its name has the host already
        return f"{event.fault} {event.duration_ms} ms"
    hosts = f"{event.target}-{event.other}" if event.other else event.target
    kind = FAULTS[event.fault].amount if event.fault in FAULTS else None
    amount = f" {kind.text(event.amount)}" if kind is not None and event.amount else ""
    return f"{event.fault} {hosts} {event.duration_ms} ms{amount}"


def fault_words(band: Band) -> str:
    """What a fault did, as it was played."""
    lasted = "" if band.end_ms is None else seconds(band.end_ms - band.at_ms)
    a, b = named(band.target), named(band.other)
    words = _WORDS.get(band.fault, f"{band.fault}: {' and '.join(filter(None, (a, b)))}{{for_}}")
    return (_STAYS_DOWN if band.was_down else words).format(
        a=a, b=b, for_=f" for {lasted}" if lasted else "", again=f", and started again after {lasted}" if lasted else ""
    )


def end_words(band: Band, bands: Iterable[Band]) -> str:
    """What the end of a fault changed; empty: nothing, or its words say it already.

    Args:
        bands: all that were played: another one may last longer, or have ended the process meanwhile.
    """
    if any(_hides_the_end(other, band) for other in bands if other is not band):
        return ""
    return _END_WORDS.get(band.fault, "").format(a=named(band.target), b=named(band.other))


def _hides_the_end(other: Band, band: Band) -> bool:
    assert band.end_ms is not None
    if band.fault in _STOPS and other.fault in _ENDS_PROCESS and other.target == band.target:
        return band.at_ms <= other.at_ms < band.end_ms
    lasts = other.at_ms <= band.end_ms and (other.end_ms is None or other.end_ms > band.end_ms)
    return lasts and not _stopped_by(band).isdisjoint(_stopped_by(other))


def _stopped_by(band: Band) -> set[tuple[str, str]]:
    """What stands still while a fault lasts: a host, or the bytes from one host to another."""
    there, back = (band.target, band.other), (band.other, band.target)
    if band.fault in _STOPS:
        return {(band.target, "")}
    if band.fault == "partition":
        return {there, back}
    return {there} if band.fault in _HOLDS else {back} if band.fault == "slow answers" else set()
