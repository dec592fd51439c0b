"""LiteMember: a running LitePullConsumer, with a pull loop for each of its queues (wire.md 12.10)."""

import asyncio
from collections.abc import Iterable, Mapping

from lockstep.client.consumer.buffer import NOT_KNOWN, LiteQueue, LiteQueues
from lockstep.client.consumer.flow_control import FlowControl, FlowLimits
from lockstep.client.consumer.member import GroupMember, MemberSettings
from lockstep.client.consumer.ownership.first_offset import FirstOffset
from lockstep.client.consumer.ownership.hold import NoHold
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.client.consumer.ownership.topic_watch import QueueWatch
from lockstep.client.consumer.pull_loop import PullLoop
from lockstep.client.consumer.pull_request import PullCalls, PullResult
from lockstep.client.errors import ConsumerError
from lockstep.client.pull_config import LitePullConsumerConfig
from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.codes import PullSysFlag
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.model import MessageQueue

__all__ = ["LiteMember"]


class LiteMember(GroupMember):
    """A member whose user takes the messages from a buffer.

    Args:
        config: the user's.
        expressions: by topic, the subscriptions that hold for assigned queues.
    """

    pull_flags = int(PullSysFlag.SUSPEND | PullSysFlag.SUBSCRIPTION | PullSysFlag.LITE_PULL)

    def __init__(
        self,
        settings: MemberSettings,
        config: LitePullConsumerConfig,
        subscriptions: dict[str, SubscriptionData],
        expressions: Mapping[str, SubscriptionData],
    ) -> None:
        super().__init__(settings, subscriptions)
        self.lite_queues = LiteQueues()
        self.watch = QueueWatch(self.queries, self.log)
        self._user_config = config
        self._expressions = expressions
        self._arrived = asyncio.Event()
        self._periods = 0
        self.first_offset = FirstOffset(self.instance, settings.group, self.config, self.offsets)
        limits = FlowLimits(
            config.pull_threshold_for_queue, config.pull_threshold_bytes_for_queue, config.consume_max_span
        )
        calls = PullCalls(self.instance, settings.group, settings.hooks, settings.tenant)
        self._pulls = PullLoop(self.membership, self, calls, FlowControl(limits), self.stats)

    # Life ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        await super().start()
        config = self._user_config
        interval_ms, first_ms = config.topic_metadata_check_interval_ms, config.topic_metadata_check_first_ms
        self.instance.schedule.every(interval_ms, self.watch.look, first_ms=first_ms, name="queue watch")

    async def stop(self) -> list[ProcessQueue]:
        # A call that waits for messages wakes up, and returns none.
        self._arrived.set()
        return await super().stop()

    async def _end_consumption(self) -> list[ProcessQueue]:
        self._pulls.stop_all()
        if self._user_config.auto_commit:
            self._update_handled(self.lite_queues.all())
        return []

    # Queues --------------------------------------------------------------------------------------------------

    def owned(self, queue: MessageQueue) -> LiteQueue:
        """Raises ConsumerError."""
        lite_queue = self.lite_queues.get(queue)
        if lite_queue is None:
            where = "; a rebalance may have given it to another member" if self.balances else ""
            raise ConsumerError(f"queue {queue} is not assigned to this consumer{where}")
        return lite_queue

    def assign(self, queues: list[MessageQueue]) -> None:
        """Own these queues and no others."""
        self.balances = False
        given_up = [self.table.pop(queue) for queue in list(self.table) if queue not in queues]
        for process_queue in given_up:
            self._rebalance.drop(process_queue, "not assigned any more")
        self._rebalance.persist(given_up)
        for process_queue in given_up:
            self.offsets.forget(process_queue.queue)
        for queue in queues:
            if queue not in self.table:
                self._periods += 1
                now_ms = self.runtime.now_ms()
                self.table[queue] = ProcessQueue(queue, self._periods, now_ms, NoHold(now_ms))
                self.queue_acquired(self.table[queue])

    def queue_acquired(self, process_queue: ProcessQueue) -> None:
        self.lite_queues.add(process_queue)
        self._pulls.start(process_queue)

    def queue_dropped(self, process_queue: ProcessQueue, why: str) -> None:
        lite_queue = self.lite_queues.remove(process_queue.queue)
        if lite_queue is not None and self._user_config.auto_commit:
            self._update_handled([lite_queue])
        self._pulls.stop(process_queue)

    # Pulls (PullOwner) ---------------------------------------------------------------------------------------

    def pause_ms(self, process_queue: ProcessQueue) -> int:
        config = self._user_config
        if self.lite_queues.of(process_queue).paused:
            return config.pull_delay_when_paused_ms
        if self.lite_queues.waiting_pulls * config.pull_batch_size > config.pull_threshold_for_all:
            return config.pull_delay_when_flow_control_ms
        return 0

    def retry_ms(self, process_queue: ProcessQueue) -> int:
        config = self._user_config
        known = process_queue.positioned
        return config.pull_delay_when_exception_ms if known else config.pull_delay_when_offset_unknown_ms

    def refused(self, process_queue: ProcessQueue, error: Exception) -> bool:
        return False  # it has no locks

    def subscription(self, topic: str) -> SubscriptionData:
        table = self._subscriptions if self.balances else self._expressions
        return table.get(topic) or SubscriptionData(topic)

    def take(self, process_queue: ProcessQueue, messages: list[MessageExt]) -> None:
        self.lite_queues.put(self.lite_queues.of(process_queue), messages)
        self._arrived.set()

    def nothing_found(self, process_queue: ProcessQueue, result: PullResult) -> None:
        self.lite_queues.nothing_until(self.lite_queues.of(process_queue), result.next_begin_offset)

    async def offset_illegal(self, process_queue: ProcessQueue, result: PullResult) -> None:
        """The next pull begins there."""

    async def log_went_back(self, process_queue: ProcessQueue, begin: int) -> None:
        process_queue.cache.next_offset = begin

    # Messages ------------------------------------------------------------------------------------------------

    async def next_messages(self, timeout_ms: int, count_max: int | None = None) -> list[MessageExt]:
        deadline_ms = self.runtime.now_ms() + timeout_ms
        while not (messages := self.lite_queues.take(self.runtime.now_ms(), count_max)):
            left_ms = deadline_ms - self.runtime.now_ms()
            if left_ms <= 0 or self._stopping:
                break
            self._arrived.clear()
            try:
                async with asyncio.timeout(left_ms / 1000):
                    await self._arrived.wait()
            except TimeoutError:
                pass
        return messages

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        self.owned(queue)
        low, high = await self.queries.min_offset(queue), await self.queries.max_offset(queue)
        if not low <= offset <= high:
            raise ConsumerError(f"queue {queue} has offsets from {low} to {high}, not {offset}")
        # A rebalance may have taken it meanwhile.
        lite_queue = self.owned(queue)
        self.lite_queues.seek(lite_queue, offset)
        self._pulls.start(lite_queue.process_queue)

    # Offsets -------------------------------------------------------------------------------------------------

    def commit(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Commit all that was handed out of these queues. Returns the queues that have an offset to commit."""
        found = [self.lite_queues.get(queue) for queue in queues]
        return self.commit_offsets({lite.queue: lite.position for lite in found if lite and lite.position >= 0})

    def commit_offsets(self, offsets: Mapping[MessageQueue, int]) -> list[MessageQueue]:
        for queue, offset in offsets.items():
            lite_queue = self.owned(queue)
            # Else the commit at shutdown would lower it.
            lite_queue.handled = max(lite_queue.handled, offset)
            self._update(lite_queue, offset)
        return list(offsets)

    def commit_handled(self) -> None:
        """Commit all that was handed out so far."""
        self.lite_queues.settle()
        self._update_handled(self.lite_queues.all())

    def _update_handled(self, lite_queues: Iterable[LiteQueue]) -> None:
        for lite_queue in lite_queues:
            if lite_queue.handled != NOT_KNOWN:
                self._update(lite_queue, lite_queue.handled)

    def _update(self, lite_queue: LiteQueue, offset: int) -> None:
        lite_queue.committed = offset
        self.offsets.update(lite_queue.queue, offset)

    async def committed(self, queue: MessageQueue) -> int | None:
        stored = await self.offsets.read(queue)
        lite_queue = self.lite_queues.get(queue)
        # The offset that was read must not be stored again in place of a later commit.
        if lite_queue is not None and lite_queue.committed != NOT_KNOWN:
            self.offsets.update(queue, lite_queue.committed)
        else:
            self.offsets.forget(queue)
        return stored if stored >= 0 else None
