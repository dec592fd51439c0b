"""The pull loop of one process queue: a long poll after the other, while the queue is locked (wire.md 12.6)."""

import asyncio
from collections.abc import Awaitable, Callable

from lockstep.client.config import ConsumerConfig
from lockstep.client.consumer.dead_letters import DeadLetters
from lockstep.client.consumer.dispatch.stats import ConsumeStats
from lockstep.client.consumer.flow_control import FlowControl
from lockstep.client.consumer.offsets.store import OffsetStore
from lockstep.client.consumer.process_queue import ProcessQueue
from lockstep.client.consumer.pull_request import PullCalls, PullRequest, PullResult, PullSource, PullStatus
from lockstep.client.errors import ClientError
from lockstep.client.hook_calls import ConsumeHooks
from lockstep.client.instance.client import MQClientInstance
from lockstep.order.trace import TraceWriter
from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.codes import PullSysFlag, ResponseCode
from lockstep.protocol.errors import ProtocolError
from lockstep.protocol.message import MessageExt
from lockstep.remoting.endpoint import Endpoint
from lockstep.remoting.errors import RemotingError, RequestRefused
from lockstep.remoting.logs import log_exception

__all__ = ["PullLoop"]

_COMMIT, _SUSPEND, _SUBSCRIPTION = (
    int(flag) for flag in (PullSysFlag.COMMIT_OFFSET, PullSysFlag.SUSPEND, PullSysFlag.SUBSCRIPTION)
)


