"""The settings of broker and name server, with RocketMQ's property name where it has one."""

import re
from dataclasses import dataclass
from typing import Final

from lockstep.broker.acl.addresses import address_pattern
from lockstep.broker.acl.errors import RuleError
from lockstep.broker.delay_levels import DELAY_LEVELS, parse_delay_levels
from lockstep.broker.name_server.config import NameServerConfig
from lockstep.protocol.codes import (
    BODY_BYTES_MAX,
    FRAME_BYTES_MAX,
    HEADER_BYTES_MAX,
    MASTER_ID,
    PROPERTIES_BYTES_MAX,
    TOPIC_LENGTH_MAX,
)
from lockstep.protocol.errors import LocalProtocolError
from lockstep.protocol.messages.message import MESSAGE_OVERHEAD_BYTES
from lockstep.protocol.names import DEFAULT_CLUSTER, TRACE_TOPIC, check_topic
from lockstep.protocol.signature import Credentials
from lockstep.remoting.settings import PORT_MAX, Address, SettingError, is_everywhere, is_ipv6, parse_addresses, setting
from lockstep.store.format.layout import ENTRY_BYTES, FILE_END_BYTES

__all__ = ["TLS_MODES", "VIP_PORT_BELOW", "BrokerConfig"]

# The "VIP channel": the default of RocketMQ's clients before 4.5 (wire.md 1.1).
VIP_PORT_BELOW: Final = 2

_HOST_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_IPV4: Final = re.compile(r"[0-9.]+")

