"""The listener contract (docs/order.md 2) and what a listener's answer means (wire.md 12.7)."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from lockstep.protocol.message import MessageExt
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.logs import EventLog
from lockstep.remoting.runtime import WorkerPool

__all__ = ["ConsumeOrderlyContext", "ConsumeOrderlyStatus", "Listener", "ListenerCall", "OrderlyListener", "Outcome"]


class ConsumeOrderlyStatus(Enum):
    SUCCESS = "SUCCESS"
    ROLLBACK = "ROLLBACK"  # with auto_commit off: take back everything since the last COMMIT
    COMMIT = "COMMIT"  # with auto_commit off: everything since the last one is done
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"


@dataclass(slots=True)
class ConsumeOrderlyContext:
    """What a listener is told, and may set. `suspend_current_queue_time_ms` -1 means the consumer's setting."""

    message_queue: MessageQueue
    auto_commit: bool = True
    suspend_current_queue_time_ms: int = -1


Listener = Callable[[list[MessageExt], ConsumeOrderlyContext], Any]
OrderlyListener = Callable[
    [list[MessageExt], ConsumeOrderlyContext],
    ConsumeOrderlyStatus | Awaitable[ConsumeOrderlyStatus | None] | None,
]

_SUSPEND = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT


class Outcome(NamedTuple):
    """What came of a call: `error` says what was wrong with it, `raised` whether that was an exception."""

    status: ConsumeOrderlyStatus
    error: str | None = None
    raised: bool = False


class ListenerCall:
    """Calls a listener, `async def` on the loop and plain on the pool, and turns whatever comes back into an `Outcome`.

    None is SUCCESS; an exception is SUSPEND; anything else is SUSPEND with an error that names it.
    """

    def __init__(self, listener: OrderlyListener, pool: WorkerPool, log: EventLog) -> None:
        self._listener: Listener = listener
        self._pool = pool
        self._log = log
        self._is_async = inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(
            getattr(listener, "__call__", None)  # noqa: B004 - an object with an async __call__
        )

    async def __call__(self, messages: list[MessageExt], context: ConsumeOrderlyContext) -> Outcome:
        try:
            if self._is_async:
                result = await self._listener(messages, context)
            else:
                result = await self._pool.submit(lambda: self._listener(messages, context))
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and _being_cancelled():
                raise  # not the listener's: this client is taken down
            reason = f"{type(error).__name__}: {error}"
            self._log.warning(
                "listener failed: queue suspended",
                queue=str(context.message_queue),
                offset=messages[0].queue_offset,
                error=reason,
            )
            return Outcome(_SUSPEND, reason, raised=True)
        if result is None:
            return _SUCCEEDED
        if type(result) is ConsumeOrderlyStatus:
            return _OUTCOMES[result]
        returned = f"{type(result).__name__} {result!r:.80}"
        self._log.error(
            "listener returned nonsense: queue suspended",
            queue=str(context.message_queue),
            returned=returned,
            allowed="None or a ConsumeOrderlyStatus",
        )
        return Outcome(_SUSPEND, f"the listener returned {returned}")


_OUTCOMES = {status: Outcome(status) for status in ConsumeOrderlyStatus}
_SUCCEEDED = _OUTCOMES[ConsumeOrderlyStatus.SUCCESS]


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
