"""QueueLocks: the lock calls, unlocks and timers of one consumer (wire.md 7.3).

`lock_states` decides what each event does to the lock of a queue; `lock_requests` sends the requests.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from lockstep.client.consumer.ownership.hold import Hold
from lockstep.client.consumer.ownership.lock_port import Grant, Refused, Unfenced
from lockstep.client.consumer.ownership.lock_requests import LockReply, LockRequests, Queues, by_broker, in_parts
from lockstep.client.consumer.ownership.lock_states import (
    NO_LOCK,
    UNLOCK_FAILURES_MAX,
    LockAction,
    LockState,
    LockStep,
    Outcome,
    QueueLock,
)
from lockstep.client.consumer.ownership.membership import Membership
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.client.errors import NoRouteError
from lockstep.protocol.bodies.locks import LockRefusal
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.connections.endpoint import Endpoint
from lockstep.remoting.errors import RemotingError
from lockstep.remoting.host.runtime import TimerHandle
from lockstep.remoting.logs import log_exception

__all__ = ["LockCall", "QueueLocks"]

_NOT_ASKED: Final = Refused("its unlock is not answered yet")
_NOT_ANSWERED: Final = Refused("its broker did not answer")
_GIVEN_UP: Final = Refused("given up before the answer came")
_ASKING: Final = (LockState.ASKING, LockState.ASKING_UNWANTED)
_UNLOCKING: Final = (LockState.UNLOCKING, LockState.UNLOCKING_AGAIN)


@dataclass(slots=True)
class LockCall:
    """Queues that are asked for together: the outcome of each, the grants, and why others were refused."""

    outcomes: dict[MessageQueue, Outcome] = field(default_factory=dict)
    granted: dict[MessageQueue, Grant] = field(default_factory=dict)
    refused: dict[MessageQueue, Refused] = field(default_factory=dict)


class QueueLocks(Unfenced):
    """The locks of one consumer.

    Args:
        on_reacquired: called with a process queue whose lock was granted again after it was lost, or may have been
            lost. Meanwhile another client may have owned the queue and handled the messages that are cached here.
            RocketMQ continues, handles them again and commits a lower offset. Here the process queue must end, and the
            rebalance makes a new one.
    """

    needed = True

    def __init__(self, member: Membership, on_reacquired: Callable[[ProcessQueue], None]) -> None:
        self._member = member
        self._instance = member.instance
        self._runtime = member.runtime
        self._group = member.group
        self._config = member.config
        self._table = member.table
        self._on_reacquired = on_reacquired
        self._requests = self._new_requests()
        self._locks: dict[MessageQueue, QueueLock] = {}  # all that are not FREE
        self._timers: dict[MessageQueue, TimerHandle] = {}  # one for each lock whose state has a timer
        self._progress = asyncio.Event()
        self._closing = False
        self.refusals: dict[MessageQueue, Refused] = {}

    def _new_requests(self) -> LockRequests:
        return LockRequests(self._instance, self._group, self._config, self)

    def new_hold(self, grant: Grant) -> Hold:
        return Hold(grant.asked_ms, self._config.lock_max_live_time_ms)

    def start(self) -> None:
        interval_ms, first_ms = self._config.lock_interval_ms, self._config.lock_first_delay_ms
        self._instance.schedule.every(interval_ms, self.lock_all, first_ms=first_ms, name="lock all")

    # Lock calls ----------------------------------------------------------------------------------------------

    async def lock(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, Grant]:
        """Ask for these queues, with one request to each broker. Process queues in the table are renewed.

        A broker that does not answer grants nothing. A queue whose unlock is not answered within `lock_timeout_ms` is
        not asked for. Queues that were granted, or may have been, and are not in the table `unlock_delay_ms` later are
        unlocked.

        Returns:
            The granted queues.
        """
        call = LockCall()
        blocked = [queue for queue in dict.fromkeys(queues) if not self._begin(call, queue)]
        granted = await self._execute(call, self._lock(call, blocked))
        for queue in call.outcomes:
            self.refusals.pop(queue, None)
        self.refusals.update(call.refused)
        return granted

    async def _lock(self, call: LockCall, blocked: list[MessageQueue]) -> None:
        if blocked and not self._closing:
            # An unlock of these queues is on its way. If the broker handled it after the new lock, it would free that.
            await self._wait_until(lambda: all(self._of(q).may_ask for q in blocked), self._config.lock_timeout_ms)
            for queue in blocked:
                if not self._begin(call, queue):
                    self._instance.log.info("lock_not_asked", queue=str(queue), why=_NOT_ASKED.why)
                    call.refused[queue] = _NOT_ASKED
        batches = by_broker(call.outcomes).items()
        asking = [self._lock_batch(call, broker_name, batch) for broker_name, batch in batches]
        for error in await asyncio.gather(*asking, return_exceptions=True):
            # The call ends when all have ended.
            if error is not None:
                raise error

    async def lock_all(self) -> None:
        """Renew the lock of every queue in the table that is not dropped: the 20 s task.

        A refused lock is lost. A broker that does not answer changes nothing: the client's trust in the lock expires.
        """
        renewals = [self._renew(broker_name, queues) for broker_name, queues in by_broker(self._to_renew()).items()]
        if len(renewals) == 1:
            # The usual case, without a task.
            await renewals[0]
        else:
            await asyncio.gather(*renewals)

    async def lock_all_over(self, address: str, endpoint: Endpoint) -> None:
        """As `lock_all` for one broker, over a connection that no other request uses yet.

        A broker that restarted has no locks. If another client took one first, this client must know it before one of
        its pulls commits an offset.
        """
        for broker_name, queues in by_broker(self._to_renew()).items():
            if self._instance.routes.master_address(broker_name) == address:
                await self._renew(broker_name, queues, endpoint)

    def _to_renew(self) -> list[MessageQueue]:
        return [queue for queue, process_queue in self._table.items() if not process_queue.life.dropped]

    async def _renew(self, broker_name: str, queues: list[MessageQueue], over: Endpoint | None = None) -> None:
        call = LockCall()
        asked = [queue for queue in queues if self._begin(call, queue)]
        if asked:
            await self._execute(call, self._lock_batch(call, broker_name, asked, over, renewal=True))

    def _begin(self, call: LockCall, queue: MessageQueue) -> bool:
        lock = self._of(queue)
        # At a shutdown no lock is asked for again: nobody would unlock it.
        if self._closing or not lock.may_ask:
            return False
        call.outcomes[queue] = Outcome.UNKNOWN
        self._take([(queue, lock.ask())])
        return True

    async def _execute(self, call: LockCall, work: Coroutine[Any, Any, None]) -> dict[MessageQueue, Grant]:
        """End the call when its requests have ended, before the caller continues; also if the caller is cancelled."""
        task = self._runtime.create_task(work, name="lock")
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            if task.done():
                self._end_abandoned(call, task)
            else:
                task.add_done_callback(lambda ended: self._end_abandoned(call, ended))
            raise
        self._end(call)
        task.result()
        return call.granted

    def _end_abandoned(self, call: LockCall, task: asyncio.Task[None]) -> None:
        self._end(call)
        if not task.cancelled() and (error := task.exception()) is not None:
            # Nobody waits for it.
            log_exception(self._member.log, "lock_request_failed", error)

    def _end(self, call: LockCall) -> None:
        steps = []
        for queue, outcome in call.outcomes.items():
            lock = self._of(queue)
            # Not wanted: the consumer gave the queue up meanwhile; it is unlocked now.
            if not lock.is_wanted and call.granted.pop(queue, None) is not None:
                call.refused[queue] = _GIVEN_UP
            steps.append((queue, lock.end(outcome, in_table=queue in self._table)))
        self._take(steps)

    async def _lock_batch(
        self,
        call: LockCall,
        broker_name: str,
        queues: list[MessageQueue],
        over: Endpoint | None = None,
        *,
        renewal: bool = False,
    ) -> None:
        """Ask for the queues of one broker; thousands are asked for in several requests, one after the other."""
        for part in in_parts(queues):
            await self._lock_part(call, broker_name, part, over, renewal=renewal)

    async def _lock_part(
        self, call: LockCall, broker_name: str, queues: Queues, over: Endpoint | None, *, renewal: bool
    ) -> None:
        held = {queue: process_queue for queue in queues if (process_queue := self._table.get(queue)) is not None}
        # Taken before the request leaves: the lock's life is counted from here, at the earliest moment it can have
        # begun.
        asked_ms = self._runtime.now_ms()
        reply = await self._requests.lock(broker_name, queues, over)
        # No answer: the lock may be granted or not. It stays in doubt until it is settled or has expired.
        if reply is None:
            call.refused.update(dict.fromkeys(queues, _NOT_ANSWERED))
            return
        for queue in queues:
            if queue in reply.grants:
                grant = Grant(asked_ms, *reply.grants[queue])
                call.outcomes[queue], call.granted[queue] = Outcome.GRANTED, grant
                self._granted(queue, held.get(queue), grant, reply)
            else:
                call.outcomes[queue] = Outcome.REFUSED
                call.refused[queue] = _why_refused(reply.refusals.get(queue))
                self._refused(queue, held.get(queue), reply, renewal=renewal)

    def _granted(self, queue: MessageQueue, process_queue: ProcessQueue | None, grant: Grant, reply: LockReply) -> None:
        if process_queue is None:
            return
        # This client has trusted the lock without a gap, so nobody else had the queue in between.
        if process_queue.hold.is_younger(self._runtime.now_ms(), self._config.lock_surely_held_ms):
            process_queue.hold.granted(grant.asked_ms)
        elif not process_queue.life.dropped:
            process_queue.life.outlived_lock = True
            self._on_reacquired(process_queue)

    def _refused(
        self, queue: MessageQueue, process_queue: ProcessQueue | None, reply: LockReply, *, renewal: bool
    ) -> None:
        # A refused first request takes nothing away. A refused renewal says that another client has the queue.
        if renewal and process_queue is not None:
            self._lost(process_queue)

    def _lost(self, process_queue: ProcessQueue) -> None:
        if process_queue.hold.locked:
            process_queue.hold.locked = False
            self._instance.log.warning("lock_lost", queue=str(process_queue.queue), group=self._group)
            self._member.record("lock_lost", process_queue)

    # Unlocks -------------------------------------------------------------------------------------------------

    def unlock(self, queue: MessageQueue) -> None:
        """Unlock as a rebalance does, without waiting."""
        self._take([(queue, self._of(queue).unlock())])

    def unlock_later(self, queue: MessageQueue) -> None:
        """Unlock a queue with unhandled messages after `unlock_delay_ms`, unless it is in the table then."""
        self._take([(queue, self._of(queue).unlock_later())])

    async def unlock_all(self, queues: Iterable[MessageQueue]) -> None:
        """Unlock as a shutdown does: wait for the answers, and send no lock request again.

        Queues with a delayed unlock are unlocked too, or they would stay locked until they expire. Answers to earlier
        lock requests are awaited up to `await_termination_ms`.
        """
        # From now on no lock request leaves. So an unlock cannot be overtaken by a lock.
        self._closing = True
        config = self._config
        leaving = dict.fromkeys([*queues, *(queue for queue in self._locks if queue not in self._table)])
        # First connect: a timeout of the unlock must not be spent on a new connection.
        await asyncio.gather(*[self._connect(broker_name) for broker_name in by_broker(leaving)])
        self._take([(queue, self._of(queue).unlock()) for queue in leaving])
        calls_ms = config.connect_timeout_ms + config.request_timeout_ms + config.lock_timeout_ms
        # Then answers to lock requests, or what they grant would be locked after the unlock.
        await self._wait_until(lambda: not self._any(leaving, _ASKING), calls_ms)
        doubtful = self._doubtful(leaving)
        await self._wait_until(lambda: not self._any(leaving, _UNLOCKING), config.lock_timeout_ms)
        if doubtful:
            await self._wait_until(lambda: not self._doubtful(doubtful), config.await_termination_ms)
            self._take([(queue, self._of(queue).unlock()) for queue in self._doubtful(doubtful)])
            await self._wait_until(lambda: not self._any(doubtful, _UNLOCKING), config.lock_timeout_ms)
        self._close(self._any(leaving, _UNLOCKING), self._doubtful(doubtful))

    def _doubtful(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Queues that are unlocked, although an earlier lock request may still be handled."""
        return [queue for queue in queues if self._of(queue).doubts]

    def _any(self, queues: Iterable[MessageQueue], states: tuple[LockState, ...]) -> list[MessageQueue]:
        return [queue for queue in queues if self._of(queue).state in states]

    async def _connect(self, broker_name: str) -> None:
        try:
            await self._instance.dialer.endpoint(self._instance.address_of(broker_name))
        except (RemotingError, NoRouteError) as error:
            self._instance.log.warning("unlock_failed", broker=broker_name, error=str(error))

    def _close(self, unanswered: list[MessageQueue], doubtful: list[MessageQueue]) -> None:
        """Log what is not settled: these locks expire on their brokers."""
        timeout_ms = self._config.lock_timeout_ms
        for broker_name in by_broker(unanswered):
            self._instance.log.warning("unlock_failed", broker=broker_name, error=f"no answer within {timeout_ms} ms")
        for broker_name, queues in by_broker(doubtful).items():
            names = ", ".join(map(str, queues))
            why = "a lock request without an answer may still be handled: the queues would stay locked until it expires"
            self._instance.log.warning("lock_unsettled", broker=broker_name, queues=names, why=why)
        self._requests.close()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    # Results of requests (LockListener) ----------------------------------------------------------------------

    def unanswered(self, queues: Queues) -> None:
        self._take([(queue, self._of(queue).doubt()) for queue in queues])

    def settled(self, queues: Queues, perhaps_granted: Mapping[MessageQueue, int]) -> None:
        steps = []
        for queue in queues:
            granted, epoch = queue in perhaps_granted, perhaps_granted.get(queue, 0)
            steps.append((queue, self._of(queue).end_doubt(perhaps_granted=granted, epoch=epoch)))
        self._take(steps)

    def unlocked(self, queues: Queues) -> None:
        self._take([(queue, self._of(queue).unlocked()) for queue in queues])

    def unlock_failed(self, queues: Queues, *, lapsed: bool) -> None:
        self._take([(queue, self._of(queue).unlock_failed(lapsed=lapsed)) for queue in queues])

    def _log_given_up(self, queue: MessageQueue) -> None:
        self._instance.log.warning(
            "unlock_given_up",
            queue=str(queue),
            group=self._group,
            attempts=UNLOCK_FAILURES_MAX,
            why="the lock stays until it expires on its broker",
        )

    # The machine ---------------------------------------------------------------------------------------------

    def _of(self, queue: MessageQueue) -> QueueLock:
        return self._locks.get(queue, NO_LOCK)

    def _take(self, steps: Iterable[tuple[MessageQueue, LockStep]]) -> None:
        """Store the new locks and take their actions. Unlocks are sent together."""
        unlocks = []
        for queue, (lock, actions) in steps:
            if lock.state is LockState.FREE:
                self._locks.pop(queue, None)
            else:
                self._locks[queue] = lock
            for action in actions:
                if action is LockAction.UNLOCK:
                    unlocks.append(queue)
                elif action is LockAction.LOG_GIVEN_UP:
                    self._log_given_up(queue)
                else:
                    self._set_timer(queue, action)
        if unlocks:
            self._requests.unlock(unlocks)
        self._progress.set()

    def _set_timer(self, queue: MessageQueue, action: LockAction) -> None:
        timer = self._timers.pop(queue, None)
        if timer is not None:
            timer.cancel()
        if action is not LockAction.STOP_TIMER:
            settle = action is LockAction.START_SETTLE_TIMER
            delay_ms = self._config.lock_settle_ms if settle else self._config.unlock_delay_ms
            self._timers[queue] = self._runtime.call_later_ms(delay_ms, self._timer_fired, queue)

    def _timer_fired(self, queue: MessageQueue) -> None:
        """RocketMQ does not check whether the queue is back in the table, and frees a lock in use (wire.md 12.3)."""
        del self._timers[queue]
        self._take([(queue, self._of(queue).timer(in_table=queue in self._table))])

    async def _wait_until(self, done: Callable[[], object], timeout_ms: int) -> None:
        deadline_ms = self._runtime.now_ms() + timeout_ms
        while not done() and (left_ms := deadline_ms - self._runtime.now_ms()) > 0:
            self._progress.clear()
            try:
                async with asyncio.timeout(left_ms / 1000):
                    await self._progress.wait()
            except TimeoutError:
                pass


def _why_refused(refusal: LockRefusal | None) -> Refused:
    """The reason of a broker with fenced locks; without one RocketMQ's rule is the reason."""
    if refusal is None or refusal.owner:
        owner, wait_ms = (refusal.owner, refusal.wait_ms) if refusal is not None else ("", 0)
        return Refused("locked by another client", True, owner, wait_ms)
    if refusal.wait_ms > 0:
        return Refused("its broker lost its lock table and waits for the owners", False, "", refusal.wait_ms)
    return Refused(f"the broker answered {refusal.answer}")
