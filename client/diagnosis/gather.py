"""Reads the facts of a cluster: with requests that RocketMQ has, and with ours where the brokers are Lockstep's."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from ipaddress import ip_address
from typing import Final

from lockstep.client.admin.at_once import at_once
from lockstep.client.admin.client import AdminClient, NotLockstepError
from lockstep.client.admin.groups import merged_members
from lockstep.client.diagnosis.facts import (
    BrokerFacts,
    ClusterFacts,
    GroupFacts,
    KeySpread,
    MemberFacts,
    QueueFacts,
    TopicFacts,
)
from lockstep.client.errors import ClientError, NoRouteError, TopicNotFoundError
from lockstep.protocol.bodies.attributes import FIFO
from lockstep.protocol.bodies.broker import BrokerData
from lockstep.protocol.bodies.client import Connection, ConsumerConnection, ConsumerRunningInfo
from lockstep.protocol.bodies.heartbeat import ConsumeFromWhere, MessageModel
from lockstep.protocol.bodies.lock_changes import LockChange
from lockstep.protocol.bodies.locks import LockTableRow
from lockstep.protocol.codes import MASTER_ID
from lockstep.protocol.errors import ProtocolError
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.messages.properties import sharding_key_of
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import dead_letter_topic, is_retry_topic, is_system_topic, retry_topic
from lockstep.remoting.errors import RemotingError, RequestRefused
from lockstep.remoting.host.runtime import Runtime

__all__ = ["gather", "gather_health", "without_cut_ones"]

# Messages of each queue whose keys are looked at.
_RECENT: Final = 32
# Of a group: for offsets that are not stored, for keys, for the oldest message.
_QUEUES_LOOKED_AT: Final = 64
# A broker waits 10 s for a member that does not answer.
_GROUPS_AT_ONCE: Final = 16
# Of recent messages: their bodies may be large.
_READS_AT_ONCE: Final = 8
_DEFAULT_LEASE_MS: Final = 60_000
_LIMIT: Final = "limits."  # and its setting: how often it was reached
_LIMIT_MS: Final = "limitsMs."  # when last
_ERRORS: Final = (RemotingError, ClientError, ProtocolError)

Locks = Mapping[str, Mapping[MessageQueue, LockTableRow]]  # by group


async def gather(admin: AdminClient, runtime: Runtime, only_group: str | None) -> ClusterFacts:
    """Read everything once, for the rules of order.

    Args:
        only_group: None: all groups that are online or have offsets.

    Raises:
        RemotingError, NoRouteError: No broker answers, or none is registered.
    """
    if not await admin.brokers():
        raise NoRouteError("no broker is registered")
    groups = [only_group] if only_group is not None else list(await admin.all_groups())
    topics = await admin.topics()
    names = [topic for topic in topics if not is_retry_topic(topic)]
    queues_of = await at_once(partial(_topic, admin), names)
    changes, clocks = await _journal(admin, runtime)
    facts, lease_ms = [], _DEFAULT_LEASE_MS
    recent, ordered, locks = _Recent(admin), await _ordered_at_broker(admin), await _locks(admin, only_group)
    read = partial(_examined, admin, set(topics), locks, changes)
    for of in await at_once(read, groups, at_most=_GROUPS_AT_ONCE):
        lives_ms = [row.age_ms + row.remaining_ms for row in (of.locks or {}).values() if not row.draining]
        lease_ms = max(lives_ms, default=lease_ms)  # a draining lock ends earlier
        spreads = await recent.spreads(list(of.queues)) if of.is_ordered else ()
        facts.append(replace(of, spreads=spreads, ordered_at_broker=ordered.get(of.name)))
    known = {topic: of for topic, of in zip(names, queues_of, strict=True) if of is not None}
    return ClusterFacts(
        runtime.now_ms(),
        lease_ms,
        known,
        tuple(facts),
        clocks,
        recent.producers_ahead,
        await _limits(admin),
        await _fifo_topics(admin),
    )


async def gather_health(admin: AdminClient, runtime: Runtime, behind_ms: int) -> ClusterFacts:
    """Read once what shows whether a cluster works now; no member is asked. A silent broker is part of the result.

    Raises:
        NoRouteError: No name server answers.
    """
    datas = sorted(await admin.brokers(), key=lambda data: data.broker_name)
    places = [(data, broker_id) for data in datas for broker_id in sorted(data.broker_addrs)]
    brokers = tuple(await at_once(partial(_broker, admin, runtime), places, at_most=_GROUPS_AT_ONCE))
    topics, of_users = set(await admin.topics()), len(await admin.user_topics())
    facts = ClusterFacts(runtime.now_ms(), brokers=brokers, topics_count=of_users, behind_ms=behind_ms)
    silent = [broker.error for broker in brokers if broker.is_master and broker.error is not None]
    if silent:
        # A silent broker would be waited for again, as long, when it is asked about groups.
        return replace(facts, unread=silent[0])
    try:
        locks = await _locks(admin, None)
        read = partial(_group, admin, topics, locks)
        groups = await at_once(read, await admin.all_groups(), at_most=_GROUPS_AT_ONCE)
        groups = await _with_oldest(admin, runtime, groups)
    except _ERRORS as error:
        return replace(facts, unread=str(error))
    return replace(facts, now_ms=runtime.now_ms(), groups=tuple(groups), lists_locks=locks is not None)


# Brokers and topics ------------------------------------------------------------------------------------------


async def _broker(admin: AdminClient, runtime: Runtime, place: tuple[BrokerData, int]) -> BrokerFacts:
    data, broker_id = place
    address, is_master = data.broker_addrs[broker_id], broker_id == MASTER_ID
    try:
        is_lockstep = await admin.is_lockstep(address)
        table = await admin.broker_runtime(address)
    except _ERRORS as error:
        return BrokerFacts(data.broker_name, address, data.cluster, is_master, error=str(error))
    booted_ms = int(_number(table, "bootTimestamp"))
    return BrokerFacts(
        data.broker_name,
        address,
        data.cluster,
        is_master,
        is_lockstep,
        table.get("brokerVersionDesc", ""),
        max(runtime.now_ms() - booted_ms, 0) if booted_ms else 0,
        _number(table, "putTps"),
        # RocketMQ 5 spells the name so.
        _number(table, "getTransferedTps") or _number(table, "getTransferredTps"),
        _number(table, "commitLogDiskRatio"),
        int(_number(table, "plainSends.taken")),
        int(_number(table, "plainSends.refused")),
    )


def _number(table: Mapping[str, str], name: str) -> float:
    """The first number of a text; rates are those of ten seconds, a minute, and ten. 0 without one."""
    words = table.get(name, "").split()
    try:
        return float(words[0]) if words else 0.0
    except ValueError:
        return 0.0


async def _topic(admin: AdminClient, topic: str) -> TopicFacts | None:
    try:
        route = await admin.route(topic)
    except TopicNotFoundError:
        return None
    return TopicFacts({data.broker_name: (data.read_queue_nums, data.write_queue_nums) for data in route.queue_datas})


async def _journal(admin: AdminClient, runtime: Runtime) -> tuple[list[LockChange] | None, dict[str, int]]:
    """Changes of owners, and how far the brokers' clocks are ahead; None, and no clocks, of Apache's brokers."""
    try:
        by_broker, _ = await admin.list_lock_changes({})
        clocks = {f"broker {address}": ahead_ms for address, ahead_ms in (await admin.clocks_ahead_ms()).items()}
    except NotLockstepError:
        return None, {}
    return [change for changes in by_broker.values() for change in changes], clocks


async def _limits(admin: AdminClient) -> dict[str, dict[str, tuple[int, int]]]:
    """What each master says of limits that it reached; Apache's brokers say nothing of them."""
    masters = {data.broker_name: data.master_addr for data in await admin.brokers() if data.master_addr is not None}
    found: dict[str, dict[str, tuple[int, int]]] = {}
    for name, table in zip(masters, await at_once(admin.broker_runtime, masters.values()), strict=True):
        met = [key.removeprefix(_LIMIT) for key in table if key.startswith(_LIMIT)]
        found[f"broker {name}"] = {one: (int(table[_LIMIT + one]), int(table.get(_LIMIT_MS + one, 0))) for one in met}
    return found


