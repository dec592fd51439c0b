"""Exhibits in which a queue has two owners."""

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from lockstep.broker.ownership.answers import FenceAnswer, LockOutcome
from lockstep.broker.ownership.fenced.locks import FencedLocks
from lockstep.client.consumer.ownership.hold import Hold
from lockstep.client.consumer.ownership.rebalance import Rebalance
from lockstep.client.consumer.pull_loop import PullLoop
from lockstep.order import Kind
from lockstep.simulation.lab.experiment import LockMode
from lockstep.simulation.museum.exhibit import Exhibit
from lockstep.simulation.museum.plan import Swarm
from lockstep.simulation.museum.variant import replaced, variant

__all__ = ["EVICTED_MEMBER", "LAST_TO_ASK_WINS", "READ_UNDER_WAY"]

_Method = Callable[..., Any]

# Process queues that are given away while a pull is under way, and why.
_given_away: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
_read_after: WeakSet[Any] = WeakSet()


def _drop_after_read(drop: _Method) -> _Method:
    """The queue goes to the next owner at once; the old one still gets the answer that it waits for."""

    def dropped(self: Any, process_queue: Any, why: str) -> None:
        life, is_empty = process_queue.life, process_queue.cache.is_empty
        waits = process_queue.positioned and is_empty and not life.listener_running
        if why == "allocated to another consumer" and waits and not life.dropped:
            _given_away[process_queue] = why
            process_queue.life.end_period = lambda: drop(self, process_queue, why)
        else:
            drop(self, process_queue, why)

    return dropped


def _pull_last(pull_once: _Method) -> _Method:
    async def pulled(self: Any, process_queue: Any) -> int:
        if process_queue in _given_away and process_queue.cache.is_empty:
            process_queue.life.end_period()
            return 0
        delay_ms: int = await pull_once(self, process_queue)
        return 10 if process_queue in _given_away else delay_ms

    return pulled


def _trust_for_good(_holds: _Method) -> _Method:
    def is_trusted(self: Any, _now_ms: int) -> Any:
        return self.locked

    return is_trusted


def _grant_to_last(renew: _Method) -> _Method:
    """Who comes with an old epoch gets a new one, and whoever has the queue is fenced."""

    def renew_or_reclaim(self: Any, asker: Any, queue: Any, epoch: int, now_ms: int) -> Any:
        answer = renew(self, asker, queue, epoch, now_ms)
        lock = self.entry(asker.consumer_group, queue.topic, queue.queue_id)
        if answer.fence is FenceAnswer.FENCED and lock is not None:
            return self._grant(asker, queue, LockOutcome.TAKEN_OVER, now_ms, lock)
        return answer

    return renew_or_reclaim


EVICTED_MEMBER = Exhibit(
    key="evicted-member",
    report="kafka4beam/brod #649",
    title="a member that was evicted goes on with the messages that it has",
    told=(
        "A Kafka cluster was degraded. The coordinator had removed members from the group and given their "
        "partitions to another one. The old members did not notice, because their requests to the coordinator "
        "hung, and they went on for minutes. Several processes handled the same partitions."
    ),
    translated=(
        "A group coordinator has no twin here: the lock of a queue has this part. Hold.is_trusted "
        "never looks at the clock, so a member whose renewals get no answer trusts its lock for good."
    ),
    rule=(
        "A holder trusts its lock for 30 s after the last grant, half of the lock's life, and begins no call "
        "after that (docs/order.md 2, The lock, to the millisecond)."
    ),
    kind=Kind.OVERLAP,
    variant=replaced(Hold, "is_trusted", _trust_for_good),
    swarm=Swarm(events_max=16, consumers=(2, 3), work_ms=(200, 1000, 2000)),
)

READ_UNDER_WAY = Exhibit(
    key="read-under-way",
    report="apache/pulsar #15189",
    title="the first message after a handover goes to the old owner and to the new one",
    told=(
        "Two consumers of a Failover subscription wait for messages. The second one has become active. When "
        "the first message is published both get it, and only then does the active one get everything: the "
        "read of the old one was still under way."
    ),
    translated=(
        "Pulsar's dispatcher is in the broker; with faithful locks our broker answers every pull that it "
        "holds, as RocketMQ's does, and the client throws the answer away. In the variant a queue whose cache "
        "is empty is given away at once, and its period ends with the answer of the pull that is under way."
    ),
    rule=(
        "A dropped process queue takes nothing any more (docs/order.md 2, A consumer's queue); with fenced "
        "locks the broker also ends the held pulls of the old owner (docs/fencing.md, What the broker "
        "refuses)."
    ),
    kind=Kind.STALE_OWNER,
    variant=variant(replaced(Rebalance, "drop", _drop_after_read), replaced(PullLoop, "_pull_once", _pull_last)),
    swarm=Swarm(),
)

LAST_TO_ASK_WINS = Exhibit(
    key="last-to-ask-wins",
    report="PostHog/posthog #76100",
    title="an owner that was replaced takes the queue again and fences the true owner",
    told=(
        "A review of a fence built on Kafka transactions found that the epoch goes to whoever initializes "
        "last. A zombie that wakes inside its lease initializes again on its way to noticing that it is dead, "
        "and so it fences the true owner, which had no way back."
    ),
    translated=("The broker gives a new epoch to a client that renews with an old one, instead of the answer FENCED."),
    rule=(
        "An old epoch is answered FENCED and begins nothing; an epoch is learned from the grant of a free "
        "queue alone (docs/fencing.md, The lock of one queue in the broker)."
    ),
    kind=Kind.OVERLAP,
    variant=replaced(FencedLocks, "_renew_or_reclaim", _grant_to_last),
    swarm=Swarm(events_max=16, consumers=(2, 3), work_ms=(20, 200, 1000)),
    mode=LockMode.FENCED,
)
