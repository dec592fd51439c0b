"""What happens around a listener call: hooks hear of it, and in a namespace the listener sees bare names."""

from collections.abc import Callable, Coroutine
from typing import Any

from lockstep.client.config import ConsumerConfig
from lockstep.client.consumer.listener import ListenerContext, Outcome, Start
from lockstep.client.hook_calls import ConsumeHooks
from lockstep.client.hooks import ConsumeReturnType
from lockstep.protocol.message import MessageExt
from lockstep.protocol.namespace import NamesOfTenant
from lockstep.remoting.runtime import Runtime

__all__ = ["AroundListener", "return_type"]

_Call = Callable[[list[MessageExt], ListenerContext, Start], Coroutine[Any, Any, Outcome[Any]]]
_DONE = frozenset({"SUCCESS", "COMMIT", "CONSUME_SUCCESS"})
_AGAIN = frozenset({"SUSPEND_CURRENT_QUEUE_A_MOMENT", "RECONSUME_LATER"})


class _Timed:
    """Notes when a call begins: its wait for a thread is no time of the listener's."""

    def __init__(self, start: Start, runtime: Runtime) -> None:
        self._start = start
        self._runtime = runtime
        self.began_ms = runtime.now_ms()

    def may_begin(self) -> bool:
        self.began_ms = self._runtime.now_ms()
        return self._start.may_begin()


class AroundListener:
    """Of one consumer, for all its calls, an administrator's too."""

    def __init__(self, hooks: ConsumeHooks, tenant: NamesOfTenant, config: ConsumerConfig, runtime: Runtime) -> None:
        self._hooks = hooks
        self._tenant = tenant
        self._has_tenant = bool(tenant)
        self._config = config
        self._runtime = runtime

    @property
    def active(self) -> bool:
        """Is there anything to do? Without, a call goes straight to the listener."""
        return self._hooks.active or self._has_tenant

    async def call(
        self, call: _Call, messages: list[MessageExt], context: ListenerContext, start: Start
    ) -> Outcome[Any]:
        if self._tenant:
            for message in messages:
                message.topic = self._tenant.bare(message.topic)
            context.message_queue = self._tenant.bare_queue(context.message_queue)
        if not self._hooks.active:
            return await call(messages, context, start)
        told = self._hooks.before(messages.copy(), context.message_queue)
        timed = _Timed(start, self._runtime)
        outcome = await call(messages, context, timed)
        told.status = outcome.status.name
        told.success = told.status in _DONE
        took_ms = self._runtime.now_ms() - timed.began_ms
        told.return_type = return_type(outcome, took_ms, self._config.consume_timeout_ms)
        self._hooks.after(told)
        return outcome


def return_type(outcome: Outcome[Any], took_ms: int, timeout_ms: int) -> ConsumeReturnType:
    """As RocketMQ's two services derive it: an answer that is none comes first, then the time it took.

    A call that was not begun is FAILED: the messages stay, and may be another member's.
    """
    if not outcome.begun:
        return ConsumeReturnType.FAILED
    if outcome.raised:
        return ConsumeReturnType.EXCEPTION
    if outcome.error is not None:
        return ConsumeReturnType.RETURNNULL
    if took_ms >= timeout_ms:
        return ConsumeReturnType.TIME_OUT
    return ConsumeReturnType.FAILED if outcome.status.name in _AGAIN else ConsumeReturnType.SUCCESS
