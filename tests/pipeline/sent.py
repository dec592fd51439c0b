"""What a topic holds, read without Spark; and what is true of rows that a sink sent."""

from lockstep.client.blocking import Addresses
from lockstep.pipeline.sink.dedup import ROW_PROPERTY, TASK_PROPERTY
from lockstep.protocol.messages.message import MessageExt, decode_messages

__all__ = ["contiguous_rewinds", "row_of", "sent", "task_of"]


def sent(name_server: str, topic: str) -> dict[int, list[MessageExt]]:
    """Every message by queue, in the order of offsets."""
    found: dict[int, list[MessageExt]] = {}
    with Addresses((name_server,), timeout_ms=30_000).open() as client:
        for queue in client.readable_queues(topic):
            messages = found[queue.queue_id] = []
            end, offset = client.max_offset(queue), client.min_offset(queue)
            while offset < end:
                reply = client.pull(queue, offset, 1000)
                messages += decode_messages(reply.body)
                assert reply.next_begin_offset > offset, "a pull goes on"
                offset = reply.next_begin_offset
    return found


def row_of(message: MessageExt) -> int:
    return int(message.properties[ROW_PROPERTY])


def task_of(message: MessageExt) -> tuple[str, int, int]:
    """(query, batch, partition)"""
    query, batch, partition = message.properties[TASK_PROPERTY].split("/")
    return query, int(batch), int(partition)


def contiguous_rewinds(rows: list[int]) -> int:
    """How often the rows of one queue and task went back; fails when one was left out or came early.

    The right order is that of the numbers: each row is followed by the next of them, or by an earlier one.
    """
    expected = sorted(set(rows))
    rewinds, position = 0, -1
    for row in rows:
        at = expected.index(row)
        assert at <= position + 1, f"row {row} came after {expected[position]}, before {expected[position + 1]}"
        rewinds += at <= position
        position = at
    return rewinds
