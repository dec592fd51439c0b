"""The listener contract (docs/order.md 2), and the meaning of a listener's answer (wire.md 12.7, 12.8)."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from lockstep.client.callables import must_propagate
from lockstep.client.config import ConsumerConfig
from lockstep.client.consumer.left_work import LeftWork, Look
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.client.hook_calls import ConsumeHooks
from lockstep.client.hooks import ConsumeReturnType
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.namespace import NamesOfTenant
from lockstep.remoting.host.runtime import Runtime, WorkerPool
from lockstep.remoting.limit_log import EventThrottle
from lockstep.remoting.logs import EventLog, log_exception, raised_at, text_of

__all__ = [
    "BY_KEY",
    "CONCURRENT",
    "LISTENER_PARAMETERS",
    "ORDERLY",
    "AnyListener",
    "AroundListener",
    "ConcurrentListener",
    "ConsumeConcurrentlyContext",
    "ConsumeConcurrentlyStatus",
    "ConsumeOrderlyContext",
    "ConsumeOrderlyStatus",
    "Contract",
    "Listener",
    "ListenerCall",
    "ListenerContext",
    "OrderlyListener",
    "Outcome",
    "Start",
    "return_type",
]

ACK_ALL: Final = 2**31 - 1
LISTENER_PARAMETERS: Final = ("messages", "context")
_FAILURE_AGAIN_MS: Final = 60_000
_NOT_BEGUN: Final = object()
_NO_LOOK: Final = 1 << 30
S = TypeVar("S", bound=Enum)


class ConsumeOrderlyStatus(Enum):
    SUCCESS = "SUCCESS"
    ROLLBACK = "ROLLBACK"  # with auto_commit off: all messages since the last COMMIT come again
    COMMIT = "COMMIT"  # with auto_commit off: all messages since the last COMMIT are handled
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"


@dataclass(slots=True)
class ConsumeOrderlyContext:
    """The context of an orderly listener, which may set its fields.

    Args:
        suspend_current_queue_time_ms: for a status that suspends; -1: the consumer's setting.
    """

    message_queue: MessageQueue
    auto_commit: bool = True
    suspend_current_queue_time_ms: int = -1
    _period: ProcessQueue | None = field(default=None, repr=False, compare=False)
    _now_ms: Callable[[], int] | None = field(default=None, repr=False, compare=False)

    @property
    def lock_epoch(self) -> int:
        """The epoch of the fenced lock, for a fence in the user's own database (docs/fencing.md); 0: no fenced lock."""
        return 0 if self._period is None else self._period.hold.epoch

    @property
    def lease_remaining_ms(self) -> int:
        """How long the lease of the fenced lock still lasts, by this machine's clock; 0: it has ended, or is none."""
        period = self._period
        if period is None or self._now_ms is None or period.life.lost or period.life.dropped:
            return 0
        return period.hold.lease_remaining_ms(self._now_ms())

    def check(self) -> None:
        """Raise LockLostError when the fenced lock is lost or its lease has ended; without one, do nothing.

        Any thread may call it. What passes the check may still be late: only a fence in the database that gets the
        effect is sure (docs/fencing.md).
        """
        period = self._period
        if period is not None and self._now_ms is not None:
            ended = period.life.lost or period.life.dropped
            period.hold.check(self.message_queue, self._now_ms(), ended=ended)


class ConsumeConcurrentlyStatus(Enum):
    CONSUME_SUCCESS = "CONSUME_SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"  # sent back to the broker, which delivers them again after a delay


@dataclass(slots=True)
class ConsumeConcurrentlyContext:
    """The context of a concurrent listener, which may set its fields.

    Args:
        delay_level_when_next_consume: of messages that are sent back; 0: the broker chooses (3 + the times it was
            tried); negative: they become dead letters at once.
        ack_index: after CONSUME_SUCCESS, the index from 0 of the last handled message of the batch; messages behind it
            are sent back.
    """

    message_queue: MessageQueue
    delay_level_when_next_consume: int = 0
    ack_index: int = ACK_ALL


