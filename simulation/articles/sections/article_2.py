"""Article 2, section by section."""

from typing import Final

from lockstep.simulation.articles.section import Section
from lockstep.simulation.articles.stories import locks, members, pulls, sends
from lockstep.simulation.lab.event_texts import Focus

__all__ = ["SECTIONS"]

SECTIONS: Final = (
    Section(
        "2/global-order",
        "Global order",
        "One queue, one producer and one consumer: then all messages are in order.",
        sends.one_queue,
        (
            Focus.LOCKS,
            Focus.QUEUES,
            Focus.CALLS,
        ),
        sends.one_order_for_all,
    ),
    Section(
        "2/queue-order",
        "Order within a queue",
        ("The order's id modulo the number of queues chooses the queue; each send is answered with queue and offset."),
        sends.orders_by_id,
        (Focus.SENDS,),
        sends.queues_by_id,
    ),
    Section(
        "2/start",
        "How it works: the start",
        "start() makes the orderly service for an orderly listener, and registers the consumer.",
        members.consumer_starts,
        (
            Focus.MEMBERS,
            Focus.QUEUES,
            Focus.LOCKS,
        ),
        members.start_order,
    ),
    Section(
        "2/lock-timer",
        "The timer that locks",
        (
            "A queue may go to another member at any rebalance. Therefore an orderly consumer locks its queues, "
            "and renews the locks each 20 s."
        ),
        locks.holder_renews,
        (Focus.LOCKS,),
        locks.renewals,
    ),
    Section(
        "2/locking-queues",
        "Locking queues",
        (
            "A lock request names queues of one broker. Those that come back in the answer are marked locked, the "
            "others are not."
        ),
        locks.second_member_waits,
        (
            Focus.LOCKS,
            Focus.CACHE,
        ),
        locks.refusal_and_grant,
    ),
    Section(
        "2/pulling",
        "Pulling",
        (
            "A new queue is locked first. When the lock is refused no pull request is made; when it is granted "
            "the queue is pulled."
        ),
        locks.second_member_waits,
        (
            Focus.QUEUES,
            Focus.LOCKS,
            Focus.PULLS,
        ),
        locks.refusal_and_grant,
    ),
    Section(
        "2/consuming",
        "Consuming ordered messages",
        (
            "Messages of a pull go to the consume service, which starts a task when none works on the queue. An "
            "empty answer is pulled again."
        ),
        pulls.pull_waits,
        (
            Focus.PULLS,
            Focus.CALLS,
            Focus.CACHE,
        ),
        pulls.holding,
    ),
    Section(
        "2/queue-lock",
        "The lock of the message queue while consuming",
        (
            "A task consumes only while the queue is locked and the lock is younger than 30 s. Else it asks for "
            "the lock and is made again later."
        ),
        locks.cut_off_holder_stops,
        (
            Focus.LOCKS,
            Focus.CALLS,
        ),
        locks.belief,
    ),
    Section(
        "2/consume-lock",
        "The lock of consumption",
        (
            "A lock is held during a listener call, so that no rebalance unlocks the queue under it. Later the "
            "queue is unlocked, 20 s later when messages are left."
        ),
        members.call_keeps_the_lock,
        (
            Focus.QUEUES,
            Focus.LOCKS,
            Focus.CALLS,
        ),
        members.unlock_after_the_call,
    ),
    Section(
        "2/summary",
        "Summary: three locks",
        (
            "Three locks: the broker's for the queue, the process's for the tasks of the queue, and one for the "
            "call against the rebalance."
        ),
        members.queue_changes_hands,
        (
            Focus.QUEUES,
            Focus.LOCKS,
            Focus.CALLS,
            Focus.CACHE,
        ),
        members.handover,
    ),
)
