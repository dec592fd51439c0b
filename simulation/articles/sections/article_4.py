"""Article 4, section by section."""

from typing import Final

from lockstep.simulation.articles.section import Section
from lockstep.simulation.articles.stories import concurrent, listener, locks, members, pulls
from lockstep.simulation.lab.event_texts import Focus

__all__ = ["SECTIONS"]

SECTIONS: Final = (
    Section(
        "4/1",
        "1 Receiving the broker's answer",
        ("An answer is matched with its request by its opaque. An answer to a request that was given up is not used."),
        locks.late_answer_is_ignored,
        (Focus.LOCKS,),
        locks.lateness,
    ),
    Section(
        "4/2-success",
        "2 PullCallback: onSuccess",
        (
            "FOUND puts messages into the ProcessQueue. OFFSET_ILLEGAL drops the queue; 10 s later the broker's "
            "offset is stored and the queue removed."
        ),
        pulls.first_offset_is_gone,
        (
            Focus.QUEUES,
            Focus.PULLS,
            Focus.CACHE,
            Focus.OFFSETS,
        ),
        pulls.illegal_offset,
    ),
    Section(
        "4/2-exception",
        "2 PullCallback: onException",
        "A pull that fails or times out comes again 3 s later.",
        pulls.broker_restarts,
        (Focus.PULLS,),
        pulls.retried_pull,
    ),
    Section(
        "4/3",
        "3 Ordered consumption: the three locks",
        ("Three locks keep the order: of the broker for a queue, of the process for its tasks, and of a call."),
        members.queue_changes_hands,
        (
            Focus.LOCKS,
            Focus.CALLS,
            Focus.QUEUES,
        ),
        members.handover,
    ),
    Section(
        "4/3.1",
        "3.1 Calling the listener",
        (
            "A run takes one batch after the other into the second map and calls the listener, while the queue is "
            "locked and not dropped."
        ),
        listener.exception_suspends,
        (
            Focus.CALLS,
            Focus.CACHE,
        ),
        listener.waits_after_exceptions,
    ),
    Section(
        "4/3.2",
        "3.2 What came of the call",
        (
            "SUCCESS commits; SUSPEND puts back and waits. With manual commit SUCCESS only goes on, COMMIT "
            "commits, and ROLLBACK puts all back."
        ),
        listener.manual_commit,
        (
            Focus.CALLS,
            Focus.CACHE,
            Focus.OFFSETS,
        ),
        listener.taken_and_committed,
    ),
    Section(
        "4/3.3",
        "3.3 Locking again before consuming",
        ("Without the lock a task asks for it with LOCK_BATCH_MQ. Granted, it runs 10 ms later; refused, 3 s later."),
        locks.cut_off_holder_stops,
        (
            Focus.LOCKS,
            Focus.CALLS,
        ),
        locks.granted_again,
    ),
    Section(
        "4/4.1",
        "4.1 Concurrent consumption: calling the listener",
        (
            "Each task calls the listener by itself. What is done leaves the ProcessQueue, and the first offset "
            "that is left is the offset to commit."
        ),
        concurrent.slow_message_holds_the_offset,
        (
            Focus.CALLS,
            Focus.CACHE,
            Focus.OFFSETS,
        ),
        concurrent.offset_waits,
    ),
    Section(
        "4/4.2",
        "4.2 Sending failed messages back",
        (
            "A failed message is sent back to its broker with CONSUMER_SEND_MSG_BACK. The broker chooses the "
            "delay by the number of tries."
        ),
        concurrent.failed_message_comes_back,
        (
            Focus.CALLS,
            Focus.RETRIES,
        ),
        concurrent.retry_delays,
    ),
)
