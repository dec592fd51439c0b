"""Reads the facts of a cluster: with requests that RocketMQ has, and with ours where the brokers are Lockstep's."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from ipaddress import ip_address
from typing import Final

from lockstep.client.admin.at_once import at_once
from lockstep.client.admin.client import AdminClient, NotLockstepError
from lockstep.client.doctor.facts import ClusterFacts, GroupFacts, KeySpread, MemberFacts, QueueFacts, TopicFacts
from lockstep.client.errors import NoRouteError, TopicNotFoundError
from lockstep.protocol.bodies.client import Connection, ConsumerConnection, ConsumerRunningInfo
from lockstep.protocol.bodies.heartbeat import ConsumeFromWhere, MessageModel
from lockstep.protocol.bodies.lock_changes import LockChange
from lockstep.protocol.bodies.locks import LockTableRow
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.messages.properties import sharding_key_of
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import dead_letter_topic, is_retry_topic, is_system_topic, retry_topic
from lockstep.remoting.errors import RequestRefused
from lockstep.remoting.host.runtime import Runtime

__all__ = ["gather", "without_cut_ones"]

_RECENT: Final = 32  # messages of each queue whose keys are looked at
_QUEUES_LOOKED_AT: Final = 64  # of a group, for offsets that are not stored and for keys
_GROUPS_AT_ONCE: Final = 16  # a broker waits 10 s for a member that does not answer
_READS_AT_ONCE: Final = 8  # of recent messages: their bodies may be large
_DEFAULT_LEASE_MS: Final = 60_000
_LIMIT: Final = "limits."  # and its setting: how often it was reached
_LIMIT_MS: Final = "limitsMs."  # when last


async def gather(admin: AdminClient, runtime: Runtime, only_group: str | None) -> ClusterFacts:
    """Read everything once.

    Args:
        only_group: None: all groups that are online or have offsets.

    Raises:
        RemotingError, NoRouteError: No broker answers, or none is registered.
    """
    if not await admin.brokers():
        raise NoRouteError("no broker is registered")
    groups = [only_group] if only_group is not None else list(await admin.all_groups())
    names = [topic for topic in await admin.topics() if not is_retry_topic(topic)]
    topics = await at_once(partial(_topic, admin), names)
    changes, clocks = await _journal(admin, runtime)
    facts, lease_ms = [], _DEFAULT_LEASE_MS
    recent, ordered = _Recent(admin), await _ordered_at_broker(admin)
    for of in await at_once(partial(_group, admin, changes), groups, at_most=_GROUPS_AT_ONCE):
        lives_ms = [row.age_ms + row.remaining_ms for row in (of.locks or {}).values() if not row.draining]
        lease_ms = max(lives_ms, default=lease_ms)  # a draining lock ends earlier
        spreads = await recent.spreads(list(of.queues)) if of.is_ordered else ()
        facts.append(replace(of, spreads=spreads, ordered_at_broker=ordered.get(of.name)))
    known = {topic: of for topic, of in zip(names, topics, strict=True) if of is not None}
    limits = await _limits(admin)
    return ClusterFacts(runtime.now_ms(), lease_ms, known, tuple(facts), clocks, recent.producers_ahead, limits)


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


async def _locks(admin: AdminClient, group: str) -> dict[MessageQueue, LockTableRow] | None:
    try:
        rows = await admin.list_locks(group)
    except NotLockstepError:
        return None
    return {row.queue: row for row in rows if not is_retry_topic(row.queue.topic)}


async def _group(admin: AdminClient, changes: Sequence[LockChange] | None, name: str) -> GroupFacts:
    locks = await _locks(admin, name)
    connected = await admin.members(name)
    members = await _members(admin, name, connected)
    queues, retry_lag = await _queues(admin, name, is_new_last=_begins_last(connected))
    count, newest_ms = await _dead_letters(admin, name)
    return GroupFacts(
        name,
        members,
        from_last_offset=_begins_last(connected),
        broadcasting=connected is not None and connected.message_model is MessageModel.BROADCASTING,
        queues=queues,
        locks=locks,
        changes=None if changes is None else tuple(one for one in changes if one.consumer_group == name),
        retry_lag=retry_lag,
        dead_letter_ms=newest_ms,
        dead_letter_count=count,
    )


def _begins_last(connected: ConsumerConnection | None) -> bool:
    where = connected.consume_from_where if connected is not None else None
    return where is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET


async def _members(admin: AdminClient, group: str, connected: ConsumerConnection | None) -> tuple[MemberFacts, ...]:
    members = []
    shared = await _shared_ids(admin, group)
    connections = connected.connection_set if connected is not None else ()
    infos = await admin.running_infos(group, [connection.client_id for connection in connections])
    for connection in connections:
        client_id, address = connection.client_id, connection.client_addr
        others, live = shared.get(client_id, ((), None))
        facts = MemberFacts(
            client_id,
            address,
            connection.language.name,
            has_info=False,
            others=tuple(one for one in others if one != address),
            others_live=live,
        )
        info = infos[client_id]
        members.append(_with_info(facts, info) if isinstance(info, ConsumerRunningInfo) else facts)
    return tuple(members)


async def _shared_ids(admin: AdminClient, group: str) -> dict[str, tuple[list[str], bool | None]]:
    """Client ids that several connections to one broker have, the addresses of these, and whether all of them live."""
    shared: dict[str, tuple[list[str], bool | None]] = {}
    for body in (await admin.connections(group)).values():
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


async def _queues(admin: AdminClient, group: str, *, is_new_last: bool) -> tuple[dict[MessageQueue, QueueFacts], int]:
    """The queues of the group's topics, and the lag of its retry topic."""
    progress = (await admin.progress(group)).offsets
    queues, retry_lag = dict[MessageQueue, QueueFacts](), 0
    for queue, of in progress.items():
        facts = QueueFacts(of.consumer_offset, of.broker_offset, of.last_timestamp)
        if queue.topic == retry_topic(group):
            retry_lag += facts.lag
        elif not is_retry_topic(queue.topic) and not is_system_topic(queue.topic):
            queues[queue] = facts
    if is_new_last:  # the statistics have 0 where no offset is stored
        unclear = [queue for queue, facts in queues.items() if facts.committed == 0][:_QUEUES_LOOKED_AT]
        offsets = await at_once(partial(admin.consumer_offset, group), unclear)
        for queue, stored in zip(unclear, offsets, strict=True):
            queues[queue] = queues[queue]._replace(committed=-1 if stored is None else stored)
    return queues, retry_lag


async def _dead_letters(admin: AdminClient, group: str) -> tuple[int, int]:
    """How many there are, and when the newest was stored."""
    try:
        stats = await admin.topic_stats(dead_letter_topic(group))
    except TopicNotFoundError:
        return 0, 0
    count = sum(of.max_offset - of.min_offset for of in stats.values())
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
