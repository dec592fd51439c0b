"""The report of the judge: findings with evidence, the verdict, the limits of the evidence, and the printed text."""

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from lockstep.order.kinds import PROVED_WITH_GAPS, Cause, Confidence, Kind
from lockstep.order.traces.reader import BrokenLine, Record
from lockstep.protocol.model import MessageQueue

__all__ = ["Findings", "Handover", "OrderReport", "Verdict", "Violation"]

# Findings of each kind that keep their evidence, with the worst and the last; all are counted.
VIOLATIONS_KEPT = 100


class Verdict(StrEnum):
    """The result of a check."""

    IN_ORDER = "in order"
    NOT_IN_ORDER = "not in order"
    UNDECIDED = "undecided"


class Violation(NamedTuple):
    """One finding and the records that prove it, oldest first. A finding with Confidence.UNDECIDED is no violation."""

    kind: Kind
    evidence: tuple[Record, ...]
    sentence: str
    confidence: Confidence = Confidence.CERTAIN
    size: float = 0  # severity, to compare findings of one kind: messages or milliseconds
    around: int | None = None  # the offset that its story is about; None: that of the last record

    def story_command(self, files: Sequence[str] = ("FILE...",)) -> str:
        """The command that prints what happened around this finding."""
        record = self.evidence[-1] if self.evidence else {}
        around = record.get("offset") if self.around is None else self.around
        words = ["lockstep", "trace", "show", *(name if name == "FILE..." else shlex.quote(name) for name in files)]
        by_key = self.kind is Kind.KEY_IN_TWO_QUEUES and record.get("key") is not None
        if by_key:
            words += ["--key", shlex.quote(str(record["key"]))]
        elif "queue_id" in record:
            words += ["--queue", shlex.quote(f"{record['topic']}/{record['broker']}/{record['queue_id']}")]
        if record.get("group") and record.get("event") != "sent":
            words += ["--group", shlex.quote(record["group"])]
        if around is not None and not by_key:
            words += ["--around", str(around)]
        return " ".join(words)


class Handover(NamedTuple):
    """A change of owner: from the last record of the old owner to the first position of the new owner, at `at_ns`."""

    group: str
    queue: MessageQueue
    from_client_id: str
    to_client_id: str
    duration_ms: float
    at_ns: int = 0  # on the common time axis


class _Found(NamedTuple):
    """A finding, and the time and trace of the record at which it was found."""

    at_ns: int
    source: int
    violation: Violation

    def doubted(self) -> "_Found":
        return self._replace(violation=self.violation._replace(confidence=Confidence.UNDECIDED))


@dataclass(slots=True)
class _Kept:
    """The findings of one kind that keep their evidence: the first ones, the worst and the last."""

    first: list[_Found] = field(default_factory=list)
    worst: _Found | None = None
    last: _Found | None = None

    def add(self, found: _Found) -> None:
        """Take a finding. Of several that are equally bad the first one counts as the worst."""
        self.last = found
        if self.worst is None or found.violation.size > self.worst.violation.size:
            self.worst = found
        if len(self.first) < VIOLATIONS_KEPT:
            self.first.append(found)

    def all(self) -> list[_Found]:
        """The first ones; the last one and, before it, the worst replace the end of them if they are not among them."""
        shown = self.first
        if self.last is not None and self.last is not shown[-1]:
            shown = [*shown[:-1], self.last]
            if not any(one is self.worst for one in shown) and self.worst is not None:
                shown[-2] = self.worst
        return shown


@dataclass(slots=True)
class Findings:
    """Collects findings. It counts all of them, and keeps the evidence of some of each kind.

    Attributes:
        at_ns: The time of the record that is judged now, on the common axis.
        source: The number of its trace.
    """

    violation_counts: Counter[Kind] = field(default_factory=Counter)
    undecided_counts: Counter[Kind] = field(default_factory=Counter)
    duplicates: Counter[Cause] = field(default_factory=Counter)
    handovers: list[Handover] = field(default_factory=list)
    at_ns: int = 0
    source: int = 0
    _kept: dict[tuple[Kind, bool], _Kept] = field(default_factory=dict)

    def violation(
        self,
        kind: Kind,
        sentence: str,
        *evidence: Record | None,
        confidence: Confidence = Confidence.CERTAIN,
        size: float = 0,
        around: int | None = None,
    ) -> None:
        """Add a finding. Evidence that is None is left out."""
        undecided = confidence is Confidence.UNDECIDED
        (self.undecided_counts if undecided else self.violation_counts)[kind] += 1
        found = Violation(kind, tuple(record for record in evidence if record), sentence, confidence, size, around)
        self._kept.setdefault((kind, undecided), _Kept()).add(_Found(self.at_ns, self.source, found))

    def at_the_end(self) -> None:
        """Findings from now on need the whole history: they come after all others."""
        self.at_ns = 1 << 63

    @classmethod
    def joined(cls, parts: "Iterable[Findings]", *, with_gaps: bool = False) -> "Findings":
        """The findings of several parts of a history, in the order of time; at one time in the order of the parts.

        Args:
            with_gaps: Records could not be read: what one of them may explain is undecided.
        """
        whole, found = cls(), list[tuple[tuple[Kind, bool], _Found]]()
        for part in parts:
            whole.violation_counts += part.violation_counts
            whole.undecided_counts += part.undecided_counts
            whole.duplicates += part.duplicates
            whole.handovers += part.handovers
            found += part.found()
        for kind in [*whole.violation_counts] if with_gaps else ():
            if kind not in PROVED_WITH_GAPS:
                whole.undecided_counts[kind] += whole.violation_counts.pop(kind)
                found = [((kind, True), one.doubted()) if name == (kind, False) else (name, one) for name, one in found]
        whole.handovers.sort(key=lambda handover: handover.at_ns)
        for name, one in sorted(found, key=lambda named: named[1][:2]):
            whole._kept.setdefault(name, _Kept()).add(one)
        return whole

    def found(self) -> "list[tuple[tuple[Kind, bool], _Found]]":
        """The findings with evidence, with the time at which they were found."""
        return [(name, one) for name, kept in self._kept.items() for one in kept.all()]

    def kept(self, *, undecided: bool) -> tuple[Violation, ...]:
        """The findings with evidence, grouped by kind."""
        return tuple(
            found.violation
            for (_, is_undecided), kept in self._kept.items()
            if is_undecided == undecided
            for found in kept.all()
        )


