"""What the judge reports: findings with their evidence, a verdict, what the evidence cannot say, and sentences."""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from lockstep.order.kinds import Cause, Confidence, Kind
from lockstep.order.reader import BrokenLine, Record
from lockstep.protocol.model import MessageQueue

__all__ = ["Findings", "Handover", "OrderReport", "Verdict", "Violation"]

VIOLATIONS_KEPT = 100  # of each kind, with their evidence, the worst and the last among them; all are counted


class Verdict(StrEnum):
    """What the evidence says of order."""

    IN_ORDER = "in order"
    NOT_IN_ORDER = "not in order"
    UNDECIDED = "undecided"


class Violation(NamedTuple):
    """One finding with the records that prove it, oldest first. With Confidence.UNDECIDED it is no violation."""

    kind: Kind
    evidence: tuple[Record, ...]
    sentence: str
    confidence: Confidence = Confidence.CERTAIN
    size: float = 0  # how bad, among findings of its kind: messages, or milliseconds

    def story_command(self, files: Sequence[str] = ("FILE...",)) -> str:
        """The command that prints what happened around this finding."""
        record = self.evidence[-1] if self.evidence else {}
        words = ["lockstep", "trace", "show", *(name if name == "FILE..." else shlex.quote(name) for name in files)]
        if "queue_id" in record:
            words += ["--queue", shlex.quote(f"{record['topic']}/{record['broker']}/{record['queue_id']}")]
        if record.get("group") and record.get("event") != "sent":
            words += ["--group", shlex.quote(record["group"])]
        if "offset" in record:
            words += ["--around", str(record["offset"])]
        return " ".join(words)


class Handover(NamedTuple):
    """A queue that changed owner: from the old owner's last sign of life to the new one's first position."""

    group: str
    queue: MessageQueue
    from_client_id: str
    to_client_id: str
    duration_ms: float


@dataclass(slots=True)
class _Kept:
    """The evidence kept of one kind: the first ones, the worst, the last."""

    first: list[Violation] = field(default_factory=list)
    worst: Violation | None = None
    last: Violation | None = None


@dataclass(slots=True)
class Findings:
    """What is found while records stream by. Counts are of all; evidence is kept of some of each kind."""

    violation_counts: Counter[Kind] = field(default_factory=Counter)
    undecided_counts: Counter[Kind] = field(default_factory=Counter)
    duplicates: Counter[Cause] = field(default_factory=Counter)
    handovers: list[Handover] = field(default_factory=list)
    events: Counter[str] = field(default_factory=Counter)
    _kept: dict[tuple[Kind, bool], _Kept] = field(default_factory=dict)

    def violation(
        self,
        kind: Kind,
        sentence: str,
        *evidence: Record | None,
        confidence: Confidence = Confidence.CERTAIN,
        size: float = 0,
    ) -> None:
        """Note a finding; missing evidence is left out."""
        undecided = confidence is Confidence.UNDECIDED
        (self.undecided_counts if undecided else self.violation_counts)[kind] += 1
        found = Violation(kind, tuple(record for record in evidence if record), sentence, confidence, size)
        kept = self._kept.get((kind, undecided))
        if kept is None:
            kept = self._kept[kind, undecided] = _Kept()
        kept.last = found
        if kept.worst is None or size > kept.worst.size:
            kept.worst = found
        if len(kept.first) < VIOLATIONS_KEPT:
            kept.first.append(found)

    def kept(self, *, undecided: bool) -> tuple[Violation, ...]:
        """The findings with evidence, each kind's together: the first ones, then the worst and the last."""
        found: list[Violation] = []
        for (_, is_undecided), kept in self._kept.items():
            if is_undecided == undecided:
                more = [one for one in (kept.worst, kept.last) if one is not None]
                more = [
                    one
                    for place, one in enumerate(more)
                    if not any(one is other for other in kept.first + more[:place])
                ]
                found += kept.first[: VIOLATIONS_KEPT - len(more)] + more
        return tuple(found)


