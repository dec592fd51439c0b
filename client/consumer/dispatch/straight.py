"""What the native part needs to make straight calls, and to give back one that is not over."""

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, cast

from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.native import NATIVE

__all__ = ["CALL_EACH", "CallsOfRun", "Rest"]


class CallsOfRun(NamedTuple):
    """What all calls of a run share.

    Args:
        ends: Objects and names of their attributes: when one is true, no further call begins.
        long_ms: A call that takes so long has no usual end.
        until_ms: After this time no further call begins.
    """

    listener: Callable[..., Any]
    context_class: type
    queue: MessageQueue
    process_queue: ProcessQueue
    clock: Callable[[], int]
    success: object
    ends: list[tuple[object, str]]
    long_ms: int
    until_ms: int


class Rest:
    """The rest of a call that has begun: `waits_for` is what it yielded."""

    def __init__(self, call: Generator[Any, Any, Any], waits_for: Any) -> None:
        self._call = call
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, Any]:
        call, waits_for = self._call, self._waits_for
        try:
            while True:
                try:
                    sent = yield waits_for
                except GeneratorExit:
                    call.close()
                    raise
                except BaseException as error:
                    waits_for = call.throw(error)
                else:
                    waits_for = call.send(sent)
        except StopIteration as end:
            return end.value


# Handled messages, their calls and ms; when the last call began; the time now; one call that has no usual end (its
# context; what it waits for, its answer or its error; how it goes on; whether it raised); an error that is not the
# listener's.
_Made = tuple[int, int, int, int, int, tuple[Any, Any, Any, bool] | None, BaseException | None]
# (run, messages, how many a call, time)
CALL_EACH: Callable[..., _Made] | None = None if NATIVE is None else cast("Any", NATIVE.call_each)
"""Makes straight calls until one does not end at once with SUCCESS; None: the native part is not used."""
