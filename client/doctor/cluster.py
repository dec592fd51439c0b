"""What the doctor's rules see of brokers and topics, in all groups together."""

from collections.abc import Iterator
from typing import Final

from lockstep.client.doctor.facts import ClusterFacts
from lockstep.remoting.texts import counted, seconds

__all__ = ["Evidence", "clocks_apart", "limits_met", "queues_changed", "queues_differ"]

_CLOCK_WARN_MS: Final = 1000
_LIMIT_WINDOW_MS: Final = 900_000

Evidence = Iterator[tuple[str, str]]  # where, what was seen


def queues_differ(facts: ClusterFacts) -> Evidence:
    ordered = {queue.topic for group in facts.groups if group.is_ordered for queue in group.queues}
    for topic in sorted(ordered & set(facts.topics)):
        of = facts.topics[topic].queues
        if len({write for _, write in of.values()}) > 1:
            yield f"topic {topic}", ", ".join(f"{broker}: {write}" for broker, (_, write) in sorted(of.items()))


def queues_changed(facts: ClusterFacts) -> Evidence:
    ordered = {queue.topic for group in facts.groups if group.is_ordered for queue in group.queues}
    for topic in sorted(ordered & set(facts.topics)):
        for broker, (read, write) in sorted(facts.topics[topic].queues.items()):
            if read != write:
                yield f"topic {topic}", f"{broker} has {read} queues for reading and {write} for writing"


def clocks_apart(facts: ClusterFacts) -> Evidence:
    for what, ahead_ms in sorted(facts.clocks.items()):
        if abs(ahead_ms) > _CLOCK_WARN_MS:
            yield (
                what,
                f"its clock is {seconds(abs(ahead_ms))} {'ahead of' if ahead_ms > 0 else 'behind'} this machine's",
            )
    for producer, ahead_ms in sorted(facts.producers_ahead.items()):
        if ahead_ms > _CLOCK_WARN_MS:
            yield f"producer {producer}", f"its messages were stored {seconds(ahead_ms)} before they were sent"
    for member in (member for group in facts.groups for member in group.members):
        newest_ms = max((info.last_pull_timestamp for info in member.process_queues.values()), default=0)
        if (ahead_ms := newest_ms - facts.now_ms) > _CLOCK_WARN_MS:
            yield f"client {member.client_id}", f"its clock is {seconds(ahead_ms)} ahead of this machine's"


def limits_met(facts: ClusterFacts) -> Evidence:
    """Limits of brokers that were reached within 15 minutes."""
    for broker, limits in sorted(facts.limits.items()):
        for setting, (count, last_ms) in sorted(limits.items()):
            ago_ms = facts.now_ms - last_ms
            if ago_ms <= _LIMIT_WINDOW_MS:
                times = counted(count, "time")
                yield (
                    broker,
                    f"{setting} was reached {times} since its start, the last one {seconds(max(ago_ms, 0))} ago",
                )
