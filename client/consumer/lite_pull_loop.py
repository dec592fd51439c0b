"""The pull loop of one queue of a LitePullConsumer (wire.md 12.10)."""

import asyncio
from collections.abc import Awaitable, Callable

from lockstep.client.consumer.buffer import NOT_KNOWN, LiteQueue, LiteQueues
from lockstep.client.consumer.flow_control import most_bytes
from lockstep.client.consumer.process_queue import ProcessQueue
from lockstep.client.consumer.pull_member import PullMember
from lockstep.client.consumer.pull_request import PullRequest, PullResult, PullStatus
from lockstep.client.errors import ClientError
from lockstep.client.pull_config import LitePullConsumerConfig
from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.codes import PullSysFlag, ResponseCode
from lockstep.protocol.errors import ProtocolError
from lockstep.remoting.errors import RemotingError, RequestRefused

__all__ = ["LitePull"]

_SYS_FLAG = int(PullSysFlag.SUSPEND | PullSysFlag.SUBSCRIPTION | PullSysFlag.LITE_PULL)


class LitePull:
    """`subscription(topic)` is the present one, `first_offset` where a queue begins; `arrived` hears of messages."""

    def __init__(
        self,
        member: PullMember,
        config: LitePullConsumerConfig,
        lite_queues: LiteQueues,
        *,
        subscription: Callable[[str], SubscriptionData],
        first_offset: Callable[[ProcessQueue], Awaitable[int]],
        arrived: Callable[[], None],
    ) -> None:
        self._member = member
        self._config = config
        self._queues = lite_queues
        self._subscription = subscription
        self._first_offset = first_offset
        self._arrived = arrived

    async def run(self, lite_queue: LiteQueue) -> None:
        """Until the queue is dropped; a seek ends this one and begins another."""
        while not lite_queue.dropped:
            lite_queue.process_queue.last_pull_ms = self._member.runtime.now_ms()
            delay_ms = self._holds_back(lite_queue) or await self._pull_once(lite_queue)
            if delay_ms:
                await asyncio.sleep(delay_ms / 1000)

    def _holds_back(self, lite_queue: LiteQueue) -> int:
        """How long to wait before anything is pulled, in ms; in RocketMQ's order."""
        config, process_queue = self._config, lite_queue.process_queue
        if lite_queue.paused:
            return config.pull_delay_when_paused_ms
        if (
            self._queues.waiting_pulls * config.pull_batch_size > config.pull_threshold_for_all
            or process_queue.message_count > config.pull_threshold_for_queue
            or process_queue.message_bytes > most_bytes(config.pull_threshold_bytes_for_queue)
            or process_queue.max_span > config.consume_max_span
        ):
            return config.pull_delay_when_flow_control_ms
        return 0

    async def _pull_once(self, lite_queue: LiteQueue) -> int:
        """One pull, and how long to wait after it, in ms."""
        config = self._config
        if lite_queue.pull_offset == NOT_KNOWN:
            try:
                await self._member.instance.routes.get(lite_queue.queue.topic)
                lite_queue.pull_offset = await self._first_offset(lite_queue.process_queue)
            except Exception as error:
                self._warn("first offset not known", lite_queue, error)
                return config.pull_delay_when_offset_unknown_ms
        try:
            result = await self._pull(lite_queue)
        except Exception as error:
            self._warn("pull failed", lite_queue, error)
            busy = isinstance(error, RequestRefused) and error.code == ResponseCode.FLOW_CONTROL
            return config.pull_delay_when_broker_flow_control_ms if busy else config.pull_delay_when_exception_ms
        if not lite_queue.dropped:  # what came for a dropped queue belongs to a later owner
            self._take(lite_queue, result)
        return 0

    async def _pull(self, lite_queue: LiteQueue) -> PullResult:
        calls, queue = self._member.calls, lite_queue.queue
        source = calls.source(queue)
        endpoint = await calls.endpoint(queue, source)
        request = PullRequest(
            queue,
            self._subscription(queue.topic),
            lite_queue.pull_offset,
            self._config.pull_batch_size,
            _SYS_FLAG,
            suspend_ms=self._config.pull_suspend_ms,
            timeout_ms=self._config.pull_timeout_ms,
        )
        return await calls.call(request, source, endpoint)

    def _take(self, lite_queue: LiteQueue, result: PullResult) -> None:
        lite_queue.pull_offset = result.next_begin_offset
        if result.messages:
            waited_ms = self._member.runtime.now_ms() - lite_queue.process_queue.last_pull_ms
            self._member.stats.pulled(lite_queue.queue.topic, len(result.messages), waited_ms)
            self._queues.put(lite_queue, result.messages)
            self._arrived()
        elif result.status is PullStatus.OFFSET_ILLEGAL:
            self._member.log.warning(
                "offset illegal: pulled from where the broker says",
                queue=str(lite_queue.queue),
                next_offset=result.next_begin_offset,
                min_offset=result.min_offset,
                max_offset=result.max_offset,
            )
        else:
            self._queues.nothing_until(lite_queue, result.next_begin_offset)

    def _warn(self, event: str, lite_queue: LiteQueue, error: Exception) -> None:
        if not lite_queue.dropped:
            expected = isinstance(error, RemotingError | ProtocolError | ClientError)
            reason = str(error) if expected else f"{type(error).__name__}: {error}"
            self._member.log.warning(event, queue=str(lite_queue.queue), error=reason)