@dataclass(frozen=True, slots=True)
class OrderReport:
    """The verdict over a history. Messages are counted per consumer group, attempts per listener call.

    Attributes:
        lost: Messages that were sent, belong to the group and were never handled.
        before_start: Messages that were sent before the group's first position. They are not lost.
        skipped: Messages that a reset skipped: a requested one, or the broker's for an illegal offset. Not lost.
        emptied: Messages that were not handled before a restart emptied the store. They are not lost.
        copies: Records that were delivered more than once, as equal lines or files. Each counts once.
        undecided: Findings that the records neither prove nor exclude.
        unseen: Sentences about what these traces cannot show.
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
    broken: tuple[BrokenLine, ...] = ()  # the first broken lines
    copies: int = 0
    unseen: tuple[str, ...] = ()
    clocks: tuple[str, ...] = ()  # sentences with the bounds of the clock differences between machines

    @property
    def verdict(self) -> Verdict:
        """NOT_IN_ORDER after a violation or a lost message; IN_ORDER only if the evidence is sufficient."""
        if self.violation_counts or (self.lost and not self.broken_lines):
            return Verdict.NOT_IN_ORDER
        if self.undecided_counts or self.broken_lines or not self.attempts:
            return Verdict.UNDECIDED
        return Verdict.IN_ORDER

    def reason(self) -> str:
        """Why the verdict is what it is, in a sentence."""
        if self.verdict is Verdict.NOT_IN_ORDER:
            violations = sum(self.violation_counts.values())
            words = [f"{violations:,} violation{'s' if violations != 1 else ''}"] if violations else []
            words += [f"{self.lost:,} message{'s' if self.lost != 1 else ''} lost"] if self.lost else []
            return f"{' and '.join(words)}."
        if self.verdict is Verdict.IN_ORDER:
            return "Each key was handled in order, a queue had one owner at a time, and no message was lost."
        doubts = sum(self.undecided_counts.values())
        reasons = {
            "no message was handled: this is no pass": not self.attempts,
            f"the records neither prove nor exclude {doubts:,} finding{'s' if doubts != 1 else ''}": doubts,
            f"{self.broken_lines:,} line{'s are' if self.broken_lines != 1 else ' is'} no record": self.broken_lines,
        }
        text = "; ".join(reason for reason, holds in reasons.items() if holds)
        return f"{text[:1].upper()}{text[1:]}."

    @property
    def in_order(self) -> bool:
        """Whether the evidence shows that every message was handled in order and none was lost."""
        return self.verdict is Verdict.IN_ORDER

    @property
    def longest_handover(self) -> Handover | None:
        """The longest handover; None if no queue changed its owner."""
        return max(self.handovers, key=lambda handover: handover.duration_ms, default=None)

    def examples(self) -> list[tuple[str, Violation]]:
        """The "first", "worst" and "last" finding of each kind, with that word. Each finding occurs once."""
        return _examples(self.violations) + _examples(self.undecided)

    def rows(self) -> list[tuple[str, str]]:
        """The counts as (name, text)."""
        rows: list[tuple[str, str]] = [
            ("verdict", str(self.verdict)),
            ("because", self.reason()),
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
            "delivered twice": self.copies,
            "torn last lines": self.torn_lines,
            "broken lines": self.broken_lines,
        }
        rows += [(name, f"{value:,}" if isinstance(value, int) else value) for name, value in optional.items() if value]
        longest = self.longest_handover
        if longest:
            took = longest.duration_ms
            length = f"{took / 1000:,.1f} s" if took >= 1000 else f"{took:.1f} ms"
            rows.append(("longest handover", f"{length} ({longest.queue})"))
        return rows

    def lines(self, files: Sequence[str] = ("FILE...",)) -> list[str]:
        """The report as text: counts, then the findings, each with the command that prints the records around it."""
        lines = [f"{name:<20} {value}" for name, value in self.rows()]
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
