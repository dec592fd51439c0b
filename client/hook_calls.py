"""Calls hooks one by one: an exception of one is logged, and changes neither the others nor the work."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from lockstep.client.callables import log_or_raise, must_propagate
from lockstep.client.errors import SendForbiddenError
from lockstep.client.hooks import (
    CheckForbiddenHook,
    CommunicationMode,
    ConsumeMessageContext,
    ConsumeMessageHook,
    EndTransactionContext,
    EndTransactionHook,
    FilterMessageContext,
    FilterMessageHook,
    MessageType,
    SendMessageContext,
    SendMessageHook,
)
from lockstep.client.send_result import SendResult
from lockstep.protocol.messages import properties as names
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.messages.to_send import Message
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.namespace import NamesOfTenant
from lockstep.remoting.logs import EventLog

__all__ = ["ConsumeHooks", "SendHooks"]


class SendHooks:
    """The hooks of a producer. While there are none, `active` is False and sends skip them."""

    __slots__ = ("_ends", "_forbidding", "_group", "_log", "_names", "_sends", "active")

    def __init__(self, group: str, log: EventLog, tenant: NamesOfTenant) -> None:
        self._group = group
        self._log = log
        self._names = tenant
        self._sends: list[SendMessageHook] = []
        self._forbidding: list[CheckForbiddenHook] = []
        self._ends: list[EndTransactionHook] = []
        self.active = False

    def add_send(self, hook: SendMessageHook) -> None:
        self._sends.append(hook)
        self.active = True

    def add_check_forbidden(self, hook: CheckForbiddenHook) -> None:
        self._forbidding.append(hook)
        self.active = True

    def add_end_transaction(self, hook: EndTransactionHook) -> None:
        self._ends.append(hook)

    def before(
        self, messages: Sequence[Message], queue: MessageQueue, address: str, mode: CommunicationMode, *, half: bool
    ) -> SendMessageContext:
        """Raises SendForbiddenError when a CheckForbiddenHook raises."""
        kind = MessageType.NORMAL
        if half:
            kind = MessageType.HALF
        elif any(message.is_delayed or names.START_DELIVER_TIME in message.properties for message in messages):
            kind = MessageType.DELAY
        context = SendMessageContext(self._group, messages, self._names.bare_queue(queue), address, mode, kind)
        for hook in self._forbidding:
            try:
                hook.check_forbidden(context)
            except BaseException as error:
                if must_propagate(error):
                    raise
                raise SendForbiddenError(f"forbidden by {_name(hook)}: {type(error).__name__}: {error}") from error
        _call_all([hook.before for hook in self._sends], context, self._log)
        return context

    def after(self, context: SendMessageContext, result: SendResult | None, error: BaseException | None = None) -> None:
        if result is not None and self._names:
            result = result._replace(queue=self._names.bare_queue(result.queue))
        context.result, context.error = result, error
        _call_all([hook.after for hook in self._sends], context, self._log)

    def after_answer(
        self, context: SendMessageContext, future: "asyncio.Future[Any]", read: Callable[[Any], SendResult]
    ) -> None:
        """Call `after` when the answer comes, before the sender continues.

        Args:
            read: makes the result of an answer, or raises its error.
        """

        def answered(done: "asyncio.Future[Any]") -> None:
            try:
                result = read(done.result())
            except (Exception, asyncio.CancelledError) as error:
                self.after(context, None, error)
            else:
                self.after(context, result)

        future.add_done_callback(answered)

    def end_transaction(self, context: EndTransactionContext) -> None:
        _call_all([hook.end_transaction for hook in self._ends], context, self._log)


class ConsumeHooks:
    """The hooks of a consumer. While there are none, `active` (of calls) and `filtering` (of pulls) are False."""

    __slots__ = ("_calls", "_filters", "_group", "_log", "_names", "active", "filtering")

    def __init__(self, group: str, log: EventLog, tenant: NamesOfTenant) -> None:
        self._group = group
        self._log = log
        self._names = tenant
        self._calls: list[ConsumeMessageHook] = []
        self._filters: list[FilterMessageHook] = []
        self.active = False
        self.filtering = False

    def add_consume(self, hook: ConsumeMessageHook) -> None:
        self._calls.append(hook)
        self.active = True

    def add_filter(self, hook: FilterMessageHook) -> None:
        self._filters.append(hook)
        self.filtering = True

    def before(self, messages: list[MessageExt], queue: MessageQueue) -> ConsumeMessageContext:
        context = ConsumeMessageContext(self._group, messages, self._names.bare_queue(queue), self._names.namespace)
        _call_all([hook.before for hook in self._calls], context, self._log)
        return context

    def after(self, context: ConsumeMessageContext) -> None:
        _call_all([hook.after for hook in self._calls], context, self._log)

    def handed_out(self, messages: list[MessageExt], queue: MessageQueue) -> None:
        """For a pull consumer: messages that its user gets count as consumed."""
        context = self.before(messages, queue)
        context.status, context.success = "CONSUME_SUCCESS", True
        self.after(context)

    def wanted(self, messages: list[MessageExt], queue: MessageQueue) -> list[MessageExt]:
        """Return the messages that the filter hooks leave."""
        if self._names:
            for message in messages:
                message.topic = self._names.bare(message.topic)
        context = FilterMessageContext(self._group, messages, self._names.bare_queue(queue))
        _call_all([hook.filter_message for hook in self._filters], context, self._log)
        return context.messages


def _call_all(calls: Sequence[Callable[[Any], object]], context: object, log: EventLog) -> None:
    for call in calls:
        try:
            call(context)
        except BaseException as error:
            log_or_raise(log, "hook_failed", error, hook=_name(call))


def _name(hook: object) -> str:
    return str(getattr(hook, "__qualname__", type(hook).__qualname__))
