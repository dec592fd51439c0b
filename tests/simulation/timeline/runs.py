"""Evidence of runs, made up: `takeover` has one violation with two records, `wide` many queues and calls."""

from typing import Any

from lockstep.client import MessageQueue
from lockstep.order import Kind
from lockstep.order.report import Violation
from lockstep.protocol.epochs import make_epoch
from lockstep.simulation.lab.cluster_log import LogLine
from lockstep.simulation.lab.findings import Band, Finding
from lockstep.simulation.machine.host import HostEvent
from lockstep.simulation.timeline.evidence import Evidence, HostChange, LockChange, LockEvent, Role
from lockstep.simulation.virtual_time.loop import START_NS

__all__ = ["change", "client", "epoch", "host", "queue", "record", "takeover", "wide"]

LEASE_MS = 60_000


def queue(queue_id: int = 0) -> MessageQueue:
    return MessageQueue("orders", "broker", queue_id)


def client(host_name: str) -> str:
    """The client id of c1, c2 ..."""
    return f"10.0.0.{host_name[1:]}@1#1"


def epoch(counter: int, boot: int = 1) -> int:
    return make_epoch(boot, counter)


def change(
    at_ms: int, event: LockEvent, owner: str, *, queue_id: int = 0, number: int = 0, **fields: Any
) -> LockChange:
    """A change of the lock of a queue; a grant and a renewal last for a lease."""
    ends_ms = fields.pop("ends_ms", at_ms + LEASE_MS)
    return LockChange(at_ms, "shop", queue(queue_id), event, client(owner), number and epoch(number), ends_ms, **fields)


def host(at_ms: int, name: str, event: HostEvent) -> HostChange:
    return HostChange(at_ms, name, event)


def record(event: str, owner: str, end_ms: float, *, queue_id: int = 0, **fields: Any) -> dict[str, Any]:
    """A record of a trace; `begin_ms` is when a call began."""
    place: dict[str, Any] = {"group": "shop", "topic": "orders", "broker": "broker"}
    found = {"event": event, "client_id": client(owner), **place}
    found |= {"queue_id": queue_id, "mono_ns": START_NS + int(end_ms * 1e6), "wall_ms": int(end_ms)}
    if event == "handled":
        found |= {"status": "SUCCESS", "begin_mono_ns": START_NS + int(fields.pop("begin_ms", end_ms) * 1e6)}
    return found | fields


def started(*names: str) -> list[HostChange]:
    return [host(0, name, HostEvent.STARTED) for name in names]


def takeover() -> Evidence:
    """c1 is stopped inside a call for longer than its lock lasts; c2 handles the same message meanwhile."""
    late = record("handled", "c1", 85_500, begin_ms=5_000, offset=3)
    again = record("handled", "c2", 70_500, begin_ms=70_000, offset=3)
    sentence = "c1 and c2 handled queue 0 at once"
    return Evidence(
        "faithful",
        elapsed_ms=100_000,
        settings={"seed": 7, "consumers": 2},
        addresses={"10.0.0.1": "c1", "10.0.0.2": "c2", "10.0.0.9": "broker"},
        roles={"broker": Role.BROKER, "c1": Role.CONSUMER, "c2": Role.CONSUMER},
        hosts=[
            *started("broker", "c1", "c2"),
            host(5_100, "c1", HostEvent.STOPPED),
            host(85_400, "c1", HostEvent.CONTINUED),
            host(90_000, "c1", HostEvent.CRASHED),
        ],
        locks=[
            change(1_000, LockEvent.GRANTED, "c1"),
            change(4_000, LockEvent.RENEWED, "c1"),
            change(20_000, LockEvent.REFUSED, "c2", other=client("c1"), why="another client has it"),
            change(66_000, LockEvent.GRANTED, "c2"),
            change(95_000, LockEvent.RELEASED, "c2", why="unlocked", ends_ms=126_000),
        ],
        log=[LogLine(86_000, "c1", "warning", "lock_lost", {"queue": "orders@broker:0", "why": "refused"})],
        records={"c1": [record("acquired", "c1", 1_000), late], "c2": [again]},
        bands=[Band(5_100, 85_400, "stall", "c1")],
        violations=[Violation(Kind.OVERLAP, (again, late), sentence)],
    )


def wide(queues: int, calls: int, wrongs: int = 0) -> Evidence:
    """Two members share the queues; each queue has so many calls."""
    owners = ["c1", "c2"]
    found = Evidence(
        "fenced",
        elapsed_ms=1000 * calls + 2000,
        addresses={"10.0.0.1": "c1", "10.0.0.2": "c2"},
        roles=dict.fromkeys(owners, Role.CONSUMER),
        hosts=started(*owners),
        records={owner: [] for owner in owners},
    )
    for queue_id in range(queues):
        owner = owners[queue_id % 2]
        found.locks.append(change(0, LockEvent.GRANTED, owner, queue_id=queue_id, number=queue_id + 1))
        for number in range(calls):
            end_ms = 1000 + 1000 * number
            found.locks.append(change(end_ms, LockEvent.RENEWED, owner, queue_id=queue_id, number=queue_id + 1))
            found.records[owner].append(
                record("handled", owner, end_ms + 100, begin_ms=end_ms, queue_id=queue_id, offset=number)
            )
    found.locks.sort(key=lambda one: one.at_ms)
    for number in range(wrongs):
        found.findings.append(Finding("overlap", 1000 + number, f"{queue(number % queues)}: twice at once"))
    return found
