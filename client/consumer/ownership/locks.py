"""The client's side of the broker's queue locks (wire.md 7.3): lock, renew, unlock.

What a queue's lock is and what follows is decided in `lock_states`; requests go through `lock_requests`. Here are the
lock calls of a consumer, the timers, and who hears of it.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from lockstep.client.consumer.membership import Membership
from lockstep.client.consumer.ownership.lock_requests import LockRequests, Queues, by_broker
from lockstep.client.consumer.ownership.lock_states import (
    NO_LOCK,
    UNLOCK_FAILURES_MAX,
    LockAction,
    LockState,
    LockStep,
    Outcome,
    QueueLock,
)
from lockstep.client.consumer.process_queue import ProcessQueue
from lockstep.client.errors import NoRouteError
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.endpoint import Endpoint
from lockstep.remoting.errors import RemotingError
from lockstep.remoting.runtime import Runtime, TimerHandle

__all__ = ["Locks", "NoLocks", "QueueLocks"]

_ASKING: Final = (LockState.ASKING, LockState.ASKING_UNWANTED)
_UNLOCKING: Final = (LockState.UNLOCKING, LockState.UNLOCKING_AGAIN)


class Locks(Protocol):
    """What a rebalance and a consume service ask of the broker's locks."""

    @property
    def needed(self) -> bool:
        """Is a queue consumed only under its lock?"""

    async def lock(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]: ...
    async def lock_all(self) -> None: ...
    async def lock_all_over(self, address: str, endpoint: Endpoint) -> None: ...
    def unlock(self, queue: MessageQueue) -> None: ...
    def unlock_later(self, queue: MessageQueue) -> None: ...
    async def unlock_all(self, queues: Iterable[MessageQueue]) -> None: ...


