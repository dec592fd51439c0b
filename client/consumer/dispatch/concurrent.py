"""ConsumeMessageConcurrentlyService: many batches at a time, without order (wire.md 12.8).

A message that failed is sent back to its broker, which delivers it again later, in the group's retry topic. The
committed offset of a queue is that of the first message that is not done, so one slow message holds it back.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from lockstep.client.callables import log_or_raise
from lockstep.client.consumer.dispatch.base import YIELD_AFTER, ConsumeService, ServiceParts, restore_topics
from lockstep.client.consumer.dispatch.call_start import CallStart
from lockstep.client.consumer.dispatch.workers import Workers
from lockstep.client.consumer.listener import ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.client.consumer.send_back import SendBack
from lockstep.protocol.bodies.heartbeat import MessageModel
from lockstep.protocol.messages import properties as names
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import is_retry_topic
from lockstep.remoting.host.loop_watch import LOOP_KEPT_MS

__all__ = ["ConsumeMessageConcurrentlyService"]

_RESUBMIT_MS: Final = 5000
# Stuck messages of one queue that are sent back in one round.
_CLEANED_MAX: Final = 16
_CLEANED_LEVEL: Final = 3

_SUCCESS, _LATER = ConsumeConcurrentlyStatus.CONSUME_SUCCESS, ConsumeConcurrentlyStatus.RECONSUME_LATER


class _Batch(NamedTuple):
    process_queue: ProcessQueue
    messages: list[MessageExt]


class _BatchStart(CallStart):
    """Notes in each message when its listener call began, so that a stuck message can be found."""

    __slots__ = ("messages",)
    messages: list[MessageExt]

    def may_begin(self) -> bool:
        if not super().may_begin():
            return False
        for message in self.messages:
            message.properties[names.CONSUME_START_TIME] = str(self.began_ms)
        return True


class ConsumeMessageConcurrentlyService(ConsumeService):
    def __init__(self, parts: ServiceParts, send_back: SendBack) -> None:
        super().__init__(parts)
        self._member = parts.member
        self._broadcasting = parts.member.message_model is MessageModel.BROADCASTING
        self._send_back = send_back
        self._workers = Workers[_Batch](self._runtime, "consume concurrently", self._config.consume_threads, self._work)
        self._running: Counter[ProcessQueue] = Counter()  # batches that are being handled
        self._idle: asyncio.Future[None] | None = None
        self._calls = 0

    def start(self) -> None:
        """Every `consume_timeout_ms`, look for messages that their listener has had for longer than that."""
        super().start()
        period_ms, schedule = self._config.consume_timeout_ms, self._member.instance.schedule
        schedule.every(period_ms, self._clean_expired, first_ms=period_ms, name="clean expired messages")

    def submit(self, process_queue: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        for message in messages:
            # A message that was sent again still has the time of its last attempt.
            message.properties.pop(names.CONSUME_START_TIME, None)
        process_queue.cache.put_messages(messages)
        self._submit(process_queue, messages)

    def _submit(self, process_queue: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        size = self._config.consume_message_batch_max_size
        for first in range(0, len(messages), size):
            self._workers.start(_Batch(process_queue, list(messages[first : first + size])))

    def _submit_later(self, process_queue: ProcessQueue, messages: list[MessageExt]) -> None:
        self._runtime.call_later_ms(_RESUBMIT_MS, self._submit, process_queue, messages)

    @asynccontextmanager
    async def between_runs(self, queue: MessageQueue) -> AsyncIterator[None]:
        # Without order any call may run beside any other: there is nothing to wait for.
        yield

    def set_consume_thread_count(self, count: int) -> None:
        super().set_consume_thread_count(count)
        self._workers.set_limit(count)

    async def stop(self, timeout_ms: int) -> list[ProcessQueue]:
        """As ConsumeService. Batches that wait for a worker are forgotten: they are delivered again."""
        self._starts.stopped = True
        self._workers.stop()
        if self._running:
            self._idle = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    await self._idle
            except TimeoutError:
                pass
        return list(self._running)

    # Batches -------------------------------------------------------------------------------------------------

    async def _work(self, first: _Batch) -> None:
        """Run one worker: handle one batch after the other."""
        workers, start = self._workers, _BatchStart(self._starts, marks_running=False)
        batch: _Batch | None = first
        try:
            while batch is not None:
                await self._consume(batch, start)
                batch = workers.next_now() or await workers.rest()
        finally:
            workers.left()

    async def _consume(self, batch: _Batch, start: _BatchStart) -> None:
        process_queue, messages = batch
        if process_queue.life.dropped:
            return  # the next owner gets them
        self._running[process_queue] += 1
        try:
            await self._consume_batch(process_queue, messages, start)
        except BaseException as error:
            # For example, the trace cannot be written.
            queue = str(process_queue.queue)
            log_or_raise(self._log, "consume_failed", error, consequence="batch consumed again", queue=queue)
            self._submit_later(process_queue, messages)
        finally:
            self._ended(process_queue)
        self._calls += 1
        if self._calls % YIELD_AFTER == 0:
            await asyncio.sleep(0)

    def _ended(self, process_queue: ProcessQueue) -> None:
        self._running[process_queue] -= 1
        if not self._running[process_queue]:
            del self._running[process_queue]
            if not self._running and self._idle is not None and not self._idle.done():
                self._idle.set_result(None)

    async def _consume_batch(self, process_queue: ProcessQueue, messages: list[MessageExt], start: _BatchStart) -> None:
        queue = process_queue.queue
        context = ConsumeConcurrentlyContext(queue)
        if is_retry_topic(queue.topic):
            restore_topics(messages)
        start.messages = messages
        start.asked(process_queue, self._runtime.now_ms())
        # A copy, because a listener may empty its list.
        outcome = await self._call(messages.copy(), context, start)
        if start.notable:
            self._starts.ended(start, process_queue, messages[0].queue_offset)
        if not outcome.begun:
            # The queue was given away, or this consumer stops: the messages are delivered again.
            return
        now_ms, status = self._runtime.now_ms(), outcome.status
        process_queue.last_consume_ms = now_ms
        acknowledged = min(max(context.ack_index + 1, 0), len(messages)) if status is _SUCCESS else 0
        self._record(process_queue, messages, acknowledged, start)
        totals, took_ms = self._stats.of(queue.topic), now_ms - start.began_ms
        if took_ms >= LOOP_KEPT_MS:
            self._starts.long_call(process_queue, messages[0].queue_offset, took_ms)
        if process_queue.cache.arrivals is not None:
            totals.waited(process_queue.cache.arrivals, messages[0].queue_offset, start.began_ms)
        if process_queue.life.dropped:
            totals.consumed_partly(0, 0, took_ms)
            self._log.warning("listener_result_ignored", queue=str(queue), why="the queue was dropped")
            return
        totals.consumed_partly(acknowledged, len(messages) - acknowledged, took_ms)
        await self._settle(process_queue, messages, acknowledged, context.delay_level_when_next_consume)

    def _record(
        self, process_queue: ProcessQueue, messages: list[MessageExt], acknowledged: int, start: CallStart
    ) -> None:
        if self._trace is None:
            return
        queue, period = process_queue.queue, process_queue.period
        for status, part in ((_SUCCESS, messages[:acknowledged]), (_LATER, messages[acknowledged:])):
            if part:
                self._trace.handled(queue, period, part, status.name, start.begin, ordering="none")

    async def _settle(
        self, process_queue: ProcessQueue, messages: list[MessageExt], acknowledged: int, delay_level: int
    ) -> None:
        """Remove messages that are done or were sent back. A message that could not be sent back is tried again."""
        done, kept = messages[:acknowledged], []
        for message in messages[acknowledged:]:
            if await self._send_back_or_drop(process_queue, message, delay_level):
                done.append(message)
            else:
                message.reconsume_times += 1
                kept.append(message)
        if kept:
            self._submit_later(process_queue, kept)
        self._remove(process_queue, done)

    async def _send_back_or_drop(self, process_queue: ProcessQueue, message: MessageExt, delay_level: int) -> bool:
        """Return whether the message can leave its process queue."""
        if self._broadcasting:
            self._log.warning(
                "message_dropped",
                why="a broadcasting consumer cannot send a message back",
                queue=str(process_queue.queue),
                offset=message.queue_offset,
                msg_id=message.msg_id,
            )
            return True
        if message not in process_queue.cache:
            # It was stuck, and was sent back then.
            return True
        return await self._send_back.send(process_queue, message, delay_level)

    def _remove(self, process_queue: ProcessQueue, messages: list[MessageExt]) -> None:
        offset = process_queue.cache.remove_messages(messages)
        if offset >= 0 and not process_queue.life.dropped:
            self._offsets.update(process_queue.queue, offset, increase_only=True)

    # Stuck messages ------------------------------------------------------------------------------------------

    async def _clean_expired(self) -> None:
        for process_queue in list(self._member.table.values()):
            await self._clean(process_queue)

    async def _clean(self, process_queue: ProcessQueue) -> None:
        """Send back up to 16 messages at the head that a listener has had for over `consume_timeout_ms`."""
        for _ in range(_CLEANED_MAX):
            message = process_queue.cache.first_message()
            if message is None or process_queue.life.dropped or not self._is_stuck(message):
                return
            self._log.warning(
                "message_stuck",
                consequence="sent back",
                queue=str(process_queue.queue),
                offset=message.queue_offset,
                msg_id=message.msg_id,
                timeout_ms=self._config.consume_timeout_ms,
            )
            if not await self._send_back_or_drop(process_queue, message, _CLEANED_LEVEL):
                return
            if process_queue.cache.first_message() is message:
                self._remove(process_queue, [message])

    def _is_stuck(self, message: MessageExt) -> bool:
        began = message.properties.get(names.CONSUME_START_TIME)
        return began is not None and self._runtime.now_ms() - int(began) > self._config.consume_timeout_ms
