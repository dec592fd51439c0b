"""Copies what a broker knows into Samples, in steps of at most about a millisecond on the event loop."""

from collections import Counter
from collections.abc import Callable
from typing import Final

from lockstep.broker.core.broker import Broker
from lockstep.broker.metrics.families import Samples
from lockstep.broker.sliced_work import Steps
from lockstep.protocol.bodies.heartbeat import ConsumeType
from lockstep.protocol.codes import LanguageCode
from lockstep.protocol.names import DEAD_LETTER_PREFIX, is_retry_topic, is_system_topic
from lockstep.protocol.versions import version_name

__all__ = ["scrape"]

_ROWS_A_STEP: Final = 64
_LOCKS_A_STEP: Final = 500
# Each has up to `pop_window_max` messages, all of which are looked at.
_POPPED_QUEUES_A_STEP: Final = 8
_OF_TOPICS: Final = {
    "TOPIC_PUT_NUMS": "rocketmq_messages_in_total",
    "TOPIC_PUT_SIZE": "rocketmq_throughput_in_total",
}
_OF_GROUPS: Final = {
    "GROUP_GET_NUMS": "rocketmq_messages_out_total",
    "GROUP_GET_SIZE": "rocketmq_throughput_out_total",
}
_CONSUME_MODES: Final = {ConsumeType.CONSUME_PASSIVELY: "push", ConsumeType.CONSUME_ACTIVELY: "pull"}


def scrape(broker: Broker, now_ms: int, then: Callable[[Samples], None]) -> Steps:
    """Call `then` with the samples of this moment; while it runs, other work of the loop goes on."""
    config = broker.config
    samples = Samples((config.cluster, "broker", config.broker_name), series_max=config.metrics_series_max)
    for part in (_messages, _progress, _clients, _locks, _pops, _broker):
        yield from part(broker, samples, now_ms)
        yield None
    then(samples)


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _about_topic(topic: str) -> tuple[str, str]:
    return _flag(is_retry_topic(topic)), _flag(is_system_topic(topic))


def _messages(broker: Broker, samples: Samples, _now_ms: int) -> Steps:
    yield from broker.stats.count_in_steps()
    for number, (statistic, key, value) in enumerate(broker.stats.counters(), 1):
        if statistic in _OF_TOPICS:
            samples.set(_OF_TOPICS[statistic], (key, _flag(is_system_topic(key))), value)
            if statistic == "TOPIC_PUT_NUMS" and key.startswith(DEAD_LETTER_PREFIX):
                samples.set("rocketmq_send_to_dlq_messages_total", (key.removeprefix(DEAD_LETTER_PREFIX),), value)
        elif statistic in _OF_GROUPS:
            topic, _, group = key.rpartition("@")
            samples.set(_OF_GROUPS[statistic], (topic, group, *_about_topic(topic)), value)
        if number % _ROWS_A_STEP == 0:
            yield None


def _progress(broker: Broker, samples: Samples, now_ms: int) -> Steps:
    """The lag of each group in each topic: of queues that it has committed, or of which it owns the lock."""
    looked_at = 0
    for topic, group in list(broker.catalog.offsets.table):
        lag, oldest_ms = 0, now_ms
        for queue_id, committed in broker.catalog.offsets.queues_of(group, topic).items():
            first = max(committed, broker.messages.store.min_offset(topic, queue_id))
            behind = broker.messages.store.max_offset(topic, queue_id) - first
            if behind > 0:
                lag += behind
                oldest_ms = min(oldest_ms, broker.messages.store.store_timestamp(topic, queue_id, first) or now_ms)
            looked_at += 1
            if looked_at % _ROWS_A_STEP == 0:
                yield None
        labels = (topic, group, *_about_topic(topic))
        samples.set("rocketmq_consumer_lag_messages", labels, lag)
        samples.set("rocketmq_consumer_lag_latency", labels, now_ms - oldest_ms)
        samples.set("lockstep_oldest_unhandled_seconds", (topic, group), (now_ms - oldest_ms) / 1000)


