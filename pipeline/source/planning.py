"""On the driver: which queues, and from which offset to which. Nothing is read yet but to find a time.

Queues that a text of offsets or an assignment names must be those that there are: as with Kafka's source, a queue that
is left out, or that is not there, is an error that names it.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from pyspark.sql.datasource import InputPartition

from lockstep.pipeline.client.blocking import Addresses, BlockingClient
from lockstep.pipeline.errors import DataLossError, OptionError, TopicError
from lockstep.pipeline.options import Options
from lockstep.pipeline.source.offsets import EARLIEST, LATEST, Offsets, OffsetSpec
from lockstep.pipeline.source.slices import split_slices
from lockstep.pipeline.source.times import first_offset_at
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import DEAD_LETTER_PREFIX, RETRY_PREFIX, is_system_topic

__all__ = [
    "QueueSlice",
    "addresses_of",
    "batch_slices",
    "check_start",
    "lost_text",
    "queues_of",
    "resolve",
    "starting_spec",
]

DEFAULT_GROUP: Final = "lockstep-pipeline"
_EARLIEST_SPEC: Final = OffsetSpec("earliest")
_LATEST_SPEC: Final = OffsetSpec("latest")


class QueueSlice(InputPartition):
    """Offsets `start` to `end`, without the last, of one queue. It pickles."""

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
    )


def queues_of(client: BlockingClient, options: Options) -> list[MessageQueue]:
    """The queues that there are now of what was subscribed or assigned, sorted. Raises TopicError, RemotingError."""
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
    """Topics of users; a broker's own, retries and dead letters are read by name alone."""
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
    """An offset for every queue. `name` is the option's. Raises OptionError, RemotingError."""
    if spec.by_queue:
        missing = [queue for queue in queues if queue not in spec.by_queue]
        unknown = [queue for queue in spec.by_queue if queue not in queues]
        if missing or unknown:
            raise OptionError(
                f"option {name} must name every queue that is read, and no other: "
                f"it lacks {_listed(missing)}; it has besides {_listed(unknown)}"
            )
    resolver = _RESOLVERS[spec.kind]
    return {queue: resolver(client, queue, spec.by_queue.get(queue, spec.timestamp_ms), strategy) for queue in queues}


def starting_spec(options: Options, default: OffsetSpec) -> tuple[OffsetSpec, str]:
    """(what was asked for, under which name)."""
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
    """What a batch reads. Raises OptionError, TopicError, DataLossError, RemotingError."""
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
    return [QueueSlice(*part) for part in split_slices(ranges, options.min_partitions)]


def check_start(client: BlockingClient, queue: MessageQueue, start: int, end: int, *, fail: bool) -> int:
    """Where to begin: `start`, or the first offset that is left when older ones may be lost. Raises DataLossError."""
    first = client.min_offset(queue)
    if start >= first or start >= end:
        return start
    if fail:
        raise DataLossError(lost_text(queue, start, min(first, end), f"the broker has {first} and later"))
    return min(first, end)


def lost_text(queue: MessageQueue, start: int, end: int, why: str) -> str:
    """What both a plan and a read say when messages are gone."""
    return (
        f"queue {queue}: the messages {start} to {end - 1} are lost: {why}. They were deleted by age or size, or the "
        "topic was made anew; the option failOnDataLoss=false goes on without them"
    )