class ListenerContext(Protocol):
    message_queue: MessageQueue


Listener = Callable[[list[MessageExt], Any], Any]
OrderlyListener = Callable[
    [list[MessageExt], ConsumeOrderlyContext],
    ConsumeOrderlyStatus | Awaitable[ConsumeOrderlyStatus | None] | None,
]
ConcurrentListener = Callable[
    [list[MessageExt], ConsumeConcurrentlyContext],
    ConsumeConcurrentlyStatus | Awaitable[ConsumeConcurrentlyStatus],
]
AnyListener = OrderlyListener | ConcurrentListener


@dataclass(frozen=True, slots=True)
class Contract(Generic[S]):
    """The statuses and the context of a kind of listener.

    Args:
        nothing: the status that an answer of None means; None: such an answer is not allowed.
        failure: the status after an exception or an answer that is not allowed.
        consequence: of that status, for the log.
        allowed: answers, for the log.
    """

    statuses: type[S]
    nothing: S | None
    failure: S
    consequence: str
    allowed: str
    new_context: Callable[[MessageQueue], ListenerContext]


ORDERLY: Final = Contract(
    ConsumeOrderlyStatus,
    ConsumeOrderlyStatus.SUCCESS,
    ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT,
    "queue suspended",
    "None or a ConsumeOrderlyStatus",
    ConsumeOrderlyContext,
)
BY_KEY: Final = replace(ORDERLY, consequence="key suspended")
CONCURRENT: Final = Contract(
    ConsumeConcurrentlyStatus,
    None,
    ConsumeConcurrentlyStatus.RECONSUME_LATER,
    "messages consumed again later",
    "a ConsumeConcurrentlyStatus",
    ConsumeConcurrentlyContext,
)


class Outcome(NamedTuple, Generic[S]):
    """The result of a listener call.

    Args:
        error: the reason of a failure.
        raised: the failure was an exception.
        returned_none: the failure was an answer of None.
        begun: False: the listener was not called, see `Start`.
    """

    status: S
    error: str | None = None
    raised: bool = False
    returned_none: bool = False
    begun: bool = True


class Start(Protocol):
    """Asked once, right before the listener is called and on its thread, whether the call may still begin."""

    @property
    def cancelled(self) -> bool:
        """Whether the call, and not its task, is being cancelled, because its fenced lock was lost."""

    def may_begin(self) -> bool: ...


