"""Plans a read on the driver: which queues, and which offsets of each.

An option with offsets must name every queue that is read, and no other, as with Kafka's source. The error names the
queue that is missing or unknown.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from pyspark.sql.datasource import InputPartition

from lockstep.client.blocking import Addresses, BlockingClient
from lockstep.client.errors import TopicNotFoundError
from lockstep.pipeline.errors import DataLossError, OptionError, TopicError
from lockstep.pipeline.offsets import ANY_BROKER, EARLIEST, LATEST, Offsets, OffsetSpec
from lockstep.pipeline.options import Options
from lockstep.protocol.errors import BodyError
from lockstep.protocol.messages.message import decode_messages
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import DEAD_LETTER_PREFIX, RETRY_PREFIX, is_system_topic

__all__ = [
    "QueueSlice",
    "addresses_of",
    "batch_slices",
    "check_start",
    "first_offset_at",
    "lost_text",
    "queues_of",
    "resolve",
    "split_slices",
    "starting_spec",
]

Range = tuple[MessageQueue, int, int]  # queue, first offset, offset after the last

DEFAULT_GROUP: Final = "lockstep-pipeline"
_EARLIEST_SPEC: Final = OffsetSpec("earliest")
_LATEST_SPEC: Final = OffsetSpec("latest")


class QueueSlice(InputPartition):
    """Offsets `start` to `end`, without `end`, of one queue. It pickles."""

    def __init__(self, queue: MessageQueue, start: int, end: int) -> None:
        super().__init__(tuple(queue))
        self.queue = queue
        self.start = start
        self.end = end

    def __repr__(self) -> str:
        return f"QueueSlice({self.queue}, {self.start}, {self.end})"


def addresses_of(options: Options) -> Addresses:
    return Addresses(
        tuple(map(str, options.name_servers)),
        options.group or DEFAULT_GROUP,
        options.pull_timeout_ms,
        options.retries,
        options.retry_interval_ms,
        credentials=options.credentials,
        tls=options.tls,
    )


def queues_of(client: BlockingClient, options: Options) -> list[MessageQueue]:
    """The existing queues of the subscription or assignment, sorted. Raises TopicError, RemotingError."""
    try:
        return _queues_of(client, options)
    except TopicNotFoundError as error:
        raise TopicError(str(error)) from None


def _queues_of(client: BlockingClient, options: Options) -> list[MessageQueue]:
    if options.assign is not None:
        return _assigned(client, options.assign)
    topics = options.topics if options.pattern is None else _matching(client, options.pattern)
    queues = []
    for topic in topics:
        found = client.readable_queues(topic)
        if not found:
            raise TopicError(f"topic {topic!r} has no queue that may be read")
        queues += found
    return sorted(queues)


def _matching(client: BlockingClient, pattern: str) -> list[str]:
    """Users' topics. Topics of the broker, retries and dead letters must be named in full."""
    whole = re.compile(pattern)
    found = [
        topic
        for topic in client.topics()
        if whole.fullmatch(topic)
        and not is_system_topic(topic)
        and not topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
        and client.readable_queues(topic)
    ]
    if not found:
        raise TopicError(f"no topic matches the subscribePattern {pattern!r}")
    return found


def _assigned(client: BlockingClient, assign: Iterable[tuple[str, str | None, int]]) -> list[MessageQueue]:
    wanted: dict[MessageQueue, None] = {}
    for topic, broker, queue_id in assign:
        there = client.readable_queues(topic)
        found = [queue for queue in there if queue.queue_id == queue_id and broker in (None, queue.broker_name)]
        if not found:
            name = f"{topic}@{broker or '(any broker)'}:{queue_id}"
            raise TopicError(f"option assign: there is no queue {name}; there are {_listed(there)}")
        wanted.update(dict.fromkeys(found))
    return sorted(wanted)


def _listed(queues: Iterable[MessageQueue]) -> str:
    return ", ".join(map(str, queues)) or "none"


def _earliest(client: BlockingClient, queue: MessageQueue, _value: int, _strategy: str) -> int:
    return client.min_offset(queue)


def _latest(client: BlockingClient, queue: MessageQueue, _value: int, _strategy: str) -> int:
    return client.max_offset(queue)


def _given(client: BlockingClient, queue: MessageQueue, value: int, _strategy: str) -> int:
    if value == EARLIEST:
        return client.min_offset(queue)
    return client.max_offset(queue) if value == LATEST else value


def _at(client: BlockingClient, queue: MessageQueue, value: int, strategy: str) -> int:
    found = first_offset_at(client, queue, value)
    if found is not None:
        return found
    if strategy == "error":
        raise OptionError(
            f"queue {queue} has no message of epoch ms {value} or later; "
            "startingOffsetsByTimestampStrategy=latest begins at its end then"
        )
    return client.max_offset(queue)


_RESOLVERS: Final[Mapping[str, Callable[[BlockingClient, MessageQueue, int, str], int]]] = {
    "earliest": _earliest,
    "latest": _latest,
    "offsets": _given,
    "timestamp": _at,
    "timestamps": _at,
}


def resolve(
    client: BlockingClient, queues: list[MessageQueue], spec: OffsetSpec, name: str, strategy: str = "latest"
) -> Offsets:
    """The offset of every queue. `name` is the option's. Raises OptionError, RemotingError."""
    by_queue = _with_brokers(queues, spec.by_queue, name)
    if by_queue:
        missing = [queue for queue in queues if queue not in by_queue]
        unknown = [queue for queue in by_queue if queue not in queues]
        if missing or unknown:
            raise OptionError(
                f"option {name} must name every queue that is read, and no other: "
                f"it lacks {_listed(missing)}; it has besides {_listed(unknown)}"
            )
    resolver = _RESOLVERS[spec.kind]
    return {queue: resolver(client, queue, by_queue.get(queue, spec.timestamp_ms), strategy) for queue in queues}


