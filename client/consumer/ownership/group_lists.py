"""What the brokers say of a group: its members and, to an allocation that needs it, the owners of its queues."""

import asyncio
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from lockstep.client.consumer.ownership.allocation.sticky import Owned, Owners
from lockstep.client.instance.client import MQClientInstance
from lockstep.protocol.bodies.broker import ConsumerIdList, TopicRouteData
from lockstep.protocol.bodies.codec import decode_body
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.headers.messaging import GetConsumerListByGroupRequestHeader, ListOwnersRequestHeader
from lockstep.remoting.errors import RemotingError

__all__ = ["GroupLists"]

_KEPT_MAX: Final = 16  # last answers, of all consumers of the process: nearly all repeat one


class _GroupList(NamedTuple):
    """An answer. `owners`: by topic; None: the broker does not say it."""

    client_ids: tuple[str, ...] = ()
    owners: Mapping[str, tuple[Owned, ...]] | None = None


@lru_cache(_KEPT_MAX)
def _read(body: bytes, serialize_type: int) -> _GroupList:
    client_ids, rows = decode_body(ConsumerIdList, body, serialize_type)
    if rows is None:
        return _GroupList(client_ids)
    owners: dict[str, list[Owned]] = {}
    for topic, queue_id, place, since_ms in rows:
        if 0 <= place < len(client_ids):
            owners.setdefault(topic, []).append(Owned(queue_id, client_ids[place], since_ms))
    return _GroupList(client_ids, {topic: tuple(of_topic) for topic, of_topic in owners.items()})


class GroupLists:
    """Asks for the lists of one group, and keeps the answers of a round."""

    def __init__(self, instance: MQClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group
        self._answers: dict[str, _GroupList] = {}  # by address, in this round
        self._silent: dict[str, RemotingError] = {}  # by address, in this round
        self._last_owners: dict[str, Mapping[str, tuple[Owned, ...]]] = {}  # by broker

    def forget(self) -> None:
        """A round begins, or the brokers know more than they said."""
        self._answers.clear()
        self._silent.clear()

    @property
    def member_count(self) -> int:
        """In this round, as far as brokers were asked."""
        return max((len(answer.client_ids) for answer in self._answers.values()), default=0)

    async def members(self, route: TopicRouteData) -> tuple[str, ...]:
        """Return the client ids of the group from a random broker of the topic; () when it knows none."""
        addresses = _addresses(route)
        if not addresses:
            return ()
        # As in RocketMQ any broker of the topic is asked: members send their heartbeats to all of them (wire.md 12.1).
        return (await self._ask(self._instance.runtime.rng.choice([*addresses.values()]))).client_ids

    async def members_and_owners(self, topic: str, route: TopicRouteData) -> tuple[tuple[str, ...], Owners]:
        """Return the client ids that any broker of the topic knows, and the last owners of its queues.

        Each broker knows the owners of its queues. One that does not say them has those that it said last.

        Raises:
            RemotingError: no broker answers.
        """
        addresses = _addresses(route)
        asking = [self._ask(address, owners=True) for address in addresses.values()]
        answers = await asyncio.gather(*asking, return_exceptions=True)
        client_ids: set[str] = set()
        errors = list[BaseException]()
        for (broker_name, address), answer in zip(addresses.items(), answers, strict=True):
            if isinstance(answer, BaseException):
                errors.append(answer)
                if isinstance(answer, RemotingError):
                    self._silent[address] = answer
                continue
            client_ids.update(answer.client_ids)
            if answer.owners is not None:
                self._last_owners[broker_name] = answer.owners
        other = [error for error in errors if not isinstance(error, RemotingError)]
        if other or (errors and len(errors) == len(addresses)):
            raise (other or errors)[0]
        owners = tuple((name, self._last_owners.get(name, {}).get(topic, ())) for name in sorted(addresses))
        return tuple(client_ids), owners

    async def _ask(self, address: str, *, owners: bool = False) -> _GroupList:
        group, known = self._group, self._answers.get(address)
        if known is not None:
            # RocketMQ asks for each topic (wire.md 12.3). A topic and its retry topic are on the same broker, so one
            # answer serves both.
            return known
        if address in self._silent:
            raise self._silent[address]
        endpoint = await self._instance.dialer.endpoint(address)
        # Others do not know this field.
        asks = owners and endpoint.agreed
        header = ListOwnersRequestHeader(group, True) if asks else GetConsumerListByGroupRequestHeader(group)
        code = RequestCode.GET_CONSUMER_LIST_BY_GROUP
        reply = await self._instance.call_address(address, code, header, over=endpoint)
        if reply.code != ResponseCode.SUCCESS:
            return _GroupList()
        self._answers[address] = answer = _read(reply.body, reply.serialize_type)
        return answer


def _addresses(route: TopicRouteData) -> dict[str, str]:
    """By broker name. If a broker has no master, its slave is asked: members send heartbeats to it too (wire.md 12.1,
    12.3)."""
    return {broker.broker_name: one[min(one)] for broker in route.broker_datas if (one := broker.broker_addrs)}
