"""What the tables of a cluster have now: locks and offsets at the brokers, the ProcessQueues of the consumers."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from lockstep.client import MessageQueue, PushConsumer
from lockstep.protocol.bodies.client import ProcessQueueInfo
from lockstep.protocol.names import is_retry_topic
from lockstep.simulation.articles.narration import number
from lockstep.simulation.lab.event_texts import Focus
from lockstep.simulation.lab.recorded_cluster import RecordedCluster

__all__ = ["Row", "Tables", "changes", "queue_name", "queue_text", "tables_of"]

_NONE = "none"


class Row(NamedTuple):
    """The name of a row of a table: the lock of q0, the ProcessQueue of A for q0."""

    focus: Focus
    name: str


Tables = dict[Row, dict[str, str]]  # row -> field -> value


def queue_name(queue: MessageQueue) -> str:
    """q0; "retry q0" for the queue of the group's retry topic."""
    return f"{'retry ' if is_retry_topic(queue.topic) else ''}q{queue.queue_id}"


def queue_text(text: str) -> str:
    """The same for TOPIC@BROKER:QUEUE_ID, as log events have it."""
    topic, _, place = text.partition("@")
    broker, _, queue_id = place.rpartition(":")
    return queue_name(MessageQueue(topic, broker, int(queue_id))) if queue_id.isdigit() else text


def tables_of(cluster: RecordedCluster, before: Tables) -> Tables:
    """A copy of all tables as they stand. While no broker runs, what it had stands as it was `before`."""
    brokers = [name for name in cluster.brokers if cluster.is_up(name)]
    rows = {} if brokers else {row: fields for row, fields in before.items() if "" in fields}
    for name in brokers:
        broker = cluster.core(name)
        for lock in tuple(broker.ownership.table.rows(cluster.world.now_ms, cluster.consumer_group)):
            rows[_row(Focus.LOCKS, "lock of", lock.queue)] = {"": cluster.who(lock.client_id)}
        for (topic, group), offsets in broker.catalog.offsets.table.items():
            if group == cluster.consumer_group:
                for queue_id, offset in sorted(offsets.items()):
                    row = _row(Focus.OFFSETS, "committed offset of", MessageQueue(topic, name, queue_id))
                    rows[row] = {"": number(offset)}
    for name, consumer in cluster.push_consumers():
        rows.update(_process_queues(name, consumer))
    return rows


def _process_queues(name: str, consumer: PushConsumer) -> Iterator[tuple[Row, dict[str, str]]]:
    for queue, info in consumer.process_queues.items():
        yield _row(Focus.CACHE, f"ProcessQueue of {name} for", queue), _process_queue(info)


def _process_queue(info: ProcessQueueInfo) -> dict[str, str]:
    return {
        "locked": "yes" if info.locked else "no",
        "cached": _offsets(info.cached_msg_count, info.cached_msg_min_offset, info.cached_msg_max_offset),
        "taken": _offsets(info.transaction_msg_count, info.transaction_msg_min_offset, info.transaction_msg_max_offset),
        "offset": number(info.commit_offset) if info.commit_offset >= 0 else _NONE,
    }


def _offsets(count: int, first: int, last: int) -> str:
    """The offsets of messages: 3, or 3..7, with their number when some between are gone."""
    if not count:
        return _NONE
    if count == 1:
        return number(first)
    gaps = "" if count == last - first + 1 else f" ({number(count)} of them)"
    return f"{number(first)}..{number(last)}{gaps}"


def _row(focus: Focus, name: str, queue: MessageQueue) -> Row:
    """What is about a retry topic is shown with the retries alone."""
    return Row(Focus.RETRY_QUEUE if is_retry_topic(queue.topic) else focus, f"{name} {queue_name(queue)}")


def changes(before: Mapping[Row, dict[str, str]], after: Mapping[Row, dict[str, str]]) -> Iterator[tuple[Row, str]]:
    """Each row that differs, with what changed in it, from what to what."""
    for row in [*before, *(row for row in after if row not in before)]:
        old, new = before.get(row), after.get(row)
        if old is None:
            assert new is not None
            yield row, "new: " + ", ".join(_field(name, value) for name, value in new.items())
        elif new is None:
            yield row, f"{old['']} -> free" if row.focus is Focus.LOCKS else "removed"
        elif changed := [_field(name, f"{old[name]} -> {value}") for name, value in new.items() if old[name] != value]:
            yield row, ", ".join(changed)


def _field(name: str, text: str) -> str:
    return f"{name} {text}".strip()
