"""Settings of the clients, with the defaults and the names that RocketMQ has for them (wire.md 7.3, 12)."""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from lockstep.client.setting_units import LOCAL_TIME, MIB, MINUTES
from lockstep.protocol.bodies.heartbeat import ConsumeFromWhere, MessageModel
from lockstep.protocol.codes import BODY_BYTES_MAX, SerializeType
from lockstep.protocol.messages.compression import LEVELS, CompressionType
from lockstep.protocol.messages.together import SENDS_BYTES_MAX, SENDS_MAX
from lockstep.protocol.names import DEFAULT_TOPIC
from lockstep.protocol.signature import Credentials
from lockstep.remoting.settings import SettingError, check_types, setting
from lockstep.remoting.tls.options import TlsOptions

__all__ = [
    "CONSUME_THREADS_MAX",
    "DEFAULT_INSTANCE",
    "LAST_OFFSET",
    "ClientConfig",
    "ConsumerConfig",
    "Fenced",
    "ProducerConfig",
    "check_pull_times",
]

DEFAULT_INSTANCE = "DEFAULT"
CONSUME_THREADS_MAX = 1000
_BROKER_LOCK_LIFE_MS = 60_000  # RocketMQ's default (wire.md 7.2)
# A broker may hold a pull so much longer than its suspend time (wire.md 6.4).
_BROKER_SWEEP_MS = 5_000
# A broker removes a member without heartbeats after this time (wire.md 9.3).
_CHANNEL_LIFE_MS = 120_000
_LOCK_TIMEOUT_MIN_MS = 100

LAST_OFFSET: Final = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET


@dataclass(frozen=True, kw_only=True)
class ClientConfig:
    """The settings of every client. Times in milliseconds.

    Args:
        serialize_type: the encoding of headers. MSGPACK is offered to Lockstep brokers, and others get JSON; JSON and
            ROCKETMQ, the binary header, go to every broker and name server.
        instance_name: the second part of the client id. DEFAULT gives every client a name that no other has, but not a
            broadcasting consumer, whose offset file is found by its name (wire.md 12.1).
        name_server_domain: a host, or host:port, that is asked over HTTP for name servers when none is given.
        unit_name: a unit of the deployment, whose name servers the domain is asked for.
        unit_mode: sent to the brokers, which mark topics with it.
        vip_channel_enabled: send messages to the second port of a broker, two below its first. That port serves
            requests that end at once, and no pulls (wire.md 1.1).
        credentials: the account that signs the requests, for brokers with ACL; without it, the environment's
            LOCKSTEP_ACCESS_KEY and LOCKSTEP_SECRET_KEY.
        commit_together: offsets that a consumer stores at one moment leave in one frame to a Lockstep broker.
        tls: how to use TLS; None: plain connections. `tls=` of a client, or LOCKSTEP_TLS of the environment, sets it.

    Raises:
        SettingError: a number is out of range, or two settings contradict each other.
    """

    serialize_type: SerializeType = setting(SerializeType.MSGPACK, name="rocketmq.serialize.type")  # noqa: RUF009 - a field
    instance_name: str = setting(DEFAULT_INSTANCE, name="instanceName")
    connect_timeout_ms: int = 3000
    request_timeout_ms: int = setting(3000, name="mqClientApiTimeout")
    poll_name_server_interval_ms: int = setting(30_000, name="pollNameServerInterval")
    heartbeat_broker_interval_ms: int = setting(30_000, name="heartbeatBrokerInterval")
    idle_close_ms: int = 120_000
    vip_channel_enabled: bool = setting(False, name="vipChannelEnabled")
    unit_mode: bool = setting(False, name="unitMode")
    unit_name: str = setting("", name="unitName")
    name_server_domain: str = setting("", name="rocketmq.namesrv.domain")
    name_server_domain_subgroup: str = setting("nsaddr", name="rocketmq.namesrv.domain.subgroup")
    fetch_name_server_interval_ms: int = 120_000
    commit_together: bool = True
    credentials: Credentials | None = setting(None, text=False)  # noqa: RUF009 - a field
    tls: TlsOptions | None = setting(None, text=False)  # noqa: RUF009 - a field

    def __post_init__(self) -> None:
        check_types(self)
        if not self.instance_name or "/" in self.instance_name:
            raise SettingError(f"instance_name must be a name without '/', not {self.instance_name!r}")
        if _NOT_IN_URL.search(self.unit_name):
            # It becomes a part of a URL and of a folder name.
            raise SettingError(f"unit_name must have no '/', '?', '#' and no space, not {self.unit_name!r}")
        for name, low, high in _RANGES:
            # One table for all clients; not every client has every setting.
            value = getattr(self, name, low)
            if not low <= value <= high:
                raise SettingError(f"{name} must be from {low} to {high}, not {value}")
        if self.heartbeat_broker_interval_ms >= _CHANNEL_LIFE_MS:
            raise SettingError(
                f"heartbeat_broker_interval_ms ({self.heartbeat_broker_interval_ms}) must be below {_CHANNEL_LIFE_MS}: "
                "a broker removes a client without heartbeats after that time, and gives its queues to others"
            )
        if self.heartbeat_broker_interval_ms >= self.idle_close_ms:
            raise SettingError(
                f"heartbeat_broker_interval_ms ({self.heartbeat_broker_interval_ms}) must be below idle_close_ms "
                f"({self.idle_close_ms}): a connection that ends between two heartbeats ends the membership"
            )