# Groups ------------------------------------------------------------------------------------------------------


async def _locks(admin: AdminClient, only_group: str | None) -> Locks | None:
    """The lock tables; None: the brokers are not Lockstep's."""
    try:
        rows = await admin.list_locks(only_group)
    except NotLockstepError:
        return None
    by_group: dict[str, dict[MessageQueue, LockTableRow]] = {}
    for row in rows:
        by_group.setdefault(row.consumer_group, {})[row.queue] = row
    return by_group


async def _group(admin: AdminClient, topics: Collection[str], locks: Locks | None, name: str) -> GroupFacts:
    """What brokers alone tell of a group. `topics`: all that there are."""
    connections = await admin.connections(name)
    connected = merged_members(list(connections.values()))
    queues, retry_lag = await _queues(admin, name)
    count, newest_ms = await _dead_letters(admin, name) if dead_letter_topic(name) in topics else (0, 0)
    return GroupFacts(
        name,
        _members(connected, connections.values()),
        from_last_offset=connected is not None
        and connected.consume_from_where is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        broadcasting=connected is not None and connected.message_model is MessageModel.BROADCASTING,
        queues=queues,
        locks=None if locks is None else locks.get(name, {}),
        retry_lag=retry_lag,
        dead_letter_ms=newest_ms,
        dead_letter_count=count,
    )


