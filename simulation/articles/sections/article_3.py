"""Article 3, section by section."""

from typing import Final

from lockstep.simulation.articles.section import Section
from lockstep.simulation.articles.stories import concurrent, listener, locks, members, offsets, pulls
from lockstep.simulation.lab.event_texts import Focus

__all__ = ["SECTIONS"]

SECTIONS: Final = (
    Section(
        "3/heartbeats",
        "Heartbeats",
        (
            "Consumers send heartbeats to all brokers. A broker drops a member that is silent for 120 s, and "
            "notifies the others."
        ),
        members.member_is_missed,
        (
            Focus.MEMBERS,
            Focus.QUEUES,
            Focus.LOCKS,
        ),
        members.silence,
    ),
    Section(
        "3/push-mode",
        "Push mode",
        "Push is a client that pulls, and pulls again.",
        pulls.pull_waits,
        (
            Focus.PULLS,
            Focus.CALLS,
        ),
        pulls.holding,
    ),
    Section(
        "3/pull-service",
        "PullMessageService",
        ("One thread takes pull requests from a queue. An exception does not end it: the request is made again."),
        pulls.broker_restarts,
        (
            Focus.PULLS,
            Focus.CALLS,
        ),
        pulls.retried_pull,
    ),
    Section(
        "3/pull-request",
        "PullRequest",
        (
            "The rebalance makes a pull request for each new queue, with its group, its ProcessQueue and its next "
            "offset, when the lock is granted."
        ),
        members.consumer_starts,
        (
            Focus.QUEUES,
            Focus.LOCKS,
            Focus.OFFSETS,
            Focus.PULLS,
        ),
        members.start_order,
    ),
    Section(
        "3/pull-service-pull",
        "pullMessage of PullMessageService",
        ("The service finds the consumer of the request's group. When there is none any more the request is dropped."),
        members.consumer_ends,
        (
            Focus.MEMBERS,
            Focus.PULLS,
        ),
        members.last_pull,
    ),
    Section(
        "3/push-consumer-pull",
        "pullMessage of DefaultMQPushConsumerImpl",
        (
            "A pull is not made for a dropped, throttled or unlocked queue. It asks for 32 messages, and carries "
            "the committed offset when there is one."
        ),
        pulls.pull_waits,
        (
            Focus.PULLS,
            Focus.OFFSETS,
            Focus.CACHE,
        ),
        pulls.commits_along,
    ),
    Section(
        "3/flow-control",
        "Flow control",
        (
            "With more than 1 000 messages of a queue in its cache a client waits 50 ms and looks again. 100 MiB "
            "and a span of 2 000 are limits too."
        ),
        pulls.cache_is_full,
        (
            Focus.PULLS,
            Focus.OFFSETS,
        ),
        pulls.thresholds,
    ),
    Section(
        "3/pull-kernel",
        "pullKernelImpl",
        (
            "The pull goes to the broker of the queue, with offset, number, flags, the offset to commit and the "
            "time to wait."
        ),
        pulls.pull_waits,
        (
            Focus.PULLS,
            Focus.OFFSETS,
        ),
        pulls.commits_along,
    ),
    Section(
        "3/client-api-pull",
        "pullMessage of MQClientAPIImpl",
        (
            "Pulls are asynchronous. Their answer becomes a pull result, or they fail: not sent, timed out, or "
            "ended with the connection."
        ),
        pulls.broker_restarts,
        (
            Focus.PULLS,
            Focus.OFFSETS,
        ),
        pulls.retried_pull,
    ),
    Section(
        "3/pull-callback",
        "PullCallback",
        (
            "FOUND moves the next offset and hands on what the filter of tags leaves. Without a message the "
            "offset to commit moves too, when nothing is cached."
        ),
        pulls.tags_are_filtered,
        (
            Focus.PULLS,
            Focus.CACHE,
            Focus.CALLS,
            Focus.OFFSETS,
        ),
        pulls.unwanted_tags,
    ),
    Section(
        "3/consume-service",
        "ConsumeMessageService",
        "The section names the calls of an interface: start, shutdown, size of the pool, submit. It has no mechanism.",
    ),
    Section(
        "3/concurrent",
        "Concurrent consumption",
        "Pulled messages become tasks of one message each for a pool of threads.",
        concurrent.slow_message_holds_the_offset,
        (
            Focus.PULLS,
            Focus.CALLS,
            Focus.CACHE,
        ),
        concurrent.offset_waits,
    ),
    Section(
        "3/results",
        "What came of a call, and commits",
        (
            "CONSUME_SUCCESS with an ack index says how many of a call are done. The others are sent back, and "
            "all leave the ProcessQueue."
        ),
        concurrent.batch_is_half_done,
        (
            Focus.CALLS,
            Focus.CACHE,
            Focus.RETRIES,
            Focus.OFFSETS,
        ),
        concurrent.ack_index,
    ),
    Section(
        "3/retry-queues",
        "Retry queues",
        (
            "Failed messages wait at a delay level, one level longer each time, and come again from the group's "
            "retry topic."
        ),
        concurrent.failed_message_comes_back,
        (
            Focus.CALLS,
            Focus.RETRIES,
            Focus.RETRY_QUEUE,
        ),
        concurrent.retry_delays,
    ),
    Section(
        "3/committing-offsets",
        "Committing offsets",
        (
            "Offsets are kept in memory and stored on the broker by a timer. What was handled since then is "
            "handled again after a crash."
        ),
        offsets.killed_before_the_timer,
        (
            Focus.OFFSETS,
            Focus.PULLS,
        ),
        offsets.repeats,
    ),
    Section(
        "3/offset-value",
        "The value of an offset",
        (
            "Without order the offset is the smallest one that is not done, whatever is done above it. Therefore "
            "the span is limited to 2 000."
        ),
        concurrent.span_is_full,
        (
            Focus.PULLS,
            Focus.CACHE,
            Focus.OFFSETS,
        ),
        concurrent.span,
    ),
    Section(
        "3/ordered",
        "Ordered consumption",
        (
            "One task works on a queue, and takes messages from the ProcessQueue. Without the lock it asks for "
            "it: again after 10 ms when granted, else after 3 s."
        ),
        locks.cut_off_holder_stops,
        (
            Focus.LOCKS,
            Focus.CALLS,
            Focus.CACHE,
        ),
        locks.granted_again,
    ),
    Section(
        "3/ordered-commits",
        "Committing progress in order",
        "With auto commit each success moves the offset. With manual commit only COMMIT does.",
        listener.manual_commit,
        (
            Focus.CALLS,
            Focus.CACHE,
            Focus.OFFSETS,
        ),
        listener.taken_and_committed,
    ),
    Section(
        "3/ordered-retries",
        "Retrying in order",
        (
            "A suspended message comes again after 1 s. At its limit of retries it becomes a dead letter, and the "
            "next message goes on."
        ),
        listener.endless_message_is_given_up,
        (
            Focus.CALLS,
            Focus.RETRIES,
            Focus.CACHE,
            Focus.OFFSETS,
        ),
        listener.dead_letter,
    ),
)
