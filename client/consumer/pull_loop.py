"""The pull loop of a queue: one long poll after the other while its lock holds and its cache has room (wire.md 12.6).

PullLoop does what every consumer does with the answer of a broker; a PullOwner does the rest.
"""

import asyncio
from typing import Protocol

from lockstep.client.callables import must_propagate
from lockstep.client.consumer.dispatch.stats import ConsumerStatsManager
from lockstep.client.consumer.flow_control import FlowControl
from lockstep.client.consumer.ownership.membership import Membership
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.client.consumer.pull_request import PullCalls, PullRequest, PullResult, PullSource, PullStatus
from lockstep.client.consumer.send_back import DeadLetters
from lockstep.client.errors import ClientError
from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.codes import PullSysFlag, ResponseCode
from lockstep.protocol.errors import ProtocolError
from lockstep.protocol.messages.message import MessageExt
from lockstep.remoting.connections.endpoint import Endpoint
from lockstep.remoting.errors import RequestRefused
from lockstep.remoting.logs import log_exception

__all__ = ["PullLoop", "PullOwner"]

_COMMIT = int(PullSysFlag.COMMIT_OFFSET)
_LITE = int(PullSysFlag.LITE_PULL)


class PullOwner(Protocol):
    """The consumer that a pull loop works for."""

    @property
    def pull_flags(self) -> int:
        """The bits of PullSysFlag that each pull has."""

    def pause_ms(self, process_queue: ProcessQueue) -> int:
        """Return how long not to pull, because the user says so; 0: pull."""

    def retry_ms(self, process_queue: ProcessQueue) -> int:
        """Return how long to wait after a failure."""

    def refused(self, process_queue: ProcessQueue, error: Exception) -> bool:
        """Return whether the error is a refusal under the epoch of the queue's lock; then its period ends."""

    def subscription(self, topic: str) -> SubscriptionData | None:
        """Return the present subscription; None: the user unsubscribed."""

    async def first_offset(self, process_queue: ProcessQueue) -> int:
        """Return the offset that the first pull of a queue begins at."""

    def take(self, process_queue: ProcessQueue, messages: list[MessageExt]) -> None:
        """Put pulled messages into the queue's cache."""

    def nothing_found(self, process_queue: ProcessQueue, result: PullResult) -> None:
        """No message of the answer is left after the filters, or it had none: all before the next pull is consumed."""

    async def offset_illegal(self, process_queue: ProcessQueue, result: PullResult) -> None:
        """The queue has no such offset; `next_begin_offset` is where to go on."""

    async def log_went_back(self, process_queue: ProcessQueue, begin: int) -> None:
        """The broker's log was shorter than what was read; its messages from `begin` on were stored since."""


