"""What a random world sees at its broker: grants, and requests that were accepted although a later owner had followed.

It stands between the ports and the broker, and trusts none of the broker's tables: owners, epochs and leases are those
of the answers that left.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from lockstep.client import MessageQueue
from lockstep.protocol.bodies.codec import decode_body
from lockstep.protocol.bodies.locks import LockBatchBody, LockGrant, LockOkBody
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.admin import SendMessageBackRequestHeader
from lockstep.protocol.headers.messaging import (
    PullMessageRequestHeader,
    ResetOwnOffsetRequestHeader,
    ResetOwnOffsetResponseHeader,
    SendMessageRequestHeaderV2,
    UpdateConsumerOffsetRequestHeader,
)
from lockstep.remoting.endpoint import Endpoint, RequestHandler
from lockstep.simulation.lab.findings import Findings, Wrong

__all__ = ["Observer"]

_PULLED: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)
_HEADERS: Final[dict[int, type[tuple[Any, ...]]]] = {
    RequestCode.PULL_MESSAGE: PullMessageRequestHeader,
    RequestCode.UPDATE_CONSUMER_OFFSET: UpdateConsumerOffsetRequestHeader,
    RequestCode.CONSUMER_SEND_MSG_BACK: SendMessageBackRequestHeader,
    RequestCode.SEND_MESSAGE_V2: SendMessageRequestHeaderV2,  # a dead letter has an epoch
    RequestCode.RESET_OWN_OFFSET: ResetOwnOffsetRequestHeader,
}
_ACCEPTED: Final = {
    RequestCode.PULL_MESSAGE: (Wrong.STALE_PULL, _PULLED),
    RequestCode.CONSUMER_SEND_MSG_BACK: (Wrong.STALE_SEND_BACK, frozenset({ResponseCode.SUCCESS})),
    RequestCode.SEND_MESSAGE_V2: (Wrong.STALE_SEND_BACK, frozenset({ResponseCode.SUCCESS})),
}
_FAITHFUL_RESET_MS: Final = 60_000  # RocketMQ's members store the offset themselves, when they have stopped
_RESETS: Final = frozenset({RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, RequestCode.RESET_OWN_OFFSET})
_FENCES: Final = (ResponseCode.FENCED, ResponseCode.NOT_HELD, ResponseCode.STALE)


class _Grant(NamedTuple):
    epoch: int
    address: str


class _Asked(NamedTuple):
    """A request under way, and who asks under which epoch."""

    code: int
    address: str
    epoch: int | None
    queue: MessageQueue | None = None
    handled_ms: int = 0
    lock: LockBatchBody | None = None


@dataclass
class _Queue:
    grants: list[_Grant] = field(default_factory=list)
    leases: dict[tuple[str, int], int] = field(default_factory=dict)  # (address, epoch) -> its end, in ms

    def follows(self, asked: _Asked) -> _Grant | None:
        """A grant that followed the one under which this was asked; None if that is the last one."""
        if not self.grants:
            return None
        last = self.grants[-1]
        if asked.epoch is not None:
            return last if last.epoch > asked.epoch else None
        held = any(grant.address == asked.address for grant in self.grants)
        return last if held and last.address != asked.address else None


class Observer:
    """Args:
    lease_ms: of a lock of a broker that names none in its grants.
    fenced: whether requests have epochs.
    """

    def __init__(self, findings: Findings, broker: str, topic: str, lease_ms: int, *, fenced: bool) -> None:
        self._findings = findings
        self._broker = broker
        self._topic = topic
        self._lease_ms = lease_ms
        self._fenced = fenced
        self._queues: dict[MessageQueue, _Queue] = {}
        self._waiting: dict[tuple[Endpoint, int], _Asked] = {}
        self._current: _Asked | None = None
        self._resetting = False
        self._resets_end_ms = 0
        self._kept: dict[MessageQueue, _Grant] = {}

    def lease_end_ms(self, address: str, queue: MessageQueue, epoch: int) -> int:
        """Until when a client holds a queue under an epoch, by the last answer that was sent to it; 0: never."""
        return self._queue(queue).leases.get((address, epoch), 0)

    def broker_started(self, *, log_lost: bool) -> None:
        """The broker starts again: who held what, until now."""
        self._kept = {queue: of.grants[-1] for queue, of in self._queues.items() if of.grants}
        self._waiting.clear()
        if log_lost:  # faithful members correct the offsets that they have of it
            self._resets_end_ms = self._findings.world.now_ms + _FAITHFUL_RESET_MS

    def _queue(self, queue: MessageQueue) -> _Queue:
        return self._queues.setdefault(queue, _Queue())

    # Interceptor ---------------------------------------------------------------------------------------------

    def delay(self, factory: Callable[[], Endpoint]) -> Callable[[], Endpoint]:
        """Watch the answers that leave later than their request was read."""

        def make() -> Endpoint:
            endpoint = factory()
            send = endpoint.reply

            def noted(reply: RemotingCommand) -> None:
                asked = self._waiting.pop((endpoint, reply.opaque), None)
                if asked is not None and endpoint.is_open:
                    self._answered(asked, reply)
                send(reply)

            endpoint.reply = noted  # type: ignore[method-assign]
            return endpoint

        return make

    def intercept(self, on_request: RequestHandler) -> RequestHandler:
        def noted(endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand | None:
            self._resetting = command.code in _RESETS
            if self._resetting:
                self._resets_end_ms = self._findings.world.now_ms + _FAITHFUL_RESET_MS
            asked = self._current = self._read(endpoint, command)
            try:
                reply = on_request(endpoint, command)
            finally:
                self._current, self._resetting = None, False
            if asked is not None and not command.is_one_way:
                if reply is None:
                    self._waiting[endpoint, command.opaque] = asked
                else:
                    self._answered(asked, reply)
            return reply

        return noted

    # Requests ------------------------------------------------------------------------------------------------

    def _read(self, endpoint: Endpoint, command: RemotingCommand) -> _Asked | None:
        address, code = endpoint.address.rpartition(":")[0], command.code
        now_ms = self._findings.world.now_ms
        if code == RequestCode.LOCK_BATCH_MQ:
            body = decode_body(LockBatchBody, command.body, command.serialize_type)
            return _Asked(code, address, None, handled_ms=now_ms, lock=body)
        if code not in _HEADERS:
            return None
        header: Any = command.decode_header(_HEADERS[code])
        if code in (RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.SEND_MESSAGE_V2):
            if header.lock_epoch is None:
                return None
            queue = MessageQueue(header.lock_topic, self._broker, header.lock_queue_id)
        else:
            queue = MessageQueue(header.topic, self._broker, header.queue_id)
        return _Asked(code, address, header.lock_epoch, queue, now_ms) if queue.topic == self._topic else None

    def commit_stored(self, queue: MessageQueue, offset: int, before: int) -> None:
        """The broker stores an offset."""
        if queue.topic != self._topic:
            return
        now_ms = self._findings.world.now_ms
        if self._resetting:
            self._findings.saw("resets")
        elif offset < before and (self._fenced or now_ms > self._resets_end_ms):
            self._findings.add(Wrong.COMMIT_BACK, f"{queue}: from {before} to {offset} by {self._current}")
        if self._current is not None:
            self._check(Wrong.STALE_COMMIT, self._current, queue)

    def _check(self, wrong: Wrong, asked: _Asked, queue: MessageQueue) -> None:
        if self._fenced and asked.epoch is None:
            self._findings.add(Wrong.WITHOUT_EPOCH, f"{queue} {RequestCode(asked.code).name} of {asked.address}")
        elif (later := self._queue(queue).follows(asked)) is not None:
            self._findings.add(wrong, f"{queue}: of {asked.address} under {asked.epoch}, after {later}")

    # Answers -------------------------------------------------------------------------------------------------

    def _answered(self, asked: _Asked, reply: RemotingCommand) -> None:
        if reply.code in _FENCES:
            self._findings.saw(f"answers {ResponseCode(reply.code).name}")
        if asked.lock is not None:
            if reply.code == ResponseCode.SUCCESS:
                self._granted(asked, asked.lock, decode_body(LockOkBody, reply.body, reply.serialize_type))
        elif asked.queue is not None and asked.code in _ACCEPTED:
            wrong, codes = _ACCEPTED[RequestCode(asked.code)]
            if reply.code in codes:
                self._check(wrong, asked, asked.queue)
        elif (
            asked.code == RequestCode.RESET_OWN_OFFSET
            and asked.queue is not None
            and reply.code == ResponseCode.SUCCESS
        ):
            self._findings.saw("resets of owners")
            new = reply.decode_header(ResetOwnOffsetResponseHeader)
            self._grant(asked.queue, _Grant(new.lock_epoch, asked.address), asked.handled_ms + new.lease_ms, 0)

    def _granted(self, asked: _Asked, lock: LockBatchBody, reply: LockOkBody) -> None:
        for refusal in reply.refusals or ():
            self._findings.saw(f"locks {refusal.answer}")
        presented = dict(zip(lock.mq_set, lock.epochs or (), strict=False))
        grants = reply.grants or [LockGrant(0, self._lease_ms)] * len(reply.lock_ok_mq_set)
        for queue, (epoch, lease_ms) in zip(reply.lock_ok_mq_set, grants, strict=True):
            if queue.topic == self._topic:
                self._grant(queue, _Grant(epoch, asked.address), asked.handled_ms + lease_ms, presented.get(queue, 0))

    def _grant(self, queue: MessageQueue, grant: _Grant, lease_end_ms: int, presented: int) -> None:
        of = self._queue(queue)
        last = of.grants[-1] if of.grants else None
        if last is not None and grant.epoch:
            if grant.epoch < last.epoch:
                wrong = Wrong.STALE_RENEWAL if presented == grant.epoch else Wrong.EPOCH_BACK
                self._findings.add(wrong, f"{queue}: {grant} after {last}")
            elif grant.epoch == last.epoch and grant.address != last.address:
                self._findings.add(Wrong.SHARED_EPOCH, f"{queue}: {grant} and {last}")
        if last is not None and last.address != grant.address:
            self._findings.saw("takeovers")
        if self._kept.pop(queue, None) == grant and grant.epoch:
            self._findings.saw("reclaims")
        if grant != last:
            of.grants.append(grant)
        key = (grant.address, grant.epoch)
        of.leases[key] = max(lease_end_ms, of.leases.get(key, 0))