@dataclass(frozen=True, slots=True)
class OrderReport:
    """The verdict over a history. Messages are counted per consumer group, attempts per listener call.

    `lost` messages were sent, belong to the group and were never handled. Three counts are no loss of the group:
    `before_start` (sent before the group's first position), `skipped` (passed over by a reset, on purpose or by the
    broker's rule for illegal offsets) and `emptied` (unhandled in a store that a restart emptied).

    `undecided` are findings that the records neither prove nor exclude; `unseen` says what these traces cannot show.
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
    undecided: tuple[Violation, ...] = ()
    undecided_counts: Mapping[Kind, int] = field(default_factory=dict)
    broken_lines: int = 0
    broken: tuple[BrokenLine, ...] = ()  # the first ones
    unseen: tuple[str, ...] = ()
    clocks: tuple[str, ...] = ()  # how far machines' clocks are apart, with bounds

    @property
    def verdict(self) -> Verdict:
        """Not in order when a violation was found or a message was lost; in order only when the evidence says so."""
        if self.violation_counts or self.lost:
            return Verdict.NOT_IN_ORDER
        if self.undecided_counts or self.broken_lines or not self.attempts:
            return Verdict.UNDECIDED
        return Verdict.IN_ORDER

    @property
    def in_order(self) -> bool:
        """Whether nothing was out of order, nothing was lost, and the evidence is enough to say so."""
        return self.verdict is Verdict.IN_ORDER

    @property
    def longest_handover(self) -> Handover | None:
        """The handover that took longest, if any queue changed hands."""
        return max(self.handovers, key=lambda handover: handover.duration_ms, default=None)

    def examples(self) -> list[tuple[str, Violation]]:
        """Of each kind the first, the worst and the last finding, with that word; each finding once."""
        return _examples(self.violations) + _examples(self.undecided)

    def lines(self, files: Sequence[str] = ("FILE...",)) -> list[str]:
        """The report for a person: counts, then findings of every kind, each with the command that shows its story."""
        rows: list[tuple[str, str]] = [
            ("verdict", str(self.verdict)),
            ("sent", f"{self.sent:,}"),
            ("handled", f"{self.handled:,} (in {self.attempts:,} attempts)"),
            ("duplicates", _counts(self.duplicates)),
            ("lost", f"{self.lost:,}"),
            ("keys checked", f"{self.keys:,} in {self.queues:,} queues"),
            ("violations", _counts(self.violation_counts)),
        ]
        optional: dict[str, int | str] = {
            "undecided": _counts(self.undecided_counts) if self.undecided_counts else "",
            "sends that failed": _counts(self.send_failures) if self.send_failures else "",
            "dead-lettered": self.dead_lettered,
            "before the start": self.before_start,
            "skipped by a reset": self.skipped,
            "emptied store": self.emptied,
            "torn last lines": self.torn_lines,
            "broken lines": self.broken_lines,
        }
        rows += [(name, f"{value:,}" if isinstance(value, int) else value) for name, value in optional.items() if value]
        longest = self.longest_handover
        if longest:
            rows.append(("longest handover", f"{longest.duration_ms / 1000:.1f} s ({longest.queue})"))
        lines = [f"{name:<20} {value}" for name, value in rows]
        for word, found in self.examples():
            sure = "" if found.confidence is Confidence.CERTAIN else f", {found.confidence}"
            lines.append(f"  {found.kind}: {found.sentence} ({word}{sure})")
            lines.append(f"    {found.story_command(files)}")
        lines += [f"  broken line: {line.path}:{line.number}: {line.why}" for line in self.broken]
        lines += [f"  clocks: {text}" for text in self.clocks]
        lines += [f"  not seen: {text}" for text in self.unseen]
        return lines


def _examples(found: Sequence[Violation]) -> list[tuple[str, Violation]]:
    kinds: dict[Kind, list[Violation]] = {}
    for violation in found:
        kinds.setdefault(violation.kind, []).append(violation)
    chosen = []
    for same in kinds.values():
        by_word = {"first": same[0], "worst": max(same, key=lambda one: one.size), "last": same[-1]}
        words: list[tuple[list[str], Violation]] = []
        for word, one in by_word.items():
            for known, other in words:
                if other is one:
                    known.append(word)
                    break
            else:
                words.append(([word], one))
        only = len(same) == 1
        chosen += [("the only one" if only else " and ".join(known), one) for known, one in words]
    return chosen


def _counts(counts: Mapping[Kind, int] | Mapping[Cause, int] | Mapping[str, int]) -> str:
    """`12 (takeover 9, suspend 3)`, or `0`."""
    total = sum(counts.values())
    parts = ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()) if count)
    return f"{total:,} ({parts})" if total else "0"
