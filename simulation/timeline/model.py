"""The timeline of a run as plain data: lanes, and moments in them, in the order of time. Each moment is one step."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

__all__ = ["Kind", "Lane", "LaneKind", "Moment", "Timeline", "Wrong", "numbered", "seconds"]


class LaneKind(StrEnum):
    """What a lane is about, in the order from top to bottom."""

    FAULTS = "faults"
    BROKER = "broker"
    PROCESS = "process"
    QUEUE = "queue"


@dataclass(frozen=True)
class Lane:
    """A row. `key` tells it apart; a process has its host's name, and a queue its full name."""

    key: str
    kind: LaneKind
    name: str
    note: str = ""


class Kind(StrEnum):
    """What a moment is. Spans have an end; marks have none."""

    FAULT = "fault"  # span in the lane of faults
    LIFE = "life"  # a process runs
    STOP = "stop"  # SIGSTOP
    SLEEP = "sleep"  # of the machine
    CRASH = "crash"
    LEAVE = "leave"
    CALL = "call"  # listener calls, in the lanes of their process and their queue
    FAILED = "failed call"  # whose messages are delivered again
    SEND = "send"
    OWN = "own"  # a period of ownership of a queue
    DRAIN = "drain"  # the rest of a period: a lock delay
    RENEW = "renew"
    EXPIRE = "expire"
    RELEASE = "release"
    REFUSE = "refuse"
    RECORD = "record"  # another record of a trace, evidence of a violation
    LOG = "log"
    ERROR = "error"  # the run ended before its end


@dataclass(frozen=True)
class Moment:
    """Something that happened.

    Args:
        end_ms: None for a mark.
        lanes: keys of the lanes that show it, the main one first.
        who: the process that it is about, by the name of its host; it gives the colour.
        text, why: what happened, and the reason or details, for people.
        refs: the records of traces that it stands for, as `record_ref` names them.
        count: how many alike it stands for, when they are drawn as one.
    """

    at_ms: float
    kind: Kind
    lanes: tuple[str, ...]
    who: str
    text: str
    why: str = ""
    end_ms: float | None = None
    refs: frozenset[object] = frozenset()
    count: int = 1
    number: int = 0


@dataclass(frozen=True)
class Wrong:
    """A violation. `steps`: the numbers of the moments with its records, the oldest first.

    `around`: these are no records that it names, but what happened on its queue just then.
    """

    at_ms: float
    kind: str
    text: str
    lane: str = ""
    steps: tuple[int, ...] = ()
    around: bool = False


@dataclass(frozen=True)
class Timeline:
    """One run.

    Args:
        processes: names of hosts that have a colour, in the order of their lanes.
        notes: sentences about the run: its error, what is not shown.
        drawn: calls without a step.
        thinned: how many moments of a kind are not shown one by one, as sentences.
    """

    label: str
    length_ms: float
    lanes: Sequence[Lane]
    moments: Sequence[Moment]
    wrongs: Sequence[Wrong] = ()
    processes: Sequence[str] = ()
    settings: Sequence[tuple[str, str]] = ()
    notes: Sequence[str] = ()
    drawn: Sequence[Moment] = ()
    thinned: Sequence[str] = field(default=())


_ORDER: Final = {kind: number for number, kind in enumerate(Kind)}


def numbered(moments: Iterable[Moment], lanes: Sequence[Lane]) -> list[Moment]:
    """Moments in the order of time, with numbers; those of one instant in the order of their lanes."""
    places = {lane.key: number for number, lane in enumerate(lanes)}
    ordered = sorted(moments, key=lambda one: (one.at_ms, _ORDER[one.kind], places[one.lanes[0]], one.text))
    return [replace(moment, number=number) for number, moment in enumerate(ordered, 1)]


def seconds(time_ms: float) -> str:
    """ "61.204 s"."""
    return f"{time_ms / 1000:,.3f} s"
