"""Topics: which requests may create them, with how many queues, and notices of every change (wire.md 4.7, 8.4)."""

from collections.abc import Sequence

import pytest

from lockstep.broker.catalog.topics import QUEUE_NUMS_MAX, TopicConfigManager
from lockstep.broker.config import BrokerConfig
from lockstep.protocol.bodies.broker import DataVersion, TopicConfig
from lockstep.protocol.errors import LocalProtocolError
from tests.broker.helpers import NOW_MS
from tests.rows import by_row


class Topics:
    def __init__(
        self,
        *,
        auto_create: bool = True,
        topics_max: int = 100,
        queues_max: int = 1000,
        trace_topic: str | None = None,
    ) -> None:
        self.changes = 0
        self.told: list[str] = []
        self.full: list[tuple[str, int, int]] = []
        config = BrokerConfig(
            cluster="C",
            broker_name="b",
            auto_create_topics=auto_create,
            default_topic_queue_nums=4,
            trace_topic_enable=trace_topic is not None,
            trace_topic=trace_topic or "unused",
            topics_max=topics_max,
            queues_max=queues_max,
        )
        self.manager = TopicConfigManager(config, lambda *facts: self.full.append(facts), self._count)

    def _count(self, topics: Sequence[str]) -> None:
        self.changes += 1
        self.told += topics

    def create(self, topic: str, default_topic: str = "TBW102", queue_nums: int = 4) -> TopicConfig | None:
        return self.manager.create_by_send(topic, default_topic, queue_nums, 1, NOW_MS)


def test_the_topic_of_traces_is_there_when_it_is_wanted() -> None:
    """One queue, under the configured name; it cannot be changed or deleted (wire.md 8.4)."""
    assert Topics().manager.get("RMQ_SYS_TRACE_TOPIC") is None
    manager = Topics(trace_topic="traces").manager
    assert manager.get("traces") == TopicConfig("traces", 1, 1, 6)
    assert "traces" in manager.system_topics()
    with pytest.raises(LocalProtocolError, match="'traces' is the broker's own"):
        manager.check_name("traces")


def test_the_built_in_topics() -> None:
    """RocketMQ's, with its numbers of queues; three of them with the right to be inherited from (wire.md 8.4)."""
    shown = {config.topic_name: (config.read_queue_nums, config.perm) for config in Topics().manager.topics}
    assert shown == {
        "SELF_TEST_TOPIC": (1, 6),
        "TBW102": (4, 7),
        "BenchmarkTest": (1024, 6),
        "C": (16, 7),
        "b": (1, 7),
        "OFFSET_MOVED_EVENT": (1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 6),
        "C_REPLY_TOPIC": (1, 6),
    }
    assert Topics(auto_create=False).manager.get("TBW102") is None


@pytest.mark.parametrize(("asked", "made"), [(4, 4), (2, 2), (8, 4), (0, 0), (-3, 0)])
def test_a_topic_made_by_a_send_has_the_fewer_queues_of_client_and_default(asked: int, made: int) -> None:
    """min(client's number, TBW102's), never below 0; readable and writable, not inherited from."""
    topics = Topics()
    assert topics.create("T", queue_nums=asked) == TopicConfig("T", made, made, 6)
    assert topics.changes == 1


def test_a_send_makes_no_topic_from_one_that_may_not_be_inherited() -> None:
    """An unknown default topic, one without the bit, or auto creation turned off."""
    topics = Topics()
    topics.create("T")
    assert topics.create("U", default_topic="T") is None
    assert topics.create("U", default_topic="nowhere") is None
    assert Topics(auto_create=False).create("U") is None


def test_a_retry_topic_is_made_by_a_send_even_with_auto_creation_off() -> None:
    """One queue, read and write."""
    assert Topics(auto_create=False).create("%RETRY%G") == TopicConfig("%RETRY%G", 1, 1, 6)


def test_retry_and_dead_letter_topics_are_made_once() -> None:
    """A second call finds them and sends no notice."""
    topics = Topics()
    assert topics.manager.ensure_retry_topic("G", 2, NOW_MS) == TopicConfig("%RETRY%G", 2, 2, 6)
    assert topics.manager.ensure_dead_letter_topic("G", NOW_MS) == TopicConfig("%DLQ%G", 1, 1, 6)
    topics.manager.ensure_retry_topic("G", 2, NOW_MS)
    assert topics.changes == 2


def test_a_change_raises_the_version_and_an_equal_put_does_not() -> None:
    """Name servers read the table again only when the version moved."""
    topics = Topics()
    assert topics.manager.put(TopicConfig("T", 4, 4), NOW_MS)
    assert topics.manager.data_version == (1, NOW_MS)
    assert not topics.manager.put(TopicConfig("T", 4, 4), NOW_MS + 1)
    assert topics.manager.put(TopicConfig("T", 8, 8), NOW_MS + 1)
    assert topics.manager.data_version == (2, NOW_MS + 1)
    assert topics.changes == 2


def test_a_deleted_topic_is_gone_and_the_version_moves() -> None:
    """So that no later registration restores it; deleting an unknown topic changes nothing."""
    topics = Topics()
    topics.create("T")
    assert topics.manager.delete("T", NOW_MS + 5)
    assert (topics.manager.get("T"), topics.manager.data_version, topics.changes) == (None, (2, NOW_MS + 5), 2)
    assert not topics.manager.delete("T", NOW_MS)
    assert topics.changes == 2