def _with_brokers(queues: list[MessageQueue], by_queue: Mapping[MessageQueue, int], name: str) -> Offsets:
    """Name the broker of queues in Kafka's shape. Raises OptionError where several brokers have the topic."""
    result = {}
    for queue, value in by_queue.items():
        brokers = sorted({known.broker_name for known in queues if known.topic == queue.topic})
        if queue.broker_name == ANY_BROKER and len(brokers) > 1:
            raise OptionError(
                f"option {name}: topic {queue.topic!r} is on the brokers {', '.join(brokers)}, so each offset needs"
                f' its broker; allowed: {{"{queue.topic}":{{"{brokers[0]}":{{"{queue.queue_id}":{value}}}}}}}'
            )
        if queue.broker_name == ANY_BROKER and brokers:
            queue = queue._replace(broker_name=brokers[0])
        result[queue] = value
    return result


def first_offset_at(client: BlockingClient, queue: MessageQueue, timestamp_ms: int) -> int | None:
    """The first message of a time or later, by binary search: store times never fall along a queue.

    RocketMQ's own search is not used. It names the nearest message, which may be older (wire.md 8.2).

    Returns:
        The offset; None when every message is older.

    Raises:
        RemotingError
    """
    low, high = client.min_offset(queue), client.max_offset(queue)
    end = high
    while low < high:
        middle = (low + high) // 2
        stored = _store_timestamp(client, queue, middle)
        if stored is None or stored < timestamp_ms:  # None: deleted since, with all messages before it
            low = middle + 1
        else:
            high = middle
    return low if low < end else None


def _store_timestamp(client: BlockingClient, queue: MessageQueue, offset: int) -> int | None:
    """When a message was stored. One that cannot be read counts as stored with the next one that can."""
    while True:
        reply = client.pull(queue, offset, 1)
        try:
            messages = decode_messages(reply.body, unzip=False)
        except BodyError:
            offset += 1
            continue
        return messages[0].store_timestamp if messages and messages[0].queue_offset == offset else None


def starting_spec(options: Options, default: OffsetSpec) -> tuple[OffsetSpec, str]:
    """(the option's value, its name)."""
    given: dict[str, OffsetSpec | None] = {
        "startingOffsets": options.starting,
        "startingTimestamp": options.starting_time,
        "startingOffsetsByTimestamp": options.starting_times,
    }
    return next(((spec, name) for name, spec in given.items() if spec), (default, "startingOffsets"))


def _ending_spec(options: Options) -> tuple[OffsetSpec, str]:
    given: dict[str, OffsetSpec | None] = {
        "endingOffsets": options.ending,
        "endingTimestamp": options.ending_time,
        "endingOffsetsByTimestamp": options.ending_times,
    }
    return next(((spec, name) for name, spec in given.items() if spec), (_LATEST_SPEC, "endingOffsets"))


def batch_slices(options: Options) -> list[QueueSlice]:
    """The slices of a batch. Raises OptionError, TopicError, DataLossError, RemotingError."""
    with addresses_of(options).open() as client:
        queues = queues_of(client, options)
        spec, name = starting_spec(options, _EARLIEST_SPEC)
        if spec.kind == "latest":
            raise OptionError("option startingOffsets: 'latest' cannot be in a batch, which would read nothing")
        starts = resolve(client, queues, spec, name, options.starting_strategy)
        ends = resolve(client, queues, *_ending_spec(options))
        for queue, start in starts.items():
            if start > ends[queue] and options.fail_on_data_loss:
                raise OptionError(
                    f"queue {queue}: it is to be read from {start} ({name}), which lies behind its end, {ends[queue]}; "
                    "with failOnDataLoss=false nothing is read of such a queue"
                )
        starts = {
            queue: check_start(client, queue, start, ends[queue], fail=options.fail_on_data_loss)
            for queue, start in starts.items()
        }
    ranges = [(queue, start, ends[queue]) for queue, start in starts.items() if start < ends[queue]]
    return [QueueSlice(*part) for part in split_slices(ranges, options.min_partitions, options.max_records)]


def split_slices(ranges: list[Range], min_partitions: int, max_records: int | None = None) -> Iterator[Range]:
    """Cut long ranges into equal parts, as Kafka's source does it.

    There are at least `min_partitions` parts, or one a message; none has over `max_records` messages.
    """
    total = sum(end - start for _, start, end in ranges)
    for queue, start, end in ranges:
        count = end - start
        # rounded up: the parts of all ranges together are never fewer than asked for
        parts = 1 if len(ranges) >= min_partitions else min(count, -(-count * min_partitions // total))
        if max_records is not None:
            parts = max(parts, -(-count // max_records))
        for i in range(parts):
            yield queue, start + count * i // parts, start + count * (i + 1) // parts


def check_start(client: BlockingClient, queue: MessageQueue, start: int, end: int, *, fail: bool) -> int:
    """The first offset to read: `start`, or the first one still stored if data loss is allowed.

    Raises DataLossError.
    """
    first = client.min_offset(queue)
    if start >= first or start >= end:
        return start
    if fail:
        raise DataLossError(lost_text(queue, start, min(first, end), f"the broker has {first} and later"))
    return min(first, end)


def lost_text(queue: MessageQueue, start: int, end: int, why: str) -> str:
    """The text of plans and reads for deleted messages."""
    return (
        f"queue {queue}: the messages {start} to {end - 1} are lost: {why}. They were deleted by age or size, or the "
        "topic was created again; the option failOnDataLoss=false goes on without them"
    )
