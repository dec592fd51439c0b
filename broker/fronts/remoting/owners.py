"""The answer to a member that asks for the members of its group and the owners of their queues (docs/fencing.md)."""

from collections.abc import Callable, Generator
from typing import Final
from weakref import WeakKeyDictionary

from lockstep.broker.connection import Connection
from lockstep.broker.core.broker import Broker
from lockstep.broker.fronts.remoting.in_steps import reply_in_steps
from lockstep.broker.ownership.port import Owners
from lockstep.broker.sliced_work import Wait
from lockstep.protocol.bodies.rows import BodySteps, encode_list
from lockstep.protocol.command import RemotingCommand

__all__ = ["list_owners"]

_LISTS_MAX: Final = 16


class _List:
    """An answer that serves all who ask for it. `written`: None until it is ready; `waiting`: those who wait for it."""

    def __init__(self, client_ids: tuple[str, ...], version: int) -> None:
        self.of = client_ids, version
        self.written: bytes | None = None
        self.waiting: list[Callable[[], None]] = []


# Of each broker the last answers, by group and encoding: after a change all members ask.
_lists: WeakKeyDictionary[Broker, dict[tuple[str, int], _List]] = WeakKeyDictionary()


def list_owners(
    broker: Broker,
    connection: Connection,
    command: RemotingCommand,
    group: str,
    client_ids: tuple[str, ...],
    owners: Owners,
) -> RemotingCommand | None:
    """Answer with the members, and the owners among them."""
    key = group, command.serialize_type

    def body() -> Generator[Wait | None, None, bytes]:
        lists = _lists.setdefault(broker, {})
        known = lists.get(key)
        if known is not None and known.of == (client_ids, owners.version):
            if known.written is None:
                yield known.waiting.append
            if known.written is not None:
                return known.written
        lists.pop(key, None)
        one = lists[key] = _List(client_ids, owners.version)
        if len(lists) > _LISTS_MAX:
            del lists[next(iter(lists))]
        try:
            one.written = yield from _written(client_ids, owners, command.serialize_type)
        finally:
            if one.written is None and lists.get(key) is one:  # too long: each of the others then says so itself
                del lists[key]
            for go_on in one.waiting:
                go_on()
        return one.written

    return reply_in_steps(broker, connection, command, body)


def _written(client_ids: tuple[str, ...], owners: Owners, serialize_type: int) -> BodySteps:
    places = {client_id: place for place, client_id in enumerate(client_ids)}
    rows = (
        (topic, queue_id, places[client_id], since_ms)
        for topic, queue_id, client_id, since_ms in owners.rows
        if client_id in places
    )
    return encode_list({"consumerIdList": list(client_ids)}, "owners", rows, serialize_type)