class ListenerCall(Generic[S]):
    """Calls a listener, `async def` on the loop and plain on the pool, and makes an `Outcome` of its answer.

    An exception, or an answer that the contract does not allow, is the contract's failure with an error. Of failures of
    the same kind, from the same line, one a minute is logged as an error: a listener that always fails does not fill
    the log.
    """

    def __init__(
        self,
        listener: AnyListener,
        pool: WorkerPool,
        log: EventLog,
        contract: Contract[S],
        around: "AroundListener | None" = None,
        now_ms: Callable[[], int] | None = None,
        left: LeftWork | None = None,
    ) -> None:
        """`now_ms` is the clock of the log's pace; None: each failure is logged as an error. `left` looks at calls."""
        self.listener: Listener = listener
        self._pool = pool
        self._log = log
        self._around = around
        self._now_ms = now_ms
        self._left = left
        self._until_look = 0 if left is None else 1  # calls; 0: none is looked at
        self._pace = EventThrottle(_FAILURE_AGAIN_MS)
        self.contract = contract
        self._not_begun = Outcome(contract.failure, "the call was not begun", begun=False)
        self._outcomes = {status.value: Outcome(status) for status in contract.statuses}  # an Enum's hash is slow
        self._nothing = None if contract.nothing is None else self._outcomes[contract.nothing.value]
        self.is_async = inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(
            getattr(listener, "__call__", None)  # noqa: B004 - an object with an async __call__
        )

        self._hooks = None if around is None else around.hooks
        self._may_go_straight = self.is_async and not (around is not None and around.has_tenant)

    def __call__(
        self, messages: list[MessageExt], context: ListenerContext, start: Start
    ) -> Coroutine[Any, Any, Outcome[S]]:
        """Call the listener, unless `start` refuses then: a plain listener may wait long for a thread."""
        around = self._around
        if around is None or not around.active:
            return self._call(messages, context, start)
        return around.call(self._call, messages, context, start)

    @property
    def goes_straight(self) -> bool:
        """Whether the next call may be one of `listener` itself on the loop: no hook, no bare name, no look at it.

        Call `begin_straight` before it. Its answer is for `outcome_of`, and what it raises for `failure_of`.
        """
        return self._may_go_straight and self._until_look != 1 and (self._hooks is None or not self._hooks.active)

    @property
    def straight_count(self) -> int:
        """After so many straight calls one is looked at."""
        return self._until_look - 1 if self._until_look > 0 else _NO_LOOK

    def count_straight(self, calls: int) -> None:
        self._until_look -= calls

    @property
    def around(self) -> list[tuple[object, str]]:
        """What is true when a call does not go straight any more: objects and names of their attributes."""
        return [] if self._hooks is None else [(self._hooks, "active")]

    def begin_straight(self) -> bool:
        """Count a straight call. Returns False, and counts nothing, if it may not be one."""
        if self._until_look == 1 or (self._hooks is not None and self._hooks.active):
            return False
        self._until_look -= 1
        return True

    async def _call(self, messages: list[MessageExt], context: ListenerContext, start: Start) -> Outcome[S]:
        # Read before the call, because a listener may empty the list.
        first_offset = messages[0].queue_offset
        listener, look = self.listener, None
        self._until_look -= 1
        if not self._until_look:
            look = self._begin_look()
            listener = listener if look is None else look.listener
        try:
            if not self.is_async:
                result = await self._pool.submit(
                    lambda: listener(messages, context) if start.may_begin() else _NOT_BEGUN
                )
                if result is _NOT_BEGUN:
                    return self._not_begun
            elif start.may_begin():
                result = await listener(messages, context)
            else:
                return self._not_begun
            if look is not None:
                look.ended()
        except BaseException as error:
            return self.failure_of(error, context, first_offset, cancelled=start.cancelled)
        return self.outcome_of(result, context, first_offset)

    def failure_of(
        self, error: BaseException, context: ListenerContext, first_offset: int, *, cancelled: bool = False
    ) -> Outcome[S]:
        """The outcome of a call that raised. Raises the error again if it is not the listener's.

        Args:
            cancelled: the call, and not its task, is being cancelled.
        """
        contract = self.contract
        if isinstance(error, asyncio.CancelledError) and cancelled:
            # Who cancels a call says why: its lock was lost, or its delivery has ended.
            queue, why = str(context.message_queue), str(error)
            self._log.warning("listener_cancelled", queue=queue, offset=first_offset, why=why)
            return Outcome(contract.failure, f"cancelled: {why}", raised=True)
        if must_propagate(error):
            raise error
        place = self._place(context, first_offset)
        if times := self._times(raised_at(error)):
            log_exception(self._log, "listener_failed", error, **place, **times)
        else:
            self._log.debug("listener_failed_again", **place, error=text_of(error))
        return Outcome(contract.failure, text_of(error), raised=True)

    def outcome_of(self, result: Any, context: ListenerContext, first_offset: int) -> Outcome[S]:
        """The outcome of a call that returned."""
        if result is None and self._nothing is not None:
            return self._nothing
        if type(result) is self.contract.statuses:
            return self._outcomes[result.value]
        return self._not_allowed(result, self._place(context, first_offset))

    def _begin_look(self) -> Look | None:
        left = self._left
        assert left is not None
        look = left.look(self.listener, is_async=self.is_async)
        self._until_look = left.calls_between
        return look

    def _not_allowed(self, result: object, place: dict[str, Any]) -> Outcome[S]:
        contract = self.contract
        returned, hint = "None" if result is None else f"{type(result).__name__} {result!r:.80}", ""
        if inspect.iscoroutine(result):
            result.close()  # else Python warns that nothing awaited it
            hint = "; a listener that calls an async function is an `async def` itself"
        if times := self._times(type(result).__name__):
            error = TypeError(f"the listener returned {returned}; allowed: {contract.allowed}{hint}")
            facts = {"returned": returned, "allowed": contract.allowed, **times}
            log_exception(self._log, "listener_answer_invalid", error, **place, **facts)
        else:
            self._log.debug("listener_answer_invalid_again", **place, returned=returned)
        return Outcome(contract.failure, f"the listener returned {returned}", returned_none=result is None)

    def _place(self, context: ListenerContext, offset: int) -> dict[str, Any]:
        """The fields of a failure."""
        return {"queue": str(context.message_queue), "offset": offset, "consequence": self.contract.consequence}

    def _times(self, way: Hashable) -> dict[str, int]:
        """The field `times` of a failure that is logged as an error; empty: one of its way was, within a minute."""
        if self._now_ms is None:
            return {"times": 1}
        times = self._pace.times(way, self._now_ms())
        return {"times": times} if times else {}