def test_system_topics_are_rocketmqs_and_those_named_after_the_broker_and_its_cluster() -> None:
    """Whether they are there or not."""
    listed = Topics().manager.system_topics()
    assert {"C", "b", "C_REPLY_TOPIC", "TBW102", "RMQ_SYS_TRANS_HALF_TOPIC"} <= set(listed)
    assert all(Topics().manager.is_system(topic) for topic in listed)
    assert not Topics().manager.is_system("T")


@by_row(
    "config",
    [
        TopicConfig(""),
        TopicConfig("no spaces"),
        TopicConfig("x" * 128),
        TopicConfig("TBW102"),
        TopicConfig("C"),
        TopicConfig("b"),
        TopicConfig("C_REPLY_TOPIC"),
        TopicConfig("BenchmarkTest"),
        TopicConfig("rmq_sys_anything"),
        TopicConfig("SCHEDULE_TOPIC_XXXX"),
        TopicConfig("T", -1, 4),
        TopicConfig("T", 4, QUEUE_NUMS_MAX + 1),
        TopicConfig("T", 4, 4, 8),
    ],
)
def test_what_an_administrator_may_not_make(config: TopicConfig) -> None:
    """Illegal and reserved names, impossible queue numbers and permissions."""
    with pytest.raises(LocalProtocolError):
        Topics().manager.check_put(config, NOW_MS)


def test_with_as_many_topics_as_there_may_be_nobody_makes_another() -> None:
    """Neither a send nor an administrator can create one, and a log event says so. Known topics may be changed, and a
    group still gets its retry topic."""
    topics = Topics(topics_max=9)
    assert topics.create("ninth") is not None
    with pytest.raises(LocalProtocolError, match="topics_max is 9"):
        topics.create("tenth")
    with pytest.raises(LocalProtocolError, match="topics_max is 9"):
        topics.manager.check_put(TopicConfig("tenth"), NOW_MS)
    assert topics.full == [("topics_max", 9, NOW_MS)] * 2
    topics.manager.check_put(TopicConfig("ninth", 8, 8), NOW_MS)
    assert topics.manager.ensure_retry_topic("G", 1, NOW_MS).topic_name == "%RETRY%G"
    assert topics.create("tenth", default_topic="none") is None


def test_with_as_many_queues_as_there_may_be_nobody_makes_another() -> None:
    """Of all topics together, those that are built in do not count. A topic with fewer queues than before has as many
    until it is deleted: their messages are still there."""
    topics = Topics(queues_max=10)
    put, check = topics.manager.put, topics.manager.check_put
    put(TopicConfig("T", 2, 6), NOW_MS)
    assert topics.create("S") is not None
    for refused in (TopicConfig("R", 1, 1), TopicConfig("T", 7, 1)):
        with pytest.raises(
            LocalProtocolError, match="the topics here have 10, and the broker's setting queues_max is 10"
        ):
            check(refused, NOW_MS)
    with pytest.raises(LocalProtocolError, match="queues_max is 10"):
        topics.create("R")
    assert topics.full == [("queues_max", 10, NOW_MS)] * 3
    put(TopicConfig("T", 1, 1), NOW_MS)
    check(TopicConfig("T", 6, 6), NOW_MS)
    with pytest.raises(LocalProtocolError, match="queues_max is 10"):
        check(TopicConfig("R", 1, 1), NOW_MS)
    assert topics.manager.ensure_retry_topic("G", 1, NOW_MS).topic_name == "%RETRY%G", "above the limit"
    topics.manager.delete("T", NOW_MS)
    check(TopicConfig("R", 5, 5), NOW_MS)
    with pytest.raises(LocalProtocolError, match="topic 'R' with 6 queues would be too many"):
        check(TopicConfig("R", 6, 6), NOW_MS)


def test_queues_of_an_earlier_run_count() -> None:
    """Also more of them than are allowed now; the topics stay as they are."""
    topics = Topics(queues_max=10)
    topics.manager.restore([TopicConfig("T", 16, 16), TopicConfig("BenchmarkTest", 1024, 1024)], DataVersion(1, 1))
    assert topics.manager.queue_count == 16
    topics.manager.check_put(TopicConfig("T", 16, 8), NOW_MS)
    with pytest.raises(LocalProtocolError, match="queues_max is 10"):
        topics.manager.check_put(TopicConfig("S", 1, 1), NOW_MS)


def test_journals_of_another_broker_are_no_topics() -> None:
    """RocketMQ 5 has them in its table. Whoever could send to one could forge what a start reads there."""
    topics = Topics()
    names = ("rmq_sys_REVIVE_LOG_DefaultCluster", "rmq_sys_LOCKSTEP_POPS", "T")
    topics.manager.restore([TopicConfig(name, 1, 1) for name in names], DataVersion(1, 1))
    assert [topics.manager.get(name) is not None for name in names] == [False, False, True]


def test_a_change_is_told_with_the_topics_that_are_new_changed_or_deleted() -> None:
    """All topics only when all must be read again."""
    topics = Topics()
    topics.create("T")
    topics.manager.set_ordered(["T", "elsewhere"], NOW_MS)
    topics.manager.delete("T", NOW_MS)
    assert (topics.told, topics.changes) == (["T", "T", "T"], 3)
    topics.manager.register_all(NOW_MS)
    assert topics.told[3:] == [config.topic_name for config in topics.manager.topics]
