"""The first reading of traces: the facts that the judge of one queue needs about all the others.

Each trace is surveyed alone, so a cluster can survey many at once; `gather` joins the results. Lines that tell nothing
new are not decoded: of most `handled` and `sent` records only the time matters here.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from lockstep.order.judge.activity import Activity, Spans
from lockstep.order.judge.members import Member, Members
from lockstep.order.traces.clocks import (
    WALL_SKEW_MS,
    Causes,
    Clocks,
    Stretches,
    cause_edges,
    going_back,
    number_clocks,
    reboot_edges,
)
from lockstep.order.traces.format import QUEUE_EVENTS, TIME_MOST_NS
from lockstep.order.traces.reader import Record, TraceFile

__all__ = ["Facts", "Restart", "Trace", "TraceSurvey", "gather", "survey"]

_SEGMENTS_MAX: Final = 1000
_BEGIN: Final = b'{"event":'
_BULK: Final = (b'{"event":"handled",', b'{"event":"sent",')
_MONO: Final = b'"mono_ns":'
_WALL: Final = b'"wall_ms":'
_TOPIC: Final = b'"topic":"'
# Bytes from the start of a line to the end of `mono_ns`.
_HEAD_MAX: Final = 90


class Trace(Protocol):
    """The records of one process in the order of writing. It can be iterated more than once."""

    def __iter__(self) -> Iterator[Record]: ...


class Restart(NamedTuple):
    """A broker came back with an empty store; `broker` None: every broker."""

    at_ns: int
    source: int
    broker: str | None


class _Known(NamedTuple):
    """What lines say that have one segment: from behind `mono_ns` to the end of the topic."""

    spans: Spans
    member: Member | None
    group: str


class TraceSurvey:
    """The survey of one trace. Pass it all records, or those of the lines that it `needs`."""

    def __init__(self) -> None:
        self.stretches = Stretches()
        self.causes = Causes()
        self.spans: dict[tuple[str, int], Spans] = {}  # client, stretch
        self.members: dict[tuple[str, str, int], Member] = {}  # client, group, stretch
        self.grants: dict[tuple[str, str], int] = {}  # group, client: the lowest granted period
        self.unordered: set[str] = set()
        self.popped: set[str] = set()
        self.took_part: set[tuple[str, str]] = set()
        self.sent_topics: set[str] = set()
        self.restarts: list[tuple[int, int, str | None]] = []  # stretch, time, broker
        self.senders: set[str | None] = set()
        self.closings: list[tuple[int, int, str, str | None]] = []  # stretch, time, client, group
        self.first_wall_ms: int | None = None
        self._segments: dict[bytes, _Known] = {}  # of the newest stretch
        self._stretch = -1
        self._segment = b""  # of the line that is read now, and may be no record

    def note(self, record: Record) -> None:
        """Take the next record."""
        number = self.stretches.of(record)
        mono = record.get("mono_ns")
        now_ns = record["wall_ms"] * 1_000_000 if mono is None else mono
        event, client_id = record["event"], record.get("client_id")
        self.causes.note(record, number, now_ns)
        if self.first_wall_ms is None:
            self.first_wall_ms = record["wall_ms"]
        if event == "broker_restarted":
            self.restarts.append((number, now_ns, record.get("broker")))
        elif event in ("sent", "send_failed"):
            self.senders.add(client_id)
            if event == "sent":
                self.sent_topics.add(record["topic"])
        if client_id is None:
            return
        if event == "closed":
            self.closings.append((number, now_ns, client_id, record.get("group")))
        spans = self.spans.get((client_id, number))
        if spans is None:
            spans = self.spans[client_id, number] = Spans()
        spans.note(now_ns)
        member = self._consumer(record, client_id, number, now_ns) if event in QUEUE_EVENTS else None
        if self._stretch != number:
            self._stretch = number
            self._segments.clear()
        if self._segment and mono is not None:
            if len(self._segments) >= _SEGMENTS_MAX:
                self._segments.clear()
            self._segments[self._segment] = _Known(spans, member, record.get("group", ""))
            self._segment = b""

    def _consumer(self, record: Record, client_id: str, stretch: int, now_ns: int) -> Member:
        group = record["group"]
        self.took_part.add((group, record["topic"]))
        if record["event"] == "acquired":
            period = record.get("period", 0)
            self.grants[group, client_id] = min(period, self.grants.get((group, client_id), period))
        elif record["event"] == "delivered":
            self.popped.add(group)
        elif record.get("ordering") == "none":
            self.unordered.add(group)
        member = self.members.get((client_id, group, stretch))
        if member is None:
            member = self.members[client_id, group, stretch] = Member(
                client_id, group, stretch, 0, record, now_ns, now_ns
            )
        member.last_ns = now_ns
        return member

    def needs(self, line: bytes) -> bool:
        """Whether a line must be decoded. If not, its times are noted here."""
        self._segment = b""
        if not line.startswith(_BULK) or line.find(_BEGIN, 1) > 0:
            # Behind a torn line another clock may begin.
            return True
        start = line.find(_MONO, 18, _HEAD_MAX) + 10
        end = line.find(b",", start)
        topic = line.find(_TOPIC, end) + 9
        if start < 10 or topic < 9:
            return True
        segment = line[:16] + line[end : line.find(b'"', topic)]
        known = self._segments.get(segment)
        if known is None or (known.member is not None and self._is_news(line, known.group)):
            if b'"client_id":' in segment and b'"group":' in segment and b"\\" not in segment:
                self._segment = segment
            return True
        try:
            mono = int(line[start:end])
            place = line.find(_WALL, 0, start) + 10
            wall_ns = int(line[place : line.find(b",", place)]) * 1_000_000
        except ValueError:
            return True
        if not (-TIME_MOST_NS <= mono <= TIME_MOST_NS and self.stretches.follows(mono, wall_ns)):
            return True
        known.spans.note(mono)
        if known.member is not None:
            known.member.last_ns = mono
        return False

    def forget(self) -> None:
        """Drop what only `needs` uses, before the survey is sent to another process."""
        self._segments.clear()

    def _is_news(self, line: bytes, group: str) -> bool:
        return b'"ordering":"none"' in line and group not in self.unordered


@dataclass(slots=True)
class Facts:
    """What is known of a whole history before its queues are judged.

    Attributes:
        grants: The lowest granted period of each client, by group.
        unordered: The groups with concurrent consumption.
        popped: The groups that pop: they are judged by deliveries.
        took_part: (group, topic) of the clients' records: only these are judged.
        sent_topics: The topics whose messages are known.
        restarts: When brokers came back with empty stores, in the order of time.
        senders_closed: Whether every producer closed its trace in an orderly shutdown.
    """

    clocks: Clocks
    activity: Activity = field(default_factory=Activity)
    grants: defaultdict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    unordered: set[str] = field(default_factory=set)
    popped: set[str] = field(default_factory=set)
    took_part: set[tuple[str, str]] = field(default_factory=set)
    sent_topics: set[str] = field(default_factory=set)
    restarts: list[Restart] = field(default_factory=list)
    senders_closed: bool = True
    members: Members = field(init=False)

    def __post_init__(self) -> None:
        self.members = Members(self.clocks)

    def restarts_of(self, broker: str) -> list[Restart]:
        """When the store of a broker was emptied."""
        return [one for one in self.restarts if one.broker in (None, broker)]


def survey(traces: Sequence[Iterable[Record]], wall_skew_ms: int = WALL_SKEW_MS) -> Facts:
    """Read all traces once. Raises OSError."""
    return gather([_surveyed(trace) for trace in traces], wall_skew_ms)


def _surveyed(trace: Iterable[Record]) -> TraceSurvey:
    found = TraceSurvey()
    for record in trace.records(found.needs) if isinstance(trace, TraceFile) else trace:
        found.note(record)
    return found


def gather(
    traces: Sequence[TraceSurvey],
    wall_skew_ms: int = WALL_SKEW_MS,
    edges: dict[tuple[int, int], int] | None = None,
) -> Facts:
    """Join the surveys of all traces.

    Args:
        traces: In the order of their numbers.
        wall_skew_ms: The largest assumed difference of two machines' wall clocks.
        edges: The result of `cause_edges` for these traces. None: it is called here.
    """
    divided = [one.stretches for one in traces]
    numbered, of_stretch = number_clocks(divided)
    if edges is None:
        edges = cause_edges([one.causes for one in traces], of_stretch) if len(numbered) > 1 else {}
    reboots = reboot_edges(divided, of_stretch)
    for pair, least in reboots.items():
        edges[pair] = max(least, edges.get(pair, least))
    clocks = Clocks(numbered, of_stretch, edges, wall_skew_ms, going_back(divided, of_stretch), reboots.keys())
    facts = Facts(clocks)
    spans: list[tuple[str, int, Spans]] = []
    members: dict[tuple[str, str, int, int], Member] = {}
    closings: list[tuple[int, int, int, int, str, str | None]] = []
    senders: set[str | None] = set()
    for source, one in enumerate(traces):
        axes = [clocks.axis_ns[clock] for clock in of_stretch[source]]
        spans += [(client_id, axes[stretch], known) for (client_id, stretch), known in one.spans.items()]
        for (group, client_id), period in one.grants.items():
            facts.grants[group][client_id] = min(period, facts.grants[group].get(client_id, period))
        facts.unordered |= one.unordered
        facts.popped |= one.popped
        facts.took_part |= one.took_part
        facts.sent_topics |= one.sent_topics
        facts.restarts += [Restart(now_ns + axes[stretch], source, broker) for stretch, now_ns, broker in one.restarts]
        for (client_id, group, stretch), each in one.members.items():
            each.clock, each.source = of_stretch[source][stretch], source
            known_too = members.setdefault((client_id, group, each.clock, source), each)
            known_too.last_ns = each.last_ns
        senders |= one.senders
        for stretch, now_ns, client_id, of_group in one.closings:
            closings.append((now_ns + axes[stretch], source, of_stretch[source][stretch], now_ns, client_id, of_group))
    # A copy of the record is no second restart.
    unique: dict[tuple[int, str | None], Restart] = {}
    for restart in sorted(facts.restarts, key=lambda restart: restart[:2]):
        unique.setdefault((restart.at_ns, restart.broker), restart)
    facts.restarts = [*unique.values()]
    facts.activity = Activity.of(spans)
    facts.members = Members(clocks, members.values())
    for at_ns, source, clock, now_ns, client_id, of_group in sorted(closings, key=lambda closing: closing[:2]):
        facts.activity.closed_ns.setdefault(client_id, at_ns)
        facts.members.closed(client_id, of_group, source, clock, now_ns)
    facts.senders_closed = senders <= facts.activity.closed_ns.keys()
    return facts