_Call = Callable[[list[MessageExt], ListenerContext, Start], Coroutine[Any, Any, Outcome[Any]]]
_DONE = frozenset({"SUCCESS", "COMMIT", "CONSUME_SUCCESS"})
_AGAIN = frozenset({"SUSPEND_CURRENT_QUEUE_A_MOMENT", "RECONSUME_LATER"})


class _Timed:
    """Notes when a call begins, because the wait for a thread is not the listener's time."""

    def __init__(self, start: Start, runtime: Runtime) -> None:
        self._start = start
        self._runtime = runtime
        self.began_ms = runtime.now_ms()

    @property
    def cancelled(self) -> bool:
        return self._start.cancelled

    def may_begin(self) -> bool:
        self.began_ms = self._runtime.now_ms()
        return self._start.may_begin()


class AroundListener:
    """The hooks around all listener calls of a consumer; in a namespace the listener sees bare names."""

    def __init__(self, hooks: ConsumeHooks, tenant: NamesOfTenant, config: ConsumerConfig, runtime: Runtime) -> None:
        self.hooks = hooks
        self._tenant = tenant
        self.has_tenant = bool(tenant)
        self._config = config
        self._runtime = runtime

    @property
    def active(self) -> bool:
        """Whether there is anything to do; if not, calls go straight to the listener."""
        return self.hooks.active or self.has_tenant

    async def call(
        self, call: _Call, messages: list[MessageExt], context: ListenerContext, start: Start
    ) -> Outcome[Any]:
        if self._tenant:
            for message in messages:
                message.topic = self._tenant.bare(message.topic)
            context.message_queue = self._tenant.bare_queue(context.message_queue)
        if not self.hooks.active:
            return await call(messages, context, start)
        hooked = self.hooks.before(messages.copy(), context.message_queue)
        timed = _Timed(start, self._runtime)
        outcome = await call(messages, context, timed)
        hooked.status = outcome.status.name
        hooked.success = hooked.status in _DONE
        took_ms = self._runtime.now_ms() - timed.began_ms
        hooked.return_type = return_type(outcome, took_ms, self._config.consume_timeout_ms)
        self.hooks.after(hooked)
        return outcome


def return_type(outcome: Outcome[Any], took_ms: int, timeout_ms: int) -> ConsumeReturnType:
    """Return the result of a call for hooks, as RocketMQ's two services do: failures first, then the time it took.

    A call that was not begun is FAILED: the messages stay, and may belong to another member.
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