async def _examined(
    admin: AdminClient, topics: Collection[str], locks: Locks | None, changes: Sequence[LockChange] | None, name: str
) -> GroupFacts:
    """And what its members tell."""
    of = await _group(admin, topics, locks, name)
    infos = await admin.running_infos(name, [member.client_id for member in of.members])
    told = [(member, infos[member.client_id]) for member in of.members]
    queues = of.queues
    if of.from_last_offset:
        queues = await _with_unstored(admin, name, queues)
    return replace(
        of,
        members=tuple(_with_info(one, info) if isinstance(info, ConsumerRunningInfo) else one for one, info in told),
        queues=queues,
        locks=None if of.locks is None else {q: row for q, row in of.locks.items() if not is_retry_topic(q.topic)},
        changes=None if changes is None else tuple(one for one in changes if one.consumer_group == name),
        deliveries=None if locks is None else await admin.list_deliveries(name),
    )


def _members(
    connected: ConsumerConnection | None, at_brokers: Collection[ConsumerConnection]
) -> tuple[MemberFacts, ...]:
    shared, members = _shared_ids(at_brokers), list[MemberFacts]()
    for connection in connected.connection_set if connected is not None else ():
        client_id, address = connection.client_id, connection.client_addr
        addresses, live = shared.get(client_id, ([], None))
        others = tuple(one for one in addresses if one != address)
        language = connection.language.name
        members.append(MemberFacts(client_id, address, language, has_info=False, others=others, others_live=live))
    return tuple(members)


def _shared_ids(at_brokers: Collection[ConsumerConnection]) -> dict[str, tuple[list[str], bool | None]]:
    """Client ids that several connections to one broker have, the addresses of these, and whether all of them live."""
    shared: dict[str, tuple[list[str], bool | None]] = {}
    for body in at_brokers:
        at_broker: dict[str, list[Connection]] = {}
        for connection in body.connection_set:
            at_broker.setdefault(connection.client_id, []).append(connection)
        for client_id, connections in at_broker.items():
            kept = without_cut_ones(connections)
            if len(kept) > 1:
                is_live = True if all(one.heard_ago_ms is not None for one in kept) else None
                shared[client_id] = ([one.client_addr for one in kept], is_live)
    return shared


def without_cut_ones(connections: Sequence[Connection]) -> list[Connection]:
    """Leave out those without a heartbeat since a later one joined.

    A client whose connection was cut joins again, and the broker keeps the old connection for two minutes. Two clients
    with one id send a heartbeat each 30 s both.
    """
    joined = [one.joined_ago_ms for one in connections if one.joined_ago_ms is not None]
    newest_ms = min(joined, default=0)
    return [one for one in connections if one.heard_ago_ms is None or one.heard_ago_ms <= newest_ms]


def _with_info(facts: MemberFacts, info: ConsumerRunningInfo) -> MemberFacts:
    subscribed = {one.topic: one.sub_string for one in info.subscription_set if not is_retry_topic(one.topic)}
    queues = {queue: of for queue, of in info.mq_table.items() if not is_retry_topic(queue.topic)}
    return replace(
        facts,
        properties=info.properties,
        subscriptions=subscribed,
        process_queues=queues,
        statuses=info.status_table,
        has_info=True,
    )


async def _queues(admin: AdminClient, group: str) -> tuple[dict[MessageQueue, QueueFacts], int]:
    """The queues of the group's topics, and the lag of its retry topic."""
    queues, retry_lag = dict[MessageQueue, QueueFacts](), 0
    for queue, of in (await admin.progress(group)).offsets.items():
        facts = QueueFacts(of.consumer_offset, of.broker_offset, of.last_timestamp)
        if queue.topic == retry_topic(group):
            retry_lag += facts.lag
        elif not is_retry_topic(queue.topic) and not is_system_topic(queue.topic):
            queues[queue] = facts
    return queues, retry_lag


