"""A consume service with one queue and fakes for locks, offsets and dead letters."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, cast

from lockstep.client import ConsumeOrderlyContext, ConsumeOrderlyStatus, ConsumerConfig, MessageExt, MessageQueue
from lockstep.client.consumer.dispatch import straight
from lockstep.client.consumer.dispatch.orderly import ConsumeMessageOrderlyService
from lockstep.client.consumer.dispatch.stats import ConsumerStatsManager
from lockstep.client.consumer.listener import ORDERLY
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.client.consumer.send_back import DeadLetters
from lockstep.client.errors import SendError, SendOutcome
from lockstep.order.traces.trace import TraceWriter
from lockstep.simulation import SimRuntime
from tests.client.dispatch.service_parts import service_parts
from tests.client.messages import messages_at
from tests.client.periods import period
from tests.client.stage import Stage, queue_at

__all__ = ["SUSPEND", "S", "Service", "answers"]

S = ConsumeOrderlyStatus
SUSPEND = S.SUSPEND_CURRENT_QUEUE_A_MOMENT
LIVE_MS = ConsumerConfig().lock_max_live_time_ms
Answer = Callable[[list[MessageExt], ConsumeOrderlyContext], Any]


class Service:
    """The service under test, one queue, and everything it touches. Calls are (offset, reconsume times, when)."""

    def __init__(
        self, stage: Stage, answer: Answer, *, trace: TraceWriter | None = None, plain: bool = False, **config: Any
    ) -> None:
        self.stage = stage
        self.runtime: SimRuntime = stage.client
        self.config = ConsumerConfig(**config)
        self.answer = answer
        self.calls: list[tuple[list[int], int]] = []
        self.times: list[int] = []
        self.offsets: list[int] = []
        self.dead: list[int] = []
        self.dead_letters_fail = False
        self.not_taken: list[int] = []  # offsets of messages whose dead letters fail
        self.on_commit: Callable[[], object] = lambda: None
        self.lock_answers: list[bool | Exception] = []
        self.lock_asked: list[int] = []
        self.log = stage.log
        self.stats = ConsumerStatsManager(0)
        self.pool = stage.client.new_worker_pool("p", 1)
        parts = service_parts(
            stage,
            self._answer if plain else self._listen,
            ORDERLY,
            self.config,
            pool=self.pool,
            locks=self,
            offsets=self,
            stats=self.stats,
            trace=trace,
        )
        self.service = ConsumeMessageOrderlyService(parts, cast("DeadLetters", self))
        self.queue = self.new_queue()

    def new_queue(self, *, locked: bool = True) -> ProcessQueue:
        now_ms = self.runtime.now_ms()
        process_queue = period(queue_at(0), now_ms)
        process_queue.hold.locked = locked
        return process_queue

    def _answer(self, messages: list[MessageExt], context: ConsumeOrderlyContext) -> Any:
        self.calls.append(([message.queue_offset for message in messages], messages[0].reconsume_times))
        self.times.append(self.stage.world.elapsed_ms)
        return self.answer(messages, context)

    async def _listen(self, messages: list[MessageExt], context: ConsumeOrderlyContext) -> Any:
        result = self._answer(messages, context)
        return await result if asyncio.iscoroutine(result) else result

    # The fakes
    watches_calls = True

    def refused(self, _queue: ProcessQueue, _error: Exception) -> bool:
        return False

    def update(self, _queue: MessageQueue, offset: int) -> None:
        self.on_commit()
        self.offsets.append(offset)

    async def lock(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        self.lock_asked.append(self.stage.world.elapsed_ms)
        answer = self.lock_answers.pop(0) if self.lock_answers else True
        if isinstance(answer, Exception):
            raise answer
        if not answer:
            return {}
        self.queue.hold.granted(self.runtime.now_ms())
        return {queue: self.runtime.now_ms() for queue in queues}

    async def send(self, _queue: ProcessQueue, message: MessageExt, _limit: int) -> None:
        if self.dead_letters_fail or message.queue_offset in self.not_taken:
            raise SendError("no", SendOutcome.UNKNOWN, msg_id="x")
        self.dead.append(message.queue_offset)

    # What tests do
    def put(self, *offsets: int) -> None:
        self.service.submit(self.queue, messages_at(*offsets))

    async def quiet(self, duration_ms: int = 500) -> None:
        await self.stage.world.sleep_ms(duration_ms)

    def committed(self, *offsets: int) -> bool:
        """Whether these were committed, one after each call.

        Calls of the native part that wait for nothing have one commit: only their listener could see those between.
        """
        together = self.watches_calls is False and straight.CALL_EACH is not None
        seen = [offset for offset in offsets if offset in self.offsets] if together else [*offsets]
        return self.offsets == seen and self.offsets[-1:] == [*offsets][-1:]

    @property
    def handled(self) -> list[int]:
        return [offset for offsets, _ in self.calls for offset in offsets]


def answers(*given: Any, auto_commit: bool = True, suspend_ms: int = -1) -> Answer:
    left = list(given)

    def answer(_: list[MessageExt], context: ConsumeOrderlyContext) -> Any:
        context.auto_commit = auto_commit
        context.suspend_current_queue_time_ms = suspend_ms
        return left.pop(0) if len(left) > 1 else left[0]

    return answer
