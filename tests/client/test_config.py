"""Settings of the clients: RocketMQ's defaults, and relations that must hold."""

import time
from typing import Any

import pytest

from lockstep.client import ConsumeFromWhere, ConsumerConfig, LitePullConsumerConfig, MessageModel, ProducerConfig
from lockstep.remoting.settings import SettingError, as_properties, with_properties
from tests.rows import by_row

# wire.md 7.3, 12.1 and 12.12, under RocketMQ's own names.
DEFAULTS: dict[str, Any] = {
    "consumeMessageBatchMaxSize": 1,
    "consumeThreadMax": 20,
    "maxReconsumeTimes": -1,
    "suspendCurrentQueueTimeMillis": 1000,
    "pullBatchSize": 32,
    "pullInterval": 0,
    "pullThresholdForQueue": 1000,
    "brokerSuspendMaxTimeMillis": 15_000,
    "consumerTimeoutMillisWhenSuspend": 30_000,
    "rocketmq.client.pull.pullMaxIdleTime": 120_000,
    "rocketmq.client.rebalance.waitInterval": 20_000,
    "rocketmq.client.rebalance.lockInterval": 20_000,
    "rocketmq.client.rebalance.lockMaxLiveTime": 30_000,
    "rocketmq.client.unlockDelayTimeMills": 20_000,
    "rocketmq.client.maxTimeConsumeContinuously": 60_000,
    "persistConsumerOffsetInterval": 5000,
    "heartbeatBrokerInterval": 30_000,
    "pollNameServerInterval": 30_000,
    "mqClientApiTimeout": 3000,
}
PRODUCER_DEFAULTS = {
    "sendMsgTimeout": 3000,
    "retryTimesWhenSendFailed": 2,
    "maxMessageSize": 4_194_304,
    "defaultTopicQueueNums": 4,
}


@by_row("name", DEFAULTS)
def test_consumer_defaults_are_rocketmqs(name: str) -> None:
    """Given its default under RocketMQ's name, nothing changes; given another value, something does."""
    config = ConsumerConfig()
    assert with_properties(config, {name: str(DEFAULTS[name])}) == config
    assert with_properties(config, {name: str(DEFAULTS[name] + 1)}) != config


@by_row(
    "name, text, field, value",
    [
        ("consumeThreadMin", "5", "consume_threads", 5),
        ("consumeThreadMax", "30", "consume_threads", 30),
        ("consumeTimeout", "2", "consume_timeout_ms", 120_000),
        (
            "consumeFromWhere",
            "CONSUME_FROM_FIRST_OFFSET",
            "consume_from_where",
            ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        ),
        ("pullThresholdSizeForQueue", "3", "pull_threshold_bytes_for_queue", 3 * 1024 * 1024),
        ("pullThresholdSizeForTopic", "-1", "pull_threshold_bytes_for_topic", -1),
        ("pullThresholdSizeForTopic", "7", "pull_threshold_bytes_for_topic", 7 * 1024 * 1024),
        ("messageModel", "BROADCASTING", "message_model", MessageModel.BROADCASTING),
        ("postSubscriptionWhenPull", "true", "post_subscription_when_pull", True),
        ("unitMode", "true", "unit_mode", True),
    ],
)
def test_properties_have_rocketmqs_names_and_units(name: str, text: str, field: str, value: object) -> None:
    """A broker that asks gets them as they were given."""
    config = with_properties(ConsumerConfig(), {name: text})
    assert getattr(config, field) == value
    assert as_properties(config)[name] == text


