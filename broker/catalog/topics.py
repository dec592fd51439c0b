"""The topics of a broker: their queues and permissions, and who may create them (wire.md 4.7, 8.4, 10.4)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from lockstep.broker.config import BrokerConfig
from lockstep.protocol.bodies.broker import DataVersion, TopicConfig
from lockstep.protocol.bodies.config import TopicBegin
from lockstep.protocol.codes import Permission
from lockstep.protocol.errors import LocalProtocolError
from lockstep.protocol.names import (
    DEFAULT_TOPIC,
    OP_HALF_TOPIC,
    SYSTEM_TOPICS,
    check_topic,
    dead_letter_topic,
    is_journal,
    is_retry_topic,
    is_system_topic,
    reply_topic,
    retry_topic,
)

__all__ = ["QUEUE_NUMS_MAX", "TopicConfigManager"]

# Our limit: a route lists every queue, so a typing error must not create a billion.
QUEUE_NUMS_MAX: Final = 16_384
_READ_WRITE: Final = int(Permission.READ | Permission.WRITE)
_INHERIT: Final = int(Permission.INHERIT)
_CLUSTER_QUEUE_NUMS: Final = 16
_SCHEDULE_QUEUE_NUMS: Final = 18  # one for each delay level
_BENCHMARK_QUEUE_NUMS: Final = 1024
_SINCE_EVER: Final = TopicBegin()


class TopicConfigManager:
    """The table of topics, with the built-in ones from the start.

    At most `topics_max` topics, with `queues_max` queues in all, are created by sends and administrators. Retry and
    dead letter topics of groups are created above these limits too. The queues of built-in topics do not count. A topic
    counts with the most queues that it has had: messages of the others stay until it is deleted.

    Attributes:
        deletions: Number of topics deleted so far.
        log_end: Returns the end of the commit log, where a topic that is created now begins.
        on_delete: Called with the name of each topic that was deleted, after `on_change`.
    """

    def __init__(
        self,
        config: BrokerConfig,
        on_full: Callable[[str, int, int], None],
        on_change: Callable[[Sequence[str]], None],
    ) -> None:
        """
        Args:
            on_full: Called with "topics_max" or "queues_max", its value and epoch ms when a topic is refused.
            on_change: Called after each change, when the data version has changed too, with the names of the topics
                that are new, changed or deleted.
        """
        self._topics_max = config.topics_max
        self._queues_max = config.queues_max
        self._on_full = on_full
        self._on_change = on_change
        self._version = DataVersion(0, 0)
        self._begins: dict[str, TopicBegin] = {}  # of topics that are not built in
        self.log_end: Callable[[], int] = _no_log
        self.on_delete: Callable[[str], None] = lambda _: None
        self.deletions = 0
        cluster, broker_name = config.cluster, config.broker_name
        traces = [config.trace_topic] if config.trace_topic_enable else []
        self._own = frozenset({cluster, broker_name, reply_topic(cluster), *traces})
        full = _READ_WRITE | _INHERIT
        built_in = [
            ("SELF_TEST_TOPIC", 1, _READ_WRITE),
            *([(DEFAULT_TOPIC, config.default_topic_queue_nums, full)] if config.auto_create_topics else ()),
            ("BenchmarkTest", _BENCHMARK_QUEUE_NUMS, _READ_WRITE),
            (cluster, _CLUSTER_QUEUE_NUMS, full),
            (broker_name, 1, full),
            ("OFFSET_MOVED_EVENT", 1, _READ_WRITE),
            ("SCHEDULE_TOPIC_XXXX", _SCHEDULE_QUEUE_NUMS, _READ_WRITE),
            (reply_topic(cluster), 1, _READ_WRITE),
            *[(topic, 1, _READ_WRITE) for topic in traces],
        ]
        self._table = {topic: TopicConfig(topic, nums, nums, perm) for topic, nums, perm in built_in}
        self._widths: dict[str, int] = {}  # of each topic that is not built in, the most queues that it has had
        self.queue_count = 0

    def restore(
        self, topics: Iterable[TopicConfig], data_version: DataVersion, begins: Mapping[str, TopicBegin] | None = None
    ) -> None:
        """Load the topics of an earlier run; built-in topics that it did not have stay.

        The topic of transaction marks and the journals of pops have queues, but are neither listed nor routed, and
        nobody may send to them (wire.md 11, 18.5).
        """
        for config in topics:
            if config.topic_name != OP_HALF_TOPIC and not is_journal(config.topic_name):
                self._keep(config)
        self._begins.update(begins or {})
        self._version = data_version

    def is_system(self, topic: str) -> bool:
        """Whether a topic belongs to RocketMQ, to this broker or to its cluster. It cannot be changed or deleted."""
        return topic in self._own or is_system_topic(topic)

    def system_topics(self) -> tuple[str, ...]:
        """All system topics: RocketMQ's, whether they exist or not, and those of this broker."""
        return tuple(sorted(SYSTEM_TOPICS | self._own))

    @property
    def data_version(self) -> DataVersion:
        return self._version

    @property
    def topics(self) -> Iterable[TopicConfig]:
        return self._table.values()

    def get(self, topic: str) -> TopicConfig | None:
        return self._table.get(topic)

    def put(self, config: TopicConfig, now_ms: int) -> bool:
        """Create or change a topic. Returns whether anything changed."""
        topic = config.topic_name
        known = self._table.get(topic)
        if known == config:
            return False
        if known is None and not self.is_system(topic):  # system topics are never deleted
            self._begins[topic] = TopicBegin(self.log_end(), now_ms)
        self._keep(config)
        self._changed((topic,), now_ms)
        return True

    def _keep(self, config: TopicConfig) -> None:
        topic = config.topic_name
        self._table[topic] = config
        if not self.is_system(topic):
            self.queue_count += self._growth(topic, _width(config))
            self._widths[topic] = max(_width(config), self._widths.get(topic, 0))

    def _growth(self, topic: str, width: int) -> int:
        """How many more queues there are when a topic has `width` of them."""
        return max(width - self._widths.get(topic, 0), 0)

    def set_ordered(self, topics: Iterable[str], now_ms: int) -> None:
        """Mark topics for which a name server has an order configuration; unknown topics are ignored (wire.md 2.7)."""
        known = [config for topic in topics if (config := self._table.get(topic)) is not None and not config.order]
        if known:
            ordered = [config._replace(order=True) for config in known]
            self._table.update({config.topic_name: config for config in ordered})
            self._changed([config.topic_name for config in ordered], now_ms)

    def check_put(self, config: TopicConfig, now_ms: int) -> None:
        """Check that an administrator may create or change this topic. Raises LocalProtocolError with the reason."""
        self.check_name(config.topic_name)
        for what, queue_nums in (("read", config.read_queue_nums), ("write", config.write_queue_nums)):
            if not 0 <= queue_nums <= QUEUE_NUMS_MAX:
                raise LocalProtocolError(f"{what} queues must number 0 to {QUEUE_NUMS_MAX}, not {queue_nums}")
        self._check_capacity(config.topic_name, _width(config), now_ms)
        if config.perm & ~(_READ_WRITE | _INHERIT):
            raise LocalProtocolError(f"perm must be a sum of 4 (read), 2 (write) and 1 (inherit), not {config.perm}")

    def check_name(self, topic: str) -> None:
        """Check that an administrator may change a topic of this name. Raises LocalProtocolError with the reason."""
        check_topic(topic)
        if self.is_system(topic):
            raise LocalProtocolError(f"topic {topic!r} is the broker's own")

    def delete(self, topic: str, now_ms: int) -> bool:
        """Returns whether the topic existed. Name servers keep its route until it is deleted there (wire.md 2.7)."""
        if self._table.pop(topic, None) is None:
            return False
        self.queue_count -= self._widths.pop(topic, 0)
        self._begins.pop(topic, None)
        self.deletions += 1
        self._changed((topic,), now_ms)
        self.on_delete(topic)
        return True

    @property
    def begins(self) -> Mapping[str, TopicBegin]:
        """Topic -> where it begins; none for topics that are built in, or older than these notes. A live view."""
        return self._begins

    def begin_of(self, topic: str) -> TopicBegin:
        """Where a topic begins; all zeros when it is not known."""
        return self._begins.get(topic, _SINCE_EVER)

    def is_gone(self, topic: str, log_offset: int) -> bool:
        """Whether a message for `topic`, stored at this commit log offset, was for a topic that was deleted since."""
        return topic not in self._table or log_offset < self.begin_of(topic).log_offset

    def log_ends_at(self, log_offset: int) -> None:
        """A crash has cut the log there: no topic begins behind its end, or the next messages would count as older."""
        for topic, begin in self._begins.items():
            self._begins[topic] = begin._replace(log_offset=min(begin.log_offset, log_offset))

    def register_all(self, now_ms: int) -> None:
        """Raise the data version, so that name servers read the whole table again."""
        self._changed(tuple(self._table), now_ms)

    def _changed(self, topics: Sequence[str], now_ms: int) -> None:
        self._version = DataVersion(self._version.counter + 1, now_ms)
        self._on_change(topics)

    def _check_capacity(self, topic: str, width: int, now_ms: int) -> None:
        """Raises LocalProtocolError when a topic would exceed `topics_max`, or with its queues `queues_max`."""
        if topic not in self._table and len(self._table) >= self._topics_max:
            self._on_full("topics_max", self._topics_max, now_ms)
            raise LocalProtocolError(f"no more topics: the broker's setting topics_max is {self._topics_max}")
        if not self.has_room_for(self._growth(topic, width), now_ms):
            raise LocalProtocolError(
                f"topic {topic!r} with {width} queues would be too many: the topics here have {self.queue_count}, and "
                f"the broker's setting queues_max is {self._queues_max}"
            )

    def has_room_for(self, queue_nums: int, now_ms: int) -> bool:
        """Whether the topics of this broker may have so many more queues in all."""
        if not queue_nums or self.queue_count + queue_nums <= self._queues_max:
            return True
        self._on_full("queues_max", self._queues_max, now_ms)
        return False

    def create_by_send(
        self, topic: str, default_topic: str, client_queue_nums: int, retry_queue_nums: int, now_ms: int
    ) -> TopicConfig | None:
        """Create the topic of a send to an unknown name; None when a send may not create it (wire.md 4.7, step 4).

        Raises LocalProtocolError when `topics_max` or `queues_max` is reached.
        """
        model = self._table.get(default_topic)
        if model is not None and model.perm & _INHERIT:
            queue_nums = max(0, min(client_queue_nums, model.write_queue_nums))
            config = TopicConfig(topic, queue_nums, queue_nums, model.perm & ~_INHERIT)
        elif is_retry_topic(topic):
            config = TopicConfig(topic, retry_queue_nums, retry_queue_nums, _READ_WRITE)
        else:
            return None
        self._check_capacity(topic, _width(config), now_ms)
        self.put(config, now_ms)
        return config

    def ensure_retry_topic(self, consumer_group: str, queue_nums: int, now_ms: int) -> TopicConfig:
        return self._ensure(retry_topic(consumer_group), queue_nums, now_ms)

    def ensure_pop_retry_topic(self, topic: str, now_ms: int) -> TopicConfig:
        return self._ensure(topic, 1, now_ms)

    def ensure_system_topic(self, topic: str, now_ms: int) -> TopicConfig:
        """Create a topic of RocketMQ at its first use."""
        return self._ensure(topic, 1, now_ms)

    def ensure_dead_letter_topic(self, consumer_group: str, now_ms: int) -> TopicConfig:
        return self._ensure(dead_letter_topic(consumer_group), 1, now_ms)

    def _ensure(self, topic: str, queue_nums: int, now_ms: int) -> TopicConfig:
        config = self._table.get(topic)
        if config is None:
            config = TopicConfig(topic, queue_nums, queue_nums, _READ_WRITE)
            self.put(config, now_ms)
        return config


def _no_log() -> int:
    return 0


def _width(config: TopicConfig) -> int:
    return max(config.read_queue_nums, config.write_queue_nums)
