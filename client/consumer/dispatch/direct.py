"""ConsumeDirectly: an administrator's message for the listener, without pulls and offsets (wire.md 2.5)."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from lockstep.client.consumer.listener import (
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyContext,
    ConsumeOrderlyStatus,
    ListenerCall,
    Outcome,
)
from lockstep.protocol.bodies.client import CMResult, ConsumeMessageDirectlyResult
from lockstep.protocol.messages import properties as names
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import retry_topic
from lockstep.remoting.host.runtime import Runtime

__all__ = ["ConsumeDirectly"]

# The broker's own timeout (wire.md 2.1).
_ASKER_WAITS_MS: Final = 10_000
_S = ConsumeOrderlyStatus
_RESULTS: Final[Mapping[Any, CMResult]] = {
    _S.SUCCESS: CMResult.CR_SUCCESS,
    _S.COMMIT: CMResult.CR_COMMIT,
    _S.ROLLBACK: CMResult.CR_ROLLBACK,
    _S.SUSPEND_CURRENT_QUEUE_A_MOMENT: CMResult.CR_LATER,
    ConsumeConcurrentlyStatus.CONSUME_SUCCESS: CMResult.CR_SUCCESS,
    ConsumeConcurrentlyStatus.RECONSUME_LATER: CMResult.CR_LATER,
}


class _DirectStart:
    """The broker waits 10 s for the answer, so a call that would begin later is not made."""

    cancelled = False

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.asked_ms = self.began_ms = runtime.now_ms()

    def may_begin(self) -> bool:
        self.began_ms = self._runtime.now_ms()
        return self.began_ms - self.asked_ms <= _ASKER_WAITS_MS


class ConsumeDirectly:
    """`between_runs(queue)` is a context in which, with order, no other listener call of the queue runs."""

    def __init__(
        self,
        runtime: Runtime,
        group: str,
        call: ListenerCall[Any],
        between_runs: Callable[[MessageQueue], AbstractAsyncContextManager[None]],
    ) -> None:
        self._runtime = runtime
        self._group = group
        self._call = call
        self._between_runs = between_runs

    async def __call__(self, message: MessageExt) -> ConsumeMessageDirectlyResult:
        """Call the listener. No offset is stored and no trace is written."""
        queue = MessageQueue(message.topic, message.broker_name, message.queue_id)
        if queue.topic == retry_topic(self._group):
            message.topic = message.properties.get(names.RETRY_TOPIC, message.topic)
        context = self._call.contract.new_context(queue)
        # The wait for other calls of the queue counts too.
        start = _DirectStart(self._runtime)
        async with self._between_runs(queue):
            outcome = await self._call([message], context, start)
            spent_ms = self._runtime.now_ms() - start.began_ms
        orderly = isinstance(context, ConsumeOrderlyContext)
        auto_commit = bool(context.auto_commit) if isinstance(context, ConsumeOrderlyContext) else True
        error = (
            outcome.error
            if outcome.begun
            else f"neither its queue nor a thread was free for {_ASKER_WAITS_MS} ms: it was not called"
        )
        return ConsumeMessageDirectlyResult(orderly, auto_commit, _result(outcome), error, spent_ms)


def _result(outcome: Outcome[Any]) -> CMResult:
    if outcome.raised:
        return CMResult.CR_THROW_EXCEPTION
    return CMResult.CR_RETURN_NULL if outcome.returned_none else _RESULTS[outcome.status]