def _clients(broker: Broker, samples: Samples, _now_ms: int) -> Steps:
    looked_at = 0
    for name, group in list(broker.members.consumers.groups.items()):
        mode = _CONSUME_MODES.get(group.consume_type, "unknown")
        for channel in list(group.channels.values()):
            labels = (name, _language(channel.language), version_name(channel.version), mode)
            samples.add("rocketmq_consumer_connections", labels, 1)
            looked_at += 1
            if looked_at % _ROWS_A_STEP == 0:
                yield None
    for channels in list(broker.members.producers.groups.values()):
        for channel in list(channels.values()):
            samples.add(
                "rocketmq_producer_connections", (_language(channel.language), version_name(channel.version)), 1
            )
            looked_at += 1
            if looked_at % _ROWS_A_STEP == 0:
                yield None


def _language(ordinal: int) -> str:
    try:
        return LanguageCode(ordinal).name
    except ValueError:
        return "OTHER"


def _locks(broker: Broker, samples: Samples, now_ms: int) -> Steps:
    counts, table = broker.ownership.counts, broker.ownership.table
    for group in table.groups():
        held = Counter[str]()
        for number, topic in enumerate(table.held_topics(group, now_ms), 1):
            held[topic] += 1
            if number % _LOCKS_A_STEP == 0:
                yield None
        for topic, count in held.items():
            samples.set("lockstep_lock_held", (group, topic), count)
        yield None
    for outcome, count in counts.outcomes.items():
        samples.set("lockstep_lock_grants_total", (outcome.name.lower(),), count)
    for cause, count in counts.takeovers.items():
        samples.set("lockstep_lock_takeovers_total", (cause.replace(" ", "_"),), count)
    for number, (key, count) in enumerate(list(counts.owner_changes.items()), 1):
        samples.set("lockstep_queue_owner_changes_total", key, count)
        if number % _ROWS_A_STEP == 0:
            yield None
    samples.handovers = (list(counts.handovers), counts.handover_seconds)
    for (act, reason), count in broker.ownership.denials.refused.items():
        samples.set("lockstep_fenced_total", (act.value, reason.value), count)


def _pops(broker: Broker, samples: Samples, now_ms: int) -> Steps:
    pops, oldest_ms = broker.messages.pops, dict[tuple[str, str], int]()
    for number, (topic, group, _, queue) in enumerate(pops.fifo.queues(), 1):
        held_ms = [one.pop_ms for one in queue.under_way() if now_ms < one.visible_ms]
        if held_ms:
            samples.add("lockstep_pop_queues_held", (group, topic), 1)
            oldest_ms[group, topic] = min(*held_ms, oldest_ms.get((group, topic), now_ms))
        if number % _POPPED_QUEUES_A_STEP == 0:
            yield None
    for key, at_ms in oldest_ms.items():
        samples.set("lockstep_pop_oldest_held_seconds", key, (now_ms - at_ms) / 1000)
    for number, ((topic, group), count) in enumerate(list(pops.revived.items()), 1):
        samples.set("rocketmq_pop_revive_retry_messages_total", (group, topic, "PUT_OK"), count)
        if number % _ROWS_A_STEP == 0:
            yield None
    samples.set("rocketmq_pop_checkpoint_buffer_size", (), len(pops.checkpoints))
    samples.set("lockstep_held_pops", (), len(pops.held))
    for number, (group, answers) in enumerate(list(pops.answers.items()), 1):
        for outcome, count in answers.items():
            samples.set("lockstep_pop_answers_total", (group, outcome.name.lower()), count)
        if number % _ROWS_A_STEP == 0:
            yield None


def _broker(broker: Broker, samples: Samples, _now_ms: int) -> Steps:
    samples.set("rocketmq_half_messages", (), len(broker.messages.halves))
    for outcome, count in broker.messages.plain_sends.items():
        if count:
            samples.set("lockstep_plain_sends_total", (outcome,), count)
    samples.set("lockstep_held_pulls", (), len(broker.messages.hold))
    for setting, count in broker.limits.counts.items():
        samples.set("lockstep_limits_met_total", (setting,), count)
    for setting, used in broker.limits.used.items():
        samples.set("lockstep_limit_used", (setting,), used())
    if (grpc := broker.grpc_counts) is not None:
        samples.set("lockstep_grpc_connections", (), grpc.connections)
        samples.set("lockstep_grpc_sessions", (), grpc.sessions())
        samples.set("lockstep_grpc_calls_under_way", (), grpc.under_way)
        for key, count in grpc.ended.items():
            samples.set("lockstep_grpc_calls_total", key, count)
    samples.set("lockstep_series_dropped", (), len(samples.dropped))
    yield None
