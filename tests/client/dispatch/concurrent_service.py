"""A concurrent consume service with one queue and fakes for offsets and for sending back."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from lockstep.client import (
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    ConsumerConfig,
    MessageExt,
    MessageModel,
    MessageQueue,
)
from lockstep.client.consumer.dispatch.concurrent import ConsumeMessageConcurrentlyService
from lockstep.client.consumer.dispatch.stats import ConsumerStatsManager
from lockstep.client.consumer.listener import CONCURRENT
from lockstep.client.consumer.ownership.lock_port import NoLocks
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.client.consumer.send_back import SendBack
from lockstep.order.traces.trace import TraceWriter
from tests.client.dispatch.service_parts import service_parts
from tests.client.messages import messages_at
from tests.client.periods import free
from tests.client.stage import Stage, queue_at

__all__ = ["LATER", "SUCCESS", "Concurrent"]

SUCCESS, LATER = ConsumeConcurrentlyStatus.CONSUME_SUCCESS, ConsumeConcurrentlyStatus.RECONSUME_LATER
_LONG_MS = 60 * 60_000
Answer = Callable[[list[MessageExt], ConsumeConcurrentlyContext], Any]


class Concurrent:
    """The service under test. `calls` are (offsets, when); `sent_back` (offset, delay level, when) with what came of it
    from `send_back_answers`, by default True; `commits` the offsets it would have stored."""

    def __init__(
        self,
        stage: Stage,
        answer: Answer,
        *,
        message_model: MessageModel = MessageModel.CLUSTERING,
        trace: TraceWriter | None = None,
        topic: str = "T",
        plain: bool = False,
        **config: Any,
    ) -> None:
        self.stage = stage
        self.answer = answer
        self.calls: list[tuple[list[int], int]] = []
        self.sent_back: list[tuple[int, int, int]] = []
        self.send_back_answers: list[bool] = []
        self.commits: list[int] = []
        self.stats = ConsumerStatsManager(0)
        self.instance = stage.instance()
        self.queue = free(queue_at(0, topic=topic), stage.client.now_ms())
        self.table: dict[MessageQueue, ProcessQueue] = {self.queue.queue: self.queue}
        settings = ConsumerConfig(**config)
        parts = service_parts(
            stage,
            self._answer_at_once if plain else self._listen,
            CONCURRENT,
            settings,
            instance=self.instance,
            message_model=message_model,
            table=self.table,
            locks=NoLocks(stage.client),
            offsets=self,
            stats=self.stats,
            trace=trace,
        )
        self.service = ConsumeMessageConcurrentlyService(parts, cast("SendBack", self))
        stage.on_close.append(lambda: self.service.stop(_LONG_MS))

    @classmethod
    async def on(cls, stage: Stage, answer: Answer, **kwargs: Any) -> "Concurrent":
        await stage.broker()
        return cls(stage, answer, **kwargs)

    @property
    def now_ms(self) -> int:
        return self.stage.world.elapsed_ms

    def _answer_at_once(self, messages: list[MessageExt], context: ConsumeConcurrentlyContext) -> Any:
        self.calls.append(([message.queue_offset for message in messages], self.now_ms))
        return self.answer(messages, context)

    async def _listen(self, messages: list[MessageExt], context: ConsumeConcurrentlyContext) -> Any:
        result = self._answer_at_once(messages, context)
        return await result if asyncio.iscoroutine(result) else result

    # The fakes
    def update(self, _queue: MessageQueue, offset: int, *, increase_only: bool = False) -> None:
        assert increase_only
        self.commits.append(offset)

    async def send(self, _queue: ProcessQueue, message: MessageExt, delay_level: int) -> bool:
        self.sent_back.append((message.queue_offset, delay_level, self.now_ms))
        return self.send_back_answers.pop(0) if self.send_back_answers else True

    # What tests do
    def put(self, *offsets: int) -> None:
        self.service.submit(self.queue, messages_at(*offsets))

    async def quiet(self, duration_ms: int = 500) -> None:
        await self.stage.world.sleep_ms(duration_ms)

    @property
    def handled(self) -> list[int]:
        return [offset for offsets, _ in self.calls for offset in offsets]
