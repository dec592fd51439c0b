"""Which processes consumed in each group, from when to when, and which of them ended in an orderly shutdown."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from lockstep.order.judge.ownership import name_of
from lockstep.order.judge.period import stamp_ns
from lockstep.order.kinds import Confidence, Kind
from lockstep.order.report import Findings
from lockstep.order.traces.clocks import Clocks
from lockstep.order.traces.reader import Record

__all__ = ["Member", "Members"]


@dataclass(slots=True)
class Member:
    """One client of a group in one trace: the times of its first and last record, on their clock."""

    client_id: str
    group: str
    clock: int
    source: int
    first: Record
    first_ns: int
    last_ns: int
    closed: bool = False  # the last record is `closed`: nothing of the trace is missing


class Members:
    """The consumers of all groups, in the order of their first records."""

    def __init__(self, clocks: Clocks, members: Iterable[Member] = ()) -> None:
        self._clocks = clocks
        self._members = sorted(members, key=lambda one: (self._axis_ns(one.clock, one.first_ns), one.source))

    def all(self) -> Sequence[Member]:
        """All members."""
        return self._members

    def _axis_ns(self, clock: int, time_ns: int) -> int:
        return self._clocks.axis_ns[clock] + time_ns

    def closed(self, client_id: str, group: str | None, source: int, clock: int, time_ns: int) -> None:
        """Take a `closed` record, in the order of time. Producers write it too, with another group."""
        for member in self._members:
            began = self._axis_ns(member.clock, member.first_ns) <= self._axis_ns(clock, time_ns)
            if began and member.client_id == client_id and group in (None, member.group):
                member.closed = True
                if member.source == source and member.clock == clock:
                    member.last_ns = max(member.last_ns, time_ns)

    def was_idle(self, group: str, record: Record, clock: int) -> bool:
        """Whether every consumer of the group that began surely before a record may have closed its trace by then."""
        now_ns = stamp_ns(record)
        began, ended = set[str](), set[str]()
        for member in self._members:
            if member.group == group and self._clocks.gap_ns(member.clock, member.first_ns, clock, now_ns)[0] > 0:
                began.add(member.client_id)
                if member.closed and self._clocks.gap_ns(member.clock, member.last_ns, clock, now_ns)[1] >= 0:
                    ended.add(member.client_id)
        return bool(began) and began == ended

    def unclosed(self) -> list[str]:
        """The clients whose traces could have a `closed` record, and have none."""
        able = {member.client_id for member in self._members if member.first.get("v", 1) >= 2}
        return sorted(able - {member.client_id for member in self._members if member.closed})

    def finish(self, one_process: AbstractSet[tuple[str, int, int]] = frozenset()) -> Findings:
        """Find client ids that two processes used at the same time.

        Args:
            one_process: (client, source, source): two traces that tell of one process (copies.py).
        """
        findings = Findings()
        findings.at_the_end()
        by_client: defaultdict[tuple[str, str], list[Member]] = defaultdict(list)
        for member in self._members:
            by_client[member.client_id, member.group].append(member)
        for (client_id, _), traces in by_client.items():
            process = _processes(client_id, traces, one_process)
            for place, one in enumerate(traces):
                for other in traces[:place]:
                    if process[one.source] != process[other.source]:
                        self._compare(one, other, findings)
        return findings

    def _compare(self, one: Member, other: Member, findings: Findings) -> None:
        before = self._clocks.gap_ns(one.clock, one.first_ns, other.clock, other.last_ns)
        after = self._clocks.gap_ns(other.clock, other.first_ns, one.clock, one.last_ns)
        least, most = min(before[0], after[0]) / 1e6, min(before[1], after[1]) / 1e6
        if most > 0:
            overlap = f"overlap by at least {least:.0f} ms" if least > 0 else f"may overlap by up to {most:.0f} ms"
            findings.violation(
                Kind.SHARED_CLIENT_ID,
                f"two traces of client id {one.client_id} in group {one.group} {overlap}: "
                f"{name_of(one.first)} {'is' if least > 0 else 'may be'} two processes",
                other.first,
                one.first,
                confidence=Confidence.CERTAIN if least > 0 else Confidence.UNDECIDED,
                size=most,
            )


def _processes(
    client_id: str, traces: Sequence[Member], one_process: AbstractSet[tuple[str, int, int]]
) -> dict[int, int]:
    """A number for each source: sources that tell of one process have the same."""
    process = {one.source: one.source for one in traces}
    for _, one, other in sorted(pair for pair in one_process if pair[0] == client_id):
        if one in process and other in process:
            process = {source: process[one] if its == process[other] else its for source, its in process.items()}
    return process
