"""`lockstep group describe --why`: which member has which queue since when, and why, by its last rebalances.

Lockstep's members explain their rebalances themselves (docs/clients.md). What members of other makes do is reckoned
from the list of members, the usual strategy and the lock tables, and marked so.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from lockstep.client.consumer.ownership.allocation.average import allocate_averagely
from lockstep.client.consumer.ownership.explained import PROPERTY
from lockstep.protocol.bodies.client import ConsumerRunningInfo
from lockstep.protocol.bodies.locks import LockTableRow
from lockstep.protocol.epochs import epoch_text
from lockstep.protocol.model import MessageQueue

__all__ = ["COLUMNS", "Group", "why_rows"]

_TOPIC: Final = {"topic": str, "strategy": str, "members": list, "share_after": list, "queues": list}
_QUEUE: Final = {"broker": str, "queue_id": int, "did": str, "why": str, "since_ms": int}
COLUMNS: Final = ("topic", "broker", "queue_id", "client_id", "did", "since", "why")


class Group(NamedTuple):
    """What is known of a group.

    Args:
        members: sorted client ids; two connections with one id are two members for the strategy.
        infos: running info of the members that gave it.
        queues: by topic, sorted.
        locks: of Lockstep's brokers; empty for others.
    """

    name: str
    members: Sequence[str]
    infos: Mapping[str, ConsumerRunningInfo]
    queues: Mapping[str, Sequence[MessageQueue]]
    locks: Mapping[MessageQueue, LockTableRow]


def why_rows(group: Group) -> list[dict[str, Any]]:
    """One row for each queue and member that has something to say about it, sorted by queue."""
    rows = [row for client_id in dict.fromkeys(group.members) for row in _rows_of(group, client_id)]
    return sorted(rows, key=lambda row: (row["topic"], row["broker"], row["queue_id"], row["client_id"]))


def _rows_of(group: Group, client_id: str) -> Iterator[dict[str, Any]]:
    info = group.infos.get(client_id)
    topics = _explained(info.properties.get(PROPERTY, "")) if info is not None else None
    if topics is None:
        if info is None or not info.pops:  # who pops has no share
            yield from _reckoned(group, client_id)
        return
    for topic in topics:
        if topic["topic"] not in group.queues:
            continue
        for queue in topic["queues"]:
            yield {
                "topic": topic["topic"],
                "broker": queue["broker"],
                "queue_id": queue["queue_id"],
                "client_id": client_id,
                "did": queue["did"],
                "since_ms": queue["since_ms"],
                "why": queue["why"],
                "epoch": queue.get("epoch"),
                "owner": queue.get("owner"),
                "strategy": topic["strategy"],
                "members": topic["members"],
                "share": topic["share_after"],
                "reckoned": False,
            }


def _explained(text: str) -> list[dict[str, Any]] | None:
    """The explanations of a member; None if it gives none, or none that can be read."""
    try:
        topics = json.loads(text)
        _check(topics, _TOPIC)
        for topic in topics:
            _check(topic["queues"], _QUEUE)
    except ValueError:
        return None
    return list(topics)


def _check(rows: Any, fields: Mapping[str, type]) -> None:
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError("a list of objects is expected")
    for row in rows:
        wrong = [name for name, kind in fields.items() if not isinstance(row.get(name), kind)]
        if wrong:
            raise ValueError(f"{', '.join(wrong)} must be there, each of its type")


def _reckoned(group: Group, client_id: str) -> Iterator[dict[str, Any]]:
    count = len(group.members)
    for topic, queues in group.queues.items():
        shares = {one: allocate_averagely(group.name, one, queues, group.members) for one in group.members}
        for queue in queues:
            lock, mine = group.locks.get(queue), queue in shares[client_id]
            holder = lock.client_id if lock is not None and lock.is_held else ""
            if not mine and holder != client_id:
                continue
            to = client_id if mine else next((one for one, share in shares.items() if queue in share), "no member")
            did, end = "allocated", "no lock of it is known"
            if holder == client_id:
                did, end = "locked", "this member holds the lock"
            elif holder:
                did, end = "refused", f"{holder} holds the lock"
            yield {
                "topic": topic,
                "broker": queue.broker_name,
                "queue_id": queue.queue_id,
                "client_id": client_id,
                "did": did,
                "since_ms": None,
                "why": f"reckoned: AVG of {count} members gives it to {to}; {end}",
                "epoch": epoch_text(lock.epoch) if lock is not None and lock.epoch else None,
                "owner": holder or None,
                "strategy": "AVG",
                "members": list(group.members),
                "share": [f"{one.broker_name}:{one.queue_id}" for one in shares[client_id]],
                "reckoned": True,
            }
