"""Article 5, section by section."""

from typing import Final

from lockstep.simulation.articles.section import Section
from lockstep.simulation.articles.stories import concurrent, listener, members, offsets, pulls
from lockstep.simulation.lab.event_texts import Focus

__all__ = ["SECTIONS"]

SECTIONS: Final = (
    Section(
        "5/1",
        "1 Start",
        "The section introduces push, pull and long polling, and how a consumer is used. It has no mechanism.",
    ),
    Section(
        "5/1-in-order",
        "1 Start, in order",
        (
            "The start in its order: subscriptions, offset store, service, registration, timers, pull service, "
            "rebalance, a heartbeat, the first rebalance."
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
        "5/2-balance",
        "2 Load balance among consumers",
        (
            "Each member shares out all queues among all members with the same strategy, so that they agree "
            "without talking: like pages, by default."
        ),
        members.members_share,
        (Focus.QUEUES,),
        members.shares,
    ),
    Section(
        "5/2-table",
        "2 Updating the table",
        (
            "Queues of others are dropped from the table; new ones get a ProcessQueue, and a pull request from "
            "the stored offset."
        ),
        members.queue_changes_hands,
        (
            Focus.QUEUES,
            Focus.CACHE,
            Focus.OFFSETS,
            Focus.PULLS,
        ),
        members.handover,
    ),
    Section(
        "5/2-process-queue",
        "2 ProcessQueue",
        (
            "The ProcessQueue has the messages that are pulled and not handled, by offset. Taken ones wait in a "
            "second map for commit or rollback."
        ),
        listener.manual_commit,
        (
            Focus.CACHE,
            Focus.CALLS,
        ),
        listener.taken_and_committed,
    ),
    Section(
        "5/3",
        "3 Pulling by long polling",
        (
            "A pull is answered at once when messages are there. Else the broker holds it, until one comes or 15 "
            "s have passed."
        ),
        pulls.pull_waits,
        (
            Focus.PULLS,
            Focus.CALLS,
        ),
        pulls.holding,
    ),
    Section(
        "5/4",
        "4 Concurrent consumption",
        (
            "Without order tasks of a pool call the listener. Failures are sent back one by one, and handled "
            "messages are removed."
        ),
        concurrent.failed_message_comes_back,
        (
            Focus.CALLS,
            Focus.CACHE,
            Focus.RETRIES,
            Focus.OFFSETS,
        ),
        concurrent.retry_delays,
    ),
    Section(
        "5/5",
        "5 Ordered consumption",
        (
            "In order: the queue is locked, one task calls the listener, one message at a time, and success moves "
            "the offset."
        ),
        listener.message_suspends,
        (
            Focus.LOCKS,
            Focus.CALLS,
            Focus.CACHE,
            Focus.OFFSETS,
        ),
        listener.pauses,
    ),
    Section(
        "5/6",
        "6 Pull consumers",
        "The application of a pull consumer asks for a queue's messages itself, and keeps its offsets.",
        offsets.application_pulls,
        (
            Focus.PULLS,
            Focus.OFFSETS,
        ),
        offsets.by_hand,
    ),
    Section(
        "5/7",
        "7 Shutdown",
        (
            "The end: running calls end, offsets are stored, locks are released, the client unregisters, and "
            "timers and connections end."
        ),
        members.consumer_ends,
        (
            Focus.CALLS,
            Focus.OFFSETS,
            Focus.LOCKS,
            Focus.QUEUES,
            Focus.MEMBERS,
        ),
        members.goodbye,
    ),
)
