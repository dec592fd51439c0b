"""FencedLocks: the locks of a consumer with `fenced=`, which have an epoch and a lease (docs/fencing.md).

The grant of a broker brings both. The epoch goes with every later request about the queue, and the lease says until
when calls may begin. Brokers without fenced locks give faithful ones, which the consumer accepts or not by its setting.
"""

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Final

from lockstep.client.consumer.ownership.fenced_commits import FencedCommits
from lockstep.client.consumer.ownership.hold import FencedHold, Hold
from lockstep.client.consumer.ownership.lease_watch import LeaseWatch
from lockstep.client.consumer.ownership.lock_port import Grant, LockOwner, Refused, StartPeriod
from lockstep.client.consumer.ownership.lock_requests import LockReply, LockRequests, Queues, by_broker
from lockstep.client.consumer.ownership.locks import QueueLocks
from lockstep.client.consumer.ownership.membership import Membership
from lockstep.client.consumer.ownership.period_end import ANSWERS, EndCause, PeriodEnds
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.client.consumer.ownership.user_calls import OnAcquired, OnLost, UserCalls
from lockstep.client.errors import ConsumerError, NoRouteError, SendError
from lockstep.protocol.codes import RequestCode
from lockstep.protocol.headers.messaging import ResetOwnOffsetRequestHeader, ResetOwnOffsetResponseHeader
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.connections.endpoint import Endpoint
from lockstep.remoting.errors import RemotingError, RequestRefused, must_succeed

__all__ = ["FencedLocks"]

_NOT_USABLE = Refused("granted without a fence, over a connection that has ended, or with a lease that is over")
_SETTLE_MS: Final = 10_000
_BY_NAME = {cause.name: cause for cause in ANSWERS.values()}


