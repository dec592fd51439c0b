"""The listener of a member in a random world: it works, writes its effect, and tells when calls overlap."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lockstep.client import ConsumeOrderlyStatus, MessageExt, MessageQueue
from lockstep.simulation.lab.cluster import BROKER
from lockstep.simulation.lab.findings import Findings, Wrong, place_of
from lockstep.simulation.runtime import SimRuntime
from lockstep.simulation.worlds.database import Database
from lockstep.simulation.worlds.plan import SUSPEND_MS, WorldPlan

__all__ = ["Calls"]

_SUSPEND = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
_PERCENT = 100
_MARGIN_PARTS = 20  # of a lease with an epoch: the last part of it is not used
_ROUNDED_MS = 2
_FAILS_EACH = 7


@dataclass(eq=False)
class _Call:
    process: str
    address: str
    queue: MessageQueue
    message: MessageExt  # the first of the batch
    epoch: int


@dataclass
class Calls:
    """`lease_end_ms` says until when a process, by its address, holds a queue under an epoch."""

    plan: WorldPlan
    findings: Findings
    database: Database
    lease_end_ms: Callable[[str, MessageQueue, int], int]
    fenced: bool
    running: list[_Call] = field(default_factory=list)
    succeeded: set[str] = field(default_factory=set)  # texts
    done: dict[tuple[MessageQueue, int], int] = field(default_factory=dict)  # (queue, epoch) -> the offset behind them

    def listener(self, runtime: SimRuntime, *, plain: bool) -> Any:
        return self._plain(runtime) if plain else self._async(runtime)

    def died(self, process: str) -> None:
        """Its calls ended with it."""
        self.running = [call for call in self.running if call.process != process]

    def _async(self, runtime: SimRuntime) -> Any:
        async def listen(messages: list[MessageExt], context: Any) -> Any:
            call = self._begin(runtime, messages, context)
            try:
                if work_ms := self._work_ms(messages):
                    await asyncio.sleep(work_ms / 1000)
                return None if self._work(call, messages) else _SUSPEND
            finally:
                self._end(call)

        return listen

    def _plain(self, runtime: SimRuntime) -> Any:
        def listen(messages: list[MessageExt], context: Any) -> Any:
            call = self._begin(runtime, messages, context)
            work_ms = self._work_ms(messages)
            runtime.block_ms(work_ms)
            if work_ms == 0:
                good = self._work(call, messages)
                self._end(call)
                return None if good else _SUSPEND

            def end() -> None:
                self._work(call, messages)
                self._end(call)

            runtime.call_later_ms(work_ms - 1, end)  # before the call returns, whatever the order of one instant
            return _SUSPEND if self._fails(messages) else None

        return listen

    def _work_ms(self, messages: list[MessageExt]) -> int:
        number = int(messages[0].body)
        is_long = number * 37 % _PERCENT < self.plan.long_works and messages[0].reconsume_times == 0
        return self.plan.long_ms if is_long else self.plan.work_ms

    def work_ms(self, text: str) -> int:
        """How long the calls of a message take together, and the pauses between them."""
        number = int(text)
        once_ms = self.plan.long_ms if number * 37 % _PERCENT < self.plan.long_works else self.plan.work_ms
        again = 2 if self.plan.is_poison(text) else int(self.plan.failures and number % _FAILS_EACH == 0)
        return once_ms + again * (self.plan.work_ms + SUSPEND_MS)

    def _fails(self, messages: list[MessageExt]) -> bool:
        if any(self.plan.is_poison(message.body.decode()) for message in messages):
            return True
        return self.plan.failures and messages[0].reconsume_times == 0 and int(messages[0].body) % _FAILS_EACH == 0

    def _begin(self, runtime: SimRuntime, messages: list[MessageExt], context: Any) -> _Call:
        queue, epoch = context.message_queue, context.lock_epoch
        call = _Call(str(runtime.host), runtime.address, queue, messages[0], epoch)
        late_ms = self.findings.world.clock_ms(BROKER) - self.lease_end_ms(call.address, queue, epoch)
        if late_ms > 0:
            text = f"{call.process} {queue} {_about(call)}: {late_ms} ms after its lease"
            self.findings.add(Wrong.LATE_CALL, text, queue=place_of(queue))
        elif -late_ms < self._distrusted_ms(epoch):
            text = f"{call.process} {queue} {_about(call)}: {-late_ms} ms before the end of its lease"
            self.findings.add(Wrong.TRUSTED_TOO_LONG, text, queue=place_of(queue))
        if self.database.fences.get(queue, 0) < epoch:  # on_acquired raises it
            text = f"{call.process} {queue} {_about(call)}: its on_acquired has not returned"
            self.findings.add(Wrong.BEFORE_ACQUIRED, text, queue=place_of(queue))
        for other in self.running:
            if other.queue == queue and other.process == call.process and self._in_one_order(other, call):
                text = f"{queue}: {call.process} began {_about(call)} while it handled {_about(other)}"
                self.findings.add(Wrong.TWO_CALLS, text, queue=place_of(queue))
            elif other.queue == queue and other.process != call.process:
                self.findings.saw("overlaps")
                if not self.fenced:
                    text = f"{queue}: {call.process} began {_about(call)} while {other.process} handled {_about(other)}"
                    self.findings.add(Wrong.OVERLAP, text, queue=place_of(queue))
        self.running.append(call)
        return call

    def _distrusted_ms(self, epoch: int) -> int:
        """Before the end of a lease no call begins for so long. Where clocks drift, that is what pays for it."""
        if any(event.fault == "drift" for event in self.plan.events):
            return 0
        lease_ms = self.plan.lease_ms
        return (lease_ms // _MARGIN_PARTS if epoch else lease_ms - self.plan.trusted_ms) - _ROUNDED_MS

    def _in_one_order(self, one: _Call, two: _Call) -> bool:
        """Whether a consumer must never run both calls at once: its queue is handled in order, or both have one key."""
        return not self.plan.by_key or one.message.sharding_key == two.message.sharding_key

    def _work(self, call: _Call, messages: list[MessageExt]) -> bool:
        """The effects of a call that ends. Returns whether the messages are done."""
        if self._fails(messages):
            return False
        for message in messages:
            if not self.database.write(call.queue, message, call.epoch, call.process):
                return False
        self.succeeded.update(message.body.decode() for message in messages)
        for message in messages:
            if not self.database.is_void(message.body.decode()):  # a commit cannot be beyond the end of a log
                self.done[call.queue, call.epoch] = message.queue_offset + 1
        return True

    def _end(self, call: _Call) -> None:
        if call in self.running:
            self.running.remove(call)
            if self.findings.world.clock_ms(BROKER) > self.lease_end_ms(call.address, call.queue, call.epoch):
                self.findings.saw("calls outlived")


def _about(call: _Call) -> str:
    epoch = f" under epoch {call.epoch}" if call.epoch else ""
    return f"offset {call.message.queue_offset}{epoch}"
