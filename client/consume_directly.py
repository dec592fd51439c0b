"""One message handed to the listener because an administrator said so, beside pulls and offsets (wire.md 2.5)."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from lockstep.client.listener import (
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyContext,
    ConsumeOrderlyStatus,
    ListenerCall,
    Outcome,
)
from lockstep.protocol import properties as names
from lockstep.protocol.client_bodies import CMResult, ConsumeMessageDirectlyResult
from lockstep.protocol.message import MessageExt
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import retry_topic
from lockstep.remoting.runtime import Runtime

__all__ = ["ConsumeDirectly"]

_S = ConsumeOrderlyStatus
_RESULTS: Final[Mapping[Any, CMResult]] = {
    _S.SUCCESS: CMResult.CR_SUCCESS,
    _S.COMMIT: CMResult.CR_COMMIT,
    _S.ROLLBACK: CMResult.CR_ROLLBACK,
    _S.SUSPEND_CURRENT_QUEUE_A_MOMENT: CMResult.CR_LATER,
    ConsumeConcurrentlyStatus.CONSUME_SUCCESS: CMResult.CR_SUCCESS,
    ConsumeConcurrentlyStatus.RECONSUME_LATER: CMResult.CR_LATER,
}


class ConsumeDirectly:
    """`between_runs(queue)` keeps the queue's other listener calls out: one process never runs two on one queue."""

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
        """No offset is stored and no trace written, whatever the listener answers."""
        queue = MessageQueue(message.topic, message.broker_name, message.queue_id)
        if queue.topic == retry_topic(self._group):
            message.topic = message.properties.get(names.RETRY_TOPIC, message.topic)
        context = self._call.contract.new_context(queue)
        async with self._between_runs(queue):
            began_ms = self._runtime.now_ms()
            outcome = await self._call([message], context)
            spent_ms = self._runtime.now_ms() - began_ms
        orderly = isinstance(context, ConsumeOrderlyContext)
        auto_commit = bool(context.auto_commit) if isinstance(context, ConsumeOrderlyContext) else True
        return ConsumeMessageDirectlyResult(orderly, auto_commit, _result(outcome), outcome.error, spent_ms)


def _result(outcome: Outcome[Any]) -> CMResult:
    if outcome.raised:
        return CMResult.CR_THROW_EXCEPTION
    return CMResult.CR_RETURN_NULL if outcome.returned_none else _RESULTS[outcome.status]
