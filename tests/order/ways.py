"""Ways to have the same history in other traces: older records, several machines, rotated files, more witnesses."""

import random
from collections.abc import Callable
from typing import Any, Final

__all__ = [
    "ONE_CLOCK",
    "SEVERAL_CLOCKS",
    "Records",
    "Way",
    "as_it_is",
    "by_wall_clock",
    "moved",
    "on_machines",
    "under_one_address",
]

Records = list[dict[str, Any]]
Way = Callable[[list[Records], random.Random], list[Records]]
_TRANSIENT = ("v", "machine", "boot")


def moved(record: dict[str, Any], wall_ms: int, mono_ns: int, **fields: Any) -> dict[str, Any]:
    """A record on another clock; one that has only a wall clock stays without the other."""
    found = {**record, **fields, "wall_ms": record["wall_ms"] + wall_ms}
    if "mono_ns" in record:
        found["mono_ns"] = record["mono_ns"] + mono_ns
    else:
        found = {name: value for name, value in found.items() if name not in _TRANSIENT}
    if "begin_mono_ns" in record:
        found["begin_mono_ns"] = record["begin_mono_ns"] + mono_ns
    return found


def as_it_is(traces: list[Records], rng: random.Random) -> list[Records]:
    return traces


def of_version_1(traces: list[Records], rng: random.Random) -> list[Records]:
    """Without the fields of version 2."""
    return [[{name: one[name] for name in one if name not in _TRANSIENT} for one in trace] for trace in traces]


def in_two_files(traces: list[Records], rng: random.Random) -> list[Records]:
    """Rotated: every trace in two files, named in the wrong order."""
    cuts = [rng.randint(0, len(trace)) for trace in traces]
    parts = [part for trace, cut in zip(traces, cuts, strict=True) for part in (trace[cut:], trace[:cut])]
    return [part for part in parts if part]


def with_producers(traces: list[Records], rng: random.Random) -> list[Records]:
    """A producer's trace of all that was handled and what lies between, if there is none and no retry."""
    calls = [one for trace in traces for one in trace if one["event"] == "handled"]
    messages = {(one["broker"], one["queue_id"], one["offset"], one["msg_id"]) for one in calls}
    if len(messages) > len({message[3] for message in messages}) or any(
        one["event"] in ("sent", "broker_restarted") for trace in traces for one in trace
    ):
        return traces
    sent: dict[tuple[Any, ...], dict[str, Any]] = {}
    for trace in traces:
        for one in trace:
            if one["event"] == "handled":
                place = one["topic"], one["broker"], one["queue_id"], one["offset"]
                time = min(one["begin_mono_ns"], one["mono_ns"]) - 1_000_000_000
                kept = ("v", "machine", "boot", "host", "key", "msg_id")
                head: dict[str, Any] = {name: value for name, value in one.items() if name in kept}
                head |= dict(zip(("topic", "broker", "queue_id", "offset"), place, strict=True))
                wall_ms = one["wall_ms"] - (one["mono_ns"] - time) // 1_000_000
                head |= {"event": "sent", "client_id": "maker", "wall_ms": wall_ms, "mono_ns": time}
                sent.setdefault(place, head)
    for (*queue, offset), one in [*sent.items()]:
        for between in range(offset):
            sent.setdefault((*queue, between), one | {"offset": between, "msg_id": f"between-{queue[2]}-{between}"})
    return [*traces, sorted(sent.values(), key=lambda one: int(one["mono_ns"]))]


def by_wall_clock(traces: list[Records], rng: random.Random) -> list[Records]:
    """Records of a foreign writer: no monotonic clock at all."""
    dropped = (*_TRANSIENT, "mono_ns", "begin_mono_ns")
    return [[{name: one[name] for name in one if name not in dropped} for one in trace] for trace in traces]


def on_machines(traces: list[Records], rng: random.Random) -> list[Records]:
    """Every trace on a machine of its own, whose wall clock is up to 250 ms off: two are up to 500 ms apart."""
    found = []
    for number, trace in enumerate(traces):
        wall_ms, boot_ns = rng.randint(-250, 250), rng.randrange(10**12, 10**15)
        names = {"v": 2, "machine": f"m{number}", "boot": f"b{number}", "host": "127.0.0.1"}
        found.append([moved(record, wall_ms, boot_ns, **names) for record in trace])
    return found


def under_one_address(traces: list[Records], rng: random.Random) -> list[Records]:
    """The same in records of version 1: only `host`, and that is equal."""
    return of_version_1(on_machines(traces, rng), rng)


def on_machines_in_two_files(traces: list[Records], rng: random.Random) -> list[Records]:
    return in_two_files(on_machines(traces, rng), rng)


ONE_CLOCK: Final[tuple[Way, ...]] = (as_it_is, of_version_1, in_two_files, with_producers)
SEVERAL_CLOCKS: Final[tuple[Way, ...]] = (on_machines, under_one_address, on_machines_in_two_files)
