"""AnywhereSender: sends that may go to any queue. Queues take turns; after a failure another broker is tried.

With `send_latency_fault_enable`, `FaultLatency` also leaves out brokers that were slow or failed (wire.md 12.11).
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lockstep.client.config import ProducerConfig
from lockstep.client.errors import SendError, SendOutcome
from lockstep.client.hooks import CommunicationMode
from lockstep.client.instance.client import MQClientInstance
from lockstep.client.producer.answers import read_send_reply
from lockstep.client.producer.batches import BatchRefusedError
from lockstep.client.producer.outgoing import OneSend, Outgoing
from lockstep.client.producer.publish_queues import PublishQueues
from lockstep.client.producer.request import SendRequests, open_sender
from lockstep.client.send_result import SEND_OK, SendResult
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.errors import RemotingError

__all__ = ["LATENCY_MAX_MS", "NOT_AVAILABLE_MS", "AnywhereSender", "FaultItem", "FaultLatency"]

LATENCY_MAX_MS = (50, 100, 550, 1000, 2000, 3000, 15_000)
NOT_AVAILABLE_MS = (0, 0, 30_000, 60_000, 120_000, 180_000, 600_000)
_LATENCY_OF_A_FAILURE_MS = 30_000
_FIRST_QUEUE_MAX = 1 << 16

# After these answers another attempt makes sense (wire.md 12.11); SYSTEM_BUSY is not among them.
_RETRIED_CODES = frozenset({
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.SYSTEM_ERROR,
    ResponseCode.NO_PERMISSION,
    ResponseCode.NO_BUYER_ID,
    ResponseCode.NOT_IN_CURRENT_UNIT,
})  # fmt: skip


class AnywhereSender:
    def __init__(
        self,
        instance: MQClientInstance,
        requests: SendRequests,
        config: ProducerConfig,
        queues: PublishQueues,
    ) -> None:
        self._instance = instance
        self._runtime = instance.runtime
        self._requests = requests
        self._config = config
        self._queues = queues
        self._next_queue = instance.runtime.rng.randrange(_FIRST_QUEUE_MAX)
        self._faults = FaultLatency(instance.runtime.rng) if config.send_latency_fault_enable else None

    async def send(self, outgoing: Outgoing, timeout_ms: int, *, avoid: str | None = None) -> SendResult:
        """Send until one broker stored the message, or no attempt is left.

        An asynchronous send has its own number of attempts, and is not tried again after a broker refused it.

        Args:
            avoid: a broker that just failed. It is not tried first, if there is another.

        Raises:
            SendError, NoRouteError, SendForbiddenError
        """
        config, deadline_ms = self._config, self._runtime.now_ms() + timeout_ms
        queues = await self._queues.find(outgoing.topic)
        if outgoing.uncompressed:
            outgoing = await self._requests.compressed(outgoing)
        waits = outgoing.mode is CommunicationMode.SYNC
        another = waits and config.retry_another_broker_when_not_store_ok
        failed_broker = avoid
        last_error: SendError | None = None
        stored: SendResult | None = None
        for _ in range(1 + (config.retry_times if waits else config.retry_times_when_send_async_failed)):
            remaining_ms = deadline_ms - self._runtime.now_ms()
            if remaining_ms <= 0:
                break
            queue = self.take_turns(queues, avoid=failed_broker)
            begin_ms = self._runtime.now_ms()
            try:
                result = await self._attempt(queue, outgoing, remaining_ms)
            except SendError as error:
                self._learn(queue, begin_ms, failed=True)
                last_error, failed_broker = error.after(last_error), queue.broker_name
                if not _may_retry(error, waits=waits, another=another):
                    break
                if error.code == ResponseCode.TOPIC_NOT_EXIST:
                    self._queues.forget(outgoing.topic)
            else:
                self._learn(queue, begin_ms)
                if result.status == SEND_OK or not another:
                    return result
                stored, failed_broker = result, queue.broker_name
        if stored is not None:
            return stored
        if last_error is None:
            last_error = SendError(f"no attempt within {timeout_ms} ms", SendOutcome.NOT_SENT, msg_id=outgoing.msg_id)
        raise last_error

    async def _attempt(self, queue: MessageQueue, outgoing: Outgoing, timeout_ms: int) -> SendResult:
        endpoint = self._instance.open_sender(queue.broker_name)
        if endpoint is None or endpoint.write_paused:
            endpoint = await open_sender(self._instance, queue, outgoing, timeout_ms)
        outcome = SendOutcome.NOT_SENT
        try:
            send = OneSend.of(queue, outgoing, timeout_ms)
            self._requests.transmit(endpoint, send)
            outcome = SendOutcome.UNKNOWN
            return read_send_reply(await send.future, queue, outgoing)
        except BatchRefusedError:
            # Nothing of it is stored: the message leaves by itself.
            return await self._attempt(queue, outgoing._replace(special=True), timeout_ms)
        except RemotingError as error:
            raise SendError(str(error), outcome, msg_id=outgoing.msg_id) from None

    # Which queue ---------------------------------------------------------------------------------------------

    def take_turns(self, queues: Sequence[MessageQueue], avoid: str | None = None) -> MessageQueue:
        """Return the next queue, if possible of another broker than `avoid` (wire.md 12.11).

        With fault latency it is the next queue of a broker that was neither slow nor failing lately.
        """
        if self._faults is not None:
            return self._faults.choose(queues, self._turn, self._runtime.now_ms())
        for _ in queues:
            queue = queues[self._turn() % len(queues)]
            if queue.broker_name != avoid:
                return queue
        return queues[self._turn() % len(queues)]

    def _turn(self) -> int:
        self._next_queue += 1
        return self._next_queue

    def _learn(self, queue: MessageQueue, begin_ms: int, *, failed: bool = False) -> None:
        if self._faults is not None:
            now_ms = self._runtime.now_ms()
            self._faults.update(queue.broker_name, now_ms - begin_ms, now_ms, failed=failed)


def _may_retry(failure: SendError, *, waits: bool, another: bool) -> bool:
    """`another`: try another broker when the message may not be on the disk of this one."""
    if failure.code == ResponseCode.FLUSH_DISK_TIMEOUT:
        return another
    return failure.outcome is not SendOutcome.REFUSED or (waits and failure.code in _RETRIED_CODES)


# Fault latency -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class FaultItem:
    """The last latency of a broker, and the time from which it may be chosen again."""

    broker_name: str
    latency_ms: int
    available_from_ms: int


class FaultLatency:
    """Which brokers were slow or failed. Synchronous: callers give the time.

    A broker with a latency of at least the n-th of `latency_max_ms` is left out for the n-th of `not_available_ms`.
    """

    def __init__(
        self,
        rng: random.Random,
        *,
        latency_max_ms: Sequence[int] = LATENCY_MAX_MS,
        not_available_ms: Sequence[int] = NOT_AVAILABLE_MS,
    ) -> None:
        assert len(latency_max_ms) == len(not_available_ms)
        self._rng = rng
        self._steps = sorted(zip(latency_max_ms, not_available_ms, strict=True), reverse=True)
        self._items: dict[str, FaultItem] = {}
        self._turn = rng.randrange(_FIRST_QUEUE_MAX)

    def update(self, broker_name: str, latency_ms: int, now_ms: int, *, failed: bool = False) -> None:
        """Note the latency of a send. A failure counts as 30 s, so the broker is left out for ten minutes."""
        pause_ms = self.pause_ms(_LATENCY_OF_A_FAILURE_MS if failed else latency_ms)
        self._items[broker_name] = FaultItem(broker_name, latency_ms, now_ms + pause_ms)

    def pause_ms(self, latency_ms: int) -> int:
        for least_ms, not_available_ms in self._steps:
            if latency_ms >= least_ms:
                return not_available_ms
        return 0

    def is_available(self, broker_name: str, now_ms: int) -> bool:
        item = self._items.get(broker_name)
        return item is None or now_ms >= item.available_from_ms

    def choose(self, queues: Sequence[MessageQueue], turn: Callable[[], int], now_ms: int) -> MessageQueue:
        """Return the next queue whose broker is available; without one, a queue of a broker of the better half."""
        start = turn()
        for i in range(len(queues)):
            queue = queues[(start + i) % len(queues)]
            if self.is_available(queue.broker_name, now_ms):
                return queue
        better = self.pick_one_at_least(now_ms)
        assert better is not None, "a broker that is not available is known"
        own = [queue for queue in queues if queue.broker_name == better]
        if own:
            return own[turn() % len(own)]
        # It has no queue of this topic, so no send would ever find it available again.
        self._items.pop(better)
        return queues[turn() % len(queues)]

    def pick_one_at_least(self, now_ms: int) -> str | None:
        """Return, in turn, a broker of the better half of those known: available ones first, then fast ones, then
        those that are available soonest."""
        items = list(self._items.values())
        self._rng.shuffle(items)  # equal brokers take turns too
        items.sort(key=lambda item: (now_ms < item.available_from_ms, item.latency_ms, item.available_from_ms))
        if not items:
            return None
        self._turn += 1
        return items[self._turn % max(len(items) // 2, 1)].broker_name
