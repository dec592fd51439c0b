"""What the consumers that pull by themselves have in common: membership of a group, queues to share, offsets.

Such a member says CONSUME_ACTIVELY in its heartbeats, takes no locks, has no retry topic, and is offered queues by the
same rebalance as others; what it does with them is its owner's affair (wire.md 12.10).
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from lockstep.client.admin.queues import QueueQueries
from lockstep.client.config import ConsumerConfig
from lockstep.client.consumer.broker_requests import BrokerCalls
from lockstep.client.consumer.dispatch.stats import SAMPLE_INTERVAL_MS, ConsumeStats
from lockstep.client.consumer.membership import Membership
from lockstep.client.consumer.offsets.local_file import LocalFileOffsetStore, offset_folder
from lockstep.client.consumer.offsets.store import OffsetStore, RemoteBrokerOffsetStore
from lockstep.client.consumer.ownership.allocation.average import AllocateMessageQueueStrategy
from lockstep.client.consumer.ownership.locks import NoLocks
from lockstep.client.consumer.ownership.rebalance import Rebalance
from lockstep.client.consumer.process_queue import ProcessQueue
from lockstep.client.consumer.pull_request import PullCalls
from lockstep.client.hook_calls import ConsumeHooks
from lockstep.client.instance.client import MQClientInstance
from lockstep.client.instance.registry import GroupClaim, claim_group
from lockstep.client.message_selector import check_at_brokers
from lockstep.client.pull_config import PullConsumerConfig, member_config
from lockstep.protocol.bodies.heartbeat import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from lockstep.protocol.codes import RequestCode, ResponseCode, request_name
from lockstep.protocol.headers.messaging import UpdateConsumerOffsetRequestHeader
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.namespace import NamesOfTenant
from lockstep.remoting.errors import RequestRefused
from lockstep.remoting.logs import EventLog
from lockstep.remoting.runtime import Runtime
from lockstep.remoting.settings import Address

__all__ = ["MemberOptions", "PullMember"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberOptions:
    """What the user chose."""

    group: str
    name_servers: tuple[Address, ...]
    config: PullConsumerConfig
    message_model: MessageModel
    strategy: AllocateMessageQueueStrategy
    hooks: ConsumeHooks
    tenant: NamesOfTenant
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET


class PullMember:
    """A started member; `subscriptions`, by topic, are its owner's, and `table` its queues, however it came to them.

    `on_acquired` and `on_dropped` hear of the queues that a rebalance gives and takes, `on_changed(topic)` of the end
    of a round in which there were any. `to_persist()` names the queues whose offsets are kept every 5 s.
    """

    def __init__(
        self,
        runtime: Runtime,
        options: MemberOptions,
        log: EventLog,
        subscriptions: dict[str, SubscriptionData],
        *,
        on_acquired: Callable[[ProcessQueue], None],
        on_dropped: Callable[[ProcessQueue], None],
        on_changed: Callable[[str], None],
        to_persist: Callable[[], Iterable[MessageQueue]],
    ) -> None:
        self.runtime = runtime
        self.log = log
        self.balances = True  # False: the queues are given by hand, and no rebalance touches them
        self.joined: set[str] = set()  # topics whose queues were shared out once at least
        self.config: ConsumerConfig = member_config(options.config)
        self._options = options
        self._broadcasts = options.message_model is MessageModel.BROADCASTING
        self._subscriptions = subscriptions
        self._on_acquired = on_acquired
        self._on_dropped = on_dropped
        self._on_changed = on_changed
        self._to_persist = to_persist
        self._wake = asyncio.Event()
        self._round = asyncio.Lock()
        self._rebalancing: asyncio.Task[None] | None = None
        self._stopping = False
        self.instance = instance = MQClientInstance(
            runtime,
            options.name_servers,
            options.config,
            log,
            consumer_data=self._consumer_data,
            # A broadcasting member's offset file is found by the name, at the next start too.
            instance_name=options.config.instance_name if self._broadcasts else None,
            on_ids_changed=lambda _group: self._wake.set(),
        )
        self.offsets = self._new_offset_store()
        self.calls = PullCalls(instance, options.group, options.hooks, options.tenant)
        self.queries = QueueQueries(instance)
        self.stats = ConsumeStats(runtime.now_ms())
        member = Membership(
            instance=instance,
            group=options.group,
            config=self.config,
            offsets=self.offsets,
            message_model=options.message_model,
        )
        self.table = member.table
        strategy = None if self._broadcasts else options.strategy
        self._rebalance = Rebalance(member, NoLocks(runtime), self, strategy)
        instance.serve(self._broker_calls().handlers)

    def _broker_calls(self) -> BrokerCalls:
        return BrokerCalls(
            self.instance,
            self._options.group,
            self._options.config,
            self.table,
            offsets=self.offsets,
            stats=self.stats,
            subscriptions=lambda: list(self._subscriptions.values()),
        )

    def _new_offset_store(self) -> OffsetStore:
        options = self._options
        if not self._broadcasts:
            return RemoteBrokerOffsetStore(self.instance, options.group)
        folder = offset_folder(options.config.local_offset_folder)
        return LocalFileOffsetStore(self.runtime, folder, self.instance.client_id, options.group, self.log)

    # Life ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Raises ConsumerError; NoRouteError when no name server answers. Nothing is left of a start that failed."""
        claim = claim_group(self.instance, "consumer", self._options.group)
        try:
            await self.offsets.load()
            for topic in list(self._subscriptions):
                await self.instance.routes.fetch(topic)
            await check_at_brokers(self.instance, self._options.group, list(self._subscriptions.values()))
            await self.instance.heartbeat_all()
        except BaseException:
            await self._close(claim)
            raise
        self._claim = claim
        config, schedule = self._options.config, self.instance.schedule
        self.instance.start()
        schedule.every(
            config.persist_consumer_offset_interval_ms,
            self._persist_all,
            first_ms=config.persist_consumer_offset_first_ms,
            name="persist offsets",
        )
        schedule.every(SAMPLE_INTERVAL_MS, self._sample, first_ms=SAMPLE_INTERVAL_MS, name="statistics")
        self._rebalancing = self.runtime.create_task(self._rebalance_forever(), name="rebalance")

    async def stop(self) -> None:
        """No round of the rebalance runs any more, nor anything else that is repeated."""
        self._stopping = True
        if self._rebalancing is not None:
            self._wake.set()
            await self._rebalancing
        async with self._round:  # of somebody who joins a topic at this moment
            pass
        await self.instance.schedule.stop()

    async def leave(self) -> None:
        """After `stop`: store the offsets, unregister, close."""
        await self._persist_all()
        for process_queue in self.table.values():
            process_queue.dropped = True
        await self._close(self._claim)

    async def _close(self, claim: GroupClaim) -> None:
        await self.offsets.close()
        await self.instance.shutdown(self._options.group)
        claim.release()

    # Subscriptions -------------------------------------------------------------------------------------------

    async def join(self, topic: str) -> None:
        """After its subscription was added: the brokers hear of it, and its queues are shared out."""
        await self.instance.routes.fetch(topic)
        await self.instance.heartbeat_all()
        await self.rebalance_now()
        self.joined.add(topic)

    async def rebalance_now(self) -> None:
        """One round; when it returns, `table` is what it says."""
        async with self._round:
            if self.balances and not self._stopping:
                await self._rebalance.run()

    def rebalance_soon(self) -> None:
        self._wake.set()

    def _consumer_data(self) -> ConsumerData:
        return ConsumerData(
            self._options.group,
            ConsumeType.CONSUME_ACTIVELY,
            self._options.message_model,
            self._options.consume_from_where,
            tuple(self._subscriptions.values()),
            self.config.unit_mode,
        )

    async def _rebalance_forever(self) -> None:
        """At the start, every 20 s, and at once when the group's members changed."""
        while not self._stopping:
            self._wake.clear()
            await self.rebalance_now()
            try:
                await asyncio.wait_for(self._wake.wait(), self._options.config.rebalance_interval_ms / 1000)
            except TimeoutError:
                pass

    def topics(self) -> Iterable[str]:
        return self._subscriptions

    def new_process_queue(self, queue: MessageQueue, period: int, now_ms: int, **lock: Any) -> ProcessQueue:
        return ProcessQueue(queue, period, now_ms, **lock)

    def queue_acquired(self, process_queue: ProcessQueue) -> None:
        self._on_acquired(process_queue)

    def queue_dropped(self, process_queue: ProcessQueue) -> None:
        self._on_dropped(process_queue)

    async def queues_changed(self, topic: str) -> None:
        """The subscription gets a new version and the brokers hear of it at once, as in any member (wire.md 12.3)."""
        subscription = self._subscriptions.get(topic)
        if subscription is not None:
            self._subscriptions[topic] = subscription._replace(sub_version=self.runtime.now_ms())
        self._on_changed(topic)
        await self.instance.heartbeat_all()

    # Offsets -------------------------------------------------------------------------------------------------

    async def store_now(self, queues: Iterable[MessageQueue]) -> None:
        """Keep the offsets of these queues, and return when it is done.

        Raises RemotingError, NoRouteError; ConsumerError when a broadcasting member's file cannot be written.
        """
        known = [(queue, offset) for queue in queues if (offset := self.offsets.in_memory(queue)) >= 0]
        if self._broadcasts:
            self.offsets.persist([queue for queue, _ in known], _untraced)
            await self.offsets.flush()
            return
        code = RequestCode.UPDATE_CONSUMER_OFFSET
        for queue, offset in known:
            header = UpdateConsumerOffsetRequestHeader(self._options.group, queue.topic, queue.queue_id, offset)
            reply = await self.instance.call(queue.broker_name, code, header)
            if reply.code != ResponseCode.SUCCESS:
                raise RequestRefused(queue.broker_name, request_name(code), reply.code, reply.remark)

    def store_soon(self, queues: Iterable[MessageQueue]) -> None:
        """Keep them without waiting for it."""
        self.offsets.persist(queues, _untraced)

    async def _persist_all(self) -> None:
        self.store_soon(self._to_persist())

    async def _sample(self) -> None:
        self.stats.sample(self.runtime.now_ms())


def _untraced(_queue: MessageQueue, _offset: int) -> None:
    pass