@pytest.mark.parametrize("config", [ConsumerConfig(), LitePullConsumerConfig()])
def test_the_time_to_consume_from_is_local(config: ConsumerConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Java reads it, in the zone of the machine."""
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    try:
        given = with_properties(config, {"consumeTimestamp": "20131223171201"})
        assert given.consume_timestamp_ms == 1_387_789_921_000
        assert as_properties(given)["consumeTimestamp"] == "20131223171201"
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("consumeTimeout", "1.5", "a whole number of minutes"),
        ("pullThresholdSizeForQueue", "100M", "a whole number of MiB"),
        ("consumeTimestamp", "2013-12-23", "a local time as yyyyMMddHHmmss, such as 20131223171201"),
        ("consumeTimestamp", "20131323171201", "a local time as yyyyMMddHHmmss, such as 20131223171201"),
        ("consumeTimestamp", "1387789921000", "a local time as yyyyMMddHHmmss, such as 20131223171201"),
    ],
)
def test_text_in_another_unit_is_refused(name: str, text: str, wanted: str) -> None:
    """The error names the property and the allowed values in one line."""
    with pytest.raises(SettingError, match=f"property '{name}' must be {wanted}, not '{text}'"):
        with_properties(ConsumerConfig(), {name: text})


def test_at_least_so_many_threads_are_not_more_than_at_most() -> None:
    """As RocketMQ checks them at the start."""
    with pytest.raises(SettingError, match=r"consume_thread_min \(21\) must not be over consume_thread_count \(20, "):
        ConsumerConfig(consume_thread_min=21)
    assert ConsumerConfig(consume_thread_min=20).consume_threads == 20


@pytest.mark.parametrize("name", PRODUCER_DEFAULTS)
def test_producer_defaults_are_rocketmqs(name: str) -> None:
    """The same for producers."""
    config = ProducerConfig()
    assert with_properties(config, {name: str(PRODUCER_DEFAULTS[name])}) == config
    assert with_properties(config, {name: str(PRODUCER_DEFAULTS[name] + 1)}) != config


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"lock_interval_ms": 29_000}, r"lock_interval_ms \(29000\) \+ lock_timeout_ms \(1000\) must be below "),
        ({"lock_timeout_ms": 10_000}, r"lock_interval_ms \(20000\) \+ lock_timeout_ms \(10000\) must be below "),
        ({"lock_first_delay_ms": 29_000}, r"lock_first_delay_ms \(29000\) \+ lock_timeout_ms \(1000\) must be below "),
    ],
)
def test_a_renewal_is_answered_while_its_holder_trusts_the_lock(settings: dict[str, int], text: str) -> None:
    """Or every queue would pause each round: the time of the answer counts, and the text has all three numbers."""
    with pytest.raises(SettingError, match=text + r"lock_max_live_time_ms \(30000\): a renewal must be answered"):
        ConsumerConfig(**settings)  # type: ignore[arg-type]
    ((name, value),) = settings.items()
    with_properties(ConsumerConfig(), {name: str(value - 1)})


def test_a_lock_request_has_time_for_its_answer() -> None:
    """With less than a round trip no lock is ever granted."""
    with pytest.raises(SettingError, match=r"lock_timeout_ms \(99\) must be at least 100: a request .* take longer"):
        ConsumerConfig(lock_timeout_ms=99)
    ConsumerConfig(lock_timeout_ms=100)


def test_a_delayed_unlock_comes_before_the_lock_expires() -> None:
    """60 s on RocketMQ's brokers, or the life that the client's settings name."""
    with pytest.raises(SettingError, match=r"unlock_delay_ms \(60000\) must be below the life of a lock .* \(60000"):
        ConsumerConfig(unlock_delay_ms=60_000)
    with pytest.raises(SettingError, match=r"unlock_delay_ms \(40000\) must be below the life of a lock .* \(40000"):
        ConsumerConfig(unlock_delay_ms=40_000, broker_lock_max_live_time_ms=40_000)
    ConsumerConfig(unlock_delay_ms=60_000, broker_lock_max_live_time_ms=60_001)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"heartbeat_broker_interval_ms": 120_000, "idle_close_ms": 200_000}, r"\(120000\) must be below 120000: "),
        ({"idle_close_ms": 30_000}, r"\(30000\) must be below idle_close_ms \(30000\): "),
    ],
)
def test_a_client_is_heard_before_its_broker_forgets_it(settings: dict[str, int], text: str) -> None:
    """A member that is forgotten between two heartbeats would lose its queues each time."""
    for config in (ConsumerConfig, ProducerConfig):
        with pytest.raises(SettingError, match="heartbeat_broker_interval_ms " + text):
            config(**settings)  # type: ignore[arg-type]
    ConsumerConfig(idle_close_ms=30_001)


def test_a_queue_is_not_given_up_while_its_pull_waits() -> None:
    """A pull without messages is answered late, and its queue still counts as pulled."""
    with pytest.raises(SettingError, match=r"pull_max_idle_ms \(120000\) must be over pull_timeout_ms \(120000\): "):
        ConsumerConfig(pull_timeout_ms=120_000)
    ConsumerConfig(pull_timeout_ms=119_999)


def test_a_holder_stops_believing_before_the_broker_gives_its_queue_away() -> None:
    """Where the broker's life of a lock is known, the client's must be shorter."""
    with pytest.raises(SettingError, match="a holder must stop before the broker gives its queue to another client"):
        ConsumerConfig(broker_lock_max_live_time_ms=30_000)
    ConsumerConfig(broker_lock_max_live_time_ms=30_001)


def test_a_broker_of_which_nothing_is_said_keeps_a_lock_for_60_s() -> None:
    """A holder that trusts its lock longer must set the broker's life too; one that trusts it for less assumes twice
    that time."""
    with pytest.raises(SettingError, match=r"below broker_lock_max_live_time_ms \(60000\)"):
        ConsumerConfig(lock_max_live_time_ms=60_000)
    ConsumerConfig(lock_max_live_time_ms=60_000, broker_lock_max_live_time_ms=90_000)
    assert ConsumerConfig(lock_max_live_time_ms=45_000).lock_surely_held_ms == 59_000
    assert ConsumerConfig().lock_surely_held_ms == 59_000
    assert ConsumerConfig(lock_max_live_time_ms=5_000, lock_interval_ms=3_000).lock_surely_held_ms == 9_000


@by_row("name",
    ["heartbeat_broker_interval_ms", "poll_name_server_interval_ms", "rebalance_interval_ms", "lock_interval_ms",
     "persist_consumer_offset_interval_ms", "request_timeout_ms", "pull_delay_when_flow_control_ms",
     "pull_delay_when_broker_flow_control_ms"])  # fmt: skip
def test_a_period_of_nothing_is_refused(name: str) -> None:
    """It would be a loop that never waits."""
    for value in (0, -1):
        with pytest.raises(SettingError, match=f"{name} must be from 1 to"):
            with_properties(ConsumerConfig(), {name: str(value)})
    assert getattr(with_properties(ConsumerConfig(), {name: "1"}), name) == 1


@pytest.mark.parametrize(("name", "value"), [("retry_times", -1), ("send_timeout_ms", 0), ("body_bytes_max", 0)])
def test_a_producer_that_could_never_send_is_refused(name: str, value: int) -> None:
    """No attempt, no time, or no byte."""
    with pytest.raises(SettingError, match=f"{name} must be from {value + 1} to"):
        with_properties(ProducerConfig(), {name: str(value)})


def test_a_pull_may_be_held_its_suspend_time_and_a_sweep() -> None:
    """A client that times out first would ask again and again, and leave held pulls behind."""
    with pytest.raises(SettingError, match="the broker may hold a pull that long"):
        ConsumerConfig(pull_timeout_ms=20_000)
    ConsumerConfig(pull_timeout_ms=20_001)


@by_row(
    "name, low, high",
    [
        ("consume_message_batch_max_size", 1, 1024),
        ("pull_batch_size", 1, 1024),
        ("pull_threshold_for_queue", 1, 65535),
        ("pull_interval_ms", 0, 65535),
        ("consume_thread_count", 1, 1000),
        ("consume_concurrently_max_span", 1, 65535),
        ("pull_threshold_for_topic", -1, 6_553_500),
        ("pull_threshold_bytes_for_topic", -1, 102_400 * 1024 * 1024),
        ("consume_timeout_ms", 1, 2**31 - 1),
    ],
)
def test_ranges_are_rocketmqs(name: str, low: int, high: int) -> None:
    """wire.md 12.2: both ends are allowed, and an error names a value beyond them."""
    for value in (low, high):
        with_properties(ConsumerConfig(), {name: str(value)})
    for value in (low - 1, high + 1):
        with pytest.raises(SettingError, match=f"{name} must be from {low} to {high}, not {value}"):
            with_properties(ConsumerConfig(), {name: str(value)})


@pytest.mark.parametrize("name", ["pull_threshold_for_topic", "pull_threshold_bytes_for_topic"])
def test_a_topics_threshold_is_none_or_some(name: str) -> None:
    """-1 is none; 0 would mean that nothing may be pulled (wire.md 12.2)."""
    with pytest.raises(SettingError, match=f"{name} must be -1, for none, or at least 1, not 0"):
        with_properties(ConsumerConfig(), {name: "0"})


@pytest.mark.parametrize("name", ["a/b", "a?b", "a#b", "a b", "a\n"])
def test_a_unit_is_part_of_an_address_and_of_a_folder(name: str) -> None:
    """Text that would lead elsewhere is refused by name."""
    with pytest.raises(SettingError, match=r"unit_name must have no '/', '\?', '#' and no space, not "):
        ConsumerConfig(unit_name=name)
    ConsumerConfig(unit_name="east-1")
