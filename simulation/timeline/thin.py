"""Keeps a timeline small: moments that cannot be told apart on a screen become one, and all of that is counted."""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final

from lockstep.simulation.timeline.model import Kind, Moment, seconds

__all__ = ["MOMENTS_MAX", "thin"]

MOMENTS_MAX: Final = 1200
_FINEST: Final = 2000  # of the whole length: calls with less between them are one on any screen
_COARSEST: Final = 20
_NAMES: Final = {
    Kind.CALL: "calls",
    Kind.FAILED: "failed calls",
    Kind.SEND: "sends",
    Kind.REFUSE: "refusals",
    Kind.LOG: "log events",
}
# What is left out in the end if all else was not enough, the first kind first. Of each kind the latest go first.
_LEAST: Final = (
    *(Kind.LOG, Kind.SEND, Kind.CALL, Kind.FAILED, Kind.REFUSE, Kind.DRAIN, Kind.RELEASE, Kind.EXPIRE, Kind.OWN),
    *(Kind.STOP, Kind.SLEEP, Kind.LEAVE, Kind.CRASH, Kind.LIFE, Kind.FAULT),
)


def thin(
    moments: Iterable[Moment], evidence: Collection[object], moments_max: int, length_ms: float
) -> tuple[list[Moment], list[str]]:
    """At most `moments_max` moments, and sentences that say what is not shown one by one.

    Args:
        evidence: references to records of violations; their moments stay as they are.
    """
    refs = frozenset(evidence)
    kept = [moment for moment in moments if moment.refs & refs]
    rest = [moment for moment in moments if not moment.refs & refs]
    notes: list[str] = []
    room = max(moments_max - len(kept), 0)
    if len(rest) > room and (renewals := sum(moment.kind is Kind.RENEW for moment in rest)):
        rest = [moment for moment in rest if moment.kind is not Kind.RENEW]
        notes.append(f"{renewals:,} renewals are counted with their period, and not drawn.")
    gap_ms = length_ms / _FINEST
    before = Counter(moment.kind for moment in rest)
    merged = rest
    while len(merged) > room and gap_ms <= length_ms / _COARSEST:
        merged = _merged(rest, gap_ms)
        gap_ms *= 2
    after = Counter(moment.kind for moment in merged)
    for kind, name in _NAMES.items():
        if after[kind] < before[kind]:
            apart = f"less than {seconds(gap_ms / 2)} apart"
            notes.append(f"{before[kind]:,} {name} are drawn as {after[kind]:,}: those alike {apart} are one.")
    for kind in _LEAST:
        over = len(merged) - room
        if over > 0 and (alike := [moment for moment in merged if moment.kind is kind]):
            gone = {id(moment) for moment in sorted(alike, key=_time)[-over:]}
            merged = [moment for moment in merged if id(moment) not in gone]
            notes.append(f"The latest {len(gone):,} of {len(alike):,} moments of the kind {kind} are left out.")
    return kept + merged, notes


def _time(moment: Moment) -> float:
    return moment.at_ms


def _merged(moments: list[Moment], gap_ms: float) -> list[Moment]:
    """Neighbours that are alike become one, unless another process did something in the same lane between them."""
    found: list[Moment] = []
    last: dict[tuple[Kind, str], int] = {}  # the latest of a kind in a lane: its place in `found`
    for moment in sorted(moments, key=_time):
        lane = moment.lanes[-1]
        place = last.get((moment.kind, lane))
        if moment.kind in _NAMES and place is not None and _is_alike(found[place], moment, gap_ms):
            found[place] = _joined(found[place], moment)
        else:
            last[moment.kind, lane] = len(found)
            found.append(moment)
    return found


def _end(moment: Moment) -> float:
    return moment.at_ms if moment.end_ms is None else moment.end_ms


def _is_alike(one: Moment, other: Moment, gap_ms: float) -> bool:
    if (one.lanes, one.who) != (other.lanes, other.who) or other.at_ms - _end(one) > gap_ms:
        return False
    return one.kind in (Kind.CALL, Kind.FAILED, Kind.SEND) or _first_text(one) == other.text


def _first_text(moment: Moment) -> str:
    return moment.text.partition(_MORE)[0]


_MORE: Final = ", and "


def _joined(one: Moment, other: Moment) -> Moment:
    count, end_ms = one.count + other.count, max(_end(one), _end(other))
    text = f"{_first_text(one)}{_MORE}{count - 1:,} more until {seconds(end_ms)}"
    drawn_end_ms = None if one.kind in (Kind.LOG, Kind.REFUSE) else end_ms
    return replace(one, text=text, count=count, end_ms=drawn_end_ms, refs=one.refs | other.refs)
