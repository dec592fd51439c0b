"""One wrong put into good traces: operators that say which kinds name it.

Each takes the traces of one run, changes them in one place by chance, and returns False where there is no place. Times
that an operator needs are taken from records near it, so that the wrong is nothing else.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from lockstep.order import Kind

__all__ = [
    "MUTATIONS", "Mutation", "Record", "Traces", "later_of_period", "mutation", "pick", "places", "queue_of", "singles",
]  # fmt: skip

Record = dict[str, Any]
Traces = list[list[Record]]
MS: Final = 1_000_000


class Mutation(NamedTuple):
    """What is changed, and the kinds of which one must be found."""

    change: Callable[[Traces, random.Random], bool]
    kinds: frozenset[Kind]


MUTATIONS: Final[dict[str, Mutation]] = {}


def mutation(*kinds: Kind) -> Callable[[Callable[[Traces, random.Random], bool]], Callable[..., bool]]:
    def add(change: Callable[[Traces, random.Random], bool]) -> Callable[[Traces, random.Random], bool]:
        MUTATIONS[change.__name__] = Mutation(change, frozenset(kinds))
        return change

    return add


def queue_of(record: Record) -> tuple[Any, ...]:
    return record.get("topic"), record.get("broker"), record.get("queue_id")


def places(traces: Traces, *events: str) -> list[tuple[list[Record], int]]:
    return [(trace, i) for trace in traces for i, record in enumerate(trace) if record["event"] in events]


def singles(traces: Traces) -> list[tuple[list[Record], int]]:
    """Handled records of messages that were handled once, alone in their call, by an owner that went on."""
    found = places(traces, "handled")
    times = Counter((*queue_of(trace[i]), trace[i]["offset"]) for trace, i in found)
    begins = Counter((trace[i]["client_id"], trace[i].get("begin_mono_ns")) for trace, i in found)
    return [
        (trace, i)
        for trace, i in found
        if times[*queue_of(trace[i]), trace[i]["offset"]] == 1
        and begins[trace[i]["client_id"], trace[i].get("begin_mono_ns")] == 1
        and trace[i]["status"] == "SUCCESS"
    ]


def pick(found: list[Any], rng: random.Random) -> Any:
    return rng.choice(found) if found else None


def later_of_period(trace: list[Record], i: int) -> Iterator[int]:
    for k in range(i + 1, len(trace)):
        if trace[k].get("period") == trace[i].get("period") and queue_of(trace[k]) == queue_of(trace[i]):
            yield k


def shifted(record: Record, ns: int, **fields: Any) -> Record:
    moved = {**record, **fields, "mono_ns": record["mono_ns"] + ns, "wall_ms": record["wall_ms"] + ns // MS}
    if "begin_mono_ns" in moved:
        moved["begin_mono_ns"] += ns
    return moved


def handovers(traces: Traces) -> list[tuple[list[Record], int, list[Record], int]]:
    """(old trace, its last call of a queue, new trace, the next grant of that queue to another client)."""
    grants = sorted(places(traces, "acquired"), key=lambda one: one[0][one[1]]["mono_ns"])
    found = []
    for trace, i in grants:
        grant = trace[i]
        calls = [
            (other, k)
            for other, k in places(traces, "handled")
            if queue_of(other[k]) == queue_of(grant)
            and other[k]["client_id"] != grant["client_id"]
            and other[k]["mono_ns"] < grant["mono_ns"]
        ]
        if calls:
            old, k = max(calls, key=lambda one: one[0][one[1]]["mono_ns"])
            found.append((old, k, trace, i))
    return found


# (a) and (b) ---------------------------------------------------------------------------------------------------


def _swap(traces: Traces, rng: random.Random, *, apart: int) -> bool:
    by_key: dict[tuple[Any, ...], list[Record]] = {}
    for trace, i in singles(traces):
        record = trace[i]
        by_key.setdefault((*queue_of(record), record["client_id"], record["period"], record["key"]), []).append(record)
    runs = [run for run in by_key.values() if len(run) > apart]
    run = pick(runs, rng)
    if run is None:
        return False
    place = rng.randrange(len(run) - apart)
    one, other = run[place], run[place + apart]
    for name in ("offset", "msg_id"):
        one[name], other[name] = other[name], one[name]
    return True


@mutation(Kind.NONMONOTONIC_POLL)
def two_neighbours_of_a_key_swapped(traces: Traces, rng: random.Random) -> bool:
    return _swap(traces, rng, apart=1)


@mutation(Kind.NONMONOTONIC_POLL)
def two_far_messages_of_a_key_swapped(traces: Traces, rng: random.Random) -> bool:
    return _swap(traces, rng, apart=3)


def _repeat(traces: Traces, rng: random.Random, *, back: int, delay_ns: int) -> bool:
    found = [
        (trace, i, earlier)
        for trace, i in singles(traces)
        for earlier in [i - back]
        if earlier >= 0
        and trace[earlier]["event"] == "handled"
        and trace[earlier]["status"] == "SUCCESS"
        and queue_of(trace[earlier]) == queue_of(trace[i])
        and trace[earlier].get("period") == trace[i].get("period")
    ]
    chosen = pick(found, rng)
    if chosen is None:
        return False
    trace, i, earlier = chosen
    end = trace[i]["mono_ns"]
    again = {**trace[earlier], "begin_mono_ns": end + 1, "mono_ns": end + 1 + delay_ns, "wall_ms": trace[i]["wall_ms"]}
    trace.insert(i + 1, again)
    return True


@mutation(Kind.UNEXPLAINED_REPEAT, Kind.CONCURRENT_CALLS)
def a_message_handled_again_at_once(traces: Traces, rng: random.Random) -> bool:
    return _repeat(traces, rng, back=0, delay_ns=1)


@mutation(Kind.UNEXPLAINED_REPEAT, Kind.CONCURRENT_CALLS)
def an_earlier_message_handled_again(traces: Traces, rng: random.Random) -> bool:
    return _repeat(traces, rng, back=1, delay_ns=1)


@mutation(Kind.LOST_WRITE)
def a_handling_dropped_below_a_commit(traces: Traces, rng: random.Random) -> bool:
    top: dict[tuple[Any, ...], int] = {}
    for trace, i in places(traces, "committed"):
        top[queue_of(trace[i])] = max(top.get(queue_of(trace[i]), 0), trace[i]["offset"])
    chosen = pick([(t, i) for t, i in singles(traces) if t[i]["offset"] < top.get(queue_of(t[i]), 0)], rng)
    if chosen is None:
        return False
    del chosen[0][chosen[1]]
    return True


@mutation(Kind.LOST_WRITE)
def a_success_turned_into_a_failure(traces: Traces, rng: random.Random) -> bool:
    top: dict[tuple[Any, ...], int] = {}
    for trace, i in places(traces, "committed"):
        top[queue_of(trace[i])] = max(top.get(queue_of(trace[i]), 0), trace[i]["offset"])
    chosen = pick([(t, i) for t, i in singles(traces) if t[i]["offset"] < top.get(queue_of(t[i]), 0)], rng)
    if chosen is None:
        return False
    chosen[0][chosen[1]]["status"] = "SUSPEND_CURRENT_QUEUE_A_MOMENT"
    return True


# (c) -----------------------------------------------------------------------------------------------------------


def _late_call(traces: Traces, rng: random.Random, *, after_ns: int, long_ns: int, first: bool) -> bool:
    """The old owner's last call, again or of the next offset, after the new owner was granted the queue."""
    chosen = pick(
        [
            one
            for one in handovers(traces)
            if one[0][one[1]]["status"] == "SUCCESS"
            and any(one[2][i]["event"] == "handled" for i in later_of_period(one[2], one[3]))
        ],
        rng,
    )
    if chosen is None:
        return False
    old, k, new, g = chosen
    grant = new[g]
    begin = grant["mono_ns"] + after_ns
    call = {**old[k], "begin_mono_ns": begin, "mono_ns": begin + long_ns, "wall_ms": grant["wall_ms"] + after_ns // MS}
    if first:  # the message that the new owner handles first
        taken = next((new[i] for i in later_of_period(new, g) if new[i]["event"] == "handled"), None)
        if taken is None:
            return False
        call |= {name: taken[name] for name in ("offset", "msg_id", "key")}
    place = max(i for i, one in enumerate(old) if one["mono_ns"] <= call["mono_ns"]) + 1
    old.insert(place, call)
    return True


OVER = (Kind.STALE_OWNER, Kind.OVERLAP, Kind.STALE_REPEAT)
for _after, _long, _first in (
    (1, 1, False), (1, 1, True), (1000, MS, False), (1000, MS, True), (MS, 1, False), (MS, 1, True),
    (20 * MS, 5 * MS, False), (20 * MS, 5 * MS, True), (500 * MS, 1, False), (500 * MS, 1, True),
):  # fmt: skip
    MUTATIONS[f"a replaced owner {'goes on' if _first else 'repeats'} {_after} ns late for {_long} ns"] = Mutation(
        partial(_late_call, after_ns=_after, long_ns=_long, first=_first),
        frozenset(OVER if _first else (*OVER, Kind.UNEXPLAINED_REPEAT)),
    )


def _ended_before(traces: Traces, rng: random.Random, event: str, *, calls: int) -> bool:
    """A period is ended some calls before its last one."""
    found = [
        (trace, i)
        for trace, i in singles(traces)
        if sum(
            trace[k]["event"] == "handled" and trace[k]["begin_mono_ns"] > trace[i]["mono_ns"]
            for k in later_of_period(trace, i)
        )
        >= calls
    ]
    chosen = pick(found, rng)
    if chosen is None:
        return False
    trace, i = chosen
    end = {name: value for name, value in trace[i].items() if name not in _OF_CALLS}
    trace.insert(i + 1, {**end, "event": event, "why": "mutation"})
    return True


_OF_CALLS: Final = (
    "offset",
    "key",
    "msg_id",
    "status",
    "begin_mono_ns",
    "begin_wall_ms",
    "reconsume_times",
    "ordering",
)
for _event in ("dropped", "lock_lost"):
    for _calls in (1, 2, 5):
        MUTATIONS[f"{_event}, and {_calls} calls or more begin after it"] = Mutation(
            partial(_ended_before, event=_event, calls=_calls),
            frozenset({Kind.STALE_OWNER}),
        )


def _begin_earlier(traces: Traces, rng: random.Random, by_ns: int) -> bool:
    found = []
    for trace, i in singles(traces):
        if trace[i].get("ordering"):
            continue  # by key, calls of two keys may run at once
        before = [k for k in range(i) if trace[k]["event"] == "handled" and queue_of(trace[k]) == queue_of(trace[i])]
        if before and trace[before[-1]].get("period") == trace[i].get("period"):
            found.append((trace, i, before[-1]))
    chosen = pick(found, rng)
    if chosen is None:
        return False
    trace, i, before = chosen
    trace[i]["begin_mono_ns"] = trace[before]["mono_ns"] - by_ns
    return bool(trace[i]["begin_mono_ns"] != trace[before]["begin_mono_ns"])


for _by in (1, 1000, MS):
    MUTATIONS[f"a call begins {_by} ns before the last one ended"] = Mutation(
        partial(_begin_earlier, by_ns=_by), frozenset({Kind.CONCURRENT_CALLS, Kind.OVERLAP})
    )


def _backwards(traces: Traces, rng: random.Random, by_ns: int) -> bool:
    chosen = pick(singles(traces), rng)
    if chosen is None:
        return False
    record = chosen[0][chosen[1]]
    record["begin_mono_ns"] = record["mono_ns"] + by_ns
    return True


for _by in (1, MS, 3_600_000 * MS):
    MUTATIONS[f"a call ends {_by} ns before it begins"] = Mutation(
        partial(_backwards, by_ns=_by), frozenset({Kind.ENDS_BEFORE_BEGIN})
    )


@mutation(Kind.NO_GRANT)
def a_grant_taken_out(traces: Traces, rng: random.Random) -> bool:
    found = [
        (trace, i)
        for trace, i in places(traces, "acquired")
        if [trace[k]["event"] for k in later_of_period(trace, i)][:1] == ["positioned"]
        and any(trace[k]["event"] == "handled" for k in later_of_period(trace, i))
    ]
    chosen = pick(found, rng)
    if chosen is None or len(found) < 2:
        return False
    del chosen[0][chosen[1]]
    return True


@mutation(Kind.TWO_GRANTS)
def a_second_grant_before_the_position(traces: Traces, rng: random.Random) -> bool:
    chosen = pick(handovers(traces), rng)
    if chosen is None:
        return False
    old, _, new, g = chosen
    position = next((k for k in later_of_period(new, g) if new[k]["event"] == "positioned"), None)
    if position is None or new[position]["mono_ns"] - new[g]["mono_ns"] < 2:
        return False
    grant = {**new[g], "client_id": old[0]["client_id"], "period": 9_999, "mono_ns": new[g]["mono_ns"] + 1}
    old.insert(max(i for i, one in enumerate(old) if one["mono_ns"] <= grant["mono_ns"]) + 1, grant)
    return True


def _epochs(traces: Traces, rng: random.Random, event: str) -> bool:
    """Every record of a queue's periods gets the epoch of its grant; one of them an older one."""
    chosen = pick(handovers(traces), rng)
    if chosen is None:
        return False
    _, _, new, g = chosen
    queue = queue_of(new[g])
    grants = sorted(
        (trace[i]["mono_ns"], trace[i]["client_id"], trace[i].get("period")) for trace, i in places(traces, "acquired")
        if queue_of(trace[i]) == queue
    )  # fmt: skip
    epochs = {owner[1:]: 100 + number for number, owner in enumerate(grants)}
    for trace in traces:
        for record in trace:
            if queue_of(record) == queue and (record.get("client_id"), record.get("period")) in epochs:
                record["epoch"] = epochs[record["client_id"], record["period"]]
    victim = pick([k for k in later_of_period(new, g) if new[k]["event"] == event], rng)
    if victim is None:
        return False
    new[victim]["epoch"] = 99
    return True


for _event in ("positioned", "handled", "committed"):
    MUTATIONS[f"{_event} under an older epoch"] = Mutation(
        partial(_epochs, event=_event), frozenset({Kind.STALE_EPOCH})
    )


@mutation(Kind.SHARED_CLIENT_ID)
def one_client_id_in_two_processes(traces: Traces, rng: random.Random) -> bool:
    trace = pick([trace for trace in traces if len(places([trace], "handled")) > 3], rng)
    if trace is None:
        return False
    calls = [i for i, one in enumerate(trace) if one["event"] == "handled"]
    first, last = trace[calls[0]], trace[calls[-1]]
    other = {name: value for name, value in first.items() if name not in _OF_CALLS}
    place = {"event": "acquired", "queue_id": 999, "period": 1}
    traces.append([{**other, **place}, {**other, **place, "mono_ns": last["mono_ns"], "wall_ms": last["wall_ms"]}])
    return True


for _apart in (2, 4):
    MUTATIONS[f"two messages of a key swapped, {_apart} apart"] = Mutation(
        partial(_swap, apart=_apart), frozenset({Kind.NONMONOTONIC_POLL})
    )
for _after in (100 * MS, 2000 * MS):
    for _first in (False, True):
        MUTATIONS[f"a replaced owner {'goes on' if _first else 'repeats'} {_after} ns late for {MS} ns"] = Mutation(
            partial(_late_call, after_ns=_after, long_ns=MS, first=_first),
            frozenset(OVER if _first else (*OVER, Kind.UNEXPLAINED_REPEAT)),
        )
