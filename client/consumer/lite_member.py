"""What a started LitePullConsumer runs on: its membership, its queues, and a pull loop for each of them."""

import asyncio
from collections.abc import Iterable, Mapping

from lockstep.client.consumer.buffer import NOT_KNOWN, LiteQueue, LiteQueues
from lockstep.client.consumer.lite_pull_loop import LitePull
from lockstep.client.consumer.offsets.initial import FirstOffset
from lockstep.client.consumer.ownership.topic_watch import QueueWatch, TopicMessageQueueChangeListener
from lockstep.client.consumer.process_queue import ProcessQueue
from lockstep.client.consumer.pull_member import MemberOptions, PullMember
from lockstep.client.errors import ConsumerError
from lockstep.client.pull_config import LitePullConsumerConfig
from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.message import MessageExt
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.logs import EventLog
from lockstep.remoting.runtime import Runtime

__all__ = ["LiteEngine"]


class LiteEngine:
    """`subscriptions` are the consumer's own, by topic; `expressions` those of topics of assigned queues."""

    def __init__(
        self,
        runtime: Runtime,
        options: MemberOptions,
        config: LitePullConsumerConfig,
        log: EventLog,
        subscriptions: dict[str, SubscriptionData],
        expressions: dict[str, SubscriptionData],
    ) -> None:
        self.runtime = runtime
        self.lite_queues = LiteQueues()
        self._config = config
        self._log = log
        self._subscriptions = subscriptions
        self._expressions = expressions
        self._news = asyncio.Event()
        self._pulling: dict[LiteQueue, asyncio.Task[None]] = {}
        self._periods = 0
        self._stopping = False
        self.member = member = PullMember(
            runtime,
            options,
            log,
            subscriptions,
            on_acquired=self._acquired,
            on_dropped=self._dropped,
            on_changed=lambda _topic: None,
            to_persist=lambda: self.lite_queues.queues,
        )
        self._pull = LitePull(
            member,
            config,
            self.lite_queues,
            subscription=self._subscription,
            first_offset=FirstOffset(member.instance, member.config, member.offsets),
            arrived=self._news.set,
        )
        self.watch = QueueWatch(member.queries, log)

    # Life ----------------------------------------------------------------------------------------------------

    async def start(
        self, assigned: list[MessageQueue], listeners: Mapping[str, TopicMessageQueueChangeListener]
    ) -> None:
        """Raises ConsumerError, NoRouteError."""
        self.member.balances = not assigned
        await self.member.start()
        try:
            for topic, listener in listeners.items():
                await self.watch.register(topic, listener)
        except BaseException:
            await self.stop()
            raise
        if assigned:
            self.assign(assigned)
        self.member.instance.schedule.every(
            self._config.topic_metadata_check_interval_ms,
            self.watch.look,
            first_ms=self._config.topic_metadata_check_first_ms,
            name="queue watch",
        )

    async def stop(self) -> None:
        self._stopping = True
        self._news.set()  # whoever waits for messages gets none
        await self.member.stop()
        for task in self._pulling.values():
            task.cancel()
        if self._config.auto_commit:
            self._note_handled(self.lite_queues.all())
        await self.member.leave()

    # Queues --------------------------------------------------------------------------------------------------

    def owned(self, queue: MessageQueue) -> LiteQueue:
        lite_queue = self.lite_queues.get(queue)
        if lite_queue is None:
            where = "; a rebalance may have given it to another member" if self.member.balances else ""
            raise ConsumerError(f"queue {queue} is not assigned to this consumer{where}")
        return lite_queue

    def join_soon(self, topic: str) -> None:
        self.runtime.create_task(self._join(topic), name=f"join {topic}")

    async def _join(self, topic: str) -> None:
        try:
            await self.member.join(topic)
        except Exception as error:  # the next rebalance asks for the route again
            if not self._stopping:
                self._log.warning("topic not joined yet", topic=topic, error=f"{type(error).__name__}: {error}")

    def assign(self, queues: list[MessageQueue]) -> None:
        self.member.balances = False
        table = self.member.table
        given_up = [queue for queue in table if queue not in queues]
        for queue in given_up:
            process_queue = table.pop(queue)
            process_queue.dropped = True
            self._dropped(process_queue)
        self.member.store_soon(given_up)
        for queue in given_up:
            self.member.offsets.forget(queue)
        for queue in queues:
            if queue not in table:
                self._periods += 1
                table[queue] = ProcessQueue(queue, self._periods, self.runtime.now_ms(), needs_lock=False)
                self._acquired(table[queue])

    def _acquired(self, process_queue: ProcessQueue) -> None:
        self._start_pulling(self.lite_queues.add(process_queue))

    def _dropped(self, process_queue: ProcessQueue) -> None:
        """Its offset is stored right after this."""
        lite_queue = self.lite_queues.remove(process_queue.queue)
        if lite_queue is None:
            return
        if self._config.auto_commit:
            self._note_handled([lite_queue])
        task = self._pulling.pop(lite_queue, None)
        if task is not None:
            task.cancel()

    def _start_pulling(self, lite_queue: LiteQueue) -> None:
        earlier = self._pulling.get(lite_queue)
        if earlier is not None:
            earlier.cancel()
        name = f"pull {lite_queue.queue}"
        self._pulling[lite_queue] = self.runtime.create_task(self._pull.run(lite_queue), name=name)

    def _subscription(self, topic: str) -> SubscriptionData:
        table = self._subscriptions if self.member.balances else self._expressions
        return table.get(topic) or SubscriptionData(topic)

    # Messages ------------------------------------------------------------------------------------------------

    async def next_messages(self, timeout_ms: int, count_max: int | None = None) -> list[MessageExt]:
        deadline_ms = self.runtime.now_ms() + timeout_ms
        while not (messages := self.lite_queues.take(self.runtime.now_ms(), count_max)):
            left_ms = deadline_ms - self.runtime.now_ms()
            if left_ms <= 0 or self._stopping:
                break
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), left_ms / 1000)
            except TimeoutError:
                pass
        return messages

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        self.owned(queue)
        low, high = await self.member.queries.min_offset(queue), await self.member.queries.max_offset(queue)
        if not low <= offset <= high:
            raise ConsumerError(f"queue {queue} has offsets from {low} to {high}, not {offset}")
        lite_queue = self.owned(queue)  # it may have gone meanwhile
        self.lite_queues.seek(lite_queue, offset)
        self._start_pulling(lite_queue)

    # Offsets -------------------------------------------------------------------------------------------------

    def commit(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """All that was handed out of these queues; those of which anything was."""
        found = [self.lite_queues.get(queue) for queue in queues]
        return self.commit_offsets({lite.queue: lite.position for lite in found if lite and lite.position >= 0})

    def commit_offsets(self, offsets: Mapping[MessageQueue, int]) -> list[MessageQueue]:
        for queue, offset in offsets.items():
            lite_queue = self.owned(queue)
            lite_queue.handled = max(lite_queue.handled, offset)  # or the commit at the shutdown would take it back
            self._note(lite_queue, offset)
        return list(offsets)

    def commit_handled(self) -> None:
        """What was handed out up to now."""
        self.lite_queues.settle()
        self._note_handled(self.lite_queues.all())

    def _note_handled(self, lite_queues: Iterable[LiteQueue]) -> None:
        for lite_queue in lite_queues:
            if lite_queue.handled != NOT_KNOWN:
                self._note(lite_queue, lite_queue.handled)

    def _note(self, lite_queue: LiteQueue, offset: int) -> None:
        lite_queue.committed = offset
        self.member.offsets.update(lite_queue.queue, offset)

    async def committed(self, queue: MessageQueue) -> int | None:
        offsets = self.member.offsets
        kept = await offsets.read(queue)
        lite_queue = self.lite_queues.get(queue)
        if lite_queue is not None and lite_queue.committed != NOT_KNOWN:
            offsets.update(queue, lite_queue.committed)  # what was read is not what is to be stored
        else:
            offsets.forget(queue)
        return kept if kept >= 0 else None