async def _with_unstored(
    admin: AdminClient, group: str, queues: Mapping[MessageQueue, QueueFacts]
) -> Mapping[MessageQueue, QueueFacts]:
    """The statistics have 0 where no offset is stored: -1 there."""
    unclear = [queue for queue, facts in queues.items() if facts.committed == 0][:_QUEUES_LOOKED_AT]
    offsets = await at_once(partial(admin.consumer_offset, group), unclear)
    stored = {queue: -1 if offset is None else offset for queue, offset in zip(unclear, offsets, strict=True)}
    return {queue: facts._replace(committed=stored.get(queue, facts.committed)) for queue, facts in queues.items()}


async def _with_oldest(admin: AdminClient, runtime: Runtime, groups: Sequence[GroupFacts]) -> list[GroupFacts]:
    """How long the oldest message waits that a group has not consumed; of its first queues, if it has many."""
    heads = [
        (of.name, queue, max(facts.committed, 0))
        for of in groups
        if not of.broadcasting
        for queue, facts in [(q, f) for q, f in sorted(of.queues.items()) if f.lag][:_QUEUES_LOOKED_AT]
    ]

    async def stored_ms(head: tuple[str, MessageQueue, int]) -> int | None:
        try:
            messages = (await admin.read_queue(head[1], head[2], count_max=1)).messages
        except _ERRORS:
            return None
        return messages[0].store_timestamp if messages else None

    oldest: dict[str, int] = {}
    for (name, _, _), at_ms in zip(heads, await at_once(stored_ms, heads, at_most=_GROUPS_AT_ONCE), strict=True):
        if at_ms is not None:
            oldest[name] = min(at_ms, oldest.get(name, at_ms))
    return [replace(of, oldest_ms=oldest.get(of.name, 0)) for of in groups]


async def _dead_letters(admin: AdminClient, group: str) -> tuple[int, int]:
    """How many there are, and when the newest was stored."""
    try:
        stats = await admin.topic_stats(dead_letter_topic(group))
    except TopicNotFoundError:
        return 0, 0
    count = sum(of.message_count for of in stats.values())
    return count, max([of.last_update_timestamp for of in stats.values()], default=0)


class _Recent:
    """What recent messages of ordered groups show: in which queues their keys are, and their producers' clocks."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin
        self.producers_ahead: dict[str, int] = {}

    async def spreads(self, queues: Sequence[MessageQueue]) -> tuple[KeySpread, ...]:
        """Sharding keys of which recent messages are in several queues of one topic."""
        seen: dict[tuple[str, str], set[MessageQueue]] = {}

        async def look(queue: MessageQueue) -> None:
            end = await self._admin.max_offset(queue)
            if not end:
                return
            found = await self._admin.read_queue(queue, max(end - _RECENT, 0), count_max=_RECENT)
            for message in found.messages:
                self._look_at_clock(message)
                key = sharding_key_of(message.properties)
                if key is not None:
                    seen.setdefault((queue.topic, key), set()).add(queue)

        await at_once(look, queues[:_QUEUES_LOOKED_AT], at_most=_READS_AT_ONCE)
        spread = [KeySpread(topic, key, tuple(sorted(of))) for (topic, key), of in seen.items() if len(of) > 1]
        return tuple(sorted(spread))

    def _look_at_clock(self, message: MessageExt) -> None:
        """A message that was stored before it was sent. One that was stored late may have been delayed."""
        ahead_ms = message.born_timestamp - message.store_timestamp
        if ahead_ms > 0:
            producer = str(ip_address(message.born_host[0]))
            self.producers_ahead[producer] = max(self.producers_ahead.get(producer, 0), ahead_ms)


async def _fifo_topics(admin: AdminClient) -> set[str]:
    """Some brokers keep it from us; those of RocketMQ 4 have none."""
    try:
        return {topic for topic, kind in (await admin.message_types()).items() if kind == FIFO}
    except RequestRefused:
        return set()


async def _ordered_at_broker(admin: AdminClient) -> dict[str, bool | None]:
    """The setting of RocketMQ 5 for each group; False if a broker says so. Some brokers keep it from us."""
    found: dict[str, bool | None] = {}
    try:
        of_groups = await admin.group_configs()
    except RequestRefused:
        return found
    for name, configs in of_groups.items():
        said = [one.consume_message_orderly for one in configs if one.consume_message_orderly is not None]
        found[name] = all(said) if said else None
    return found
