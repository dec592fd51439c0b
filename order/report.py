"""What the checker reports: the names of violations, the causes of duplicates, and the report with its sentences."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from lockstep.order.reader import Record
from lockstep.protocol.model import MessageQueue

__all__ = ["Cause", "Findings", "Handover", "Kind", "OrderReport", "Violation"]

VIOLATIONS_KEPT = 100  # of each kind, with their evidence; all are counted


class Kind(StrEnum):
    """The names of violations, Jepsen's where its Kafka workload has one. The letter is the rule's (see order.py)."""

    NONMONOTONIC_POLL = "nonmonotonic-poll"  # (a) a message of a key first handled after a later one of that key
    UNEXPLAINED_REPEAT = "unexplained-repeat"  # (b) handled again in one ownership period, and no attempt had failed
    STALE_REPEAT = "stale-repeat"  # (b) handled again by a period that a newer one had already replaced
    REWIND_BELOW_COMMIT = "rewind-below-commit"  # (b) a new period that began below the last stored commit
    POLL_SKIP = "poll-skip"  # (b) a rewind that left out messages: not contiguous
    OVERLAP = "overlap"  # (c) two owners handled one queue at the same time
    LOST_WRITE = "lost-write"  # (d) a message below a committed offset that nobody handled
    COMMIT_REGRESS = "commit-regress"  # (d) a commit that went back without a reset
    STALE_COMMIT = "stale-commit"  # (d) the same, because an owner whose period was over had a part in it


class Cause(StrEnum):
    """Why a message was handled more than once."""

    TAKEOVER = "takeover"
    SUSPEND = "suspend"
    RESET = "reset"
    PRODUCER_RETRY = "producer retry"
    UNEXPLAINED = "unexplained"  # part of a repeat that is reported as a violation


class Violation(NamedTuple):
    """One broken rule with the records that prove it, oldest first."""

    kind: Kind
    evidence: tuple[Record, ...]
    sentence: str


class Handover(NamedTuple):
    """A queue that changed owner: from the old owner's last sign of life to the new one's first position."""

    group: str
    queue: MessageQueue
    from_client_id: str
    to_client_id: str
    duration_ms: float


@dataclass(slots=True)
class Findings:
    """What is found while records stream by. Counts are of all; evidence is kept of the first of each kind."""

    violations: list[Violation] = field(default_factory=list)
    violation_counts: Counter[Kind] = field(default_factory=Counter)
    duplicates: Counter[Cause] = field(default_factory=Counter)
    handovers: list[Handover] = field(default_factory=list)
    events: Counter[str] = field(default_factory=Counter)

    def violation(self, kind: Kind, sentence: str, *evidence: Record | None) -> None:
        """Note a broken rule; missing evidence is left out."""
        self.violation_counts[kind] += 1
        if self.violation_counts[kind] <= VIOLATIONS_KEPT:
            self.violations.append(Violation(kind, tuple(record for record in evidence if record), sentence))


@dataclass(frozen=True, slots=True)
class OrderReport:
    """The verdict over a history. Messages are counted per consumer group, attempts per listener call.

    `lost` messages were sent, belong to the group and were never handled. Three counts are no loss of the group:
    `before_start` (sent before the group's first position), `skipped` (passed over by a reset, on purpose or by the
    broker's rule for illegal offsets) and `emptied` (unhandled in a store that a restart emptied).
    """

    sent: int
    send_failures: Mapping[str, int]
    handled: int
    attempts: int
    dead_lettered: int
    duplicates: Mapping[Cause, int]
    lost: int
    before_start: int
    skipped: int
    emptied: int
    queues: int
    keys: int
    handovers: tuple[Handover, ...]
    violations: tuple[Violation, ...]
    violation_counts: Mapping[Kind, int]
    torn_lines: int
    events: Mapping[str, int]

    @property
    def in_order(self) -> bool:
        """Whether nothing was out of order and nothing was lost."""
        return not self.violation_counts and not self.lost

    @property
    def longest_handover(self) -> Handover | None:
        """The handover that took longest, if any queue changed hands."""
        return max(self.handovers, key=lambda handover: handover.duration_ms, default=None)

    def lines(self) -> list[str]:
        """The report for a person, a line each, with the first sentences of every kind of violation."""
        rows = [
            ("sent", f"{self.sent:,}"),
            ("handled", f"{self.handled:,} (in {self.attempts:,} attempts)"),
            ("duplicates", _counts(self.duplicates)),
            ("lost", f"{self.lost:,}"),
            ("keys checked", f"{self.keys:,} in {self.queues:,} queues"),
            ("violations", _counts(self.violation_counts)),
        ]
        optional: dict[str, int | str] = {
            "sends that failed": _counts(self.send_failures) if self.send_failures else "",
            "dead-lettered": self.dead_lettered,
            "before the start": self.before_start,
            "skipped by a reset": self.skipped,
            "emptied store": self.emptied,
            "torn last lines": self.torn_lines,
        }
        rows += [(name, f"{value:,}" if isinstance(value, int) else value) for name, value in optional.items() if value]
        longest = self.longest_handover
        if longest:
            rows.append(("longest handover", f"{longest.duration_ms / 1000:.1f} s ({longest.queue})"))
        return [f"{name:<20} {value}" for name, value in rows] + [
            f"  {violation.kind}: {violation.sentence}" for violation in self.violations[:20]
        ]


def _counts(counts: Mapping[Kind, int] | Mapping[Cause, int] | Mapping[str, int]) -> str:
    """`12 (takeover 9, suspend 3)`, or `0`."""
    total = sum(counts.values())
    parts = ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()) if count)
    return f"{total:,} ({parts})" if total else "0"