class PullLoop:
    """`subscription(topic)` is the present one; `submit` takes what was pulled, `offset_illegal` a queue out."""

    def __init__(
        self,
        instance: MQClientInstance,
        group: str,
        config: ConsumerConfig,
        offsets: OffsetStore,
        *,
        subscription: Callable[[str], SubscriptionData | None],
        first_offset: Callable[[ProcessQueue], Awaitable[int]],
        submit: Callable[[ProcessQueue, list[MessageExt]], None],
        offset_illegal: Callable[[ProcessQueue], Awaitable[None]],
        flow: FlowControl,
        stats: ConsumeStats,
        trace: TraceWriter | None,
        hooks: ConsumeHooks | None = None,
        dead_letters: DeadLetters | None = None,
    ) -> None:
        self.suspended = False  # what is in hand is consumed, and nothing more is pulled
        self._flow = flow
        self._instance = instance
        self._runtime = instance.runtime
        self._calls = PullCalls(instance, group, hooks)
        self._config = config
        self._flags = _SUSPEND | _SUBSCRIPTION if config.post_subscription_when_pull else _SUSPEND
        self._offsets = offsets
        self._subscription = subscription
        self._first_offset = first_offset
        self._submit = submit
        self._offset_illegal = offset_illegal
        self._stats = stats
        self._trace = trace
        self._dead_letters = dead_letters  # for messages that cannot be read; None: they are handed out

    async def run(self, process_queue: ProcessQueue) -> None:
        """Until the process queue is dropped."""
        config = self._config
        while not process_queue.dropped:
            process_queue.last_pull_ms = self._runtime.now_ms()
            if self.suspended:
                await asyncio.sleep(config.pull_delay_when_suspended_ms / 1000)
                continue
            if await self._flow_controlled(process_queue):
                continue
            try:
                source = self._calls.source(process_queue.queue)
                # A new connection renews the lock, or learns that it is lost.
                endpoint = await self._calls.endpoint(process_queue.queue, source)
                if not await self._positioned(process_queue):
                    await asyncio.sleep(config.pull_delay_when_exception_ms / 1000)
                    continue
                subscription = self._subscribed(process_queue.queue.topic)
                result = await self._pull(process_queue, subscription, source, endpoint)
                # What was asked for under another expression may have passed over what is wanted now.
                if self._asks_for(subscription):
                    await self._take(process_queue, result)
            except Exception as error:  # of the network, or of a trace that cannot be written: the queue goes on
                await self._after_failure(process_queue, error)
                continue
            if config.pull_interval_ms:
                await asyncio.sleep(config.pull_interval_ms / 1000)

    async def _flow_controlled(self, process_queue: ProcessQueue) -> bool:
        """Wait while enough is cached: 50 ms as RocketMQ does, or until half of it is consumed, if that is sooner."""
        reason = self._flow.reached(process_queue)
        if reason is None:
            return False
        if self._flow.is_news(reason):
            self._instance.log.warning(
                "pull_throttled",
                queue=str(process_queue.queue),
                over=reason,
                messages=process_queue.message_count,
                bytes=process_queue.message_bytes,
                span=process_queue.max_span,
            )
        enough = self._flow.limits(process_queue.queue.topic).message_count
        await process_queue.room_below(max(enough // 2, 1), self._config.pull_delay_when_flow_control_ms)
        return True

    async def _positioned(self, process_queue: ProcessQueue) -> bool:
        """May this queue be pulled? Only while locked, and from the offset the broker names under that lock."""
        if not process_queue.holds_lock(self._runtime.now_ms(), self._config.lock_max_live_time_ms):
            return False
        if process_queue.positioned:
            return True
        offset = await self._first_offset(process_queue)
        if self._trace is not None:
            self._trace.queue_event("positioned", process_queue.queue, period=process_queue.period, offset=offset)
        process_queue.next_offset = offset
        process_queue.positioned = True
        return True

    def _subscribed(self, topic: str) -> SubscriptionData:
        """Raises ClientError."""
        subscription = self._subscription(topic)
        if subscription is None:
            raise ClientError(f"topic {topic!r} is not subscribed any more")
        return subscription

    def _asks_for(self, earlier: SubscriptionData) -> bool:
        now = self._subscription(earlier.topic)
        if now is None or now is earlier:
            return now is earlier
        return (now.sub_string, now.expression_type) == (earlier.sub_string, earlier.expression_type)

    async def _pull(
        self, process_queue: ProcessQueue, subscription: SubscriptionData, source: PullSource, endpoint: Endpoint
    ) -> PullResult:
        """Raises RemotingError, ProtocolError."""
        queue, config = process_queue.queue, self._config
        commit_offset = self._offsets.in_memory(queue)
        commits = commit_offset > 0 and self._offsets.on_broker and not source.is_slave
        request = PullRequest(
            queue,
            subscription,
            process_queue.next_offset,
            config.pull_batch_size,
            self._flags | _COMMIT if commits else self._flags,
            commit_offset if commits else 0,
            subscription.sub_version,
            config.pull_suspend_ms,
            config.pull_timeout_ms,
        )
        if commits and self._trace is not None:
            self._trace.queue_event("committed", queue, period=process_queue.period, offset=commit_offset)
        return await self._calls.call(request, source, endpoint)

    async def _take(self, process_queue: ProcessQueue, result: PullResult) -> None:
        if self._dead_letters is not None:
            result = await self._without_unreadable(self._dead_letters, process_queue, result)
        if process_queue.dropped:
            return  # what came belongs to a later owner
        self._check_offsets(process_queue, result)
        process_queue.next_offset = result.next_begin_offset
        if result.status is PullStatus.FOUND:  # of what its filter left nothing of, too
            waited_ms = self._runtime.now_ms() - process_queue.last_pull_ms
            self._stats.pulled(process_queue.queue.topic, len(result.messages), waited_ms)
        if result.messages:
            behind = result.max_offset - result.messages[-1].queue_offset
            if behind > 0:
                process_queue.message_accumulation = behind
            self._submit(process_queue, result.messages)
        elif result.status is PullStatus.OFFSET_ILLEGAL:
            process_queue.dropped = True
            self._instance.log.warning(
                "offset illegal: queue taken out",
                queue=str(process_queue.queue),
                next_offset=result.next_begin_offset,
                min_offset=result.min_offset,
                max_offset=result.max_offset,
            )
            await self._offset_illegal(process_queue)
        elif result.status is not PullStatus.FOUND and process_queue.is_empty:
            self._offsets.update(process_queue.queue, result.next_begin_offset, increase_only=True)

    async def _without_unreadable(
        self, dead_letters: DeadLetters, process_queue: ProcessQueue, result: PullResult
    ) -> PullResult:
        """What cannot be read becomes dead letters; the rest. Raises SendError: the pull is then made again."""
        readable = []
        for message in result.messages:
            if message.body_error is None:
                readable.append(message)
            elif not process_queue.dropped:
                await dead_letters.send(process_queue, message, message.reconsume_times)
        if result.messages and not readable and process_queue.is_empty and not process_queue.dropped:
            self._offsets.update(process_queue.queue, result.next_begin_offset, increase_only=True)
        return result._replace(messages=readable)

    def _check_offsets(self, process_queue: ProcessQueue, result: PullResult) -> None:
        """A broker must not answer with what lies before the offset that was asked for.

        It is logged, and its answer is taken as it is, as RocketMQ's client does.

        Source: article 3, "pull message result maybe data wrong".
        """
        if result.status is not PullStatus.FOUND:
            return
        asked = process_queue.next_offset
        first = result.messages[0].queue_offset if result.messages else None
        if result.next_begin_offset < asked or (first is not None and first < asked):
            self._instance.log.warning(
                "pull_result_before_request",
                queue=str(process_queue.queue),
                asked_offset=asked,
                next_offset=result.next_begin_offset,
                first_offset=first,
            )

    async def _after_failure(self, process_queue: ProcessQueue, error: Exception) -> None:
        if process_queue.dropped:
            return
        busy = isinstance(error, RequestRefused) and error.code == ResponseCode.FLOW_CONTROL
        if isinstance(error, RemotingError | ClientError):
            self._instance.log.info("pull failed", queue=str(process_queue.queue), error=str(error))
        elif isinstance(error, ProtocolError):  # it will say so again and again: nobody mends that but a person
            self._instance.log.error("pull failed", queue=str(process_queue.queue), error=str(error))
        else:
            log_exception(self._instance.log, "pull failed", error, queue=str(process_queue.queue))
        config = self._config
        delay_ms = config.pull_delay_when_broker_flow_control_ms if busy else config.pull_delay_when_exception_ms
        await asyncio.sleep(delay_ms / 1000)
