"""Exhibits in which a queue waits, for some time or for good."""

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from lockstep.broker.ownership.answers import LockAnswer, LockOutcome
from lockstep.broker.ownership.rocketmq_locks import RebalanceLockManager
from lockstep.client.consumer.cache.message_cache import MessageCache
from lockstep.client.consumer.ownership.locks import QueueLocks
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.client.consumer.ownership.rebalance import Rebalance
from lockstep.client.consumer.push_member import PushMember
from lockstep.protocol.model import MessageQueue
from lockstep.simulation.lab.findings import Wrong
from lockstep.simulation.museum.exhibit import Exhibit
from lockstep.simulation.museum.plan import Swarm
from lockstep.simulation.museum.variant import replaced, variant
from lockstep.simulation.museum.waits import IDLE

__all__ = [
    "COUNT_LEAK",
    "EVERYBODY_TIMED_OUT",
    "GRANT_NOT_NOTICED",
    "LOST_BUT_OWNED",
    "NO_UNLOCK_AT_SHUTDOWN",
    "RENEWAL_NOT_NOTICED",
]

_Method = Callable[..., Any]
_REAL_MS = (60_000,)  # RocketMQ's times: this is about how long a queue waits


# The grant of a rebalance is not noticed ------------------------------------------------------------------------------

_unmarked: WeakSet[Any] = WeakSet()  # process queues that no lock task has seen yet


def _add_unlocked(add: _Method) -> _Method:
    """The lock is granted before the process queue is in the table, and marks what is in the table."""

    def added(self: Any, queue: MessageQueue, grant: Any) -> None:
        add(self, queue, grant)
        process_queue = self._table[queue]
        if process_queue.hold.needed:
            process_queue.hold.locked = False
            _unmarked.add(process_queue)

    return added


def _mark_later(granted: _Method) -> _Method:
    def mark(self: Any, queue: MessageQueue, process_queue: Any, grant: Any, reply: Any) -> None:
        if process_queue in _unmarked:
            _unmarked.discard(process_queue)
            process_queue.hold.granted(grant.asked_ms, grant.lease_ms)
        else:
            granted(self, queue, process_queue, grant, reply)

    return mark


# No unlock at shutdown ------------------------------------------------------------------------------------------------


def _only_close(_unlock_all: _Method) -> _Method:
    async def unlock_all(self: Any, _queues: object) -> None:
        self._closing = True
        self._close([], [])

    return unlock_all


# A renewal is not noticed ---------------------------------------------------------------------------------------------


def _renew_unnoticed(lock_all: _Method) -> _Method:
    async def renew(self: Any) -> None:
        before = {process_queue.hold: process_queue.hold.last_lock_ms for process_queue in self._table.values()}
        await lock_all(self)
        for hold, last_lock_ms in before.items():
            hold.last_lock_ms = last_lock_ms

    return renew


# Everybody has timed out once -----------------------------------------------------------------------------------------

_timed_out: WeakKeyDictionary[Any, set[tuple[MessageQueue, str]]] = WeakKeyDictionary()


def _never_again(try_lock: _Method) -> _Method:
    """Who let a lock run out gets none until it has settled what it had, and it has nothing to settle any more."""

    def locked(self: Any, entries: Any, group: str, client_id: str, queue: MessageQueue, now_ms: int) -> LockAnswer:
        marked, entry = _timed_out.setdefault(self, set()), entries.get(queue)
        if entry is not None and now_ms - entry.last_update_ms > self.max_live_time_ms:
            marked.add((queue, entry.client_id))
        if (queue, client_id) in marked:
            return LockAnswer(queue, LockOutcome.REFUSED)
        answer: LockAnswer = try_lock(self, entries, group, client_id, queue, now_ms)
        return answer

    return locked


# Lost, and still owned ------------------------------------------------------------------------------------------------


def _only_drop(_reacquired: _Method) -> _Method:
    def lock_reacquired(self: Any, process_queue: Any) -> None:
        self._rebalance.drop(process_queue, "its lock had run out")
        process_queue.life.outlived_lock = False  # the rebalance takes it for a queue that the member has

    return lock_reacquired


def _renew_dropped(_kept: _Method) -> _Method:
    return lambda self: list(self._table)


def _no_watchdog(_expired: _Method) -> _Method:
    return lambda _self, _now_ms, _idle_ms: False


# A counter leaks ------------------------------------------------------------------------------------------------------


def _count_again(put_back: _Method) -> _Method:
    def put(self: Any, messages: Sequence[Any]) -> None:
        put_back(self, messages)
        self.message_count += len(messages)

    return put


GRANT_NOT_NOTICED = Exhibit(
    key="grant-not-noticed",
    report="apache/rocketmq #2621",
    title="a queue that was granted waits up to 20 s for its first pull",
    told=(
        "Each time an ordered consumer starts or gets new queues it waits up to 20 s. The broker grants the "
        "lock before the ProcessQueue is in the client's table. So nothing marks it as locked until the "
        "periodic lock task runs, and until then no pull is made."
    ),
    translated=("Rebalance adds a process queue that does not know of its lock; the next round of lock_all marks it."),
    rule=("A new process queue is made with its grant (docs/order.md 5), and its first pull follows at once."),
    kind=IDLE,
    variant=variant(replaced(Rebalance, "_add", _add_unlocked), replaced(QueueLocks, "_granted", _mark_later)),
    swarm=Swarm(lock_ms=_REAL_MS),
)

