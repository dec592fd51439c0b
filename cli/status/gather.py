"""Reads the state of a cluster: with requests that RocketMQ has, and the locks where the brokers are Lockstep's."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar

from lockstep.cli.status.facts import BrokerStatus, ClusterStatus, GroupStatus
from lockstep.client.admin.client import AdminClient, NotLockstepError
from lockstep.client.errors import ClientError
from lockstep.protocol.bodies.broker import BrokerData
from lockstep.protocol.bodies.heartbeat import MessageModel
from lockstep.protocol.bodies.locks import LockTableRow
from lockstep.protocol.codes import MASTER_ID
from lockstep.protocol.errors import ProtocolError
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import dead_letter_topic, is_retry_topic
from lockstep.remoting.errors import RemotingError
from lockstep.remoting.host.runtime import Runtime

__all__ = ["gather_status"]

_AT_ONCE: Final = 16
_QUEUES_LOOKED_AT: Final = 64  # of a group, for the age of the oldest message
_ERRORS: Final = (RemotingError, ClientError, ProtocolError)

T = TypeVar("T")


async def gather_status(admin: AdminClient, runtime: Runtime, behind_ms: int) -> ClusterStatus:
    """Read everything once. A broker that does not answer is part of the result.

    Raises:
        NoRouteError: No name server answers.
    """
    datas = await admin.brokers()
    asked = asyncio.Semaphore(_AT_ONCE)
    brokers = [
        _broker(admin, runtime, data, broker_id, asked)
        for data in sorted(datas, key=lambda data: data.broker_name)
        for broker_id in sorted(data.broker_addrs)
    ]
    found = tuple(await asyncio.gather(*brokers))
    topics = await admin.topics()
    of_users = len(await admin.user_topics())
    silent = [broker.error for broker in found if broker.is_master and broker.error is not None]
    if silent:  # what it would be asked about groups would wait as long again
        return ClusterStatus(found, of_users, unread=silent[0], behind_ms=behind_ms)
    try:
        locks = await _locks(admin)
        names = await admin.all_groups()
        of_groups = [_group(admin, runtime, name, locks, topics, asked) for name in names]
        groups = tuple(await asyncio.gather(*of_groups))
    except _ERRORS as error:
        return ClusterStatus(found, of_users, unread=str(error), behind_ms=behind_ms)
    held = None if locks is None else [row for row in locks if row.remaining_ms >= 0]
    owners = None if held is None else len({row.client_id for row in held})
    return ClusterStatus(found, of_users, groups, None if held is None else len(held), owners, None, behind_ms)


async def _broker(
    admin: AdminClient, runtime: Runtime, data: BrokerData, broker_id: int, asked: asyncio.Semaphore
) -> BrokerStatus:
    address, is_master = data.broker_addrs[broker_id], broker_id == MASTER_ID
    try:
        async with asked:
            is_lockstep = await admin.is_lockstep(address)
            table = await admin.broker_runtime(address)
    except _ERRORS as error:
        return BrokerStatus(data.broker_name, address, data.cluster, is_master, error=str(error))
    booted_ms = int(_number(table, "bootTimestamp"))
    return BrokerStatus(
        data.broker_name,
        address,
        data.cluster,
        is_master,
        is_lockstep,
        table.get("brokerVersionDesc", ""),
        max(runtime.now_ms() - booted_ms, 0) if booted_ms else 0,
        _number(table, "putTps"),
        _number(table, "getTransferedTps"),
        _number(table, "commitLogDiskRatio"),
    )


def _number(table: Mapping[str, str], name: str) -> float:
    """The first number of a text; rates are those of ten seconds, a minute, and ten. 0 without one."""
    words = table.get(name, "").split()
    try:
        return float(words[0]) if words else 0.0
    except ValueError:
        return 0.0


async def _locks(admin: AdminClient) -> list[LockTableRow] | None:
    try:
        return await admin.list_locks()
    except NotLockstepError:
        return None


async def _group(
    admin: AdminClient,
    runtime: Runtime,
    name: str,
    locks: Sequence[LockTableRow] | None,
    topics: Sequence[str],
    asked: asyncio.Semaphore,
) -> GroupStatus:
    async def ask(call: Coroutine[Any, Any, T]) -> T:
        async with asked:
            return await call

    connected = await ask(admin.members(name))
    members = len(connected.connection_set) if connected is not None else 0
    count, age_ms = 0, None
    if dead_letter_topic(name) in topics:
        stats = await ask(admin.topic_stats(dead_letter_topic(name)))
        count = sum(of.max_offset - max(of.min_offset, 0) for of in stats.values())
        age_ms = max(runtime.now_ms() - max(of.last_update_timestamp for of in stats.values()), 0) if count else None
    of_group = None if locks is None else {row.queue for row in locks if row.consumer_group == name}
    held = {row.queue for row in locks or () if row.consumer_group == name and row.remaining_ms >= 0}
    locked = None if of_group is None else len(held)
    if connected is not None and connected.message_model is MessageModel.BROADCASTING:
        return GroupStatus(name, members, None, None, locked, (), count, age_ms)
    progress = (await ask(admin.progress(name))).offsets
    behind = {queue: of for queue, of in progress.items() if of.broker_offset > of.consumer_offset}
    waits = await asyncio.gather(
        *[
            ask(_wait_ms(admin, runtime, queue, of.consumer_offset))
            for queue, of in sorted(behind.items())[:_QUEUES_LOOKED_AT]
        ]
    )
    not_held = [queue for queue in sorted(behind) if queue not in held and not is_retry_topic(queue.topic)]
    return GroupStatus(
        name,
        members,
        sum(of.broker_offset - of.consumer_offset for of in behind.values()),
        max([wait for wait in waits if wait is not None], default=None),
        locked,
        tuple(map(str, not_held)) if of_group else (),
        count,
        age_ms,
    )


async def _wait_ms(admin: AdminClient, runtime: Runtime, queue: MessageQueue, offset: int) -> int | None:
    """How long the message at an offset is stored."""
    try:
        messages = (await admin.read_queue(queue, offset, count_max=1)).messages
    except _ERRORS:
        return None
    return max(runtime.now_ms() - messages[0].store_timestamp, 0) if messages else None
