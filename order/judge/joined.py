"""Joins the results of all queues to the report of a history, in one process and on a cluster alike."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from lockstep.order.judge.queue_judge import Losses, QueueResult
from lockstep.order.judge.survey import Facts
from lockstep.order.report import Findings, OrderReport
from lockstep.order.traces.format import EVENTS
from lockstep.order.traces.reader import BrokenLine

__all__ = ["BROKEN_KEPT", "Counts", "joined_report"]

BROKEN_KEPT = 20
_EVENT_NAMES = frozenset(event.name for event in EVENTS)


@dataclass(frozen=True, slots=True)
class Counts:
    """What is counted without any rule: records by event, failed sends by outcome, copies, broken lines."""

    events: Mapping[str, int]
    send_failures: Mapping[str, int] = field(default_factory=dict)
    copies: int = 0
    one_process: AbstractSet[tuple[str, int, int]] = frozenset()  # copies.py
    torn_lines: int = 0
    broken_lines: int = 0
    broken: tuple[BrokenLine, ...] = ()


def joined_report(
    facts: Facts, results: Sequence[QueueResult], across: tuple[Findings, AbstractSet[str], list[str]], counts: Counts
) -> OrderReport:
    """The report.

    Args:
        results: Of all queues, in the order of their names.
        across: What crosses queues: findings, the ids that explain a message without an answered send, and sentences
            about what cannot be seen.
    """
    found, explained, between = across
    unseen = [sentence for one in results for sentence in one.unseen]
    unsent_messages = Findings()
    unsent_messages.at_the_end()
    for each in [each for one in results for each in one.unsent_messages]:
        each.judge(explained, unsent_messages, unseen, all_closed=facts.senders_closed)
    unseen += between
    groups = [(name, group) for one in results for name, group in one.groups.items()]
    findings = Findings.joined([
        *(part for one in results for part in (*(group.findings for group in one.groups.values()), one.findings)),
        unsent_messages,
        found,
        facts.members.finish(counts.one_process),
    ], with_gaps=bool(counts.broken_lines))  # fmt: skip
    losses = Losses()
    for one in results:
        losses += one.losses
    _say_unseen(facts, results, counts.events, unseen)
    return OrderReport(
        sent=sum(one.sent for one in results),
        send_failures=dict(counts.send_failures),
        handled=sum(group.handled for _, group in groups),
        attempts=counts.events.get("handled", 0),
        dead_lettered=counts.events.get("dead_lettered", 0),
        duplicates=dict(findings.duplicates),
        lost=losses.lost,
        before_start=losses.before_start,
        skipped=losses.skipped,
        emptied=losses.emptied,
        queues=sum(group.attempted for _, group in groups),
        keys=sum(group.keys for _, group in groups),
        handovers=tuple(findings.handovers),
        violations=findings.kept(undecided=False),
        violation_counts=dict(findings.violation_counts),
        copies=counts.copies,
        torn_lines=counts.torn_lines,
        events=dict(counts.events),
        undecided=findings.kept(undecided=True),
        undecided_counts=dict(findings.undecided_counts),
        broken_lines=counts.broken_lines,
        broken=counts.broken,
        unseen=tuple(unseen),
        clocks=tuple(facts.clocks.lines()),
    )


def _say_unseen(facts: Facts, results: Sequence[QueueResult], events: Mapping[str, int], unseen: list[str]) -> None:
    """Add sentences about what these traces cannot show."""
    if not events.get("handled"):
        unseen.append("no message was handled in these traces: there is nothing to judge")
    groups: defaultdict[str, set[str]] = defaultdict(set)
    for one in results:
        for group in one.groups:
            groups[group].add(one.queue.topic)
    blind = sorted({topic for topics in groups.values() for topic in topics} - facts.sent_topics)
    if blind:
        unseen.append(
            f"no producer trace of {_some(blind)}: messages lost before a group's first position or after its last "
            "commit, and messages that were never sent, cannot be seen"
        )
    # A delivery is the grant of one message.
    ungranted = sorted(group for group in groups if not (facts.grants.get(group) or group in facts.popped))
    if ungranted:
        unseen.append(f"no record of a grant in group {_some(ungranted)}: when an owner was replaced cannot be seen")
    if events.get("committed") and not events.get("stored"):
        unseen.append(
            "no record of what brokers stored: a commit counts as stored when its writer lived on for a second"
        )
    unordered = sorted(facts.unordered & groups.keys())
    if unordered:
        unseen.append(f"group {_some(unordered)} is concurrent: it keeps no order of keys, and its owners may overlap")
    mixed = sorted(facts.grants.keys() & facts.popped & groups.keys())
    if mixed:
        unseen.append(f"group {_some(mixed)} pulled and popped: it is judged by deliveries, and its owners may overlap")
    outlived = sum(one.outlived for one in results)
    if outlived:
        unseen.append(
            f"{outlived} calls ran on beyond the lease of their fenced lock, or their delivery: the broker refuses "
            "their commits, and these traces cannot show whether a database refused their effects"
        )
    unclosed = facts.members.unclosed()
    if unclosed:
        unseen.append(
            f"no `closed` record of {_some(unclosed)}: killed, or still running; what they did last may be missing"
        )
    strange = sorted(event for event in events if event not in _EVENT_NAMES)
    if strange:
        unseen.append(f"events of {_some(strange)} mean nothing to this version")


def _some(names: Sequence[str]) -> str:
    """Up to five names."""
    more = len(names) - 5
    return ", ".join(names[:5]) + (f" and {more} more" if more > 0 else "")