NO_UNLOCK_AT_SHUTDOWN = Exhibit(
    key="no-unlock-at-shutdown",
    report="apache/rocketmq-client-go #994",
    title="the queues of a member that was stopped stay locked for a minute",
    told=(
        "The Go client did not send UNLOCK_BATCH_MQ when an ordered consumer was shut down. Its queues stayed "
        "locked for a client that was gone, until the locks ran out after 60 s."
    ),
    translated=("QueueLocks.unlock_all sends nothing."),
    rule=(
        "Shutdown waits for listeners, stores offsets, unlocks and unregisters, in this order (docs/order.md "
        "3 (b), (l), (m))."
    ),
    kind=IDLE,
    variant=replaced(QueueLocks, "unlock_all", _only_close),
    swarm=Swarm(lock_ms=_REAL_MS),
)

RENEWAL_NOT_NOTICED = Exhibit(
    key="renewal-not-noticed",
    report="apache/rocketmq-client-go #1080",
    title="a lock that is renewed in time counts as expired",
    told=(
        'Consumption stopped now and then with "the message queue lock expired, so consume later". The '
        "periodic renewal was granted, and it set the time of the last consumption, but not the time of the "
        "last lock. So the client counted from the first grant."
    ),
    translated=(
        "lock_all leaves the time of the last grant as it was. In Go the next message asks for the lock at "
        "once; our client stops pulling without trust in its lock, so the queue waits until the client takes "
        "it anew."
    ),
    rule=(
        "A renewal counts from the time of its request (docs/order.md 2, The lock, to the millisecond; "
        "docs/order.md 5)."
    ),
    kind=IDLE,
    variant=replaced(QueueLocks, "lock_all", _renew_unnoticed),
    swarm=Swarm(lock_ms=_REAL_MS),
)

EVERYBODY_TIMED_OUT = Exhibit(
    key="everybody-timed-out",
    report="rabbitmq/rabbitmq-server #17317",
    title="when each member has timed out once, nobody gets the queue any more",
    told=(
        "With a single active consumer on a quorum queue the queue stopped for good when each consumer had "
        'hit the consumer timeout once. A consumer with the status "timeout" is not chosen until it settles '
        "what it had. But its messages had gone back to the queue, so there was nothing left to settle."
    ),
    translated=(
        "A consumer timeout has no twin here: a lock that runs out has this part. The broker marks a client "
        "that let a lock run out, and grants it that queue no more until it unlocks it, which a client that "
        "has lost its lock never does."
    ),
    rule=(
        "A lock that has run out goes to any member that asks, the last owner too (docs/order.md 2, The lock, "
        "to the millisecond)."
    ),
    kind=Wrong.STUCK,
    variant=replaced(RebalanceLockManager, "_try_lock", _never_again),
    swarm=Swarm(),
)

LOST_BUT_OWNED = Exhibit(
    key="lost-but-owned",
    report="confluentinc/parallel-consumer #857",
    title="a member takes a queue for lost that it still owns, and keeps others from it",
    told=(
        "After a rebalance consumption of single partitions halted until the pod was restarted. The library "
        "had marked the partition as lost and skipped its work as if another member had it. But the group had "
        "given it to the same member again."
    ),
    translated=(
        "When a lock that had run out is granted to the same client again, its process queue is dropped and "
        "stays in the table. The client renews the lock, so nobody else gets the queue. The check for queues "
        "that are not pulled for 120 s is off, because the original has none."
    ),
    rule=("A lock that was lost and granted again begins a new period (docs/order.md 3 (k))."),
    kind=Wrong.STUCK,
    variant=variant(
        replaced(PushMember, "lock_reacquired", _only_drop),
        replaced(QueueLocks, "_to_renew", _renew_dropped),
        replaced(ProcessQueue, "pull_expired", _no_watchdog),
    ),
    swarm=Swarm(),
)

COUNT_LEAK = Exhibit(
    key="count-leak",
    report="apache/rocketmq-client-go #575",
    title="each failed attempt is counted as one more cached message, until nothing is pulled",
    told=(
        "Each SUSPEND_CURRENT_QUEUE_A_MOMENT counted the message once more as cached, and a success "
        "subtracted it once. After 1,024 failures the flow control took the cache for full, and the queue was "
        "never pulled again."
    ),
    translated=(
        "MessageCache counts messages again that go back. The limit is 4 or 8 messages, so that a short run reaches it."
    ),
    rule=("A message counts from its pull to its commit, however often it fails (docs/order.md 3 (g), wire.md 12.6)."),
    kind=Wrong.STUCK,
    variant=replaced(MessageCache, "make_messages_to_consume_again", _count_again),
    swarm=Swarm(failing=(10, 30), cached=(4, 8)),
)