def check_pull_times(pull_suspend_ms: int, pull_timeout_ms: int) -> None:
    """Check that a client waits longer for a pull than the broker may hold it. Raises SettingError."""
    held_ms = pull_suspend_ms + _BROKER_SWEEP_MS
    if held_ms >= pull_timeout_ms:
        raise SettingError(
            f"pull_timeout_ms ({pull_timeout_ms}) must be over pull_suspend_ms + {_BROKER_SWEEP_MS} ({held_ms}): "
            "the broker may hold a pull that long"
        )


@dataclass(frozen=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """The settings of a producer.

    Args:
        retry_keyed: repeat a keyed send whose outcome is unknown, in order and with the same UNIQ_KEY. A Lockstep
            broker is asked first, and stores it once.
        compress_msg_body_over_howmuch: compress bodies of at least so many bytes; 0: never.
        compress_type: every consumer reads ZLIB; LZ4 and ZSTD are read by Lockstep, and by Java from 4.9.4 on.
        compress_level: 0 to 9 for ZLIB, 1 to 22 for ZSTD; LZ4 has none.
        create_topic_key: the topic whose brokers create new topics for sends.
        check_request_hold_max: at most so many checks of transactions wait.
        send_together_max: at most so many messages leave in one frame to a Lockstep broker; 1: each by itself.
        send_together_bytes_max: at most so many bytes of a frame; a larger message leaves by itself.
        auto_batch: sends that wait for one queue of a RocketMQ broker leave as one batch, within the two bounds above
            and `body_bytes_max`.
        linger_ms: how long a send waits for others, at most half of its timeout; 0: none waits while no other is under
            way.
    """

    send_timeout_ms: int = setting(3000, name="sendMsgTimeout")
    retry_times: int = setting(2, name="retryTimesWhenSendFailed")
    retry_keyed: bool = False
    body_bytes_max: int = setting(BODY_BYTES_MAX, name="maxMessageSize")
    default_topic_queue_nums: int = setting(4, name="defaultTopicQueueNums")
    create_topic_key: str = setting(DEFAULT_TOPIC, name="createTopicKey")
    compress_msg_body_over_howmuch: int = setting(4096, name="compressMsgBodyOverHowmuch")
    compress_type: CompressionType = setting(CompressionType.ZLIB, name="rocketmq.message.compressType")  # noqa: RUF009
    compress_level: int = setting(5, name="rocketmq.message.compressLevel")
    retry_times_when_send_async_failed: int = setting(2, name="retryTimesWhenSendAsyncFailed")
    retry_another_broker_when_not_store_ok: bool = setting(False, name="retryAnotherBrokerWhenNotStoreOK")
    send_latency_fault_enable: bool = setting(False, name="sendLatencyFaultEnable")
    local_transaction_thread_count: int = 20
    check_thread_pool_size: int = setting(1, name="checkThreadPoolMaxSize")
    check_request_hold_max: int = setting(2000, name="checkRequestHoldMax")
    send_together_max: int = 256
    send_together_bytes_max: int = 256 * 1024
    auto_batch: bool = setting(False, name="autoBatch")
    linger_ms: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = LEVELS[self.compress_type]
        if not low <= self.compress_level <= high:
            kind = self.compress_type.name
            raise SettingError(f"compress_level must be from {low} to {high} for {kind}, not {self.compress_level}")


class Fenced(Enum):
    """Whether a consumer wants fenced locks. REQUIRED: brokers without them are not used."""

    NO = False
    REQUIRED = True
    IF_THE_BROKER_CAN = "if the broker can"


@dataclass(frozen=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    """The settings of a push consumer. Times in milliseconds.

    Raises:
        SettingError: a number is out of range, or two settings contradict each other.
    """

    # For a PushConsumer that is constructed without one.
    message_model: MessageModel = setting(MessageModel.CLUSTERING, name="messageModel")  # noqa: RUF009 - a field
    consume_from_where: ConsumeFromWhere = setting(LAST_OFFSET, name="consumeFromWhere")  # noqa: RUF009 - a field
    # For CONSUME_FROM_TIMESTAMP, in epoch ms; None: 30 minutes before the start.
    consume_timestamp_ms: int | None = setting(None, name="consumeTimestamp", unit=LOCAL_TIME)
    consume_message_batch_max_size: int = setting(1, name="consumeMessageBatchMaxSize")
    consume_thread_count: int = setting(20, name="consumeThreadMax")
    # RocketMQ's pool has this many threads, because its queue of calls is never full; 0: consume_thread_count.
    consume_thread_min: int = setting(0, name="consumeThreadMin")
    key_concurrency: int = 1024  # with ordering="key": calls of an `async def` listener at a time
    key_span_max: int = (
        100_000  # with ordering="key": most offsets from the first one not handled to the last one pulled
    )
    max_reconsume_times: int = setting(-1, name="maxReconsumeTimes")  # -1: no limit in order, 16 without order
    unreadable_to_dead_letters: bool = False  # else the listener gets an unreadable message, see body_error
    consume_timeout_ms: int = setting(15 * 60 * 1000, name="consumeTimeout", unit=MINUTES)
    suspend_current_queue_time_ms: int = setting(1000, name="suspendCurrentQueueTimeMillis")
    await_termination_ms: int = setting(5000, name="awaitTerminationMillisWhenShutdown")

    pull_batch_size: int = setting(32, name="pullBatchSize")
    pull_interval_ms: int = setting(0, name="pullInterval")
    pull_threshold_for_queue: int = setting(1000, name="pullThresholdForQueue")
    pull_threshold_bytes_for_queue: int = setting(100 * 1024 * 1024, name="pullThresholdSizeForQueue", unit=MIB)
    # Of a topic, shared out among its queues of this client; -1: no limit but that of each queue.
    pull_threshold_for_topic: int = setting(-1, name="pullThresholdForTopic")
    pull_threshold_bytes_for_topic: int = setting(-1, name="pullThresholdSizeForTopic", unit=MIB)
    consume_concurrently_max_span: int = setting(2000, name="consumeConcurrentlyMaxSpan")
    # Each pull has the text of the subscription, so the broker need not know it from a heartbeat.
    post_subscription_when_pull: bool = setting(False, name="postSubscriptionWhenPull")
    pull_suspend_ms: int = setting(15_000, name="brokerSuspendMaxTimeMillis")
    pull_timeout_ms: int = setting(30_000, name="consumerTimeoutMillisWhenSuspend")
    pull_max_idle_ms: int = setting(120_000, name="rocketmq.client.pull.pullMaxIdleTime")
    pull_delay_when_exception_ms: int = setting(1000, name="pullTimeDelayMillsWhenException")
    pull_delay_when_flow_control_ms: int = 50
    pull_delay_when_suspended_ms: int = 1000
    pull_delay_when_broker_flow_control_ms: int = 20
    offset_illegal_delay_ms: int = 10_000

    # In POP mode: how long nobody else gets a message that this consumer has; it renews that time while it has it.
    pop_invisible_ms: int = setting(60_000, name="popInvisibleTime")
    # In POP mode: so many messages without an answer of each queue, or of all queues of a broker together.
    pop_threshold_for_queue: int = setting(96, name="popThresholdForQueue")

    rebalance_interval_ms: int = setting(20_000, name="rocketmq.client.rebalance.waitInterval")
    # From the start to the first round, and from round to round at least so long, so that members that join together
    # are one rebalance; a notice after a longer rest is served at once. A round that did not get its share is repeated
    # after it. RocketMQ 5: 1,000; 4.9.8 has none.
    rebalance_min_interval_ms: int = setting(0, name="rocketmq.client.rebalance.minInterval")
    lock_interval_ms: int = setting(20_000, name="rocketmq.client.rebalance.lockInterval")
    lock_first_delay_ms: int = 1000
    lock_max_live_time_ms: int = setting(30_000, name="rocketmq.client.rebalance.lockMaxLiveTime")
    # The life of a lock on the brokers; 0: twice lock_max_live_time_ms, and at most RocketMQ's 60 s.
    broker_lock_max_live_time_ms: int = setting(0, name="rocketmq.broker.rebalance.lockMaxLiveTime")
    lock_timeout_ms: int = 1000
    # For so long after its connection ended, a lock or unlock request without an answer may still be handled.
    lock_settle_ms: int = 20_000
    unlock_delay_ms: int = setting(20_000, name="rocketmq.client.unlockDelayTimeMills")
    consume_continuously_max_ms: int = setting(60_000, name="rocketmq.client.maxTimeConsumeContinuously")
    persist_consumer_offset_interval_ms: int = setting(5_000, name="persistConsumerOffsetInterval")
    persist_consumer_offset_first_ms: int = 10_000
    fenced: Fenced = Fenced.NO  # for a PushConsumer that is constructed without one (docs/fencing.md)
    on_lock_lost: str = "cancel"  # what happens to a running call of an `async def` listener; or "finish"
    # The folder for the offsets of a broadcasting consumer; each client id has a folder in it.
    local_offset_folder: str = setting("~/.rocketmq_offsets", name="rocketmq.client.localOffsetStoreDir")

    @property
    def consume_threads(self) -> int:
        """The number of calls of a plain listener that run at a time."""
        return self.consume_thread_min or self.consume_thread_count

    @property
    def lock_surely_held_ms(self) -> int:
        """For so long after a grant, no broker that did not restart has given the lock to another client."""
        life_ms = self.broker_lock_life_ms
        # The answer to a lock request may be as late as its timeout, and the lock lives from the request on.
        return max(life_ms - self.lock_timeout_ms, self.lock_max_live_time_ms)

    @property
    def broker_lock_life_ms(self) -> int:
        """The life of a lock on the brokers, as far as this client knows."""
        return self.broker_lock_max_live_time_ms or min(2 * self.lock_max_live_time_ms, _BROKER_LOCK_LIFE_MS)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("pull_threshold_for_topic", "pull_threshold_bytes_for_topic"):
            if getattr(self, name) == 0:
                raise SettingError(f"{name} must be -1, for none, or at least 1, not 0")
        if self.consume_thread_min > self.consume_thread_count:
            raise SettingError(
                f"consume_thread_min ({self.consume_thread_min}) must not be over consume_thread_count "
                f"({self.consume_thread_count}, consumeThreadMax)"
            )
        if self.on_lock_lost not in ("cancel", "finish"):
            raise SettingError(f"on_lock_lost must be 'cancel' or 'finish', not {self.on_lock_lost!r}")
        self._check_lock_times()
        check_pull_times(self.pull_suspend_ms, self.pull_timeout_ms)
        if self.pull_timeout_ms >= self.pull_max_idle_ms:
            raise SettingError(
                f"pull_max_idle_ms ({self.pull_max_idle_ms}) must be over pull_timeout_ms ({self.pull_timeout_ms}): "
                "else a queue is given up as not pulled while its pull waits for an answer"
            )

    def _check_lock_times(self) -> None:
        """Check: renew interval + timeout < the client's trust in a lock < its life on the broker (wire.md 7.3)."""
        timeout_ms, live_ms = self.lock_timeout_ms, self.lock_max_live_time_ms
        if timeout_ms < _LOCK_TIMEOUT_MIN_MS:
            raise SettingError(
                f"lock_timeout_ms ({timeout_ms}) must be at least {_LOCK_TIMEOUT_MIN_MS}: "
                "a request to a broker and its answer take longer, and no lock would be granted"
            )
        # A renewal must be answered while the holder still trusts its lock, or each queue would pause each round.
        for name in ("lock_interval_ms", "lock_first_delay_ms"):
            wait_ms = getattr(self, name)
            if wait_ms + timeout_ms >= live_ms:
                raise SettingError(
                    f"{name} ({wait_ms}) + lock_timeout_ms ({timeout_ms}) must be below lock_max_live_time_ms "
                    f"({live_ms}): a renewal must be answered while its holder still trusts the lock"
                )
        # A holder must stop before the broker gives its queue to another client, or two would own it.
        if live_ms >= self.broker_lock_life_ms:
            raise SettingError(
                f"lock_max_live_time_ms ({live_ms}) must be below broker_lock_max_live_time_ms "
                f"({self.broker_lock_life_ms}): a holder must stop before the broker gives its queue to another client"
            )
        life_ms = self.broker_lock_max_live_time_ms or _BROKER_LOCK_LIFE_MS
        if self.unlock_delay_ms >= life_ms:
            raise SettingError(
                f"unlock_delay_ms ({self.unlock_delay_ms}) must be below the life of a lock on the brokers ({life_ms}, "
                "broker_lock_max_live_time_ms): else the lock expires before it is released"
            )


_INT32_MAX = 2**31 - 1
_NOT_IN_URL = re.compile(r"[/?#\s]")
# The first nine are RocketMQ's (wire.md 12.2). A period of 0 would make a loop that never waits.
_RANGES = (
    ("consume_message_batch_max_size", 1, 1024),
    ("pull_batch_size", 1, 1024),
    ("pull_threshold_for_queue", 1, 65535),
    ("consume_concurrently_max_span", 1, 65535),
    ("pull_threshold_for_topic", -1, 6_553_500),
    ("pull_threshold_bytes_for_topic", -1, 102_400 * 1024 * 1024),
    ("pull_interval_ms", 0, 65535),
    ("pop_threshold_for_queue", 1, 65535),
    ("consume_thread_count", 1, CONSUME_THREADS_MAX),
    ("consume_thread_min", 0, CONSUME_THREADS_MAX),
    ("key_concurrency", 1, 65535),
    ("max_reconsume_times", -1, _INT32_MAX),
    ("send_together_max", 1, SENDS_MAX),
    ("send_together_bytes_max", 1024, SENDS_BYTES_MAX // 4),  # a character of the properties has four bytes at most
    ("linger_ms", 0, 60_000),
    *((name, 1, _INT32_MAX) for name in (
        "connect_timeout_ms", "request_timeout_ms", "poll_name_server_interval_ms", "heartbeat_broker_interval_ms",
        "idle_close_ms", "fetch_name_server_interval_ms", "send_timeout_ms", "body_bytes_max",
        "default_topic_queue_nums",
        "local_transaction_thread_count", "check_thread_pool_size", "check_request_hold_max",
        "pull_threshold_bytes_for_queue", "pull_timeout_ms", "pull_max_idle_ms", "pull_delay_when_exception_ms",
        "pull_delay_when_suspended_ms", "pull_delay_when_flow_control_ms", "pull_delay_when_broker_flow_control_ms",
        "consume_timeout_ms", "pop_invisible_ms",
        "rebalance_interval_ms", "lock_interval_ms", "lock_timeout_ms", "lock_settle_ms", "consume_continuously_max_ms",
        "persist_consumer_offset_interval_ms", "key_span_max",
    )),
    *((name, 0, _INT32_MAX) for name in (
        "retry_times", "retry_times_when_send_async_failed", "compress_msg_body_over_howmuch",
        "await_termination_ms", "pull_suspend_ms", "offset_illegal_delay_ms", "lock_first_delay_ms",
        "broker_lock_max_live_time_ms", "rebalance_min_interval_ms", "unlock_delay_ms",
        "persist_consumer_offset_first_ms",
    )),
)  # fmt: skip
