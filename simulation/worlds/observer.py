"""What a random world sees at the ports of its broker: grants, and requests that were accepted against the rules.

It trusts none of the broker's tables: owners, epochs and leases are those of the answers that left. Its time is that of
the broker's clock, by which a lease lasts as long as it was granted for.
"""

from collections.abc import Callable
from typing import Final

from lockstep.client import MessageQueue
from lockstep.protocol.bodies.codec import decode_body
from lockstep.protocol.bodies.locks import LockBatchBody, LockGrant, LockOkBody
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import ResetOwnOffsetResponseHeader, UnregisterClientRequestHeader
from lockstep.remoting.connections.endpoint import Endpoint, RequestHandler
from lockstep.simulation.lab.cluster import BROKER
from lockstep.simulation.lab.findings import Findings, Wrong, place_of
from lockstep.simulation.worlds.asked import Asked, read_asked, read_commits
from lockstep.simulation.worlds.owners import Grant, Owners
from lockstep.simulation.worlds.plan import WorldPlan

__all__ = ["Observer"]

_PULLED: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)
_ACCEPTED: Final = {
    RequestCode.PULL_MESSAGE: (Wrong.STALE_PULL, _PULLED),
    RequestCode.CONSUMER_SEND_MSG_BACK: (Wrong.STALE_SEND_BACK, frozenset({ResponseCode.SUCCESS})),
    RequestCode.SEND_MESSAGE_V2: (Wrong.STALE_SEND_BACK, frozenset({ResponseCode.SUCCESS})),
}
_RESETS: Final = frozenset({RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, RequestCode.RESET_OWN_OFFSET})
_FENCES: Final = (ResponseCode.FENCED, ResponseCode.NOT_HELD, ResponseCode.STALE)
_RESET_MARK_MS: Final = 30_000
_FAITHFUL_RESET_MS: Final = 60_000  # RocketMQ's members store the offset themselves, when they have stopped


