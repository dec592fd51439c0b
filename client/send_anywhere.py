"""Sends that may go to any queue: queues take turns, and after a failure another broker is tried (wire.md 12.11)."""

import asyncio
from collections.abc import Sequence

from lockstep.client.config import ProducerConfig
from lockstep.client.errors import NoRouteError, SendError, SendOutcome
from lockstep.client.instance import MQClientInstance
from lockstep.client.publish_queues import PublishQueues
from lockstep.client.send_request import Outgoing, SendRequests, SendResult, read_send_reply
from lockstep.client.trace import TraceWriter
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
    def __init__(
        self,
        instance: MQClientInstance,
        requests: SendRequests,
        config: ProducerConfig,
        queues: PublishQueues,
        trace: TraceWriter | None,
    ) -> None:
        self._instance = instance
        self._requests = requests
        self._config = config
        self._queues = queues
        self._trace = trace
        self._next_queue = instance.runtime.rng.randrange(_FIRST_QUEUE_MAX)

    async def send(self, outgoing: Outgoing, timeout_ms: int) -> SendResult:
        """Raises SendError, NoRouteError."""
        deadline_ms = self._instance.runtime.now_ms() + timeout_ms
        queues = await self._queues.find(outgoing.topic)
        failed_broker: str | None = None
        last_error: SendError | None = None
        for _ in range(1 + self._config.retry_times):
            remaining_ms = deadline_ms - self._instance.runtime.now_ms()
            if remaining_ms <= 0:
                break
            queue = self.take_turns(queues, avoid=failed_broker)
            try:
                result = await self._attempt(queue, outgoing, remaining_ms)
            except SendError as error:
                last_error, failed_broker = error.after(last_error), queue.broker_name
                if error.outcome is SendOutcome.REFUSED:
                    if error.code not in _RETRIED_CODES:
                        break
                    if error.code == ResponseCode.TOPIC_NOT_EXIST:
                        self._queues.forget(outgoing.topic)
            else:
                if self._trace is not None:
                    self._trace.sent(result, outgoing)
                return result
        if last_error is None:
            last_error = SendError(f"no attempt within {timeout_ms} ms", SendOutcome.NOT_SENT, msg_id=outgoing.msg_id)
        if self._trace is not None:
            self._trace.send_failed(outgoing, last_error.outcome)
        raise last_error

    async def _attempt(self, queue: MessageQueue, outgoing: Outgoing, timeout_ms: int) -> SendResult:
        try:
            endpoint = await self._instance.dialer.endpoint(self._instance.address_of(queue.broker_name))
            if endpoint.write_paused:
                await asyncio.wait_for(endpoint.writable(), timeout_ms / 1000)
            future = endpoint.request_nowait(self._requests.command(queue, outgoing), timeout_ms)
        except (RemotingError, NoRouteError) as error:
            raise SendError(str(error), SendOutcome.NOT_SENT, msg_id=outgoing.msg_id) from None
        except TimeoutError:
            reason = f"{endpoint.address} takes nothing more, for {timeout_ms} ms"
            raise SendError(reason, SendOutcome.NOT_SENT, msg_id=outgoing.msg_id) from None
        try:
            return read_send_reply(await future, queue, outgoing)
        except RemotingError as error:
            raise SendError(str(error), SendOutcome.UNKNOWN, msg_id=outgoing.msg_id) from None

    def take_turns(self, queues: Sequence[MessageQueue], avoid: str | None = None) -> MessageQueue:
        """The next queue, of another broker than the one that just failed where there is one (wire.md 12.11)."""
        for _ in queues:
            self._next_queue += 1
            queue = queues[self._next_queue % len(queues)]
            if queue.broker_name != avoid:
                return queue
        self._next_queue += 1
        return queues[self._next_queue % len(queues)]