class NoLocks:
    """For consumption without order and for broadcasting: nobody is asked, everything is granted (wire.md 12.3)."""

    needed = False

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def lock(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        now_ms = self._runtime.now_ms()
        return dict.fromkeys(queues, now_ms)

    async def lock_all(self) -> None:
        pass

    async def lock_all_over(self, address: str, endpoint: Endpoint) -> None:
        pass

    def unlock(self, queue: MessageQueue) -> None:
        pass

    def unlock_later(self, queue: MessageQueue) -> None:
        pass

    async def unlock_all(self, queues: Iterable[MessageQueue]) -> None:
        pass


@dataclass(slots=True)
class _LockCall:
    """Queues that are asked for together, what is known of each, and since when the granted ones are."""

    outcomes: dict[MessageQueue, Outcome] = field(default_factory=dict)
    granted: dict[MessageQueue, int] = field(default_factory=dict)


class QueueLocks:
    """`table` is the consumer's: its process queues by message queue.

    `on_reacquired` is told of a process queue whose lock was lost, or may have been, before it was granted again. In
    between, another client may have owned the queue, handled what this one has in hand and gone; RocketMQ goes on
    with it all the same, repeats it and commits backwards. Here the process queue ends, and the rebalance makes a
    new one.

    Apache's broker handles requests of one connection side by side. So an unlock waits for lock requests of its queue
    that are under way, and a lock for an unlock; see `lock_states`.
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
        self._requests = LockRequests(member.instance, member.group, member.config, self)
        self._locks: dict[MessageQueue, QueueLock] = {}  # those that are not free
        self._timers: dict[MessageQueue, TimerHandle] = {}  # one for each lock whose state has a timer
        self._progress = asyncio.Event()
        self._closing = False

    # Lock calls ----------------------------------------------------------------------------------------------

    async def lock(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        """Ask for these queues, one request a broker; those granted, and since when. A ProcessQueue is renewed.

        A lock counts from the time it was asked for: the broker's clock for it starts later, however late the answer
        is read. A broker that does not answer grants nothing. What is not in the table `unlock_delay_ms` after it was
        granted, or may have been, is unlocked. A queue whose unlock is not answered within `lock_timeout_ms` is not
        asked for.
        """
        call = _LockCall()
        blocked = [queue for queue in dict.fromkeys(queues) if not self._begin(call, queue)]
        return await self._carry_out(call, self._lock(call, blocked))

    async def _lock(self, call: _LockCall, blocked: list[MessageQueue]) -> None:
        if blocked and not self._closing:
            await self._wait_until(lambda: all(self._of(q).may_ask for q in blocked), self._config.lock_timeout_ms)
            for queue in blocked:
                if not self._begin(call, queue):
                    self._instance.log.info("lock_not_asked", queue=str(queue), why="its unlock is not answered yet")
        batches = by_broker(call.outcomes).items()
        asking = [self._lock_batch(call, broker_name, batch) for broker_name, batch in batches]
        for error in await asyncio.gather(*asking, return_exceptions=True):  # to the end of each: the call ends then
            if error is not None:
                raise error

    async def lock_all(self) -> None:
        """Renew the locks of every queue in the table that is not dropped: the 20 s task.

        Asked for and not granted means lost; a broker that does not answer changes nothing, and the local view
        of the lock runs out by itself.
        """
        batches = by_broker(self._kept()).items()
        await asyncio.gather(*[self._renew(broker_name, queues) for broker_name, queues in batches])

    async def lock_all_over(self, address: str, endpoint: Endpoint) -> None:
        """As `lock_all` for one broker, over a connection that nobody else uses yet.

        A broker that restarted has no locks: what another client took there first must be known before a pull
        commits for it.
        """
        for broker_name, queues in by_broker(self._kept()).items():
            if self._instance.routes.master_address(broker_name) == address:
                await self._renew(broker_name, queues, endpoint)

    def _kept(self) -> list[MessageQueue]:
        return [queue for queue, process_queue in self._table.items() if not process_queue.dropped]

    async def _renew(self, broker_name: str, queues: list[MessageQueue], over: Endpoint | None = None) -> None:
        call = _LockCall()
        asked = [queue for queue in queues if self._begin(call, queue)]
        if asked:
            await self._carry_out(call, self._lock_batch(call, broker_name, asked, over, renewal=True))

    def _begin(self, call: _LockCall, queue: MessageQueue) -> bool:
        lock = self._of(queue)
        if self._closing or not lock.may_ask:
            return False
        call.outcomes[queue] = Outcome.UNKNOWN
        self._take([(queue, lock.ask())])
        return True

    async def _carry_out(self, call: _LockCall, work: Coroutine[Any, Any, None]) -> dict[MessageQueue, int]:
        """Ends the call when its requests have ended, whoever waits; before its caller goes on, if that still does."""
        task = self._runtime.create_task(work, name="lock")
        try:
            await asyncio.shield(task)
        finally:
            if task.done():
                self._end(call)
            else:
                task.add_done_callback(lambda _: self._end(call))
        return call.granted

    def _end(self, call: _LockCall) -> None:
        steps = []
        for queue, outcome in call.outcomes.items():
            lock = self._of(queue)
            if not lock.is_wanted:  # it was given up meanwhile, and is unlocked now
                call.granted.pop(queue, None)
            steps.append((queue, lock.end(outcome, in_table=queue in self._table)))
        self._take(steps)

    async def _lock_batch(
        self,
        call: _LockCall,
        broker_name: str,
        queues: list[MessageQueue],
        over: Endpoint | None = None,
        *,
        renewal: bool = False,
    ) -> None:
        held = {queue: process_queue for queue in queues if (process_queue := self._table.get(queue)) is not None}
        asked_ms = self._runtime.now_ms()
        won = await self._requests.lock(broker_name, queues, over)
        if won is None:
            return
        for queue in queues:
            if queue in won:
                call.outcomes[queue], call.granted[queue] = Outcome.GRANTED, asked_ms
                self._granted(held.get(queue), asked_ms)
            else:
                call.outcomes[queue] = Outcome.REFUSED
                if renewal and queue in held:
                    self._lost(held[queue])

    def _granted(self, process_queue: ProcessQueue | None, asked_ms: int) -> None:
        if process_queue is None:
            return
        if process_queue.holds_lock(self._runtime.now_ms(), self._config.lock_surely_held_ms):
            process_queue.granted(asked_ms)
        elif not process_queue.dropped:
            process_queue.outlived_lock = True
            self._on_reacquired(process_queue)

    def _lost(self, process_queue: ProcessQueue) -> None:
        if process_queue.locked:
            process_queue.locked = False
            self._instance.log.warning("lock_lost", queue=str(process_queue.queue), group=self._group)
            self._member.record("lock_lost", process_queue)

    # Unlocks -------------------------------------------------------------------------------------------------

    def unlock(self, queue: MessageQueue) -> None:
        """As a rebalance unlocks: nobody waits for it."""
        self._take([(queue, self._of(queue).unlock())])

    def unlock_later(self, queue: MessageQueue) -> None:
        """As a rebalance unlocks a queue that had messages in hand: after `unlock_delay_ms`, unless it came back."""
        self._take([(queue, self._of(queue).unlock_later())])

    async def unlock_all(self, queues: Iterable[MessageQueue]) -> None:
        """As a shutdown unlocks: each broker's answer is waited for, and nothing is asked for any more.

        With `queues` go those whose unlock is still to come, or they would stay locked until they expire. Lock
        requests without an answer are waited for up to `await_termination_ms`.
        """
        self._closing = True
        config = self._config
        leaving = dict.fromkeys([*queues, *(queue for queue in self._locks if queue not in self._table)])
        await asyncio.gather(*[self._connect(broker_name) for broker_name in by_broker(leaving)])
        self._take([(queue, self._of(queue).unlock()) for queue in leaving])
        calls_ms = config.connect_timeout_ms + config.request_timeout_ms + config.lock_timeout_ms
        await self._wait_until(lambda: not self._any(leaving, _ASKING), calls_ms)
        doubtful = self._doubtful(leaving)
        await self._wait_until(lambda: not self._any(leaving, _UNLOCKING), config.lock_timeout_ms)
        if doubtful:
            await self._wait_until(lambda: not self._doubtful(doubtful), config.await_termination_ms)
            self._take([(queue, self._of(queue).unlock()) for queue in self._doubtful(doubtful)])
            await self._wait_until(lambda: not self._any(doubtful, _UNLOCKING), config.lock_timeout_ms)
        self._close(self._any(leaving, _UNLOCKING), self._doubtful(doubtful))

    def _doubtful(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Unlocked, but an earlier lock request may still be handled."""
        return [queue for queue in queues if self._of(queue).doubts]

    def _any(self, queues: Iterable[MessageQueue], states: tuple[LockState, ...]) -> list[MessageQueue]:
        return [queue for queue in queues if self._of(queue).state in states]

    async def _connect(self, broker_name: str) -> None:
        try:
            await self._instance.dialer.endpoint(self._instance.address_of(broker_name))
        except (RemotingError, NoRouteError) as error:
            self._instance.log.warning("unlock_failed", broker=broker_name, error=str(error))

    def _close(self, unanswered: list[MessageQueue], doubtful: list[MessageQueue]) -> None:
        """What is not settled now expires on its broker."""
        timeout_ms = self._config.lock_timeout_ms
        for broker_name in by_broker(unanswered):
            self._instance.log.warning("unlock_failed", broker=broker_name, error=f"no answer within {timeout_ms} ms")
        for broker_name, queues in by_broker(doubtful).items():
            names = ", ".join(map(str, queues))
            why = "a lock request without an answer may be handled yet: they stay locked until that expires"
            self._instance.log.warning("lock_unsettled", broker=broker_name, queues=names, why=why)
        self._requests.close()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    # What became of requests (LockListener) ------------------------------------------------------------------

    def unanswered(self, queues: Queues) -> None:
        self._take([(queue, self._of(queue).doubt()) for queue in queues])

    def settled(self, queues: Queues, perhaps_granted: set[MessageQueue]) -> None:
        self._take([(queue, self._of(queue).end_doubt(perhaps_granted=queue in perhaps_granted)) for queue in queues])

    def unlocked(self, queues: Queues) -> None:
        self._take([(queue, self._of(queue).unlocked()) for queue in queues])

    def unlock_failed(self, queues: Queues, *, lapsed: bool) -> None:
        self._take([(queue, self._of(queue).unlock_failed(lapsed=lapsed)) for queue in queues])

    def _tell_given_up(self, queue: MessageQueue) -> None:
        self._instance.log.warning(
            "unlock_given_up",
            queue=str(queue),
            group=self._group,
            attempts=UNLOCK_FAILURES_MAX,
            why="the lock ends when it expires on its broker",
        )

    # The machine ---------------------------------------------------------------------------------------------

    def _of(self, queue: MessageQueue) -> QueueLock:
        return self._locks.get(queue, NO_LOCK)

    def _take(self, steps: Iterable[tuple[MessageQueue, LockStep]]) -> None:
        """Keep the new locks and do what they say; unlocks leave together."""
        unlocks = []
        for queue, (lock, actions) in steps:
            if lock.state is LockState.FREE:
                self._locks.pop(queue, None)
            else:
                self._locks[queue] = lock
            for action in actions:
                if action is LockAction.UNLOCK:
                    unlocks.append(queue)
                elif action is LockAction.TELL_GIVEN_UP:
                    self._tell_given_up(queue)
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
        """RocketMQ does not look whether the queue came back meanwhile, and frees a lock in use (wire.md 12.3)."""
        del self._timers[queue]
        self._take([(queue, self._of(queue).timer(in_table=queue in self._table))])

    async def _wait_until(self, done: Callable[[], object], timeout_ms: int) -> None:
        deadline_ms = self._runtime.now_ms() + timeout_ms
        while not done() and (left_ms := deadline_ms - self._runtime.now_ms()) > 0:
            self._progress.clear()
            try:
                await asyncio.wait_for(self._progress.wait(), left_ms / 1000)
            except TimeoutError:
                pass
