"""The rules again, by brute force: lists and loops over whole histories of one queue, one clock and queue order.

Nothing is shared with the judge but the trace format. Every rule looks at the history from its beginning each time, so
that it can be read beside docs/order.md.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

Record = dict[str, Any]
KINDS = {
    "nonmonotonic-poll", "overlap", "stale-owner", "concurrent-calls", "ends-before-begin", "lost-write", "commit back",
    "stored-regress", "no-grant", "commit-unhandled", "commit-beyond-end", "wrong-message", "two-grants",
}  # fmt: skip
FAILED = ("SUSPEND_CURRENT_QUEUE_A_MOMENT", "RECONSUME_LATER")


def in_time(traces: Sequence[Iterable[Record]]) -> list[Record]:
    """All records in time; within a trace the order of writing is kept."""
    placed = []
    for number, trace in enumerate(traces):
        latest = -1
        for line, record in enumerate(trace):
            latest = max(latest, record["mono_ns"])
            placed.append((latest, number, line, record))
    return [record for _, _, _, record in sorted(placed, key=lambda one: one[:3])]


def of(records: Sequence[Record], *events: str) -> list[Record]:
    return [record for record in records if record["event"] in events]


def offsets(records: Sequence[Record], *events: str) -> list[int]:
    return [one["offset"] for one in of(records, *events)]


def owner(record: Record) -> tuple[str, int]:
    return record["client_id"], record.get("period", 0)


def done(records: Sequence[Record]) -> set[int]:
    return {one["offset"] for one in of(records, "handled") if one["status"] not in FAILED}


def calls(records: Sequence[Record]) -> list[Record]:
    return [one for one in of(records, "handled") if one["begin_mono_ns"] <= one["mono_ns"]]


def first_records(records: Sequence[Record]) -> list[Record]:
    """The first record of each period."""
    first: dict[tuple[str, int], Record] = {}
    for record in of(records, "acquired", "positioned", "handled", "committed", "dropped", "lock_lost"):
        first.setdefault(owner(record), record)
    return list(first.values())


def kinds_found(traces: Sequence[Iterable[Record]]) -> set[str]:
    """The kinds of violations that a history has, among `KINDS`."""
    records = in_time(traces)
    handled, commits = of(records, "handled"), offsets(records, "committed", "stored")
    marks, periods = of(records, "committed", "positioned"), first_records(records)
    ends = [offset + 1 for offset in offsets(records, "sent", "handled")] + offsets(records, "positioned")[:1]
    sent = {one["offset"]: one["msg_id"] for one in of(records, "sent")}
    first_ids = {one["offset"]: one["msg_id"] for one in reversed(handled)}
    found = {
        "nonmonotonic-poll": key_order(handled),
        "overlap": overlap(calls(records)),
        "stale-owner": any(stale(call, records, periods) for call in calls(records)),
        "concurrent-calls": calls_at_once(calls(records)),
        "ends-before-begin": len(calls(records)) < len(handled),
        "lost-write": bool(lost(records)),
        "commit back": any(b["event"] == "committed" and b["offset"] < a["offset"] for a, b in pairwise(marks)),
        "stored-regress": any(b < a for a, b in pairwise(offsets(records, "stored"))),
        "no-grant": bool(of(records, "acquired")) and ungranted(handled, periods),
        "commit-unhandled": any(early(records, place) for place in range(len(records))),
        "commit-beyond-end": bool(sent) and max(commits, default=0) > max(ends, default=0),
        "wrong-message": any(sent.get(offset, first_ids[offset]) != first_ids[offset] for offset in first_ids),
        "two-grants": any(two_grants(records, one, after) for one, after in pairwise(periods)),
    }
    return {kind for kind, wrong in found.items() if wrong}


def key_order(handled: Sequence[Record]) -> bool:
    """(a) A first handling after that of a later message of the same key."""
    seen: set[int] = set()
    firsts = [one for one in handled if not (one["offset"] in seen or seen.add(one["offset"]))]  # type: ignore[func-returns-value]
    return any(
        one["key"] == other["key"] and one["offset"] < other["offset"]
        for place, one in enumerate(firsts)
        for other in firsts[:place]
    )


def overlap(done_calls: Sequence[Record]) -> bool:
    """(c) Calls of two periods that run at once."""
    return any(
        owner(a) != owner(b) and a["begin_mono_ns"] < b["mono_ns"] and b["begin_mono_ns"] < a["mono_ns"]
        for place, a in enumerate(done_calls)
        for b in done_calls[:place]
    )


def stale(call: Record, records: Sequence[Record], periods: Sequence[Record]) -> bool:
    """(c) A call that begins at or after its own end, or after the grant of the period that began after its own."""
    before = records[: records.index(call)]
    ends = [one for one in of(before, "dropped", "lock_lost") if owner(one) == owner(call)]
    later = [after for one, after in pairwise(periods) if owner(one) == owner(call)]
    begin = call["begin_mono_ns"]
    return any(begin >= one["mono_ns"] for one in ends) or any(begin > one["mono_ns"] for one in later)


def calls_at_once(done_calls: Sequence[Record]) -> bool:
    """(c) Two calls of one period at once."""
    return any(
        owner(a) == owner(b) and a["begin_mono_ns"] != b["begin_mono_ns"] and a["begin_mono_ns"] < b["mono_ns"]
        for place, a in enumerate(done_calls)
        for b in done_calls[:place]
    )


def two_grants(records: Sequence[Record], one: Record, after: Record) -> bool:
    """(c) A first position after the first record of another client's next period."""
    position = next((record for record in of(records, "positioned") if owner(record) == owner(one)), one)
    return bool(one["client_id"] != after["client_id"] and position["mono_ns"] > after["mono_ns"])


def ungranted(handled: Sequence[Record], periods: Sequence[Record]) -> bool:
    """(c) A period whose first record is its position."""
    return bool({owner(one) for one in handled} & {owner(one) for one in periods if one["event"] == "positioned"})


def lost(records: Sequence[Record]) -> set[int]:
    """(d) Messages that were sent, lie between the lowest position and the highest commit, and never succeeded."""
    starts, commits = offsets(records, "positioned"), offsets(records, "committed", "stored")
    between = set(range(min(starts), max(commits, default=0))) if starts else set()
    return (between & set(offsets(records, "sent"))) - done(records)


def early(records: Sequence[Record], place: int) -> bool:
    """(d) A commit above messages that are handled only later."""
    commit, before = records[place], records[:place]
    starts = [one["offset"] for one in of(before, "positioned") if owner(one) == owner(commit)]
    if commit["event"] != "committed" or not starts:
        return False
    missing = sorted(set(range(starts[0], commit["offset"])) - done(before))
    gap = {offset for number, offset in enumerate(missing) if offset == missing[0] + number}
    return bool(gap & set(offsets(records, "handled"))) and not gap & lost(records)
