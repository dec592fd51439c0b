"""Settings of pull and lite pull consumers, with RocketMQ's defaults and names (wire.md 12.10)."""

from dataclasses import dataclass, fields

from lockstep.client.config import LAST_OFFSET, ClientConfig, ConsumerConfig, check_pull_times
from lockstep.client.setting_units import LOCAL_TIME, MIB
from lockstep.protocol.bodies.heartbeat import ConsumeFromWhere
from lockstep.remoting.settings import SettingError, setting

__all__ = ["LitePullConsumerConfig", "PullConsumerConfig", "member_config"]

_INT32_MAX = 2**31 - 1
_RANGES = (
    ("pull_batch_size", 1, 1024),
    ("auto_commit_interval_ms", 1000, _INT32_MAX),
    *((name, 1, _INT32_MAX) for name in (
        "consumer_pull_timeout_ms", "pull_timeout_ms", "pull_suspend_ms", "rebalance_interval_ms",
        "persist_consumer_offset_interval_ms", "pull_threshold_for_all", "pull_threshold_for_queue",
        "pull_threshold_bytes_for_queue", "consume_max_span", "topic_metadata_check_interval_ms",
        "topic_metadata_check_first_ms", "pull_delay_when_exception_ms", "pull_delay_when_offset_unknown_ms",
        "pull_delay_when_paused_ms", "pull_delay_when_flow_control_ms", "pull_delay_when_broker_flow_control_ms",
    )),
    ("poll_timeout_ms", 0, _INT32_MAX),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PullConsumerConfig(ClientConfig):
    """The settings of a pull consumer. Times in milliseconds.

    Args:
        pull_suspend_ms: how long a broker may hold a pull that waits for a message.
        pull_timeout_ms: how long the answer to such a pull may take.
        consumer_pull_timeout_ms: how long the answer to any other pull may take.
    """

    consumer_pull_timeout_ms: int = setting(10_000, name="consumerPullTimeoutMillis")
    pull_suspend_ms: int = setting(20_000, name="brokerSuspendMaxTimeMillis")
    pull_timeout_ms: int = setting(30_000, name="consumerTimeoutMillisWhenSuspend")
    rebalance_interval_ms: int = setting(20_000, name="rocketmq.client.rebalance.waitInterval")
    persist_consumer_offset_interval_ms: int = setting(5_000, name="persistConsumerOffsetInterval")
    persist_consumer_offset_first_ms: int = 10_000
    # The folder for the offsets of a broadcasting consumer; each client id has a folder in it.
    local_offset_folder: str = setting("~/.rocketmq_offsets", name="rocketmq.client.localOffsetStoreDir")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, low, high in _RANGES:
            value = getattr(self, name, low)
            if not low <= value <= high:
                raise SettingError(f"{name} must be from {low} to {high}, not {value}")
        check_pull_times(self.pull_suspend_ms, self.pull_timeout_ms)


@dataclass(frozen=True, kw_only=True)
class LitePullConsumerConfig(PullConsumerConfig):
    """The settings of a lite pull consumer. Times in milliseconds.

    Args:
        pull_threshold_for_all: counts waiting pulls times `pull_batch_size`, as RocketMQ does.
    """

    consume_from_where: ConsumeFromWhere = setting(LAST_OFFSET, name="consumeFromWhere")  # noqa: RUF009 - a field
    # For CONSUME_FROM_TIMESTAMP, in epoch ms; None: 30 minutes before the start.
    consume_timestamp_ms: int | None = setting(None, name="consumeTimestamp", unit=LOCAL_TIME)
    auto_commit: bool = setting(True, name="autoCommit")
    auto_commit_interval_ms: int = setting(5_000, name="autoCommitIntervalMillis")
    poll_timeout_ms: int = setting(5_000, name="pollTimeoutMillis")
    pull_batch_size: int = setting(10, name="pullBatchSize")
    pull_threshold_for_all: int = setting(10_000, name="pullThresholdForAll")
    pull_threshold_for_queue: int = setting(1000, name="pullThresholdForQueue")
    pull_threshold_bytes_for_queue: int = setting(100 * 1024 * 1024, name="pullThresholdSizeForQueue", unit=MIB)
    consume_max_span: int = setting(2000, name="consumeMaxSpan")
    topic_metadata_check_interval_ms: int = setting(30_000, name="topicMetadataCheckIntervalMillis")
    topic_metadata_check_first_ms: int = 10_000
    pull_delay_when_exception_ms: int = setting(1000, name="pullTimeDelayMillsWhenException")
    pull_delay_when_offset_unknown_ms: int = 3000
    pull_delay_when_paused_ms: int = 1000
    pull_delay_when_flow_control_ms: int = 50
    pull_delay_when_broker_flow_control_ms: int = 20


def member_config(config: PullConsumerConfig) -> ConsumerConfig:
    """Return the settings that every member of a group has, for the parts that all consumers share.

    A push consumer gives up a queue that was not pulled for 120 s; these consumers do not (wire.md 12.3).
    """
    names = {f.name for f in fields(ConsumerConfig)}
    own = {f.name: getattr(config, f.name) for f in fields(config) if f.name in names}
    return ConsumerConfig(**own, pull_max_idle_ms=_INT32_MAX)
