"""Records of listener calls, independent of the trace: each call with its times, and calls that ran at the same
time."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from lockstep.client import (
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyStatus,
    MessageExt,
    MessageQueue,
)
from lockstep.simulation.runtime import SimRuntime
from lockstep.simulation.world import World

__all__ = ["Answer", "Call", "Calls"]

_IN_ORDER: tuple[Any, ...] = (None, ConsumeOrderlyStatus.SUCCESS, ConsumeOrderlyStatus.COMMIT)
_WITHOUT_ORDER: tuple[Any, ...] = (ConsumeConcurrentlyStatus.CONSUME_SUCCESS,)
Answer = Callable[[MessageExt, Any], ConsumeOrderlyStatus | ConsumeConcurrentlyStatus | None]


@dataclass(eq=False)
class Call:
    """One message in one listener call. Times are virtual milliseconds since the start; `end_ms` -1: not ended.

    `good`: the listener has ended and asked for no other attempt.
    """

    process: str
    queue: MessageQueue
    offset: int
    key: str | None
    text: str
    msg_id: str
    reconsume_times: int
    begin_ms: int
    end_ms: int = -1
    good: bool = False


class Calls:
    """All calls of all processes, in the order in which they began.

    `on_begin` is called with the messages of a call that begins, `on_end` with those of one that ends and its answer:
    what the listener returned, or its exception.

    `overlaps`: pairs that ran at once though their order forbids it: on one queue, or by key in one process of one key.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._running: list[Call] = []
        self.all: list[Call] = []
        self.on_begin: Callable[[list[Call]], object] = lambda _calls: None
        self.on_end: Callable[[list[Call], object], object] = lambda _calls, _answer: None
        self.overlaps: list[tuple[Call, Call]] = []

    def of(self, process: str | None = None, *, queue_id: int | None = None, since_ms: int = 0) -> list[Call]:
        """The calls of a process, on a queue id, that began at `since_ms` or later."""
        return [
            call
            for call in self.all
            if process in (None, call.process) and queue_id in (None, call.queue.queue_id) and call.begin_ms >= since_ms
        ]

    def owners(self, queue_id: int) -> list[str]:
        """Which processes handled a queue, in turn."""
        return [process for process, _ in groupby(call.process for call in self.of(queue_id=queue_id))]

    def texts(self, process: str | None = None, *, queue_id: int | None = None) -> list[str]:
        return [call.text for call in self.of(process, queue_id=queue_id)]

    def running(self, process: str) -> list[Call]:
        return [call for call in self._running if call.process == process]

    def died(self, process: str) -> None:
        """Its listeners died with it."""
        self._running = [call for call in self._running if call.process != process]

    def listener(
        self,
        runtime: SimRuntime,
        work_ms: int,
        works_ms: Mapping[str, int],
        answer: Answer | None,
        *,
        ordering: str = "queue",
    ) -> Any:
        """A listener that takes `work_ms` of virtual time, for texts in `works_ms` that, and then answers; by default
        with success."""
        process = str(runtime.host)
        good_ones = _WITHOUT_ORDER if ordering == "none" else _IN_ORDER

        async def listen(messages: list[MessageExt], context: Any) -> Any:
            calls = [self._call(process, message, context.message_queue) for message in messages]
            self._begin(calls, ordering)
            good, status = False, None
            try:
                duration_ms = works_ms.get(calls[-1].text, work_ms)
                if duration_ms:
                    await asyncio.sleep(duration_ms / 1000)
                status = answer(messages[-1], context) if answer is not None else good_ones[0]
                good = status in good_ones
                return status
            except Exception as error:
                status = error
                raise
            finally:
                for call in calls:
                    self._end(call, good)
                self.on_end(calls, status)

        return listen

    def plain_listener(self, runtime: SimRuntime, work_ms: int, ordering: str = "queue") -> Any:
        """A plain function, which keeps one of the consumer's threads for `work_ms`, and succeeds."""
        process = str(runtime.host)

        def listen(messages: list[MessageExt], context: Any) -> Any:
            calls = [self._call(process, message, context.message_queue) for message in messages]
            self._begin(calls, ordering)
            runtime.block_ms(work_ms)
            for call in calls:
                runtime.call_later_ms(work_ms, self._end, call, True)
            return _WITHOUT_ORDER[0] if ordering == "none" else None

        return listen

    def _call(self, process: str, message: MessageExt, queue: MessageQueue) -> Call:
        text = message.body.decode()
        return Call(
            process, queue, message.queue_offset, message.sharding_key, text, message.msg_id,
            message.reconsume_times, self._world.elapsed_ms,
        )  # fmt: skip

    def _begin(self, calls: list[Call], ordering: str) -> None:
        first = calls[0]
        if ordering != "none":
            self.overlaps += [
                (other, first)
                for other in self._running
                if other.queue == first.queue
                and (ordering == "queue" or other.key == first.key or other.process != first.process)
            ]
        self._running += calls
        self.all += calls
        self.on_begin(calls)

    def _end(self, call: Call, good: bool) -> None:
        if call in self._running:
            call.end_ms, call.good = self._world.elapsed_ms, good
            self._running.remove(call)
