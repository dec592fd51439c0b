"""Lock and unlock requests on the wire (wire.md 7.1), each followed to its end: an answer, a late one, or none."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from lockstep.client.config import ConsumerConfig
from lockstep.client.errors import NoRouteError
from lockstep.client.instance.client import MQClientInstance
from lockstep.protocol.bodies.broker import LockBatchBody, LockOkBody
from lockstep.protocol.bodies.codec import decode_body, encode_body
from lockstep.protocol.codes import RequestCode, ResponseCode, request_name
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import BodyError
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.endpoint import Endpoint
from lockstep.remoting.errors import ConnectionLost, RemotingError, RequestRefused, RequestTimeout
from lockstep.remoting.runtime import TimerHandle

__all__ = ["LockListener", "LockRequests", "Queues", "by_broker"]

_LATE_SAID_EVERY_MS: Final = 60_000
Queues = Sequence[MessageQueue]
Replies = asyncio.Future[RemotingCommand]


class LockListener(Protocol):
    """What became of a request, for each queue of it."""

    def unanswered(self, queues: Queues) -> None:
        """A lock request was not answered in time; `settled` follows, once."""

    def settled(self, queues: Queues, perhaps_granted: set[MessageQueue]) -> None:
        """Such a request was answered late, or cannot be handled any more."""

    def unlocked(self, queues: Queues) -> None: ...

    def unlock_failed(self, queues: Queues, *, lapsed: bool) -> None:
        """`lapsed`: it left, got no answer, and cannot be handled any more."""


class LockRequests:
    """Requests to the masters of brokers for one group and client.

    A request that left is waited for until its answer comes. Without one it is taken for handled or lost
    `lock_settle_ms` after its connection ended, and when it would be that late that its lock had expired anyway.
    """

    def __init__(self, instance: MQClientInstance, group: str, config: ConsumerConfig, listener: LockListener) -> None:
        self._instance = instance
        self._group = group
        self._config = config
        self._listener = listener
        self._settling: dict[object, TimerHandle] = {}
        self._late_said: dict[str, tuple[int, int]] = {}  # by broker: when, and how many came since without a word
        self._closed = False

    async def lock(self, broker_name: str, queues: Queues, over: Endpoint | None = None) -> set[MessageQueue] | None:
        """What the broker granted; None when no answer came within `lock_timeout_ms`, or one that says nothing.

        Args:
            over: a connection that is not in general use yet.
        """
        try:
            endpoint = over or await self._instance.dialer.endpoint(self._instance.address_of(broker_name))
            reply = self._send(RequestCode.LOCK_BATCH_MQ, endpoint, queues)
        except (RemotingError, NoRouteError) as error:  # it never left
            self._log_failure("lock_request_failed", broker_name, error)
            return None
        asked_ms = self._instance.runtime.now_ms()
        try:
            timeout_ms = self._config.lock_timeout_ms
            answer = await asyncio.wait_for(asyncio.shield(reply), timeout_ms / 1000)
        except (TimeoutError, ConnectionLost) as error:
            timeout = RequestTimeout(endpoint.address, "LOCK_BATCH_MQ", timeout_ms)
            self._log_failure("lock_request_failed", broker_name, error if reply.done() else timeout)
            self._listener.unanswered(queues)
            reply.add_done_callback(lambda ended: self._late(broker_name, queues, ended, asked_ms))
            return None
        return self._read(broker_name, answer)

    def _send(self, code: RequestCode, endpoint: Endpoint, queues: Queues) -> Replies:
        body = encode_body(LockBatchBody(self._group, self._instance.client_id, tuple(queues)), endpoint.serialize_type)
        longest_ms = self._config.broker_lock_life_ms + self._config.lock_settle_ms
        return endpoint.request_nowait(RemotingCommand(code, body=body), longest_ms)

    def _read(self, broker_name: str, reply: RemotingCommand) -> set[MessageQueue] | None:
        try:
            if reply.code != ResponseCode.SUCCESS:
                raise RequestRefused(broker_name, "LOCK_BATCH_MQ", reply.code, reply.remark)
            return set(decode_body(LockOkBody, reply.body, reply.serialize_type).lock_ok_mq_set)
        except (RemotingError, BodyError) as error:
            self._log_failure("lock_request_failed", broker_name, error)
            return None

    def _late(self, broker_name: str, queues: Queues, reply: Replies, asked_ms: int) -> None:
        if isinstance(reply.exception(), ConnectionLost):
            self._settle_later(lambda: self._listener.settled(queues, set(queues)))
        elif self._closed:
            pass
        elif reply.exception() is not None:
            self._listener.settled(queues, set(queues))
        else:
            granted = self._read(broker_name, reply.result())
            self._log_late(broker_name, asked_ms)
            self._listener.settled(queues, set(queues) if granted is None else granted)

    def _log_late(self, broker_name: str, asked_ms: int) -> None:
        """Once a minute for each broker: after a partition the answers of all that time may come together."""
        now_ms = self._instance.runtime.now_ms()
        said_ms, unsaid = self._late_said.get(broker_name, (now_ms - _LATE_SAID_EVERY_MS, 0))
        if now_ms - said_ms < _LATE_SAID_EVERY_MS:
            self._late_said[broker_name] = said_ms, unsaid + 1
            return
        self._late_said[broker_name] = now_ms, 0
        self._instance.log.warning(
            "lock_answered_late",
            broker=broker_name,
            group=self._group,
            took_ms=now_ms - asked_ms,
            lock_timeout_ms=self._config.lock_timeout_ms,
            more_before=unsaid,
        )

    def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """One request a broker, over the connection that there is."""
        for broker_name, batch in by_broker(queues).items():
            address = self._instance.routes.master_address(broker_name)
            endpoint = self._instance.dialer.open_endpoint(address) if address else None
            if endpoint is None:
                self._listener.unlock_failed(batch, lapsed=False)
                continue
            try:
                reply = self._send(RequestCode.UNLOCK_BATCH_MQ, endpoint, batch)
            except RemotingError as error:
                self._unlock_failed(broker_name, batch, error)
                continue
            reply.add_done_callback(lambda ended, name=broker_name, part=batch: self._unlocked(name, part, ended))  # type: ignore[misc]

    def _unlocked(self, broker_name: str, queues: Queues, reply: Replies) -> None:
        error = reply.exception()
        if self._closed:
            return
        if isinstance(error, ConnectionLost):
            self._settle_later(lambda: self._listener.unlock_failed(queues, lapsed=True))
        elif error is not None:
            self._listener.unlock_failed(queues, lapsed=True)
        elif reply.result().code == ResponseCode.SUCCESS:
            self._listener.unlocked(queues)
        else:
            code, remark = reply.result().code, reply.result().remark
            refused = RequestRefused(broker_name, request_name(RequestCode.UNLOCK_BATCH_MQ), code, remark)
            self._unlock_failed(broker_name, queues, refused)

    def _unlock_failed(self, broker_name: str, queues: Queues, error: Exception) -> None:
        self._log_failure("unlock_failed", broker_name, error)
        self._listener.unlock_failed(queues, lapsed=False)

    def _settle_later(self, done: Callable[[], None]) -> None:
        if self._closed:
            return
        key = object()

        def settle() -> None:
            del self._settling[key]
            done()

        self._settling[key] = self._instance.runtime.call_later_ms(self._config.lock_settle_ms, settle)

    def _log_failure(self, event: str, broker_name: str, error: object) -> None:
        self._instance.log.warning(event, broker=broker_name, group=self._group, error=str(error))

    def close(self) -> None:
        """The listener hears nothing any more."""
        self._closed = True
        for timer in self._settling.values():
            timer.cancel()
        self._settling.clear()


def by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    """Sorted queues by the name of their broker."""
    batches: dict[str, list[MessageQueue]] = {}
    for queue in sorted(queues):
        batches.setdefault(queue.broker_name, []).append(queue)
    return batches