class PullLoop:
    """The pull loops of a consumer's queues.

    Args:
        dead_letters: for messages that cannot be read; None: the user gets them.
    """

    def __init__(
        self,
        member: Membership,
        owner: PullOwner,
        calls: PullCalls,
        flow: FlowControl,
        stats: ConsumerStatsManager,
        dead_letters: DeadLetters | None = None,
    ) -> None:
        self._member = member
        self._owner = owner
        self._calls = calls
        self._flow = flow
        self._stats = stats
        self._dead_letters = dead_letters
        self._runtime = member.runtime
        self._config = member.config
        self._log = member.log
        self._tasks: dict[ProcessQueue, asyncio.Task[None]] = {}
        self._stopped = False

    def start(self, process_queue: ProcessQueue) -> None:
        """Pull the queue, from its `next_offset` if it is positioned. A pull under way is forgotten."""
        # First the old pull ends: two loops of one queue would both move its next offset.
        self.stop(process_queue)
        task = self._runtime.create_task(self.run(process_queue), name=f"pull {process_queue.queue}")
        self._tasks[process_queue] = task
        task.add_done_callback(lambda _: self._ended(process_queue, task))

    def _ended(self, process_queue: ProcessQueue, task: asyncio.Task[None]) -> None:
        # A later `start` may have put its own task there.
        if self._tasks.get(process_queue) is not task:
            return
        del self._tasks[process_queue]
        error = None if task.cancelled() else task.exception()
        if (error is not None or (task.cancelled() and not task.cancelling())) and not process_queue.life.is_over:
            # Nothing else would pull the queue, and it would stay locked.
            why = error or asyncio.CancelledError("by no one")
            log_exception(self._log, "pull_failed", why, queue=str(process_queue.queue))
            self._runtime.call_later_ms(self._owner.retry_ms(process_queue), self._start_again, process_queue)

    def _start_again(self, process_queue: ProcessQueue) -> None:
        if not process_queue.life.is_over and process_queue not in self._tasks and not self._stopped:
            self.start(process_queue)

    def stop(self, process_queue: ProcessQueue) -> None:
        task = self._tasks.pop(process_queue, None)
        if task is not None:
            task.cancel()

    def stop_all(self) -> None:
        self._stopped = True
        for process_queue in list(self._tasks):
            self.stop(process_queue)

    async def run(self, process_queue: ProcessQueue) -> None:
        """Pull until the period of the process queue is over."""
        life = process_queue.life
        while not (life.dropped or life.draining):
            # A queue that is paused or throttled is alive too: a rebalance must not take it for a dead pull (wire.md
            # 7.3).
            process_queue.last_pull_ms = self._runtime.now_ms()
            delay_ms = self._owner.pause_ms(process_queue)
            if not delay_ms:
                if await self._throttled(process_queue):
                    continue
                delay_ms = await self._pull_once(process_queue)
            if delay_ms:
                await asyncio.sleep(delay_ms / 1000)

    async def _throttled(self, process_queue: ProcessQueue) -> bool:
        """Wait while the cache is full: 50 ms as RocketMQ does, or until half of it is consumed, if that is sooner."""
        reason = self._flow.reached(process_queue)
        if reason is None:
            return False
        if self._flow.must_log(reason):
            self._log.warning(
                "pull_throttled",
                queue=str(process_queue.queue),
                over=reason,
                messages=process_queue.cache.message_count,
                bytes=process_queue.cache.message_bytes,
                span=process_queue.cache.max_span,
            )
        # Half: to wake up at each message would make one pull for each.
        enough = self._flow.limits(process_queue.queue.topic).message_count
        await process_queue.cache.wait_below(max(enough // 2, 1), self._config.pull_delay_when_flow_control_ms)
        return True

    async def _pull_once(self, process_queue: ProcessQueue) -> int:
        """Make one pull. Returns how long to wait after it, in ms."""
        queue, config = process_queue.queue, self._config
        try:
            if not process_queue.positioned and self._owner.pull_flags & _LITE:
                # The topic of an assigned queue may be new.
                await self._member.instance.routes.get(queue.topic)
            source = self._calls.source(queue)
            # Connecting renews the lock, or shows that it is lost: so the lock is checked after it.
            endpoint = await self._calls.endpoint(queue, source)
            # Without its lock a queue is not pulled: its messages may be another member's by now (wire.md 12.6).
            if not self._member.holds_lock(process_queue):
                return config.pull_delay_when_exception_ms
            if not process_queue.positioned:
                # The first offset is read under the lock. Before that, the last owner may still commit (wire.md 12.6).
                await self._position(process_queue)
                process_queue.log_run = endpoint.peer_run
            # 0: a new connection has not agreed yet. What is known of the log stays, for the pull after this one.
            elif endpoint.peer_run not in (0, process_queue.log_run) and await self._went_back(process_queue, endpoint):
                return 0
            subscription = self._subscribed(queue.topic)
            result = await self._pull(process_queue, subscription, source, endpoint)
            # A pull with an earlier expression may have passed over messages that match the present one.
            if self._is_current(subscription):
                await self._take(process_queue, result)
        except BaseException as error:
            if must_propagate(error):
                raise
            # Of the network, or of a trace on a full disk: the queue is tried again.
            return self._failed(process_queue, error)
        return config.pull_interval_ms

    async def _position(self, process_queue: ProcessQueue) -> None:
        offset = await self._owner.first_offset(process_queue)
        # The offset was read under a lock that has ended. The next owner may have moved it.
        if not self._member.holds_lock(process_queue):
            raise ClientError(f"the lock of {process_queue.queue} ended while its first offset was read")
        self._member.record("positioned", process_queue, offset=offset)
        process_queue.cache.next_offset = offset
        process_queue.positioned = True

    async def _went_back(self, process_queue: ProcessQueue, endpoint: Endpoint) -> bool:
        """The broker has started again: whether its log ends before what this period has read (docs/order.md 3 (q)).

        It may have grown beyond that already: then the broker does not see that what was stored since is skipped.
        """
        recovered, asked = process_queue.cache.next_offset, process_queue.cache.next_offset
        if process_queue.log_run:
            recovered = await self._calls.recovered_offset(process_queue.queue, endpoint)
        process_queue.log_run = endpoint.peer_run
        if recovered >= asked:
            return False
        self._say_went_back(process_queue, asked, recovered)
        await self._owner.log_went_back(process_queue, recovered)
        return True

    def _say_went_back(self, process_queue: ProcessQueue, asked: int, begin: int) -> None:
        queue = str(process_queue.queue)
        self._log.warning("log_went_back", queue=queue, read_to=asked, begins_at=begin)

    def _subscribed(self, topic: str) -> SubscriptionData:
        """Raises ClientError."""
        subscription = self._owner.subscription(topic)
        if subscription is None:
            raise ClientError(f"topic {topic!r} is not subscribed any more")
        return subscription

    def _is_current(self, asked: SubscriptionData) -> bool:
        now = self._owner.subscription(asked.topic)
        if now is None or now is asked:
            return now is asked
        return (now.sub_string, now.expression_type) == (asked.sub_string, asked.expression_type)

    async def _pull(
        self, process_queue: ProcessQueue, subscription: SubscriptionData, source: PullSource, endpoint: Endpoint
    ) -> PullResult:
        """Raises RemotingError, ProtocolError."""
        queue, config, flags = process_queue.queue, self._config, self._owner.pull_flags
        # A lite pull has no offset to commit and no version.
        offsets, lite = self._member.offsets, bool(flags & _LITE)
        commit_offset = offsets.in_memory(queue)
        # A slave takes no commits, and offset 0 says nothing that the broker does not assume (wire.md 6.1).
        commits = commit_offset > 0 and offsets.on_broker and not (source.is_slave or lite)
        request = PullRequest(
            queue,
            subscription,
            process_queue.cache.next_offset,
            config.pull_batch_size,
            flags | _COMMIT if commits else flags,
            commit_offset if commits else 0,
            0 if lite else subscription.sub_version,
            config.pull_suspend_ms,
            config.pull_timeout_ms,
            process_queue.hold.epoch,
        )
        if commits:
            self._member.commit_leaves(process_queue, commit_offset)
        return await self._calls.call(request, source, endpoint)

    async def _take(self, process_queue: ProcessQueue, result: PullResult) -> None:
        if self._dead_letters is not None:
            result = await self._without_unreadable(self._dead_letters, process_queue, result)
        if process_queue.life.is_over:
            # These messages belong to the next owner.
            return
        self._check_offsets(process_queue, result)
        asked = process_queue.cache.next_offset
        if result.status is PullStatus.OFFSET_ILLEGAL and result.next_begin_offset < asked:
            # The log ends before what was read, and how far it had gone back is not known. RocketMQ proposes its end,
            # and skips what was stored since (wire.md 12.6); from the beginning nothing is skipped.
            self._say_went_back(process_queue, asked, result.min_offset)
            result = result._replace(next_begin_offset=result.min_offset)
        # Also after messages that the filter took out, so that they are not read again.
        process_queue.cache.next_offset = result.next_begin_offset
        if result.status is PullStatus.FOUND:
            # An answer whose messages the filter took out counts too.
            waited_ms = self._runtime.now_ms() - process_queue.last_pull_ms
            self._stats.pulled(process_queue.queue.topic, len(result.messages), waited_ms)
        if result.messages:
            behind = result.max_offset - result.messages[-1].queue_offset
            if behind > 0:
                process_queue.cache.message_accumulation = behind
            try:
                self._owner.take(process_queue, result.messages)
            except BaseException:
                # Not in the cache, they would be skipped.
                cached = process_queue.cache.message_count and process_queue.cache.queue_offset_max
                if not cached or cached < result.messages[0].queue_offset:
                    process_queue.cache.next_offset = asked
                raise
        elif result.status is PullStatus.OFFSET_ILLEGAL:
            self._log.warning(
                "offset_illegal",
                queue=str(process_queue.queue),
                next_offset=result.next_begin_offset,
                min_offset=result.min_offset,
                max_offset=result.max_offset,
            )
            await self._owner.offset_illegal(process_queue, result)
        else:
            self._owner.nothing_found(process_queue, result)

    async def _without_unreadable(
        self, dead_letters: DeadLetters, process_queue: ProcessQueue, result: PullResult
    ) -> PullResult:
        """Make dead letters of unreadable messages, and return the others. Raises SendError: the pull is repeated."""
        readable = []
        for message in result.messages:
            if message.body_error is None:
                readable.append(message)
            # After a takeover the next owner makes the dead letter. Two would be one too many.
            elif not process_queue.life.dropped:
                await dead_letters.send(process_queue, message, message.reconsume_times)
        if result.messages and not readable and process_queue.cache.is_empty and not process_queue.life.dropped:
            self._member.offsets.update(process_queue.queue, result.next_begin_offset, increase_only=True)
        return result._replace(messages=readable)

    def _check_offsets(self, process_queue: ProcessQueue, result: PullResult) -> None:
        """Log an answer with messages from before the offset that was asked for; it is used, as in RocketMQ's client.

        Source: article 3, "pull message result maybe data wrong".
        """
        if result.status is not PullStatus.FOUND:
            return
        asked = process_queue.cache.next_offset
        first = result.messages[0].queue_offset if result.messages else None
        if result.next_begin_offset < asked or (first is not None and first < asked):
            self._log.warning(
                "pull_result_before_request",
                queue=str(process_queue.queue),
                asked_offset=asked,
                next_offset=result.next_begin_offset,
                first_offset=first,
            )

    def _failed(self, process_queue: ProcessQueue, error: BaseException) -> int:
        """Log a failure. Returns how long to wait, in ms."""
        # No wait: the loop ends at once when the period is over.
        if process_queue.life.dropped or (isinstance(error, Exception) and self._owner.refused(process_queue, error)):
            return 0
        event, queue = "pull_failed", str(process_queue.queue)
        if isinstance(error, ProtocolError):
            # It stays until a person changes something.
            self._log.error(event, queue=queue, error=str(error))
        elif isinstance(error, ClientError):
            self._log.info(event, queue=queue, error=str(error))
        else:
            log_exception(self._log, event, error, queue=queue)
        busy = isinstance(error, RequestRefused) and error.code == ResponseCode.FLOW_CONTROL
        if busy and process_queue.positioned:
            return self._config.pull_delay_when_broker_flow_control_ms
        return self._owner.retry_ms(process_queue)
