"""Exhibits about a pop whose answer is lost, and about pops that ask without order."""

from collections.abc import Callable
from typing import Any, Final
from weakref import WeakSet

from lockstep.broker.messages.pop.port import Delivered, Order
from lockstep.broker.messages.pop.rocketmq import RocketMqQueue
from lockstep.client.consumer.pop_calls import PopCalls
from lockstep.order import Kind
from lockstep.simulation.museum.exhibit import Exhibit
from lockstep.simulation.museum.plan import LINKS, Swarm
from lockstep.simulation.museum.variant import edited, replaced
from lockstep.simulation.museum.waits import IDLE

__all__ = ["BUSY_QUEUE", "GROUP_WITHOUT_FLAG", "ID_AFTER_TIMEOUT", "LOST_POP", "STARTS_UNORDERED"]

_Method = Callable[..., Any]
_CALLS: Final = "lockstep.client.consumer.pop_calls"
_BUSY_MS: Final = 3000
_LOST: Final = Swarm(faults=LINKS, consumers=(1, 2), invisible_ms=(60_000,), work_ms=(0, 20))
_AT_ONCE: Final = Swarm(
    faults=("slow",), consumers=(2, 3), invisible_ms=(60_000,), count_max=(1, 4), work_ms=(200,), burst=(2, 4)
)


def _busy(pop: _Method) -> _Method:
    """The queue's lock is still taken by the first call when the second one comes."""

    def busy_pop(self: Any, order: Order, committed: int, reader: Any, now_ms: int) -> Delivered | None:
        before = self.record
        if before is not None and order.attempt_id == before.attempt_id and now_ms < before.pop_ms + _BUSY_MS:
            before.attempt_id = None
            return None
        found: Delivered | None = pop(self, order, committed, reader, now_ms)
        return found

    return busy_pop


_asked: WeakSet[PopCalls] = WeakSet()


def _unordered_first(ask: _Method) -> _Method:
    async def ask_first(self: Any, request: Any, attempt_id: str | None) -> Any:
        if self in _asked:
            return await ask(self, request, attempt_id)
        _asked.add(self)
        self._in_order = False
        try:
            return await ask(self, request, attempt_id)
        finally:
            self._in_order = True

    return ask_first


LOST_POP = Exhibit(
    key="lost-pop",
    report="apache/rocketmq #6690",
    title="the answer to a pop is lost, and its queue is blocked for the whole invisible time",
    told=(
        "The broker had delivered the first messages of a queue in order, and the answer did not reach the "
        "client. Nobody could acknowledge them, so nobody got a message of the queue until the invisible time was "
        "over. The repair gave each call an attempt id: a call that is repeated under its id may enter."
    ),
    translated="The client gives each call a new attempt id, also the one that repeats a call without an answer.",
    rule="A call keeps its attempt id until it has brought messages (wire.md 18.3).",
    kind=IDLE,
    variant=edited(
        _CALLS,
        "PopCalls._pop",
        'ids.pop() if ids else f"{self._instance.runtime.rng.getrandbits(128):032x}"',
        'f"{self._instance.runtime.rng.getrandbits(128):032x}"',
    ),
    swarm=_LOST,
)

ID_AFTER_TIMEOUT = Exhibit(
    key="id-after-timeout",
    report="apache/rocketmq-clients #708",
    title="a client forgets its attempt id when a pop is not answered in time",
    told=(
        "The client kept the attempt id of a call that failed, but not of one that ended with DEADLINE_EXCEEDED. "
        "That is the very case in which the broker may have delivered: the queue stayed blocked until the "
        "invisible time was over."
    ),
    translated="The client keeps the id after each error but RequestTimeout.",
    rule="Any call without an answer may have delivered, so each keeps its attempt id (wire.md 18.3).",
    kind=IDLE,
    variant=edited(
        _CALLS,
        "PopCalls._pop",
        "ids.append(attempt_id)\nraise",
        "if type(__import__('sys').exception()).__name__ != 'RequestTimeout': ids.append(attempt_id)\nraise",
    ),
    swarm=_LOST,
)

BUSY_QUEUE = Exhibit(
    key="busy-queue",
    report="apache/rocketmq #10827",
    title="a repeated pop meets its own first try, and loses the right to enter",
    told=(
        "A client repeated a call under its attempt id while the broker still worked on the first try and held "
        "the lock of the queue. The repeat was answered with no message, and the id was gone: the queue was "
        "blocked until the invisible time was over, and with renewal for up to three hours."
    ),
    translated=(
        "Our broker handles a pop in one step. The variant acts as if the queue were busy for 3 s after a pop: the "
        "repeat finds nothing, and the record forgets its attempt id."
    ),
    rule="A delivery keeps its attempt id as long as it holds the queue (wire.md 18.3).",
    kind=IDLE,
    variant=replaced(RocketMqQueue, "pop", _busy),
    swarm=_LOST,
)

GROUP_WITHOUT_FLAG = Exhibit(
    key="group-without-flag",
    report="apache/rocketmq #8154",
    title="a group without the flag of order gets two messages of one key at once",
    told=(
        "Two simple consumers read a FIFO topic, and got messages of one message group at the same time. The topic "
        "was right, and the group had been made without `-o true`: order comes from the group alone, and nobody "
        "says that it is off."
    ),
    translated="Our calls say themselves whether they want order. The variant asks without it.",
    rule="A consumer that wants order asks for it with each call (docs/wire.md 18.1).",
    kind=Kind.OVERLAP,
    variant=edited(_CALLS, "PopCalls._ask", "self._in_order", "False"),
    swarm=_AT_ONCE,
)

STARTS_UNORDERED = Exhibit(
    key="starts-unordered",
    report="apache/rocketmq-clients #754",
    title="a consumer begins before it knows that its group wants order",
    told=(
        "A push consumer began to consume before the server's settings had come, and took its group for one "
        "without order until then. The first messages after each start were handled out of order."
    ),
    translated="The first call of a consumer asks without order, the later ones with it.",
    rule="Order is part of the call and not of a later answer (docs/wire.md 18.1).",
    kind=Kind.OVERLAP,
    variant=replaced(PopCalls, "_ask", _unordered_first),
    swarm=_AT_ONCE,
)
