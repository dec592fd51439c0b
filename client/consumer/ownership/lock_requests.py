"""LockRequests: lock and unlock requests on the wire (wire.md 7.1), tracked until they cannot be handled any more."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from lockstep.client.config import ConsumerConfig
from lockstep.client.errors import NoRouteError
from lockstep.client.instance.client import MQClientInstance
from lockstep.protocol.bodies.codec import decode_body, encode_body
from lockstep.protocol.bodies.locks import LockBatchBody, LockGrant, LockOkBody, LockRefusal
from lockstep.protocol.codes import RequestCode, ResponseCode, request_name
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import BodyError
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.connections.endpoint import Endpoint
from lockstep.remoting.errors import ConnectionLost, RemotingError, RequestRefused, RequestTimeout
from lockstep.remoting.host.runtime import TimerHandle

__all__ = ["LockListener", "LockReply", "LockRequests", "Queues", "by_broker", "in_parts"]

_LATE_LOG_INTERVAL_MS: Final = 60_000
_QUEUES_A_REQUEST: Final = 1000
_NO_GRANT: Final = LockGrant(0, 0)
Queues = Sequence[MessageQueue]
EpochOf = Callable[[MessageQueue], int]
Replies = asyncio.Future[RemotingCommand]


class LockReply(NamedTuple):
    """The answer to a lock request.

    Args:
        grants: by granted queue; epoch 0 of a broker without fenced locks.
        refusals: the reasons that a broker with fenced locks gives.
        fences: the broker has fenced locks.
        presented: the epochs of the request; 0 for a queue that was claimed anew.
        endpoint: the connection.
    """

    grants: Mapping[MessageQueue, LockGrant]
    refusals: Mapping[MessageQueue, LockRefusal]
    fences: bool
    presented: Mapping[MessageQueue, int]
    endpoint: Endpoint


class LockListener(Protocol):
    """Gets the results of requests, for each of their queues."""

    def unanswered(self, queues: Queues) -> None:
        """A lock request was not answered in time. `settled` follows once."""

    def settled(self, queues: Queues, perhaps_granted: Mapping[MessageQueue, int]) -> None:
        """That request was answered late, or cannot be handled any more. `perhaps_granted`: with the known epochs."""

    def unlocked(self, queues: Queues) -> None: ...

    def unlock_failed(self, queues: Queues, *, lapsed: bool) -> None:
        """`lapsed`: the request was sent, got no answer, and cannot be handled any more."""


class LockRequests:
    """Requests to the master brokers for one group and client.

    A request that was sent is tracked until its answer comes. It counts as handled or lost `lock_settle_ms` after its
    connection ended, or when it is so old that its lock would have expired.

    Args:
        epoch_of: the epoch of a queue that an unlock presents, to brokers that agreed; None: requests have no epochs.
        epoch_to_renew: the one that a lock request presents; 0 claims the queue anew.
    """

    def __init__(
        self,
        instance: MQClientInstance,
        group: str,
        config: ConsumerConfig,
        listener: LockListener,
        epoch_of: EpochOf | None = None,
        epoch_to_renew: EpochOf | None = None,
    ) -> None:
        self._epoch_of = epoch_of
        self._epoch_to_renew = epoch_to_renew
        self._instance = instance
        self._group = group
        self._config = config
        self._listener = listener
        self._settling: dict[object, TimerHandle] = {}
        self._late_logged: dict[str, tuple[int, int]] = {}  # by broker: time of the last line, answers since
        self._closed = False

    async def lock(self, broker_name: str, queues: Queues, over: Endpoint | None = None) -> LockReply | None:
        """Ask one broker for queues.

        Args:
            over: a connection that no other request uses yet.

        Returns:
            None without an answer within `lock_timeout_ms`, and after an error answer.
        """
        try:
            endpoint = over or await self._instance.dialer.endpoint(self._instance.address_of(broker_name))
            epochs = self._epochs(endpoint, queues, self._epoch_to_renew)
            reply = self._send(RequestCode.LOCK_BATCH_MQ, endpoint, queues, epochs)
        except (RemotingError, NoRouteError) as error:  # the request was not sent
            self._log_failure("lock_request_failed", broker_name, error)
            return None
        asked_ms = self._instance.runtime.now_ms()
        timeout_ms = self._config.lock_timeout_ms
        try:
            await asyncio.wait([reply], timeout=timeout_ms / 1000)
        except asyncio.CancelledError:
            reply.cancel()
            raise
        failure = reply.exception() if reply.done() else RequestTimeout(endpoint.address, "LOCK_BATCH_MQ", timeout_ms)
        if failure is not None:
            self._log_failure("lock_request_failed", broker_name, failure)
            self._listener.unanswered(queues)
            reply.add_done_callback(lambda ended: self._late(broker_name, queues, ended, asked_ms))
            return None
        body = self._read(broker_name, reply.result())
        if body is None:
            return None
        grants = dict(zip(body.lock_ok_mq_set, body.grants or [_NO_GRANT] * len(body.lock_ok_mq_set), strict=True))
        refusals = {refusal.queue: refusal for refusal in body.refusals or ()}
        presented = dict(zip(queues, epochs or [0] * len(queues), strict=True))
        return LockReply(grants, refusals, body.grants is not None, presented, endpoint)

    async def has_fenced_locks(self, broker_name: str) -> bool | None:
        """Ask a broker, with a request for no queue; None: it does not answer."""
        reply = await self.lock(broker_name, ())
        return None if reply is None else reply.fences

    @staticmethod
    def _epochs(endpoint: Endpoint, queues: Queues, epoch_of: EpochOf | None) -> tuple[int, ...] | None:
        return tuple(map(epoch_of, queues)) if epoch_of is not None and endpoint.agreed else None

    def _send(self, code: RequestCode, endpoint: Endpoint, queues: Queues, epochs: tuple[int, ...] | None) -> Replies:
        longest_ms = self._config.broker_lock_life_ms + self._config.lock_settle_ms
        return endpoint.request_nowait(self._command(code, endpoint, queues, epochs), longest_ms)

    def _command(
        self, code: RequestCode, endpoint: Endpoint, queues: Queues, epochs: tuple[int, ...] | None
    ) -> RemotingCommand:
        request = LockBatchBody(self._group, self._instance.client_id, tuple(queues), epochs)
        return RemotingCommand(code, body=encode_body(request, endpoint.serialize_type))

    def _read(self, broker_name: str, reply: RemotingCommand) -> LockOkBody | None:
        try:
            if reply.code != ResponseCode.SUCCESS:
                raise RequestRefused(broker_name, "LOCK_BATCH_MQ", reply.code, reply.remark)
            return decode_body(LockOkBody, reply.body, reply.serialize_type)
        except (RemotingError, BodyError) as error:
            self._log_failure("lock_request_failed", broker_name, error)
            return None

    def _late(self, broker_name: str, queues: Queues, reply: Replies, asked_ms: int) -> None:
        if isinstance(reply.exception(), ConnectionLost):
            self._settle_later(lambda: self._listener.settled(queues, dict.fromkeys(queues, 0)))
        elif self._closed:
            pass
        elif reply.exception() is not None:
            self._listener.settled(queues, dict.fromkeys(queues, 0))
        else:
            body = self._read(broker_name, reply.result())
            self._log_late(broker_name, asked_ms)
            granted = queues if body is None else body.lock_ok_mq_set
            epochs = [grant.epoch for grant in body.grants] if body and body.grants else [0] * len(granted)
            self._listener.settled(queues, dict(zip(granted, epochs, strict=True)))

    def _log_late(self, broker_name: str, asked_ms: int) -> None:
        """Log once a minute for each broker: after a network partition many late answers may come together."""
        now_ms = self._instance.runtime.now_ms()
        logged_ms, unlogged = self._late_logged.get(broker_name, (now_ms - _LATE_LOG_INTERVAL_MS, 0))
        if now_ms - logged_ms < _LATE_LOG_INTERVAL_MS:
            self._late_logged[broker_name] = logged_ms, unlogged + 1
            return
        self._late_logged[broker_name] = now_ms, 0
        self._instance.log.warning(
            "lock_answered_late",
            broker=broker_name,
            group=self._group,
            took_ms=now_ms - asked_ms,
            lock_timeout_ms=self._config.lock_timeout_ms,
            more_before=unlogged,
        )

    def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Send a request to each broker, over an open connection, or several for thousands of queues."""
        by_request = [(name, part) for name, of_broker in by_broker(queues).items() for part in in_parts(of_broker)]
        for broker_name, batch in by_request:
            address = self._instance.routes.master_address(broker_name)
            endpoint = self._instance.dialer.open_endpoint(address) if address else None
            if endpoint is None:
                self._listener.unlock_failed(batch, lapsed=False)
                continue
            try:
                reply = self._send(
                    RequestCode.UNLOCK_BATCH_MQ, endpoint, batch, self._epochs(endpoint, batch, self._epoch_of)
                )
            except RemotingError as error:
                self._unlock_failed(broker_name, batch, error)
                continue
            reply.add_done_callback(lambda ended, name=broker_name, part=batch: self._unlocked(name, part, ended))  # type: ignore[misc]

    async def release(self, broker_name: str, epochs: Mapping[MessageQueue, int], over: Endpoint) -> bool:
        """Unlock queues of one broker under these epochs, over a connection that no other request uses yet.

        Returns:
            Whether the broker answered within `lock_timeout_ms`.
        """
        try:
            for part in in_parts(list(epochs)):
                command = self._command(RequestCode.UNLOCK_BATCH_MQ, over, part, tuple(epochs[queue] for queue in part))
                await over.request(command, self._config.lock_timeout_ms)
        except RemotingError as error:
            self._log_failure("unlock_failed", broker_name, error)
            return False
        return True

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
        """Stop calling the listener."""
        self._closed = True
        for timer in self._settling.values():
            timer.cancel()
        self._settling.clear()


def in_parts(queues: Queues) -> list[Queues]:
    """Parts that a broker with fenced locks takes in one request: at most 1,024 by default (docs/hostile.md)."""
    return [queues[start : start + _QUEUES_A_REQUEST] for start in range(0, len(queues), _QUEUES_A_REQUEST)]


def by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    """Group the queues by broker name, sorted."""
    batches: dict[str, list[MessageQueue]] = {}
    for queue in sorted(queues):
        batches.setdefault(queue.broker_name, []).append(queue)
    return batches
