"""GroupAdmin: members, offsets, locks and running info of consumer groups (wire.md 2.2, 2.4)."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from lockstep.client.admin.base import AdminBase, AnswerTooLargeError
from lockstep.client.errors import ClientError
from lockstep.protocol.bodies.admin import ConsumeStats, GroupList, OffsetWrapper
from lockstep.protocol.bodies.broker import ConsumerGroupList, ConsumerIdList
from lockstep.protocol.bodies.client import ConsumeMessageDirectlyResult, ConsumerConnection, ConsumerRunningInfo
from lockstep.protocol.bodies.config import ConsumerOffsetTable, SubscriptionGroupWrapper
from lockstep.protocol.bodies.lock_changes import LockChange, LockChangesBody
from lockstep.protocol.bodies.locks import LockBatchBody, LockTableBody, LockTableRow
from lockstep.protocol.bodies.pop import DeliveryTableBody
from lockstep.protocol.bodies.subscription_group import SubscriptionGroupConfig
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.errors import ProtocolError
from lockstep.protocol.headers.admin import (
    ConsumeMessageDirectlyRequestHeader,
    ConsumerGroupRequestHeader,
    ConsumeStatsRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    TopicRequestHeader,
)
from lockstep.protocol.headers.messaging import (
    GetConsumerListByGroupRequestHeader,
    ListLockChangesRequestHeader,
    ListLocksRequestHeader,
)
from lockstep.protocol.headers.pop import ListDeliveriesRequestHeader
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import check_group
from lockstep.remoting.errors import RemotingError, RequestRefused

__all__ = ["GroupAdmin", "GroupProgress", "LockChanges", "LockCursor", "merged_members"]

# The broker waits 10 s for the consumer's answer.
_FORWARDED_TIMEOUT_MS: Final = 12_000
# Reads of the changes of one broker in a call; each brings 1,000 changes at most.
_CHANGE_READS_MAX: Final = 64


class GroupProgress(NamedTuple):
    """The offsets of a group by queue. `consume_tps` is the rate of its pulls, counted by the brokers."""

    offsets: Mapping[MessageQueue, OffsetWrapper]
    consume_tps: float


class LockCursor(NamedTuple):
    """How far the changes of one broker were read.

    Args:
        started_ms: of the broker's start to which `number` belongs.
        lost: changes before the last call that the broker had forgotten by then. After a restart it is 0, although
            changes of the time before may be lost.
    """

    started_ms: int
    number: int
    lost: int = 0


class LockChanges(NamedTuple):
    """The changes of owners at one broker since the last call.

    Args:
        ahead_ms: How far the broker's clock is ahead of this machine's.
        refused_count, fenced_counts: As in LockChangesBody.
    """

    changes: list[LockChange]
    cursor: LockCursor
    ahead_ms: int
    refused_count: int | None
    fenced_counts: Mapping[str, int] | None


class GroupAdmin(AdminBase):
    """Requests about consumer groups."""

    async def consumer_ids(self, group: str) -> list[str]:
        """Return the client ids of the group's members on all brokers, sorted."""
        header = GetConsumerListByGroupRequestHeader(group)

        async def ask(address: str) -> Sequence[str]:
            try:
                body = await self._ask_for(ConsumerIdList, address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
            except RequestRefused:
                return ()  # the broker knows no member
            return body.consumer_id_list

        return sorted({client_id for ids in (await self._ask_all(ask)).values() for client_id in ids})

    async def groups(self) -> dict[str, list[str]]:
        """Return the topics of each consumer group that is online or has stored offsets. Raises NotLockstepError."""

        async def ask(address: str) -> ConsumerGroupList:
            await self._require_lockstep(address)
            return await self._ask_for(ConsumerGroupList, address, RequestCode.LIST_CONSUMER_GROUPS)

        merged: dict[str, set[str]] = {}
        for body in (await self._ask_all(ask)).values():
            for group, topics in body.groups.items():
                merged.setdefault(group, set()).update(topics)
        return {group: sorted(merged[group]) for group in sorted(merged)}

    async def groups_with_offsets(self) -> dict[str, list[str]]:
        """Return the topics of each group that has offsets on any broker. It works with Apache's brokers too."""

        async def ask(address: str) -> ConsumerOffsetTable:
            return await self._ask_for(ConsumerOffsetTable, address, RequestCode.GET_ALL_CONSUMER_OFFSET)

        merged: dict[str, set[str]] = {}
        for body in (await self._ask_all(ask)).values():
            for name in body.offset_table:
                topic, _, group = name.partition("@")
                merged.setdefault(group, set()).add(topic)
        return {group: sorted(merged[group]) for group in sorted(merged)}

    async def groups_of(self, topic: str) -> list[str]:
        """Return the groups that are online with the topic, or have offsets of it, sorted."""
        code, header = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, TopicRequestHeader(topic)

        async def ask(address: str) -> GroupList:
            return await self._ask_for(GroupList, address, code, header)

        found = await self._ask_these(await self._masters_by_name(topic), ask)
        return sorted({group for body in found.values() for group in body.group_list})

    async def members(self, group: str) -> ConsumerConnection | None:
        """Return the members of the group on all brokers, and how they consume; None when no member is online."""
        return merged_members(list((await self.connections(group)).values()))

    async def connections(self, group: str) -> dict[str, ConsumerConnection]:
        """Return the connections of the group's members to each broker, by its address, without brokers that have none.

        A client id may be there several times at one broker: then several processes have it.
        """
        code, header = RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerGroupRequestHeader(group)

        async def ask(address: str) -> tuple[str, ConsumerConnection | None]:
            try:
                return address, await self._ask_for(ConsumerConnection, address, code, header)
            except RequestRefused as error:
                if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                    raise
                return address, None

        found = dict((await self._ask_all(ask)).values())
        return {address: body for address, body in found.items() if body is not None}

    async def running_info(
        self, group: str, client_id: str, *, stacks: bool = False, timeout_ms: int = _FORWARDED_TIMEOUT_MS
    ) -> ConsumerRunningInfo:
        """Ask a member for its running info, through a broker that it is connected to. Raises RequestRefused.

        One broker after another is asked: each would ask the member.
        """
        header = GetConsumerRunningInfoRequestHeader(group, client_id, stacks)
        refused: RequestRefused | None = None
        for address in (await self._masters()).values():
            try:
                return await self._ask_for(
                    ConsumerRunningInfo,
                    address,
                    RequestCode.GET_CONSUMER_RUNNING_INFO,
                    header,
                    timeout_ms=timeout_ms,
                )
            except RequestRefused as error:
                refused = error
        raise refused or RequestRefused("no broker", "GET_CONSUMER_RUNNING_INFO", ResponseCode.SYSTEM_ERROR, None)

    async def running_infos(
        self, group: str, client_ids: Iterable[str], *, timeout_ms: int = _FORWARDED_TIMEOUT_MS
    ) -> dict[str, ConsumerRunningInfo | RemotingError | ProtocolError | AnswerTooLargeError]:
        """Ask members for their running info together: a broker waits 10 s for one that does not answer.

        This client asks 16 members at once, of all groups.

        Args:
            timeout_ms: How long to wait for one member at one broker.

        Returns:
            By client id the info, or why there is none: clients of some languages do not answer.
        """

        async def ask(client_id: str) -> ConsumerRunningInfo | RemotingError | ProtocolError | AnswerTooLargeError:
            async with self._asked:
                try:
                    return await self.running_info(group, client_id, timeout_ms=timeout_ms)
                except (RemotingError, ProtocolError, AnswerTooLargeError) as error:
                    return error

        ids = list(dict.fromkeys(client_ids))
        return dict(zip(ids, await asyncio.gather(*map(ask, ids)), strict=True))

    async def progress(self, group: str, topic: str | None = None) -> GroupProgress:
        """Return the progress of the group from the brokers' statistics, for topics that it still subscribes to."""
        header = ConsumeStatsRequestHeader(group, topic)

        async def ask(address: str) -> ConsumeStats | None:
            try:
                return await self._ask_for(ConsumeStats, address, RequestCode.GET_CONSUME_STATS, header)
            except RequestRefused as error:
                if error.code == ResponseCode.SYSTEM_BUSY:
                    raise
                # The broker does not have the topic.
                return None

        found = [body for body in (await self._ask_all(ask)).values() if body is not None]
        table = {queue: offsets for body in found for queue, offsets in body.offset_table.items()}
        return GroupProgress(table, sum([body.consume_tps for body in found], 0.0))

    async def consume_directly(self, message: MessageExt, group: str, client_id: str) -> ConsumeMessageDirectlyResult:
        """Let a member's listener handle a stored message, without offsets (request 309). Raises RequestRefused."""
        header = ConsumeMessageDirectlyRequestHeader(group, client_id, message.offset_message_id)
        queue = MessageQueue(message.topic, message.broker_name, message.queue_id)
        return await self._ask_for(
            ConsumeMessageDirectlyResult,
            await self._master_of(queue),
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            header,
            timeout_ms=_FORWARDED_TIMEOUT_MS,
        )

    async def delete_group(self, group: str, *, remove_offsets: bool = True) -> None:
        """Delete the settings of the group, and its offsets, on all brokers. An unknown group is no error."""
        header = DeleteSubscriptionGroupRequestHeader(group, remove_offsets)
        for address in (await self._masters()).values():
            await self._ask(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)

    async def group_configs(self) -> dict[str, list[SubscriptionGroupConfig]]:
        """Return the settings of each group on each broker that has some."""

        async def ask(address: str) -> SubscriptionGroupWrapper:
            return await self._ask_for(SubscriptionGroupWrapper, address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)

        found: dict[str, list[SubscriptionGroupConfig]] = {}
        for body in (await self._ask_all(ask)).values():
            for config in body.groups:
                found.setdefault(config.group_name, []).append(config)
        return found

    async def group_config(self, group: str) -> SubscriptionGroupConfig | None:
        """Return the settings of a group at the first broker that has it; None: brokers of RocketMQ 4 do not say."""
        header = GetSubscriptionGroupConfigRequestHeader(group)

        async def ask(address: str) -> SubscriptionGroupConfig | None:
            try:
                return await self._ask_for(
                    SubscriptionGroupConfig, address, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header
                )
            except RequestRefused:
                return None

        return next((one for one in (await self._ask_all(ask)).values() if one is not None), None)

    async def put_group(self, group: str, *, in_order: bool | None = None, retries: int | None = None) -> None:
        """Create a group, or change it, on all brokers. Raises LocalProtocolError too.

        Args:
            in_order: Clients of RocketMQ 5 get its messages in order. Brokers of 4 ignore it. None: as it is.
            retries: After so many a message becomes a dead letter. None: as it is.
        """
        check_group(group)
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        for address in (await self._masters()).values():  # a change: see `_ask_these`
            known = (await self._ask_for(SubscriptionGroupWrapper, address, code)).groups
            config = next((one for one in known if one.group_name == group), SubscriptionGroupConfig(group))
            if in_order is not None:
                config = config._replace(consume_message_orderly=in_order)
            if retries is not None:
                config = config._replace(retry_max_times=retries)
            await self._tell(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, config)

    async def list_locks(self, group: str | None = None) -> list[LockTableRow]:
        """Return the lock tables of all brokers, sorted by group and queue. Raises NotLockstepError."""
        header = ListLocksRequestHeader(group)

        async def ask(address: str) -> LockTableBody:
            await self._require_lockstep(address)
            return await self._ask_for(LockTableBody, address, RequestCode.LIST_LOCKS, header)

        rows = [row for body in (await self._ask_all(ask)).values() for row in body.rows]
        return sorted(rows, key=lambda row: (row.consumer_group, row.queue))

    async def list_deliveries(self, group: str) -> DeliveryTableBody:
        """Return what a group that pops in order has and did not acknowledge, sorted, and what became of its answers.

        Raises NotLockstepError.
        """
        header = ListDeliveriesRequestHeader(group)

        async def ask(address: str) -> DeliveryTableBody:
            await self._require_lockstep(address)
            return await self._ask_for(DeliveryTableBody, address, RequestCode.LIST_DELIVERIES, header)

        bodies = (await self._ask_all(ask)).values()
        rows = sorted((row for body in bodies for row in body.rows), key=lambda row: (row.queue, row.queue_offset))
        return DeliveryTableBody(
            tuple(rows),
            sum(body.late for body in bodies),
            sum(body.stale for body in bodies),
            max((body.stale_ms for body in bodies), default=0),
            sum(body.revived for body in bodies),
            tuple(sorted({topic for body in bodies for topic in body.topics})),
        )

    async def release_lock(self, row: LockTableRow) -> None:
        """Take the fenced lock of this row from its owner, whose late commits the broker refuses from then on.

        A lock that has another epoch by now stays as it is. The broker takes this connection for one of the owner:
        use an admin client of its own, and close it.

        Raises:
            ClientError: The row has no epoch: its broker has no fenced locks.
            NotLockstepError: The broker is RocketMQ's.
        """
        if row.epoch is None:
            raise ClientError(f"the lock of {row.queue} has no epoch: its broker has no fenced locks")
        address = await self._master_of(row.queue)
        await self._require_lockstep(address)
        owned = LockBatchBody(row.consumer_group, row.client_id, (row.queue,), (row.epoch,))
        await self._tell(address, RequestCode.UNLOCK_BATCH_MQ, owned)

    async def list_lock_changes(
        self, cursors: Mapping[str, LockCursor], group: str | None = None
    ) -> tuple[dict[str, list[LockChange]], dict[str, LockCursor]]:
        """Return how the owners of queues changed, by broker address, and the cursors of the next call.

        Args:
            cursors: Of the last call; empty at first: each broker tells what it keeps, its last 10,000 changes.
                A call reads 64,000 at most; the next one goes on there.
            group: None: of all groups.

        Raises:
            NotLockstepError: A broker is RocketMQ's.
        """

        async def ask(address: str) -> tuple[str, LockChanges]:
            await self._require_lockstep(address)
            return address, await self.lock_changes_of(address, cursors.get(address), group)

        found = dict((await self._ask_all(ask)).values())
        following = {address: read.cursor for address, read in found.items()}
        return {address: read.changes for address, read in found.items()}, following

    async def clocks_ahead_ms(self) -> dict[str, int]:
        """Return how far each broker's clock is ahead of this machine's, by address. Raises NotLockstepError."""

        async def ask(address: str) -> tuple[str, int]:
            await self._require_lockstep(address)
            _, ahead_ms = await self._ask_changes(address, ListLockChangesRequestHeader(0, None, 1))
            return address, ahead_ms

        return dict((await self._ask_all(ask)).values())

    async def _ask_changes(self, address: str, header: ListLockChangesRequestHeader) -> tuple[LockChangesBody, int]:
        """Return the answer, and how far the broker's clock is ahead."""
        runtime = self._started().runtime
        asked_ms = runtime.now_ms()
        body = await self._ask_for(LockChangesBody, address, RequestCode.LIST_LOCK_CHANGES, header)
        return body, body.now_ms - (asked_ms + runtime.now_ms()) // 2

    async def lock_changes_of(
        self, address: str, cursor: LockCursor | None = None, group: str | None = None
    ) -> LockChanges:
        """Like `list_lock_changes`, of one broker that is known to be a Lockstep broker."""
        changes: list[LockChange] = []
        lost = 0
        for _ in range(_CHANGE_READS_MAX):
            header = ListLockChangesRequestHeader(cursor.number if cursor is not None else 0, group)
            body, ahead_ms = await self._ask_changes(address, header)
            if cursor is not None and body.started_ms != cursor.started_ms:  # it has started anew
                cursor = None
                if header.cursor:
                    continue
            if cursor is not None:
                lost += max(body.first - cursor.number, 0)
            changes += body.changes
            cursor = LockCursor(body.started_ms, body.next_cursor, lost)
            if not body.changes:
                break
        cursor = cursor or LockCursor(body.started_ms, 0)
        return LockChanges(changes, cursor, ahead_ms, body.refused_count, body.fenced_counts)


def merged_members(found: Sequence[ConsumerConnection]) -> ConsumerConnection | None:
    """Return the members at several brokers as one list, sorted, each once; None without any."""
    if not found:
        return None
    by_id = {connection.client_id: connection for body in found for connection in body.connection_set}
    subscriptions = {topic: data for body in found for topic, data in body.subscription_table.items()}
    return found[0]._replace(
        connection_set=tuple(by_id[client_id] for client_id in sorted(by_id)), subscription_table=subscriptions
    )
