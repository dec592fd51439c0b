"""The judge of order while a run is played: each violation once, when it can be judged.

The judge reads whole traces, so it is asked again only when it has rested three times as long as it took.
"""

import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from lockstep.order import Kind, Record
from lockstep.order.kinds import RULES
from lockstep.order.report import Violation
from lockstep.simulation.lab.cluster import Cluster
from lockstep.simulation.lab.findings import FENCED_OUT, Finding, queue_of, time_of
from lockstep.simulation.lab.names import Names
from lockstep.simulation.lab.recorded_cluster import RecordedCluster
from lockstep.simulation.lab.said import say, told
from lockstep.simulation.lab.setup import LockMode
from lockstep.simulation.play.record_words import record_words
from lockstep.simulation.play.scene import Json, host_of, queue_id

__all__ = ["Judged", "Verdict"]

_TOLD_MAX: Final = 100  # of a kind
_STATE: Final = ("_due_s", "_judged_ms", "_ended", "_found_read", "_known", "_told")
_RESTS: Final = 3  # of four parts of the time, the judge has one
_RULE: Final = "docs/order.md#1-the-definition"
# Before the end a record may still come that explains these: the answer to a send, a later call.
_AT_THE_END: Final = frozenset({Kind.NEVER_SENT, Kind.LOST_WRITE, Kind.COMMIT_BEYOND_END, Kind.KEY_IN_TWO_QUEUES})


class Judged(NamedTuple):
    """What is new.

    Args:
        wrongs, marks: as the page has them.
        judged_ms: until when the run was judged; 0: not yet.
    """

    wrongs: list[Json]
    marks: list[Json]
    judged_ms: int


class Verdict:
    """Judges one run.

    Args:
        plan: of the run. With fenced locks, what a fence keeps out is no violation, unless the plan is strict.
        clock_s: of the machine, not of the run.
    """

    def __init__(self, cluster: Cluster, plan: Any, clock_s: Callable[[], float] = time.perf_counter) -> None:
        self._cluster = cluster
        self._names = Names(cluster.world, cluster)
        self._clock_s = clock_s
        fenced = plan.lock_mode is LockMode.FENCED and not getattr(plan, "strict", False)
        self._excused = FENCED_OUT if fenced else frozenset[Kind]()
        self._due_s = 0.0
        self._judged_ms = 0
        self._ended = 0  # how many faults have ended
        self._found_read = 0  # of the findings of the lab itself
        self._known: set[object] = set()
        self._told = Counter[str]()

    @property
    def is_due(self) -> bool:
        """Whether the judge has rested, or a fault has ended."""
        return (self._ended_now > self._ended or self._clock_s() >= self._due_s) and self._may_judge()

    @property
    def is_behind(self) -> bool:
        """Whether something happened since the last judgement."""
        return self._judged_ms < self._cluster.world.elapsed_ms and self._may_judge()

    @property
    def _ended_now(self) -> int:
        return sum(band.end_ms is not None for band in self._cluster.findings.bands)

    @property
    def state(self) -> dict[str, Any]:
        """What readings have changed: a copy of the process hands it back."""
        return {name: vars(self)[name] for name in _STATE}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        vars(self).update(state)

    def read(self, *, over: bool = False, now: bool = False) -> Judged:
        """What was found since the last reading. It judges if it may, and at once after the end of a fault.

        Args:
            over: the run is over: it is judged now, by its whole traces.
            now: it is judged, also if the judge should rest.
        """
        begin_s = self._clock_s()
        wrongs = self._of_lab()
        if (over or now or self.is_due) and self._may_judge():
            self._ended = self._ended_now
            wrongs += self._of_judge(over=over)
            self._judged_ms = self._cluster.world.elapsed_ms
            end_s = self._clock_s()
            self._due_s = end_s + _RESTS * (end_s - begin_s)
        wrongs.sort(key=lambda one: one["at_ms"])
        marks = [{"kind": "wrong", **{name: one[name] for name in ("at_ms", "text", "said")}} for one in wrongs]
        return Judged(wrongs, marks, self._judged_ms)

    def _may_judge(self) -> bool:
        cluster = self._cluster
        return bool(cluster.traced_hosts) and not (isinstance(cluster, RecordedCluster) and cluster.not_judged)

    def _of_judge(self, *, over: bool) -> list[Json]:
        found = self._cluster.judge().violations
        left_out = self._excused if over else self._excused | _AT_THE_END
        return [self._wrong(one) for one in found if one.kind not in left_out and self._is_new(one.kind, _ref(one))]

    def _is_new(self, kind: str, ref: object) -> bool:
        if ref in self._known or self._told[kind] >= _TOLD_MAX:
            return False
        self._known.add(ref)
        self._told[kind] += 1
        return True

    def _wrong(self, violation: Violation) -> Json:
        rule, evidence = RULES[violation.kind], violation.evidence
        queue = next((queue_id(queue) for one in reversed(evidence) if (queue := queue_of(one)) is not None), "")
        return {
            "at_ms": max(map(time_of, evidence), default=self._cluster.world.elapsed_ms),
            "kind": str(violation.kind),
            "text": self._names.in_text(violation.sentence),
            "said": f"kind {violation.kind}",
            "rule": _RULE,
            "rule_text": f"({rule.letter}) {rule.sentence}",
            "queue": queue,
            "records": sorted(map(self._record, evidence[-2:]), key=lambda one: one["at_ms"]),
        }

    def _record(self, record: Record) -> Json:
        client_id = str(record.get("client_id", ""))
        host = host_of(self._cluster, client_id) if client_id else str(record.get("broker", ""))
        text = say("{host} {did}.", host=host, did=self._names.in_text(record_words(record)))
        return {"host": host, "at_ms": time_of(record), **told(text)}

    # What the lab sees for itself ------------------------------------------------------------------------------

    def _of_lab(self) -> list[Json]:
        findings = self._cluster.findings.wrong
        new = [one for one in findings[self._found_read :] if one.kind.removeprefix("judge: ") not in set(Kind)]
        self._found_read = len(findings)
        return [self._finding(one) for one in new if self._is_new(one.kind, one)]

    def _finding(self, finding: Finding) -> Json:
        broker, _, number = finding.queue.partition("/")[2].rpartition("/")
        return {
            "at_ms": finding.at_ms,
            "kind": str(finding.kind),
            "text": self._names.in_text(finding.text),
            "said": f"kind {finding.kind}",
            "rule": "",
            "rule_text": "",
            "queue": f"{broker}/{number}" if finding.queue else "",
            "records": [],
        }


def _ref(violation: Violation) -> object:
    """The same violation has the same records, in whatever judgement it is found."""
    records = [
        (one.get("client_id"), one["event"], one.get("mono_ns"), one.get("offset")) for one in violation.evidence
    ]
    return violation.kind, tuple(records) or violation.sentence