MIB = 1024 * 1024
_HOURS = 24
_HEADER_BYTES_NEEDED = PROPERTIES_BYTES_MAX + 4096
_RECORD_OVERHEAD_BYTES_MAX = MESSAGE_OVERHEAD_BYTES + 24 + TOPIC_LENGTH_MAX + PROPERTIES_BYTES_MAX  # 24: IPv6 hosts
_INBOUND_PART = 8  # of the memory limit, for frames that are not finished
_OUTBOUND_BYTES_MIN = 2 * FRAME_BYTES_MAX  # the longest answer, behind another that the peer has not read
_SEGMENTS_WANTED = 8  # a full store drops about an eighth of its messages at a time
_LEASE_MS_MIN = 1000
# Clients wait so much longer for a pull than the broker may hold it (wire.md 6.4).
_PULL_SWEEP_MS = 5000
_BODY_BYTES_LIMIT = FRAME_BYTES_MAX - 128 * 1024  # a frame also holds its header


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """The settings of a server. Raises SettingError, with the reason, for an invalid combination."""

    host: str = setting("127.0.0.1", name="bindAddress")
    advertise: str = setting("", name="brokerIP1")  # in routes and message ids; empty: `host`
    port: int = setting(10911, name="listenPort")
    vip_channel: bool = True  # also listen at `port` - 2, where Java clients before 4.5 send to (wire.md 1.1)
    grpc_port: int | None = None  # for clients of RocketMQ 5; None: it serves none
    grpc_optional: bool = False  # when that port is taken, or the extra is missing, go on without
    name_server_port: int = 9876
    serve_broker: bool = True
    serve_name_server: bool = True
    name_servers: str = setting("", name="namesrvAddr")  # remote ones to register with, as "host:port;host:port"
    broker_name: str = setting("broker-a", name="brokerName")
    cluster: str = setting(DEFAULT_CLUSTER, name="brokerClusterName")
    broker_id: int = setting(MASTER_ID, name="brokerId")

    # As which version it answers where RocketMQ 4.9 and 5.5 differ; empty: 5 if no client of 4 can tell (wire.md 13).
    rocketmq: str = ""
    lock_mode: str = "faithful"  # or "fenced" (docs/fencing.md); the four settings below are of fenced locks
    lock_delay_ms: int = 3000  # of a queue whose owner's connection ended, for the calls that still run
    lock_delay_legacy_ms: int = 31_000  # since the last renewal, for owners that are not Lockstep's clients
    lock_grace_ms: int | None = None  # after a start without a lock table; None: lock_max_live_time_ms
    fence_legacy: str = setting("refuse", live=True)  # what is not from the owner, of other clients; or "warn", "off"
    lock_max_live_time_ms: int = setting(60_000, name="rocketmq.broker.rebalance.lockMaxLiveTime")

    pop_window_max: int = 1024  # fenced: messages behind the first that is not consumed, whose keys are looked at
    pop_grace_ms: int = 3000  # fenced: until others get what a client held whose connection ended

    memory_limit_bytes: int = 1024 * MIB
    segment_bytes: int = setting(0, name="mappedFileSizeCommitLog")  # 0: an eighth of the limit, at most 64 MiB
    data_dir: str = setting("", name="storePathRootDir")  # folder of the store; empty: in memory only
    flush_sync: bool = False  # answer a send when it is synced to disk
    trace: str = ""  # where a start after a crash writes the offsets of groups for the order checker; empty: none
    queue_file_bytes: int = setting(6_000_000, name="mappedFileSizeConsumeQueue")
    index_slot_count: int = setting(5_000_000, name="maxHashSlotNum")
    index_item_count: int = setting(20_000_000, name="maxIndexNum")
    flush_interval_ms: int = setting(500, name="flushIntervalCommitLog")
    flush_offsets_interval_ms: int = setting(5000, name="flushConsumerOffsetInterval")
    checkpoint_interval_ms: int = 10_000  # of log that the start after a crash reads again
    reserved_hours: int = setting(72, name="fileReservedTime", live=True)
    data_bytes_max: int = setting(0, live=True)  # of the log; the oldest files above it are deleted; 0: no limit
    delete_when: str = setting("04", name="deleteWhen", live=True)  # hours, UTC, in which expired files are deleted
    disk_used_ratio_max: int = setting(0, name="diskMaxUsedSpaceRatio", live=True)  # percent; RocketMQ: 75; 0: no limit
    max_message_bytes: int = setting(BODY_BYTES_MAX, name="maxMessageSize", live=True)
    pull_bytes_max: int = setting(262_144, name="maxTransferBytesOnMessageInMemory")
    pull_messages_max: int = setting(32, name="maxTransferCountOnMessageInMemory")

    tls_mode: str = setting("disabled", name="tls.server.mode")  # or one of TLS_MODES
    tls_cert: str = setting("", name="tls.server.certPath")  # PEM files
    tls_key: str = setting("", name="tls.server.keyPath")  # empty: it is in tls_cert
    tls_client_auth: str = setting("none", name="tls.server.need.client.auth")  # or "optional", "require"
    tls_client_ca: str = setting("", name="tls.server.trustCertPath")  # signs the certificates of clients
    tls_to_name_servers: bool = setting(False, name="tls.enable")
    tls_name_server_ca: str = setting("", name="tls.client.trustCertPath")  # empty: what the system trusts

    auto_create_topics: bool = setting(True, name="autoCreateTopicEnable")
    default_topic_queue_nums: int = setting(8, name="defaultTopicQueueNums")
    accept_cpp_batches: bool = setting(
        True, live=True
    )  # librocketmq marks batches with "1", which Java reads as false (wire.md 4.4)
    property_filter: bool = setting(False, name="enablePropertyFilter", live=True)  # SQL92 on properties (wire.md 6.5)
    auto_create_groups: bool = setting(True, name="autoCreateSubscriptionGroup")
    broker_permission: int = setting(6, name="brokerPermission", live=True)  # sum of 4 (read), 2 (write), 1 (inherit)
    delay_levels: str = setting(DELAY_LEVELS, name="messageDelayLevel")
    timer_delay_max_sec: int = setting(259_200, name="timerMaxDelaySec")  # of a message for a time (docs/wire.md 18.7)
    recall_message_enable: bool = setting(True, name="recallMessageEnable", live=True)  # RocketMQ: False
    trace_topic_enable: bool = setting(False, name="traceTopicEnable")  # create the topic of clients' traces
    trace_topic: str = setting(TRACE_TOPIC, name="msgTraceTopicName")
    reject_transactions: bool = setting(False, name="rejectTransactionMessage", live=True)
    transaction_check_interval_ms: int = setting(60_000, name="transactionCheckInterval", live=True)
    transaction_timeout_ms: int = setting(6000, name="transactionTimeOut", live=True)
    transaction_check_max: int = setting(15, name="transactionCheckMax", live=True)
    dead_letter_at_once: bool = setting(False, live=True)  # RocketMQ delays those of orderly consumers (wire.md 10.3)
    retry_queue_nums: int = setting(1, name="retryQueueNums")
    retry_max_times: int = setting(16, name="retryMaxTimes")

    long_polling: bool = setting(True, name="longPollingEnable", live=True)
    hold_check_interval_ms: int = 5000
    held_pulls_per_connection_max: int = 4096
    held_pulls_max: int = 30_000
    notify_consumer_ids_changed: bool = setting(True, name="notifyConsumerIdsChangedEnable", live=True)
    order_message_enable: bool = setting(False, name="orderMessageEnable")  # the name server: in its routes
    channel_expired_timeout_ms: int = 120_000
    broker_expired_timeout_ms: int = 120_000
    scan_interval_ms: int = 10_000
    idle_close_ms: int = 120_000
    register_interval_ms: int = setting(30_000, name="registerNameServerPeriod")
    register_timeout_ms: int = setting(6000, name="registerBrokerTimeoutMills")

    acl_enable: bool = setting(False, name="aclEnable")  # accounts, signatures, permissions (docs/security.md)
    acl_file: str = ""  # plain_acl.yml; empty: conf/plain_acl.yml in data_dir
    acl_checks: str = "rocketmq"  # or "strict": also what RocketMQ 4.9 leaves open
    credentials: Credentials | None = setting(None, text=False)  # noqa: RUF009 - a field; to register with
    acl_replay_window_ms: int = 300_000  # strict: how far the clocks of our clients may be from the broker's

    # Limits for peers. A healthy cluster stays far below each of them (docs/hostile.md).
    operator_addresses: str = ""  # without limits of connections a peer and requests a second; as in ACL rules
    connections_max: int = 10_000
    connections_per_peer_max: int = 0  # from one address; 0: no limit
    requests_per_second_max: int = 0  # from one address; 0: no limit
    requests_under_way_max: int = 100_000  # received, to be answered later; 0: no limit
    requests_under_way_per_connection_max: int = 50_000
    inbound_bytes_max: int = 0  # received but not handled, of all connections; 0: an eighth of the memory limit
    inbound_bytes_per_connection_max: int = 0  # 0: only the limit of all
    outbound_bytes_max: int = 0  # written but not read by slow peers, of all connections; 0: the memory limit
    outbound_bytes_per_connection_max: int = 0  # 0: only the limit of all
    frame_timeout_ms: int = 60_000  # from the first byte of a frame to its last
    header_bytes_max: int = HEADER_BYTES_MAX
    structured_body_bytes_max: int = 1024 * 1024  # of a request whose body is no message
    batch_messages_max: int = 10_000
    offset_entries_max: int = setting(200_000, live=True)  # one for each group and queue
    metrics_series_max: int = 5000  # of each metric in a scrape (docs/metrics.md)
    statistics_max: int = 50_000  # of topics, queues and groups; about 2.7 kB each
    filter_characters_max: int = 2_000_000  # of the SQL92 expressions of all groups
    send_sequences_max: int = 100_000  # sequences of Lockstep's ordered sends: one for each producer and queue
    timer_messages_max: int = 1_000_000  # messages that wait for a time, and recalls; about 50 bytes each
    lock_queues_per_request_max: int = 4096
    fenced_queues_per_request_max: int = 1024  # of lock requests with fenced locks, which cost more
    lock_entries_per_group_max: int = 20_000
    lock_entries_max: int = 100_000
    lock_changes_max: int = 10_000  # the last changes of owners, for `lockstep lock watch`
    heartbeat_groups_max: int = setting(1000, live=True)  # consumer and producer groups
    heartbeat_subscriptions_max: int = setting(5000, live=True)  # of all its groups, and their tags
    groups_per_connection_max: int = setting(2000, live=True)  # of which a connection is a member
    memberships_max: int = setting(100_000, live=True)  # groups of all connections
    subscription_characters_max: int = setting(32_000_000, live=True)  # of the subscriptions of all groups
    groups_max: int = 20_000  # with a configuration
    brokers_max: int = 1000  # that a name server knows
    routes_max: int = 200_000  # that a name server knows: topics of all its brokers
    kv_configs_max: int = 10_000  # that a name server keeps
    kv_characters_max: int = 2_000_000  # of their namespaces, keys and values
    topics_max: int = 50_000  # of sends and administrators; retry topics of groups are created above it too
    queues_max: int = 65_536  # of all topics together, as above

    log_debug: bool = False

    @property
    def advertised_host(self) -> str:
        return self.advertise or self.host

    @property
    def log_file_bytes(self) -> int:
        """The size of a log file in `data_dir`."""
        return self.segment_bytes or 1024 * MIB

    @property
    def _frame_bytes_largest(self) -> int:
        """The largest message with its header; every limit must allow it."""
        return self.max_message_bytes + self.header_bytes_max

    @property
    def inbound_bytes_limit(self) -> int:
        return self.inbound_bytes_max or max(self.memory_limit_bytes // _INBOUND_PART, self._frame_bytes_largest)

    @property
    def outbound_bytes_limit(self) -> int:
        return self.outbound_bytes_max or max(self.memory_limit_bytes, _OUTBOUND_BYTES_MIN)

    @property
    def store_bytes_limit(self) -> int:
        """The bytes of messages in memory: the memory limit without the part for received frames."""
        inbound_bytes = min(self.inbound_bytes_limit, self.memory_limit_bytes // _INBOUND_PART)
        return max(self.memory_limit_bytes - inbound_bytes, self.max_message_bytes + _RECORD_OVERHEAD_BYTES_MAX)

    @property
    def segment_capacity_bytes(self) -> int:
        return self.segment_bytes or min(64 * MIB, self.memory_limit_bytes // _SEGMENTS_WANTED)

    @property
    def name_server_addresses(self) -> tuple[Address, ...]:
        return parse_addresses(self.name_servers) if self.name_servers else ()

    @property
    def name_server(self) -> NameServerConfig:
        return NameServerConfig(
            self.host,
            self.name_server_port,
            self.order_message_enable,
            self.broker_expired_timeout_ms,
            self.brokers_max,
            self.routes_max,
            self.kv_configs_max,
            self.kv_characters_max,
            self.structured_body_bytes_max,
        )

    def too_short_for_default_clients(self) -> list[tuple[str, int, str]]:
        """Settings that do not fit clients with RocketMQ's defaults: name, the value it must exceed, and the reason."""
        return [(name, above, why) for name, above, why in _CLIENT_DEFAULTS if getattr(self, name) <= above]

    def __post_init__(self) -> None:
        for name in ("port", "grpc_port", "name_server_port"):
            _check(0 <= (getattr(self, name) or 0) <= PORT_MAX, name, f"must be a port, 0 to {PORT_MAX}")
        for name in _POSITIVE:
            _check(getattr(self, name) > 0, name, "must be above 0")
        _check(0 <= self.broker_permission <= 7, "broker_permission", "is a sum of 4 (read), 2 (write), 1 (inherit)")
        for name, allowed in _CHOICES:
            value = getattr(self, name)
            _check(value in allowed, name, f"must be {' or '.join(map(repr, allowed))}, not {value!r}")
        for name in _NOT_NEGATIVE:
            _check((getattr(self, name) or 0) >= 0, name, "must be 0 or more")
        self._check_acl()
        self._check_addresses()
        self._check_sizes()
        self._check_tls()
        try:
            parse_delay_levels(self.delay_levels)
        except ValueError as error:
            raise SettingError(f"delay_levels: {error}") from None
        _check(
            self.scan_interval_ms < self.channel_expired_timeout_ms,
            "scan_interval_ms",
            "must be below channel_expired_timeout_ms, or silent clients would be noticed much too late",
        )
        _check(
            self.register_interval_ms < self.broker_expired_timeout_ms,
            "register_interval_ms",
            "must be below broker_expired_timeout_ms, or name servers would remove a healthy broker",
        )
        _check(
            self.lock_mode != "fenced" or self.lock_max_live_time_ms >= _LEASE_MS_MIN,
            "lock_max_live_time_ms",
            f"must be at least {_LEASE_MS_MIN} with fenced locks: renewals must be answered while the lease lasts",
        )
        _check(
            self.hold_check_interval_ms <= _PULL_SWEEP_MS,
            "hold_check_interval_ms",
            f"must be at most {_PULL_SWEEP_MS}, or clients time out before a held pull is answered",
        )

    def _check_acl(self) -> None:
        has_file = bool(self.acl_file or self.data_dir)
        _check(self.acl_enable or not self.acl_file, "acl_file", "needs acl_enable")
        _check(has_file or not self.acl_enable, "acl_enable", "needs acl_file, or data_dir with conf/plain_acl.yml")

    def _check_addresses(self) -> None:
        others = self.name_server_addresses  # raises for what is no address
        try:
            address_pattern(self.operator_addresses)
        except RuleError:
            raise SettingError(
                f"operator_addresses: {self.operator_addresses!r} is not a pattern of addresses, such as "
                "10.0.0.7 or 10.0.0.* or 10.0.0.{7,8}, nor a list of addresses with commas"
            ) from None
        _check(
            self.serve_broker or self.serve_name_server, "serve_broker", "a server must have a broker or a name server"
        )
        _check(
            self.serve_name_server or not self.serve_broker or bool(others),
            "name_servers",
            "a broker without a name server in its process needs the address of one",
        )
        reason = _why_unreachable(self.host, self.advertised_host)
        _check(not reason, "advertise", reason)
        for name, what in (("broker_name", "broker"), ("cluster", "cluster"), ("trace_topic", "topic")):
            try:
                check_topic(getattr(self, name), what)
            except LocalProtocolError as error:
                raise SettingError(f"{name}: {error}") from None

    def _check_tls(self) -> None:
        named = self.tls_cert or self.tls_key or self.tls_client_ca or self.tls_client_auth != "none"
        _check(self.tls_mode != "disabled" or not named, "tls_mode", "is disabled; certificates need another mode")
        _check(
            self.tls_mode in ("disabled", "test") or bool(self.tls_cert),
            "tls_cert",
            f'tls_mode {self.tls_mode!r} needs a certificate; "test" makes one',
        )
        _check(
            self.tls_client_auth == "none" or bool(self.tls_client_ca),
            "tls_client_ca",
            "must name the certificates that sign those of clients",
        )

    def _check_sizes(self) -> None:
        _check(
            self.max_message_bytes <= _BODY_BYTES_LIMIT,
            "max_message_bytes",
            f"must be at most {_BODY_BYTES_LIMIT}, or no frame could carry such a message",
        )
        _check(
            self.memory_limit_bytes >= self.max_message_bytes + _RECORD_OVERHEAD_BYTES_MAX,
            "memory_limit_bytes",
            f"must hold at least one message of the largest size, {self.max_message_bytes} bytes and its header",
        )
        _check(
            not self.inbound_bytes_max or self.inbound_bytes_max >= self._frame_bytes_largest,
            "inbound_bytes_max",
            f"must be 0 or at least {self._frame_bytes_largest}, a message of the largest size and its header",
        )
        least = self._frame_bytes_largest + MIB
        _check(
            self.inbound_bytes_per_connection_max == 0 or self.inbound_bytes_per_connection_max >= least,
            "inbound_bytes_per_connection_max",
            f"must be 0 or at least {least}, a message of the largest size, its header and what is read behind it",
        )
        for name in ("outbound_bytes_max", "outbound_bytes_per_connection_max"):
            good = getattr(self, name) == 0 or getattr(self, name) >= _OUTBOUND_BYTES_MIN
            _check(good, name, f"must be 0 or at least {_OUTBOUND_BYTES_MIN}, two of the longest answers")
        _check(
            _HEADER_BYTES_NEEDED <= self.header_bytes_max <= FRAME_BYTES_MAX,
            "header_bytes_max",
            f"must be {_HEADER_BYTES_NEEDED} to {FRAME_BYTES_MAX}: the properties of a message are in its header",
        )
        if not self.data_dir:
            good = 0 <= self.segment_bytes <= self.memory_limit_bytes
            _check(good, "segment_bytes", "must be 0 to memory_limit_bytes")
            _check(not self.flush_sync, "flush_sync", "needs data_dir: a store in memory is not flushed")
            return
        largest = self.max_message_bytes + _RECORD_OVERHEAD_BYTES_MAX + FILE_END_BYTES
        _check(
            self.log_file_bytes >= largest,
            "segment_bytes",
            f"a file of the log must hold a message of the largest size: at least {largest} bytes",
        )
        hours = self.delete_when.split(";")
        good = all(hour.isascii() and hour.isdecimal() and int(hour) < _HOURS for hour in hours)
        _check(good, "delete_when", f"must be hours, 00 to 23, separated by ';', not {self.delete_when!r}")
        whole = self.queue_file_bytes > 0 and self.queue_file_bytes % ENTRY_BYTES == 0
        _check(whole, "queue_file_bytes", f"must be a multiple of {ENTRY_BYTES}, the size of an entry")


TLS_MODES = ("disabled", "permissive", "enforcing", "test")  # test: permissive, with a certificate that it makes
_CHOICES = (
    ("lock_mode", ("faithful", "fenced")),
    ("rocketmq", ("", "4", "5")),
    ("fence_legacy", ("refuse", "warn", "off")),
    ("acl_checks", ("rocketmq", "strict")),
    ("tls_mode", TLS_MODES),
    ("tls_client_auth", ("none", "optional", "require")),
)
_NOT_NEGATIVE = (
    "lock_delay_ms", "lock_delay_legacy_ms", "lock_grace_ms", "connections_per_peer_max", "requests_per_second_max",
    "requests_under_way_max", "requests_under_way_per_connection_max",
)  # fmt: skip
_POSITIVE = (
    "lock_max_live_time_ms", "memory_limit_bytes", "max_message_bytes", "pull_bytes_max", "pull_messages_max",
    "heartbeat_groups_max", "heartbeat_subscriptions_max", "groups_per_connection_max", "memberships_max",
    "subscription_characters_max", "groups_max", "topics_max", "queues_max", "brokers_max", "routes_max",
    "kv_configs_max", "kv_characters_max", "default_topic_queue_nums", "retry_queue_nums", "hold_check_interval_ms",
    "held_pulls_per_connection_max", "held_pulls_max", "channel_expired_timeout_ms", "broker_expired_timeout_ms",
    "scan_interval_ms", "idle_close_ms", "register_interval_ms", "register_timeout_ms", "transaction_check_interval_ms",
    "index_slot_count", "index_item_count", "flush_interval_ms", "flush_offsets_interval_ms", "checkpoint_interval_ms",
    "reserved_hours", "connections_max", "frame_timeout_ms", "structured_body_bytes_max", "lock_queues_per_request_max",
    "fenced_queues_per_request_max", "batch_messages_max", "offset_entries_max", "statistics_max",
    "filter_characters_max", "send_sequences_max", "lock_entries_per_group_max", "lock_entries_max", "lock_changes_max",
    "metrics_series_max", "acl_replay_window_ms", "timer_delay_max_sec", "timer_messages_max",
)  # fmt: skip


# RocketMQ's clients without settings of their own (wire.md 7.3, 9.3).
_CLIENT_DEFAULTS = (
    ("lock_max_live_time_ms", 30_000, "a client trusts its lock for 30000 ms: two would own a queue"),
    ("channel_expired_timeout_ms", 30_000, "a heartbeat comes every 30000 ms: live members would be removed"),
    ("idle_close_ms", 30_000, "a heartbeat comes every 30000 ms: connections would close before it"),
)


def _check(good: bool, name: str, reason: str) -> None:
    if not good:
        raise SettingError(f"{name}: {reason}")


def _why_unreachable(host: str, advertised: str) -> str:
    """Why clients cannot connect to the host that they are given; empty if they may."""
    if is_everywhere(advertised):
        return f"host {advertised!r} is every address; give the one that clients must use"
    if is_ipv6(advertised):
        if "%" not in advertised:
            return ""
    elif _HOST_NAME.fullmatch(advertised):
        if not (_IPV4.fullmatch(advertised) and is_ipv6(host) and is_everywhere(host)):
            return ""
        return f"host {host!r} is every address of IPv6, and {advertised} is none; host '' is all of both kinds"
    # A zone is of this machine alone.
    return f"{advertised!r} is neither a host name nor an IP address (IPv6 without brackets and zone: ::1)"