class FencedLocks(QueueLocks):
    """The locks of one consumer.

    Args:
        required: False: a broker without fenced locks is used as usual. True: its queues are not consumed.
    """

    watches_calls = True

    def __init__(
        self,
        member: Membership,
        owner: LockOwner,
        calls: UserCalls,
        on_acquired: OnAcquired | None,
        on_lost: OnLost | None,
        *,
        required: bool,
    ) -> None:
        super().__init__(member, owner.lock_reacquired)
        self._required = required
        self._calls = calls
        self._on_acquired = on_acquired
        commits = self._commits = FencedCommits(member, self.refused)
        # What ends a period does to the other parts (PeriodActs).
        self.cancel_calls, self.drop, self.rebalance_soon = owner.cancel_calls, owner.drop, owner.rebalance_soon
        self.store_last = commits.store_last
        self.periods = PeriodEnds(member, self, None if on_lost is None else partial(calls.lost, on_lost))
        self._ended: dict[MessageQueue, int] = {}  # the epoch of the last period that ended, or ends, here
        self._unreleased: dict[MessageQueue, int] = {}  # epochs whose unlock was not answered
        self._unfenced_logged: set[str] = set()
        self.watch = LeaseWatch(member, self._renew_broker, self._lease_ended)

    def _new_requests(self) -> LockRequests:
        return LockRequests(
            self._instance,
            self._group,
            self._config,
            self,
            epoch_of=lambda queue: self._of(queue).epoch,
            epoch_to_renew=self._epoch_to_renew,
        )

    def _epoch_to_renew(self, queue: MessageQueue) -> int:
        """The epoch that a lock request presents: never that of a period that has ended here.

        The broker may take it all the same, for example when it has lost its table: then one epoch would have two
        periods.
        """
        epoch, process_queue = self._of(queue).epoch, self._table.get(queue)
        runs = process_queue is not None and process_queue.hold.epoch == epoch and not process_queue.life.lost
        return epoch if runs or epoch != self._ended.get(queue) else 0

    def new_hold(self, grant: Grant) -> Hold:
        return FencedHold(*grant) if grant.epoch else super().new_hold(grant)

    # Brokers -------------------------------------------------------------------------------------------------

    async def check_brokers(self) -> None:
        """One that does not answer may have fenced locks."""
        if not self._required:
            return
        routes = self._instance.routes
        names = {routes.broker_name_at(address) for address in routes.broker_addresses(masters_only=True)}
        known = sorted(name for name in names if name is not None)
        without = [name for name in known if await self._requests.has_fenced_locks(name) is False]
        if without:
            raise ConsumerError(
                f"fenced=True, and these brokers have no fenced locks: {', '.join(without)}; start them with "
                '--lock-mode fenced, or say fenced="if the broker can"'
            )

    def _may_use(self, broker_name: str, reply: LockReply) -> bool:
        """Whether this consumer uses the broker; logs once for each broker without fenced locks."""
        if reply.fences:
            self._unfenced_logged.discard(broker_name)
        elif broker_name not in self._unfenced_logged:
            self._unfenced_logged.add(broker_name)
            log = self._instance.log
            write = log.error if self._required else log.warning
            consequence = "its queues are not consumed" if self._required else "its locks are RocketMQ's, without fence"
            write("fencing_not_supported", broker=broker_name, group=self._group, consequence=consequence)
        return reply.fences or not self._required

    # Grants --------------------------------------------------------------------------------------------------

    def _to_renew(self) -> list[MessageQueue]:
        """A fenced period is renewed until it leaves the table, also while its last call runs."""
        return [
            queue
            for queue, pq in self._table.items()
            if not (pq.life.lost or (pq.life.dropped and not pq.life.resetting))
        ]

    async def lock(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, Grant]:
        granted = await super().lock(queues)
        usable = {queue: grant for queue, grant in granted.items() if self._is_usable(queue, grant)}
        self.refusals |= {queue: _NOT_USABLE for queue in granted if queue not in usable}
        return usable

    def _is_usable(self, queue: MessageQueue, grant: Grant) -> bool:
        """Whether a new period may begin: its connection may have ended while other brokers were asked."""
        if not grant.epoch:
            return not self._required
        address = self._instance.routes.master_address(queue.broker_name)
        connected = address is not None and self._instance.dialer.open_endpoint(address) is not None
        return connected and self._runtime.now_ms() < grant.asked_ms + grant.lease_ms

    def _granted(self, queue: MessageQueue, process_queue: ProcessQueue | None, grant: Grant, reply: LockReply) -> None:
        if not self._may_use(queue.broker_name, reply) or not reply.fences:
            self._granted_without_fence(queue, process_queue, grant, reply)
            return
        self._take([(queue, self._of(queue).granted(grant.epoch))])
        # The client uses the lock, perhaps under the same epoch: an unlock now would free it under a call.
        self._unreleased.pop(queue, None)
        if process_queue is None or process_queue.life.lost:
            return
        if process_queue.hold.epoch != grant.epoch:
            self._end_period(process_queue, EndCause.NEW_EPOCH, EndCause.NEW_EPOCH.value)
        elif reply.endpoint.is_open:
            # The answer of a connection that has ended proves nothing any more.
            process_queue.hold.granted(grant.asked_ms, grant.lease_ms)

    def _granted_without_fence(
        self, queue: MessageQueue, process_queue: ProcessQueue | None, grant: Grant, reply: LockReply
    ) -> None:
        if process_queue is not None and process_queue.hold.epoch:
            self._take([(queue, self._of(queue).fenced(process_queue.hold.epoch))])
            self._end_period(process_queue, EndCause.NO_FENCING, EndCause.NO_FENCING.value)
        else:
            super()._granted(queue, process_queue, grant, reply)

    def _refused(
        self, queue: MessageQueue, process_queue: ProcessQueue | None, reply: LockReply, *, renewal: bool
    ) -> None:
        self._may_use(queue.broker_name, reply)
        presented, refusal = reply.presented.get(queue, 0), reply.refusals.get(queue)
        if not presented:
            if process_queue is None or not process_queue.hold.epoch:
                super()._refused(queue, process_queue, reply, renewal=renewal)
            return
        self._take([(queue, self._of(queue).fenced(presented))])
        if process_queue is not None and process_queue.hold.epoch == presented:
            cause = _BY_NAME.get(refusal.answer, EndCause.FENCED) if refusal is not None else EndCause.FENCED
            owner = f" ({refusal.owner})" if refusal is not None and refusal.owner else ""
            self._end_period(process_queue, cause, cause.value + owner)

    # Unlocks -------------------------------------------------------------------------------------------------

    def unlock_failed(self, queues: Queues, *, lapsed: bool) -> None:
        self._unreleased |= {queue: epoch for queue in queues if (epoch := self._of(queue).epoch)}
        super().unlock_failed(queues, lapsed=lapsed)

    def unlocked(self, queues: Queues) -> None:
        for queue in queues:
            self._unreleased.pop(queue, None)
        super().unlocked(queues)

    async def lock_all_over(self, address: str, endpoint: Endpoint) -> None:
        """Also unlock what could not be unlocked: a broker keeps its locks over a restart, and each has its lease once
        more. The next owner, be it this client, would wait for its end."""
        for broker_name, queues in by_broker(self._unreleased).items():
            if not endpoint.agreed or self._instance.routes.master_address(broker_name) != address:
                continue
            epochs = {queue: self._unreleased[queue] for queue in queues}
            if await self._requests.release(broker_name, epochs, endpoint):
                for queue, epoch in epochs.items():
                    if self._unreleased.get(queue) == epoch:
                        del self._unreleased[queue]
                    self._take([(queue, self._of(queue).fenced(epoch))])
        await super().lock_all_over(address, endpoint)

    # Other requests under an epoch ---------------------------------------------------------------------------

    def refused(self, process_queue: ProcessQueue, error: Exception) -> bool:
        code = error.code if isinstance(error, RequestRefused | SendError) else None
        cause = ANSWERS.get(code) if code is not None else None
        if cause is None or not process_queue.hold.epoch:
            return False
        self._take([(process_queue.queue, self._of(process_queue.queue).fenced(process_queue.hold.epoch))])
        self._end_period(process_queue, cause, f"{cause.value}; {error}")
        return True

    async def reset_offset(self, process_queue: ProcessQueue, offset: int) -> bool:
        """Without an answer it is not known whether the offset was moved; the period ends in any case."""
        queue, code = process_queue.queue, RequestCode.RESET_OWN_OFFSET
        header = ResetOwnOffsetRequestHeader(
            self._group, queue.topic, queue.queue_id, offset, process_queue.hold.epoch, self._instance.client_id
        )
        try:
            reply = await self._instance.call(queue.broker_name, code, header)
            must_succeed(reply, queue.broker_name, code)
        except (RemotingError, NoRouteError) as error:
            self._instance.log.warning("offset_reset_refused", queue=str(queue), offset=offset, why=str(error))
            self.refused(process_queue, error)
            return False
        grant = reply.decode_header(ResetOwnOffsetResponseHeader)
        self._take([(queue, self._of(queue).granted(grant.lock_epoch))])
        return True

    def hands_over(self, process_queue: ProcessQueue, why: str) -> bool:
        if not process_queue.hold.epoch:
            return False
        if not process_queue.life.is_over:
            self._end_period(process_queue, EndCause.HANDOVER, why)
        return True

    def _end_period(self, process_queue: ProcessQueue, cause: EndCause, why: str) -> None:
        self._ended[process_queue.queue] = process_queue.hold.epoch
        self.periods.begin(process_queue, cause, why)

    # Periods -------------------------------------------------------------------------------------------------

    def acquired(self, process_queue: ProcessQueue, start: StartPeriod) -> None:
        if self._on_acquired is None or not process_queue.hold.epoch:
            start(process_queue)
            return
        calling = self._calls.acquired(self._on_acquired, process_queue, start)
        self.periods.start(calling, f"on_acquired of {process_queue.queue}")

    def dropped(self, process_queue: ProcessQueue, why: str) -> None:
        if process_queue.hold.epoch:
            self.periods.report_lost(process_queue, why)

    def commit(self, process_queues: Iterable[ProcessQueue]) -> list[ProcessQueue]:
        fenced, others = _by_fence(process_queues)
        self._commits.send(fenced)
        return others

    async def commit_last(self, process_queues: Iterable[ProcessQueue]) -> list[ProcessQueue]:
        fenced, others = _by_fence(process_queues)
        await asyncio.gather(*[self._commits.store_last(process_queue) for process_queue in fenced])
        return others

    # Leases and connections ----------------------------------------------------------------------------------

    def start(self) -> None:
        self.watch.start()

    async def settle(self) -> None:
        """Also for the user's functions. What has not ended in time is cancelled."""
        self._calls.stopped = True
        await self.periods.settle(_SETTLE_MS)
        self.watch.stop()

    async def _renew_broker(self, broker_name: str) -> None:
        await self._renew(broker_name, by_broker(self._to_renew()).get(broker_name, []))

    def _lease_ended(self, process_queue: ProcessQueue) -> None:
        self._end_period(process_queue, EndCause.LEASE_ENDED, EndCause.LEASE_ENDED.value)

    def connection_ended(self, address: str) -> None:
        """Begin no call of this broker's queues until a renewal is answered over a new connection."""
        for queue, process_queue in self._table.items():
            if process_queue.hold.epoch and self._instance.routes.master_address(queue.broker_name) == address:
                process_queue.hold.locked = False
        self.watch.look()


def _by_fence(process_queues: Iterable[ProcessQueue]) -> tuple[list[ProcessQueue], list[ProcessQueue]]:
    """Those under a fenced lock, and the others: their brokers have none."""
    fenced, others = list[ProcessQueue](), list[ProcessQueue]()
    for process_queue in process_queues:
        (fenced if process_queue.hold.epoch else others).append(process_queue)
    return fenced, others
