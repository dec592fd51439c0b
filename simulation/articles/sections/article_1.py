"""Article 1, section by section."""

from typing import Final

from lockstep.simulation.articles.section import Section
from lockstep.simulation.articles.stories import listener, locks, members, offsets, pulls, sends
from lockstep.simulation.lab.event_texts import Focus

__all__ = ["SECTIONS"]

SECTIONS: Final = (
    Section(
        "1/1",
        "1 Global order",
        (
            "One queue for a topic makes the order of all messages global, because one member has it and handles "
            "one message at a time. It is also a bottleneck."
        ),
        sends.one_queue,
        (
            Focus.SENDS,
            Focus.LOCKS,
            Focus.CALLS,
        ),
        sends.one_order_for_all,
    ),
    Section(
        "1/2",
        "2 Order within each queue",
        (
            "Most uses need order only within one business id, such as an order. Its messages go to one queue and "
            "are handled one after the other."
        ),
        listener.message_suspends,
        (
            Focus.CALLS,
            Focus.CACHE,
        ),
        listener.pauses,
    ),
    Section(
        "1/2.1",
        "2.1 Producing in order",
        (
            "A selector chooses the queue of each message: the id of the order modulo the number of queues. The "
            "sends of one order follow each other."
        ),
        sends.orders_by_id,
        (
            Focus.SENDS,
            Focus.CALLS,
        ),
        sends.queues_by_id,
    ),
    Section(
        "1/2.2",
        "2.2 Consuming in order",
        (
            "A consumer with an orderly listener starts: routes, a heartbeat to the brokers, then a rebalance, "
            "which locks its queues before they are pulled."
        ),
        members.consumer_starts,
        (
            Focus.MEMBERS,
            Focus.QUEUES,
            Focus.LOCKS,
            Focus.OFFSETS,
            Focus.PULLS,
        ),
        members.start_order,
    ),
    Section(
        "1/2.2.1",
        "2.2.1 The timer that locks queues in batches",
        "A timer renews the locks of all queues with LOCK_BATCH_MQ: first after 1 s, then each 20 s.",
        locks.holder_renews,
        (
            Focus.LOCKS,
            Focus.CACHE,
        ),
        locks.renewals,
    ),
    Section(
        "1/2.2.2",
        "2.2.2 The broker answers LOCK_BATCH_MQ",
        (
            "The broker grants a free queue, renews the lock of its owner, and refuses the others, until the lock "
            "was not renewed for more than 60 s."
        ),
        locks.holder_is_killed,
        (Focus.LOCKS,),
        locks.expiry,
    ),
    Section(
        "1/2.2.3",
        "2.2.3 Rebalance of an orderly consumer",
        ("A rebalance locks a new queue before it is added. A refused queue is left out until the next rebalance."),
        locks.second_member_waits,
        (
            Focus.QUEUES,
            Focus.LOCKS,
            Focus.CACHE,
        ),
        locks.refusal_and_grant,
    ),
    Section(
        "1/2.2.4",
        "2.2.4 The pull request of an orderly consumer",
        (
            "A locked queue is pulled from the offset that was read under its lock. The offset to commit goes "
            "along, and the broker waits 15 s for messages."
        ),
        pulls.pull_waits,
        (
            Focus.LOCKS,
            Focus.OFFSETS,
            Focus.PULLS,
        ),
        pulls.commits_along,
    ),
    Section(
        "1/2.2.5",
        "2.2.5 The offset where a queue begins",
        ("A queue begins at the stored offset. Without one the setting counts: the end, the beginning or a time."),
        offsets.queue_begins,
        (
            Focus.OFFSETS,
            Focus.PULLS,
        ),
        offsets.beginnings,
    ),
    Section(
        "1/2.2.6",
        "2.2.6 The broker answers a query for an offset",
        "The broker answers the stored offset; 0 for a young queue of a new group; else QUERY_NOT_FOUND.",
        pulls.first_offset_is_gone,
        (Focus.OFFSETS,),
        pulls.answers_to_queries,
    ),
    Section(
        "1/2.2.7",
        "2.2.7 Consuming what was pulled",
        (
            "Messages are taken from the ProcessQueue in the order of their offsets. An exception or SUSPEND puts "
            "them back, and the queue waits."
        ),
        listener.exception_suspends,
        (
            Focus.CALLS,
            Focus.CACHE,
            Focus.OFFSETS,
        ),
        listener.waits_after_exceptions,
    ),
)
