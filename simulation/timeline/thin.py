"""Keeps a timeline small: moments that cannot be told apart on a screen become one, and all of that is counted."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from lockstep.simulation.timeline.model import Kind, Moment, seconds

__all__ = ["MOMENTS_MAX", "Thinned", "thin"]

MOMENTS_MAX: Final = 1500
_FINEST: Final = 1000  # of the whole length: what happens within it is at one place of any screen
_COARSEST: Final = 10
_WIDER: Final = 1.5
_NAMES: Final = {Kind.CALL: "calls", Kind.FAILED: "failed calls", Kind.SEND: "sends", Kind.REFUSE: "refusals",
                 Kind.LOG: "log events"}  # fmt: skip
_CALLS: Final = (Kind.CALL, Kind.FAILED)
_MORE: Final = ", and "
# What is left out in the end if all else was not enough, the first kind first. Of each kind the latest go first.
_LEAST: Final = (
    *(Kind.SEND, Kind.LOG, Kind.REFUSE, Kind.DRAIN, Kind.RELEASE, Kind.EXPIRE, Kind.OWN),
    *(Kind.STOP, Kind.SLEEP, Kind.LEAVE, Kind.CRASH, Kind.LIFE, Kind.FAULT),
)


class Thinned(NamedTuple):
    """Args:
    moments: those with a step.
    drawn: calls that are drawn in their queue, without a step.
    notes: sentences that say what is not shown one by one.
    """

    moments: list[Moment]
    drawn: list[Moment]
    notes: list[str]


def thin(moments: Iterable[Moment], evidence: Collection[object], moments_max: int, length_ms: float) -> Thinned:
    """At most `moments_max` moments.

    Args:
        evidence: references to records of violations; their moments stay as they are.
    """
    kept, rest = list[Moment](), list[Moment]()
    for moment in moments:
        (rest if moment.refs.isdisjoint(evidence) else kept).append(moment)
    room, notes, drawn = max(moments_max - len(kept), 0), list[str](), list[Moment]()
    if len(rest) > room and (renewals := sum(moment.kind is Kind.RENEW for moment in rest)):
        rest = [moment for moment in rest if moment.kind is not Kind.RENEW]
        notes.append(f"{renewals:,} renewals are counted with their period, and not drawn.")
    if len(rest) > room:
        rest = list(_in_one_step(rest))
    merged, span_ms = _fitted(rest, room, length_ms)
    if len(merged) > room:
        drawn = [moment for moment in rest if moment.kind in _CALLS]
        rest = [moment for moment in rest if moment.kind not in _CALLS]
        notes += [f"{len(drawn):,} calls are drawn in their queues, without a step."] if drawn else []
        merged, span_ms = _fitted(rest, room, length_ms)
    before, after = (Counter(moment.kind for moment in some) for some in (rest, merged))
    for kind, name in _NAMES.items():
        if after[kind] < before[kind]:
            within = f"those alike within {seconds(span_ms)} are one"
            notes.append(f"{before[kind]:,} {name} are drawn as {after[kind]:,}: {within}.")
    return Thinned(kept + _cut(merged, room, notes), drawn, notes)


def _fitted(moments: list[Moment], room: int, length_ms: float) -> tuple[list[Moment], float]:
    """The moments with neighbours as one until there is room for them or the neighbours are too far, and how far."""
    merged, span_ms = moments, 0.0
    for kinds in (tuple(_NAMES)[:-1], tuple(_NAMES)):  # log events differ in their details: they are the last
        next_ms = length_ms / _FINEST
        while len(merged) > room and next_ms <= length_ms / _COARSEST:
            span_ms, next_ms = next_ms, next_ms * _WIDER
            merged = _merged(moments, kinds, span_ms)
    return merged, span_ms


def _time(moment: Moment) -> float:
    return moment.at_ms


def _end(moment: Moment) -> float:
    return moment.at_ms if moment.end_ms is None else moment.end_ms


def _in_one_step(moments: Iterable[Moment]) -> Iterator[Moment]:
    """Periods of several queues that begin and end together are one step, drawn in the lane of each queue."""
    alike: dict[object, list[Moment]] = {}
    for moment in moments:
        if moment.kind in (Kind.OWN, Kind.EXPIRE, Kind.RELEASE):
            alike.setdefault((moment.kind, moment.at_ms, moment.end_ms, moment.who, moment.why), []).append(moment)
        else:
            yield moment
    for same in alike.values():
        first, more = same[0], len(same) - 1
        lanes = tuple(lane for moment in same for lane in moment.lanes)
        text = f"{first.text}{_MORE}{more} more" if more else first.text
        yield replace(first, lanes=lanes, text=text, count=len(same))


def _merged(moments: list[Moment], kinds: Collection[Kind], span_ms: float) -> list[Moment]:
    """Neighbours of some kinds that are alike become one of at most `span_ms`.

    What two processes did in turn in one lane stays apart.
    """
    found: list[Moment] = []
    last: dict[tuple[Kind, str], int] = {}  # the latest of a kind in a lane: its place in `found`
    for moment in sorted(moments, key=_time):
        name = (moment.kind, moment.lanes[-1])
        place = last.get(name)
        if moment.kind in kinds and place is not None and _is_alike(found[place], moment, span_ms):
            found[place] = _joined(found[place], moment)
        else:
            last[name] = len(found)
            found.append(moment)
    return found


def _is_alike(one: Moment, other: Moment, span_ms: float) -> bool:
    if (one.lanes, one.who) != (other.lanes, other.who) or _end(other) - one.at_ms > span_ms:
        return False
    return one.kind in (*_CALLS, Kind.SEND) or _first_text(one) == other.text


def _first_text(moment: Moment) -> str:
    return moment.text.partition(_MORE)[0]


def _joined(one: Moment, other: Moment) -> Moment:
    count, end_ms = one.count + other.count, max(_end(one), _end(other))
    text = f"{_first_text(one)}{_MORE}{count - 1:,} more until {seconds(end_ms)}"
    drawn_end_ms = None if one.kind in (Kind.LOG, Kind.REFUSE) else end_ms
    return replace(one, text=text, count=count, end_ms=drawn_end_ms, refs=one.refs | other.refs)


def _cut(moments: list[Moment], room: int, notes: list[str]) -> list[Moment]:
    for kind in _LEAST:
        over = len(moments) - room
        if over > 0 and (alike := [moment for moment in moments if moment.kind is kind]):
            gone = {id(moment) for moment in sorted(alike, key=_time)[-over:]}
            moments = [moment for moment in moments if id(moment) not in gone]
            notes.append(f"The latest {len(gone):,} of {len(alike):,} moments of the kind {kind} are left out.")
    return moments
