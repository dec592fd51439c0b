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
    "stored-regress", "no-grant",
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


def owner(record: Record) -> tuple[str, int]:
    return record["client_id"], record["period"]


def kinds_found(traces: Sequence[Iterable[Record]]) -> set[str]:
    """The kinds of violations that a history has, among `KINDS`."""
    records = in_time(traces)
    rules = (key_order, overlaps, stale_owners, calls_at_once, call_times, losses, commits_back, stored_back, no_grants)
    return {kind for rule in rules for kind in rule(records)}


def key_order(records: Sequence[Record]) -> set[str]:
    """(a) A first handling after that of a later message of the same key."""
    handled = of(records, "handled")
    firsts = [
        one for place, one in enumerate(handled) if all(one["offset"] != other["offset"] for other in handled[:place])
    ]
    wrong = any(
        one["key"] == other["key"] and one["offset"] < other["offset"]
        for place, one in enumerate(firsts)
        for other in firsts[:place]
    )
    return {"nonmonotonic-poll"} if wrong else set()


def overlaps(records: Sequence[Record]) -> set[str]:
    """(c) Calls of two periods that run at once."""
    handled = [one for one in of(records, "handled") if one["begin_mono_ns"] <= one["mono_ns"]]
    wrong = any(
        owner(one) != owner(other)
        and one["begin_mono_ns"] < other["mono_ns"]
        and other["begin_mono_ns"] < one["mono_ns"]
        for place, one in enumerate(handled)
        for other in handled[:place]
    )
    return {"overlap"} if wrong else set()


def stale_owners(records: Sequence[Record]) -> set[str]:
    """(c) A call that begins at or after its own end, or after the grant of a period that began after its own."""
    grants: list[Record] = []
    for record in of(records, "acquired", "positioned", "handled", "committed", "dropped", "lock_lost"):
        if owner(record) not in [owner(one) for one in grants]:
            grants.append(record)  # the first record of each period
    for call in [one for one in of(records, "handled") if one["begin_mono_ns"] <= one["mono_ns"]]:
        own = [owner(one) for one in grants].index(owner(call))
        ends = [one for one in of(records, "dropped", "lock_lost") if owner(one) == owner(call)]
        over = [one for one in ends if records.index(one) < records.index(call)]
        if any(call["begin_mono_ns"] >= one["mono_ns"] for one in over):
            return {"stale-owner"}
        later = grants[own + 1 : own + 2]
        if any(call["begin_mono_ns"] > one["mono_ns"] for one in later):
            return {"stale-owner"}
    return set()


def calls_at_once(records: Sequence[Record]) -> set[str]:
    """(c) Two calls of one period at once."""
    handled = [one for one in of(records, "handled") if one["begin_mono_ns"] <= one["mono_ns"]]
    wrong = any(
        owner(one) == owner(other)
        and one["begin_mono_ns"] != other["begin_mono_ns"]
        and one["begin_mono_ns"] < other["mono_ns"]
        for place, one in enumerate(handled)
        for other in handled[:place]
    )
    return {"concurrent-calls"} if wrong else set()


def call_times(records: Sequence[Record]) -> set[str]:
    return {"ends-before-begin"} if any(r["mono_ns"] < r["begin_mono_ns"] for r in of(records, "handled")) else set()


def losses(records: Sequence[Record]) -> set[str]:
    """(d) A message that was sent, lies between the lowest position and the highest commit, and never succeeded."""
    starts = [one["offset"] for one in of(records, "positioned")]
    commits = [one["offset"] for one in of(records, "committed")]
    done = {one["offset"] for one in of(records, "handled") if one["status"] not in FAILED}
    sent = {one["offset"] for one in of(records, "sent")}
    between = set(range(min(starts, default=0), max(commits, default=0))) if starts else set()
    return {"lost-write"} if (between & sent) - done else set()


def commits_back(records: Sequence[Record]) -> set[str]:
    """(d) A commit below the commit or the position before it."""
    marks = of(records, "committed", "positioned")
    wrong = any(one["event"] == "committed" and one["offset"] < before["offset"] for before, one in pairwise(marks))
    return {"commit back"} if wrong else set()


def stored_back(records: Sequence[Record]) -> set[str]:
    stored = of(records, "stored")
    return {"stored-regress"} if any(b["offset"] < a["offset"] for a, b in pairwise(stored)) else set()


def no_grants(records: Sequence[Record]) -> set[str]:
    """(c) A period whose first record is its position."""
    first: dict[tuple[str, int], str] = {}
    for record in of(records, "acquired", "positioned", "handled", "committed", "dropped"):
        first.setdefault(owner(record), record["event"])
    handled = {owner(record) for record in of(records, "handled")}
    wrong = of(records, "acquired") and any(first[one] == "positioned" for one in handled)
    return {"no-grant"} if wrong else set()