class Observer:
    """`on_unlock` is called with the address, queue and epoch of an unlock that frees the queue.

    `refuses` says whether the broker refuses a request unread, as RocketMQ's flow control does.
    `skips` says whether one of the messages from an offset to another of a queue has had no effect yet.
    """

    def __init__(self, findings: Findings, plan: WorldPlan, broker: str, topic: str, *, fenced: bool) -> None:
        self._findings = findings
        self._plan = plan
        self._broker = broker
        self._topic = topic
        self._fenced = fenced
        self._owners = Owners(findings, plan, fenced=fenced)
        self._fenced_addresses: set[str] = set()  # of clients that send epochs
        self._waiting: dict[tuple[Endpoint, int], tuple[Asked, Grant | None]] = {}
        self._current: Asked | None = None
        self._commits: dict[MessageQueue, Asked] = {}  # of a frame that is handled now
        self._resetting = 0  # the code of a reset that is handled now
        self._faithful_resets_end_ms = 0
        self._reset_marks: dict[MessageQueue, tuple[int, int]] = {}  # its offset, and until when nothing else is stored
        self.beyond_end: set[int] = set()  # queue ids where a commit without an epoch skips messages of a new log
        self.skips: Callable[[int, int, int], bool] = lambda _queue_id, _first, _end: False
        self._log_lost = False
        self._stored: dict[MessageQueue, int] = {}
        self.refuses: Callable[[RemotingCommand], bool] = lambda _: False
        self.on_unlock: Callable[[str, MessageQueue, int], object] = lambda _address, _queue, _epoch: None

    def lease_end_ms(self, address: str, queue: MessageQueue, epoch: int) -> int:
        """Until when a client holds a queue under an epoch, by the last answer that was sent to it; 0: never."""
        return self._owners.of(queue).leases.get((address, epoch), 0)

    def forgotten_offsets(
        self, committed: Callable[[MessageQueue], int], end: Callable[[MessageQueue], int]
    ) -> list[tuple[MessageQueue, str]]:
        """Where the broker came back with a lower offset than the one at which the period of a kept lock began.

        An offset beyond the `end` of its queue may be lowered to that.
        """
        began = [(queue, min(at, end(queue)), committed(queue)) for queue, at in self._owners.kept_offsets()]
        return [
            (queue, f"its period began at {at}, and {found} is stored now") for queue, at, found in began if found < at
        ]

    def broker_started(self, *, log_lost: bool, table_lost: bool) -> None:
        """The broker starts again."""
        self._stored.clear()
        self._owners.broker_started(offsets_lost=log_lost or table_lost)
        self._waiting.clear()
        self._reset_marks.clear()
        self._log_lost |= log_lost
        if log_lost:  # faithful members correct the offsets that they have of it
            self._faithful_resets_end_ms = self._now_ms + _FAITHFUL_RESET_MS

    @property
    def _is_before_topic(self) -> bool:
        """Whether the broker's clock was set back to before the topic was made, when the world began.

        A start may leave out the offset of a period that begins then, as docs/store.md says.
        """
        world = self._findings.world
        return world.host(self._broker).now_ms() < world.options.epoch_ms

    @property
    def _now_ms(self) -> int:
        return self._findings.world.clock_ms(BROKER)

    # Interceptor ---------------------------------------------------------------------------------------------

    def delay(self, factory: Callable[[], Endpoint]) -> Callable[[], Endpoint]:
        """Watch the answers that leave later than their request was read, and the ends of connections."""

        def make() -> Endpoint:
            endpoint = factory()

            def noted(reply: RemotingCommand) -> None:
                asked, later = self._waiting.pop((endpoint, reply.opaque), (None, None))
                if asked is not None and endpoint.is_open:
                    self._answered(asked, reply, late=True, later=later)

            endpoint.when_replied.append(noted)
            # Before the broker's own, which may answer others.
            endpoint.when_lost.insert(0, lambda: self._owners.connection_ended(endpoint))
            return endpoint

        return make

    def intercept(self, on_request: RequestHandler) -> RequestHandler:
        def noted(endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand | None:
            if self.refuses(command):
                return command.reply(ResponseCode.SYSTEM_BUSY, remark="[REJECTREQUEST]system busy")
            asked = self._current = read_asked(endpoint, command, self._broker, self._now_ms)
            self._commits = read_commits(endpoint, command, self._broker, self._now_ms)
            self._before(asked, endpoint, command)
            try:
                reply = on_request(endpoint, command)
            finally:
                self._current, self._resetting, self._commits = None, 0, {}
            if asked is not None and not command.is_one_way:
                if reply is None:
                    later = self._owners.of(asked.queue).follows(asked) if asked.queue is not None else None
                    self._waiting[endpoint, command.opaque] = asked, later
                else:
                    self._answered(asked, reply)
            return reply

        return noted

    # Requests ------------------------------------------------------------------------------------------------

    def _before(self, asked: Asked | None, endpoint: Endpoint, command: RemotingCommand) -> None:
        if command.code in _RESETS:
            self._resetting = command.code
            self._faithful_resets_end_ms = self._now_ms + _FAITHFUL_RESET_MS
        elif command.code == RequestCode.SEND_TOGETHER:
            self._findings.saw("sends together")
        elif command.code == RequestCode.UNREGISTER_CLIENT:
            self._owners.left(command.decode_header(UnregisterClientRequestHeader).client_id)
        elif asked is not None and asked.lock is not None:
            if asked.lock.epochs is not None:
                self._fenced_addresses.add(asked.address)
            if command.code == RequestCode.UNLOCK_BATCH_MQ:
                self._unlocks(asked, asked.lock)

    def _unlocks(self, asked: Asked, body: LockBatchBody) -> None:
        epochs = body.epochs or (None,) * len(body.mq_set)
        for queue, epoch in zip(body.mq_set, epochs, strict=True):
            if queue.topic == self._topic and self._owners.unlocked(asked, queue, epoch):
                self._findings.saw("unlocks under an epoch" if epoch else "unlocks without an epoch")
                self.on_unlock(asked.address, queue, epoch or 0)

    @property
    def resetting(self) -> bool:
        """Whether the broker handles a request to reset offsets."""
        return bool(self._resetting)

    def commit_stored(self, queue: MessageQueue, offset: int, before: int, queue_end: int) -> None:
        """The broker stores an offset. Below one that lies beyond the end of the queue it may (wire.md 6.3)."""
        if queue.topic != self._topic:
            return
        self._stored[queue] = offset
        current = self._commits.get(queue, self._current)
        if self._commits:
            self._findings.saw("commits together")
        if self._resetting:
            self._findings.saw("resets")
            self._reset_marks.pop(queue, None)
            self._owners.of(queue).began_at = -1
            if self._resetting == RequestCode.INVOKE_BROKER_TO_RESET_OFFSET:
                self._reset_marks[queue] = (offset, self._now_ms + _RESET_MARK_MS)
        elif self._fenced:
            self._check_mark(queue, offset)
        if current is not None and current.epoch is None:
            of_old_log = self._log_lost and self.skips(queue.queue_id, max(before, 0), min(offset, queue_end))
            if offset > queue_end or of_old_log:
                self.beyond_end.add(queue.queue_id)
        allowed = before > queue_end if self._fenced else self._now_ms <= self._faithful_resets_end_ms
        if offset < before and not self._resetting and not allowed:
            by = current.told if current is not None else "no request"
            self._findings.add(Wrong.COMMIT_BACK, f"{queue}: from {before} to {offset} by {by}", queue=place_of(queue))
        if current is not None:
            self._check(Wrong.STALE_COMMIT, current, queue)
        beyond = offset > max(before, queue_end) and not self._resetting
        if current is not None and current.epoch is not None and beyond:
            text = f"{queue}: {offset} by {current.told}, and the queue ends at {queue_end}"
            self._findings.add(Wrong.COMMIT_BEYOND, text, queue=place_of(queue))

    def _check_mark(self, queue: MessageQueue, offset: int) -> None:
        target, end_ms = self._reset_marks.get(queue, (offset, 0))
        if offset == target or self._now_ms >= end_ms:
            self._reset_marks.pop(queue, None)
        else:
            text = f"{queue}: {offset} was stored, and was reset to {target}"
            self._findings.add(Wrong.RESET_UNDONE, text, queue=place_of(queue))

    def _check(self, wrong: Wrong, asked: Asked, queue: MessageQueue) -> None:
        if asked.epoch is None and asked.address in self._fenced_addresses:
            text = f"{queue} {RequestCode(asked.code).name} of {asked.address}"
            self._findings.add(Wrong.WITHOUT_EPOCH, text, queue=place_of(queue))
        elif (later := self._owners.of(queue).follows(asked)) is not None:
            text = f"{queue}: {asked.told} was accepted after the lock went to {later}"
            self._findings.add(wrong, text, queue=place_of(queue))

    # Answers -------------------------------------------------------------------------------------------------

    def _answered(
        self, asked: Asked, reply: RemotingCommand, *, late: bool = False, later: Grant | None = None
    ) -> None:
        """`later`: of a late answer, what followed the asker's grant when the request was handled already."""
        if reply.code in _FENCES:
            self._findings.saw(f"answers {ResponseCode(reply.code).name}")
            if late and asked.code == RequestCode.PULL_MESSAGE:
                self._findings.saw("held pulls ended")
        if asked.lock is not None:
            if reply.code == ResponseCode.SUCCESS and asked.code == RequestCode.LOCK_BATCH_MQ:
                self._granted(asked, asked.lock, decode_body(LockOkBody, reply.body, reply.serialize_type))
        elif asked.queue is None or asked.queue.topic != self._topic:
            return
        elif asked.code in _ACCEPTED:
            wrong, codes = _ACCEPTED[RequestCode(asked.code)]
            # A refused pull of an unmodified client is answered as one that found nothing.
            accepted = reply.code in codes and (asked.epoch is not None or reply.code == ResponseCode.SUCCESS)
            # A message is stored when its request is handled, and answered when it is on the disk.
            if accepted and (not late or asked.code == RequestCode.PULL_MESSAGE or later is not None):
                self._check(wrong, asked, asked.queue)
        elif asked.code == RequestCode.RESET_OWN_OFFSET and reply.code == ResponseCode.SUCCESS:
            self._findings.saw("resets of owners")
            self.on_unlock(asked.address, asked.queue, asked.epoch or 0)  # it ends a period as an unlock does
            new = reply.decode_header(ResetOwnOffsetResponseHeader)
            if new.lock_epoch <= (asked.epoch or 0):
                text = f"{asked.queue}: {asked.told} began no new epoch: {new.lock_epoch}"
                self._findings.add(Wrong.EPOCH_BACK, text, queue=place_of(asked.queue))
            self._owners.granted(asked, asked.queue, Grant(new.lock_epoch, asked.address), new.lease_ms, None)

    def _granted(self, asked: Asked, lock: LockBatchBody, reply: LockOkBody) -> None:
        for refusal in reply.refusals or ():
            self._findings.saw(f"{'locks' if refusal.answer == 'HELD' else 'answers'} {refusal.answer}")
        presented = dict(zip(lock.mq_set, lock.epochs or (), strict=False))
        grants = reply.grants or [LockGrant(0, self._plan.lease_ms)] * len(reply.lock_ok_mq_set)
        for queue, (epoch, lease_ms) in zip(reply.lock_ok_mq_set, grants, strict=True):
            if queue.topic == self._topic:
                grant = Grant(epoch, asked.address)
                if self._owners.granted(asked, queue, grant, lease_ms, presented.get(queue, 0)):
                    self._reset_marks.pop(queue, None)  # the new owner begins at the offset that is stored
                    self._owners.of(queue).began_at = -1 if self._is_before_topic else self._stored.get(queue, -1)
