"""The operators of mutations.py that change commits, stored offsets, ids and keys: rule (d), and keys in queues."""

import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from lockstep.order import Kind
from tests.order.mutations import (
    MUTATIONS,
    Mutation,
    Record,
    Traces,
    later_of_period,
    mutation,
    pick,
    places,
    queue_of,
    singles,
)

__all__ = ["MUTATIONS"]

MS = 1_000_000

# (d) -----------------------------------------------------------------------------------------------------------


def _commit(traces: Traces, rng: random.Random, change: Callable[[Record, int, int], int | None]) -> bool:
    """Change one commit. `change` gets it, the mark before it in its period and the highest offset of the queue."""
    found = []
    for trace, i in places(traces, "committed"):
        marks = [
            k for k in range(i)
            if trace[k]["event"] in ("committed", "positioned") and queue_of(trace[k]) == queue_of(trace[i])
            and trace[k].get("period") == trace[i].get("period")
        ]  # fmt: skip
        if marks:
            found.append((trace, i, trace[marks[-1]]["offset"]))
    rng.shuffle(found)
    ends: Counter[tuple[Any, ...]] = Counter()
    for trace, i in places(traces, "handled", "sent"):
        ends[queue_of(trace[i])] = max(ends[queue_of(trace[i])], trace[i]["offset"])
    for trace, i, before in found:
        offset = change(trace[i], before, ends[queue_of(trace[i])])
        if offset is not None and offset >= 0:
            trace[i]["offset"] = offset
            return True
    return False


def _below(by: int, _: Record, before: int, __: int) -> int:
    return before - by


def _beyond(by: int, _: Record, __: int, end: int) -> int:
    return end + by


def _ahead(by: int, commit: Record, _: int, end: int) -> int | None:
    return commit["offset"] + by if commit["offset"] + by <= end else None


BACK = frozenset({Kind.COMMIT_REGRESS, Kind.STALE_COMMIT})
BEYOND = frozenset({Kind.COMMIT_BEYOND_END, Kind.COMMIT_UNHANDLED, Kind.LOST_WRITE})
for _by in (1, 2, 5):
    MUTATIONS[f"a commit {_by} below the one before it"] = Mutation(partial(_commit, change=partial(_below, _by)), BACK)
for _by in (2, 10, 1_000_000):
    MUTATIONS[f"a commit {_by} beyond the end of the queue"] = Mutation(
        partial(_commit, change=partial(_beyond, _by)), BEYOND
    )
for _by in (1, 3):
    MUTATIONS[f"a commit of {_by} messages that are not handled yet"] = Mutation(
        partial(_commit, change=partial(_ahead, _by)),
        BEYOND,
    )


def _stored(traces: Traces, rng: random.Random, by: int) -> bool:
    """The broker says what it stored; once it goes back."""
    chosen = pick([(t, i) for t, i in places(traces, "committed") if t[i]["offset"] >= by], rng)
    if chosen is None:
        return False
    trace, i = chosen
    place = {name: trace[i][name] for name in ("group", "topic", "broker", "queue_id", "wall_ms", "mono_ns", "host")}
    place |= {name: trace[i][name] for name in ("machine", "boot") if name in trace[i]}
    top = {**place, "event": "stored", "offset": trace[i]["offset"]}
    traces.append([top, {**top, "offset": trace[i]["offset"] - by}])
    return True


for _by in (1, 5):
    MUTATIONS[f"a stored offset goes back by {_by}"] = Mutation(
        partial(_stored, by=_by), frozenset({Kind.STORED_REGRESS})
    )


def _other_id(traces: Traces, rng: random.Random, change: Callable[[Record, Record], None]) -> bool:
    sent = {(*queue_of(trace[i]), trace[i]["offset"]) for trace, i in places(traces, "sent")}
    found = [trace[i] for trace, i in singles(traces) if (*queue_of(trace[i]), trace[i]["offset"]) in sent]
    if len(found) < 2:
        return False
    one, other = rng.sample(found, 2)
    change(one, other)
    return True


@mutation(Kind.WRONG_MESSAGE)
def another_id_at_an_offset(traces: Traces, rng: random.Random) -> bool:
    return _other_id(traces, rng, lambda one, _: one.update(msg_id="stranger"))


@mutation(Kind.WRONG_MESSAGE, Kind.REPEATED_ID)
def the_id_of_another_message(traces: Traces, rng: random.Random) -> bool:
    return _other_id(traces, rng, lambda one, other: one.update(msg_id=other["msg_id"]))


@mutation(Kind.WRONG_MESSAGE)
def two_ids_swapped(traces: Traces, rng: random.Random) -> bool:
    def swap(one: Record, other: Record) -> None:
        one["msg_id"], other["msg_id"] = other["msg_id"], one["msg_id"]

    return _other_id(traces, rng, swap)


@mutation(Kind.REPEATED_ID)
def one_id_under_two_keys(traces: Traces, rng: random.Random) -> bool:
    chosen = pick([trace[i] for trace, i in singles(traces) if trace[i]["key"] is not None], rng)
    other = chosen and pick([t[i] for t, i in singles(traces) if t[i]["key"] not in (None, chosen["key"])], rng)
    if not other:
        return False
    other["msg_id"] = chosen["msg_id"]
    return True


def _stranger(traces: Traces, rng: random.Random, ahead: int) -> bool:
    """A message that no producer sent, behind the end of the queue."""
    sent = places(traces, "sent")
    chosen = pick(singles(traces), rng)
    if chosen is None or not sent:
        return False
    trace, i = chosen
    last = max(k for k in (i, *later_of_period(trace, i)) if trace[k]["event"] == "handled")
    end = max((t[k]["offset"] for t, k in sent if queue_of(t[k]) == queue_of(trace[i])), default=-1)
    now = trace[last]["mono_ns"] + 1
    extra = {"offset": end + ahead, "key": None, "msg_id": "stranger", "begin_mono_ns": now, "mono_ns": now + 1}
    trace.insert(last + 1, {**trace[last], **extra})
    return end >= 0


for _by in (5, 1000):
    MUTATIONS[f"a message handled {_by} behind the end that nobody sent"] = Mutation(
        partial(_stranger, ahead=_by), frozenset({Kind.NEVER_SENT, Kind.POLL_SKIP})
    )


@mutation(Kind.KEY_IN_TWO_QUEUES)
def a_key_in_another_queue(traces: Traces, rng: random.Random) -> bool:
    by_key: Counter[tuple[Any, ...]] = Counter((t[i]["topic"], t[i]["key"]) for t, i in singles(traces))
    one = pick([t[i] for t, i in singles(traces) if by_key[t[i]["topic"], t[i]["key"]] > 1 and t[i]["key"]], rng)
    others = one and [
        t[i] for t, i in singles(traces)
        if t[i]["topic"] == one["topic"] and queue_of(t[i]) != queue_of(one)
        and abs(t[i]["mono_ns"] - one["mono_ns"]) < 1000 * MS
    ]  # fmt: skip
    other = others and pick(others, rng)
    if not other:
        return False
    other["key"] = one["key"]
    return True


MUTATIONS["a commit 50 below the one before it"] = Mutation(partial(_commit, change=partial(_below, 50)), BACK)
MUTATIONS["a stored offset goes back by 100"] = Mutation(partial(_stored, by=100), frozenset({Kind.STORED_REGRESS}))
MUTATIONS["a message handled 50 behind the end that nobody sent"] = Mutation(
    partial(_stranger, ahead=50), frozenset({Kind.NEVER_SENT, Kind.POLL_SKIP})
)
