"""Sends that may go to any queue: queues take turns, and after a failure another broker is tried (wire.md 12.11)."""

import asyncio
from collections.abc import Sequence

from lockstep.client.config import ProducerConfig
from lockstep.client.errors import NoRouteError, SendError, SendOutcome
from lockstep.client.hooks import CommunicationMode
from lockstep.client.instance.client import MQClientInstance
from lockstep.client.producer.fault_latency import FaultLatency
from lockstep.client.producer.publish_queues import PublishQueues
from lockstep.client.producer.request import Outgoing, SendRequests, read_send_reply
from lockstep.client.producer.result import SEND_OK, SendResult
from lockstep.order.trace import TraceWriter
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.errors import RemotingError

__all__ = ["AnywhereSender"]

_FIRST_QUEUE_MAX = 1 << 16

# wire.md 12.11: the broker's answers after which another attempt makes sense; SYSTEM_BUSY is not among them.
_RETRIED_CODES = frozenset({
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.SYSTEM_ERROR,
    ResponseCode.NO_PERMISSION,
    ResponseCode.NO_BUYER_ID,
    ResponseCode.NOT_IN_CURRENT_UNIT,
})  # fmt: skip


class AnywhereSender:
    """`trace` may be None; then, and of half messages, nothing is recorded."""

    def __init__(
        self,
        instance: MQClientInstance,
        requests: SendRequests,
        config: ProducerConfig,
        queues: PublishQueues,
        trace: TraceWriter | None,
    ) -> None:
        self._instance = instance
        self._runtime = instance.runtime
        self._requests = requests
        self._config = config
        self._queues = queues
        self._trace = trace
        self._next_queue = instance.runtime.rng.randrange(_FIRST_QUEUE_MAX)
        self._faults = FaultLatency(instance.runtime.rng) if config.send_latency_fault_enable else None

    async def send(
        self, outgoing: Outgoing, timeout_ms: int, *, traced: bool = True, avoid: str | None = None
    ) -> SendResult:
        """Raises SendError, NoRouteError, SendForbiddenError.

        `avoid` names a broker that just failed the caller: it is not the first to be tried, where there is another. An
        asynchronous send has a number of repeats of its own, and the broker's refusal is final.
        """
        trace = self._trace if traced else None
        try:
            result = await self._attempts(outgoing, timeout_ms, avoid)
        except SendError as error:
            if trace is not None:
                trace.send_failed(outgoing.topic, outgoing.sharding_key, outgoing.msg_ids, error.outcome.name)
            raise
        if trace is not None:
            trace.sent(result.queue, result.queue_offset, outgoing.sharding_key, outgoing.msg_ids)
        return result

    async def _attempts(self, outgoing: Outgoing, timeout_ms: int, avoid: str | None) -> SendResult:
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
        requests = self._requests
        try:
            endpoint = await self._instance.sender(queue.broker_name)
            if endpoint.write_paused:
                await asyncio.wait_for(endpoint.writable(), timeout_ms / 1000)
            context = requests.before_hooks(outgoing, queue, endpoint.address) if requests.hooks.active else None
            command = requests.command(queue, outgoing)
            if context is None:
                future = endpoint.request_nowait(command, timeout_ms)
            else:
                future = requests.request_with_hooks(context, endpoint, command, timeout_ms, queue, outgoing)
        except (RemotingError, NoRouteError) as error:
            raise SendError(str(error), SendOutcome.NOT_SENT, msg_id=outgoing.msg_id) from None
        except TimeoutError:
            reason = f"{endpoint.address} takes nothing more, for {timeout_ms} ms"
            raise SendError(reason, SendOutcome.NOT_SENT, msg_id=outgoing.msg_id) from None
        try:
            return read_send_reply(await future, queue, outgoing)
        except RemotingError as error:
            raise SendError(str(error), SendOutcome.UNKNOWN, msg_id=outgoing.msg_id) from None

    # Which queue ---------------------------------------------------------------------------------------------

    def take_turns(self, queues: Sequence[MessageQueue], avoid: str | None = None) -> MessageQueue:
        """The next queue, of another broker than the one that just failed where there is one (wire.md 12.11).

        With fault latency it is the next one of a broker that was neither slow nor failing lately.
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
    """`another`: a broker that has the message in its log, and maybe not on its disk, is not enough."""
    if failure.code == ResponseCode.FLUSH_DISK_TIMEOUT:
        return another
    return failure.outcome is not SendOutcome.REFUSED or (waits and failure.code in _RETRIED_CODES)
