"""The rows that a push consumer gives to metrics. Any thread may read them while the consumer runs."""

from collections import Counter
from typing import Final

from lockstep.client.consumer.dispatch.stats import ConsumerStatsManager
from lockstep.client.consumer.ownership.membership import Membership
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.client.metric_families import Rows

__all__ = ["consumer_rows"]

_STATES: Final = ("held", "waiting", "draining", "needs_none")


def consumer_rows(member: Membership, stats: ConsumerStatsManager) -> Rows:
    """Counters of its topics, and what is in its table at this moment."""
    client = (member.group, member.instance.client_id)
    for topic, totals in stats.totals.items():
        labels = (topic, *client)
        if totals.times is not None:
            yield "rocketmq_process_time", (*labels, "success"), totals.times.handled
            yield "rocketmq_process_time", (*labels, "failure"), totals.times.failed
            yield "rocketmq_await_time", labels, totals.times.waits
        yield "lockstep_client_messages_total", (*labels, "handled"), totals.ok
        yield "lockstep_client_messages_total", (*labels, "failed"), totals.failed
        yield "lockstep_client_pulled_total", labels, totals.pulled
    yield from _queue_rows(member, client)
    yield "lockstep_client_commits_total", client, member.offsets.commits
    yield "lockstep_client_calls_total", (*client, "not_begun"), stats.calls_not_begun
    yield "lockstep_client_calls_total", (*client, "outlived_lock"), stats.calls_outlived
    yield "lockstep_client_calls_total", (*client, "cancelled"), stats.calls_cancelled
    yield "lockstep_client_deliveries_lost_total", client, stats.deliveries_lost


def _queue_rows(member: Membership, client: tuple[str, str]) -> Rows:
    messages, size, states = Counter[str](), Counter[str](), Counter[tuple[str, str]]()
    # In one step, because the event loop may change the table meanwhile.
    for process_queue in member.table.copy().values():
        if not process_queue.life.dropped:
            topic = process_queue.queue.topic
            messages[topic] += process_queue.cache.message_count
            size[topic] += process_queue.cache.message_bytes
            states[topic, _state(process_queue, member)] += 1
    for topic in messages:
        labels = (topic, *client)
        yield "rocketmq_consumer_cached_messages", labels, messages[topic]
        yield "rocketmq_consumer_cached_bytes", labels, size[topic]
        for state in _STATES:
            yield "lockstep_client_queues", (*labels, state), states[topic, state]


def _state(process_queue: ProcessQueue, member: Membership) -> str:
    if not process_queue.hold.needed:
        return "needs_none"
    if process_queue.life.draining:
        return "draining"
    return "held" if member.holds_lock(process_queue) else "waiting"
