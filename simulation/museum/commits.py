"""Exhibits about the offset that an owner commits."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary

from lockstep.client.consumer.dispatch.orderly import ConsumeMessageOrderlyService
from lockstep.client.consumer.offsets.store import OffsetStore, RemoteBrokerOffsetStore
from lockstep.order import Kind
from lockstep.protocol.codes import RequestCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import UpdateConsumerOffsetRequestHeader
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.errors import RemotingError
from lockstep.simulation.lab.findings import Wrong
from lockstep.simulation.museum.exhibit import Exhibit
from lockstep.simulation.museum.plan import GOING, Swarm
from lockstep.simulation.museum.variant import replaced, variant

__all__ = ["COMMIT_BEFORE_CALL", "OLD_COMMIT_AGAIN", "UNLOCK_BEFORE_COMMIT"]

_Method = Callable[..., Any]
_GAP_MS: Final = 3
_TIMEOUT_MS: Final = 3000


def _store_later(store: _Method) -> _Method:
    """Between the end of a call and its new offset another thread may run."""

    def store_offset(self: Any, process_queue: Any, offset: int) -> None:
        self._runtime.call_later_ms(_GAP_MS, store, self, process_queue, offset)

    return store_offset


# Commits whose answer did not come, by store: queue -> offset.
_failed: WeakKeyDictionary[Any, dict[MessageQueue, int]] = WeakKeyDictionary()


def _commit(self: Any, queue: MessageQueue, offset: int, answered: _Method) -> None:
    """A commit is a request with an answer, as in Kafka."""
    instance = self._instance
    address = instance.routes.master_address(queue.broker_name)
    endpoint = instance.dialer.open_endpoint(address) if address else None
    if endpoint is not None:
        header = UpdateConsumerOffsetRequestHeader(self._group, queue.topic, queue.queue_id, offset)
        endpoint.request_then(RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, header), _TIMEOUT_MS, answered)


def _keep_failed(_persist: _Method) -> _Method:
    """A commit without an answer is kept for another try."""

    def persist(self: Any, queues: Iterable[MessageQueue], before_sending: _Method) -> None:
        kept = _failed.setdefault(self, {})
        for queue in queues:
            offset = self.in_memory(queue)
            if offset >= 0:
                before_sending({queue: offset})
                _commit(self, queue, offset, partial(_answered, kept, queue, offset))

    return persist


def _answered(kept: dict[MessageQueue, int], queue: MessageQueue, offset: int, reply: Any) -> None:
    if isinstance(reply, RemotingError):
        kept[queue] = offset


def _retry_failed(forget: _Method) -> _Method:
    """When the queue is given away, what failed is tried again, whatever was committed since."""

    def forget_queue(self: Any, queue: MessageQueue) -> None:
        offset = _failed.get(self, {}).pop(queue, None)
        if offset is not None:
            _commit(self, queue, offset, lambda _reply: None)
        forget(self, queue)

    return forget_queue


def _commit_first(consume: _Method) -> _Method:
    async def consume_batch(self: Any, process_queue: Any, messages: list[Any], *rest: Any) -> Any:
        self._offsets.update(process_queue.queue, messages[-1].queue_offset + 1)
        return await consume(self, process_queue, messages, *rest)

    return consume_batch


UNLOCK_BEFORE_COMMIT = Exhibit(
    key="unlock-before-commit",
    report="apache/rocketmq #4086",
    title="a queue is given away between the end of a call and its commit",
    told=(
        "The report asks when the lock of a ProcessQueue may be released. It is released as soon as the "
        "listener returns, and the offset is submitted after that. A rebalance in between gives the queue "
        "away with the old offset, and the next owner handles the message again. The reporter marked it "
        '"maybe".'
    ),
    translated=(
        "One thread runs a client of ours, so nothing can happen between the two steps. The variant stores "
        "the offset 3 ms after the call, as another thread might."
    ),
    rule=(
        "Offsets are stored before locks are released (docs/order.md 3 (b)): the end of a call and its offset "
        "are one step, and a rebalance stores it before the unlock."
    ),
    kind=Wrong.NOT_DRAINED,
    variant=replaced(ConsumeMessageOrderlyService, "_store_offset", _store_later),
    swarm=Swarm(faults=GOING, events_max=16, consumers=(2, 3), work_ms=(20,), messages=150, burst=(20, 40)),
)

OLD_COMMIT_AGAIN = Exhibit(
    key="old-commit-again",
    report="spring-projects/spring-kafka #3186",
    title="a commit that failed is sent again later, and the stored offset goes back",
    told=(
        "Commits that fail during a rebalance are kept and tried again. A later commit with a higher offset "
        "succeeded meanwhile, but the kept one was not thrown away. When the partition was revoked it was "
        "sent, the committed offset went back, and the next owner handled the records again."
    ),
    translated=(
        "Our commits of a faithful lock are one-way. The variant sends them as requests, keeps the offset of "
        "one that fails, and sends it when the queue is given away."
    ),
    rule=(
        "A client stores the newest offset that it has, never a kept one (docs/order.md 3 (e)); with fenced "
        "locks the broker refuses a commit that goes back (docs/fencing.md, What the broker refuses)."
    ),
    kind=Kind.STORED_REGRESS,
    variant=variant(
        replaced(RemoteBrokerOffsetStore, "persist", _keep_failed), replaced(OffsetStore, "forget", _retry_failed)
    ),
    swarm=Swarm(events_max=16, consumers=(2, 3)),
)

COMMIT_BEFORE_CALL = Exhibit(
    key="commit-before-call",
    report="apache/rocketmq-client-cpp #322",
    title="the offset of a message is committed while its call still runs",
    told=(
        "The offset on the broker moved behind a message while the listener still held it, so the group "
        "showed no delay. A process that dies in this moment has lost the message."
    ),
    translated=("The orderly service sets the offset when it takes a batch."),
    rule=(
        "The offset moves when the listener has returned (docs/order.md 2, A consumer's queue): the record "
        "`handled` is written before the commit."
    ),
    kind=Kind.COMMIT_UNHANDLED,
    variant=replaced(ConsumeMessageOrderlyService, "_consume_batch", _commit_first),
    swarm=Swarm(),
)
