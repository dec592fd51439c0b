"""Numbers of the RocketMQ 4.9.8 remoting protocol (wire.md 1 to 3), and the few of Lockstep.

The hot path uses plain ints. The enums give names to code, logs and tables.
"""

from enum import IntEnum, IntFlag
from typing import Final

__all__ = [
    "BATCHED_PROPERTIES_BYTES_MAX",
    "BODY_BYTES_MAX",
    "FRAME_BYTES_MAX",
    "HEADER_BYTES_MAX",
    "MASTER_ID",
    "PROPERTIES_BYTES_MAX",
    "PROTOCOL_VERSION",
    "TOPIC_LENGTH_MAX",
    "LanguageCode",
    "Permission",
    "PopResponseCode",
    "PullSysFlag",
    "RemotingFlag",
    "RequestCode",
    "ResponseCode",
    "SerializeType",
    "SysFlag",
    "request_name",
    "response_name",
]

PROTOCOL_VERSION: Final = 409  # V4_9_8, wire.md 1.4
FRAME_BYTES_MAX: Final = 16 * 1024 * 1024  # wire.md 1.1
# For requests. RocketMQ allows 32,767 bytes of properties, and fastjson writes a control character in six bytes:
# 196,602. A reply may be longer: the reply to a batch has the id of each message in its header.
HEADER_BYTES_MAX: Final = 256 * 1024
BODY_BYTES_MAX: Final = 4 * 1024 * 1024  # maxMessageSize, wire.md 4.7
PROPERTIES_BYTES_MAX: Final = 32767  # an int16 on the wire, wire.md 4.2
# A broker adds the name of its cluster to the properties of each message. RocketMQ 4.9.7 refuses a single message that
# is over the limit then, but stores it as a part of a batch, with a wrong length.
BATCHED_PROPERTIES_BYTES_MAX: Final = PROPERTIES_BYTES_MAX - 1024
TOPIC_LENGTH_MAX: Final = 127  # wire.md 4.7
MASTER_ID: Final = 0


class SerializeType(IntEnum):
    """The type byte of a frame: the encoding of its header."""

    JSON = 0
    ROCKETMQ = 1  # binary; wire.md 1.3
    MSGPACK = 2  # a Lockstep extension, only between peers that agreed on it


class LanguageCode(IntEnum):
    JAVA = 0
    CPP = 1
    DOTNET = 2
    PYTHON = 3
    DELPHI = 4
    ERLANG = 5
    RUBY = 6
    OTHER = 7
    HTTP = 8
    GO = 9
    PHP = 10
    OMS = 11
    RUST = 12


class RemotingFlag(IntFlag):
    REPLY = 1
    ONE_WAY = 2
    # A Lockstep extension: in the reply that accepts an offer, the broker says that it takes SEND_TOGETHER and
    # COMMIT_TOGETHER. RocketMQ uses two bits.
    TOGETHER = 4


class Permission(IntFlag):
    INHERIT = 1
    WRITE = 2
    READ = 4


class SysFlag(IntFlag):
    """Bits of a message's sysFlag, wire.md 4.5."""

    COMPRESSED = 0x1
    MULTI_TAGS = 0x2
    TRANSACTION_PREPARED = 0x4
    TRANSACTION_COMMIT = 0x8
    TRANSACTION_MASK = 0xC
    BORN_HOST_V6 = 0x10
    STORE_HOST_V6 = 0x20
    COMPRESSION_TYPE = 0x700  # 0 and 3 zlib, 1 LZ4, 2 ZSTD


class PullSysFlag(IntFlag):
    """Bits of a pull's sysFlag, wire.md 6.1."""

    COMMIT_OFFSET = 0x1
    SUSPEND = 0x2
    SUBSCRIPTION = 0x4
    CLASS_FILTER = 0x8
    LITE_PULL = 0x10
    # A Lockstep extension, sent only to a peer that agreed: as many messages as asked for, up to the limit in bytes.
    BULK = 0x100


class RequestCode(IntEnum):
    """Request codes (wire.md 2). broker/fronts/remoting/dispatch.py lists those that Lockstep serves."""

    SEND_MESSAGE = 10
    PULL_MESSAGE = 11
    QUERY_MESSAGE = 12
    QUERY_CONSUMER_OFFSET = 14
    UPDATE_CONSUMER_OFFSET = 15
    UPDATE_AND_CREATE_TOPIC = 17
    GET_ALL_TOPIC_CONFIG = 21
    UPDATE_BROKER_CONFIG = 25
    GET_BROKER_CONFIG = 26
    TRIGGER_DELETE_FILES = 27
    GET_BROKER_RUNTIME_INFO = 28
    SEARCH_OFFSET_BY_TIMESTAMP = 29
    GET_MAX_OFFSET = 30
    GET_MIN_OFFSET = 31
    GET_EARLIEST_MSG_STORETIME = 32
    VIEW_MESSAGE_BY_ID = 33
    HEART_BEAT = 34
    UNREGISTER_CLIENT = 35
    CONSUMER_SEND_MSG_BACK = 36
    END_TRANSACTION = 37
    GET_CONSUMER_LIST_BY_GROUP = 38
    CHECK_TRANSACTION_STATE = 39
    NOTIFY_CONSUMER_IDS_CHANGED = 40
    LOCK_BATCH_MQ = 41
    UNLOCK_BATCH_MQ = 42
    GET_ALL_CONSUMER_OFFSET = 43
    GET_ALL_DELAY_OFFSET = 45
    CHECK_CLIENT_CONFIG = 46
    UPDATE_AND_CREATE_ACL_CONFIG = 50
    DELETE_ACL_CONFIG = 51
    GET_BROKER_CLUSTER_ACL_INFO = 52
    UPDATE_GLOBAL_WHITE_ADDRS_CONFIG = 53
    GET_BROKER_CLUSTER_ACL_CONFIG = 54
    PUT_KV_CONFIG = 100
    GET_KV_CONFIG = 101
    DELETE_KV_CONFIG = 102
    REGISTER_BROKER = 103
    UNREGISTER_BROKER = 104
    GET_ROUTEINFO_BY_TOPIC = 105
    GET_BROKER_CLUSTER_INFO = 106
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201
    GET_TOPIC_STATS_INFO = 202
    GET_CONSUMER_CONNECTION_LIST = 203
    GET_PRODUCER_CONNECTION_LIST = 204
    WIPE_WRITE_PERM_OF_BROKER = 205
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206
    DELETE_SUBSCRIPTIONGROUP = 207
    GET_CONSUME_STATS = 208
    DELETE_TOPIC_IN_BROKER = 215
    DELETE_TOPIC_IN_NAMESRV = 216
    GET_KVLIST_BY_NAMESPACE = 219
    RESET_CONSUMER_CLIENT_OFFSET = 220
    GET_CONSUMER_STATUS_FROM_CLIENT = 221
    INVOKE_BROKER_TO_RESET_OFFSET = 222
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS = 223
    GET_TOPICS_BY_CLUSTER = 224
    QUERY_TOPIC_CONSUME_BY_WHO = 300
    QUERY_CONSUME_TIME_SPAN = 303
    GET_SYSTEM_TOPIC_LIST_FROM_NS = 304
    GET_SYSTEM_TOPIC_LIST_FROM_BROKER = 305
    CLEAN_EXPIRED_CONSUMEQUEUE = 306
    GET_CONSUMER_RUNNING_INFO = 307
    QUERY_CORRECTION_OFFSET = 308
    CONSUME_MESSAGE_DIRECTLY = 309
    SEND_MESSAGE_V2 = 310
    GET_UNIT_TOPIC_LIST = 311
    GET_HAS_UNIT_SUB_TOPIC_LIST = 312
    GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST = 313
    CLONE_GROUP_OFFSET = 314
    VIEW_BROKER_STATS_DATA = 315
    CLEAN_UNUSED_TOPIC = 316
    GET_BROKER_CONSUME_STATS = 317
    UPDATE_NAMESRV_CONFIG = 318
    GET_NAMESRV_CONFIG = 319
    SEND_BATCH_MESSAGE = 320
    QUERY_CONSUME_QUEUE = 321
    QUERY_DATA_VERSION = 322
    RESUME_CHECK_HALF_MESSAGE = 323
    SEND_REPLY_MESSAGE = 324
    SEND_REPLY_MESSAGE_V2 = 325
    PUSH_REPLY_MESSAGE_TO_CLIENT = 326
    ADD_WRITE_PERM_OF_BROKER = 327
    GET_ALL_PRODUCER_INFO = 328
    DELETE_EXPIRED_COMMITLOG = 329
    # RocketMQ 5: its remoting clients send these codes to any broker (wire.md 13).
    GET_TOPIC_CONFIG = 351
    GET_SUBSCRIPTIONGROUP_CONFIG = 352
    LITE_PULL_MESSAGE = 361
    RECALL_MESSAGE = 370
    # POP (wire.md 18).
    QUERY_ASSIGNMENT = 400
    SET_MESSAGE_REQUEST_MODE = 401
    GET_ALL_MESSAGE_REQUEST_MODE = 402
    POP_MESSAGE = 200050
    ACK_MESSAGE = 200051
    PEEK_MESSAGE = 200052
    CHANGE_MESSAGE_INVISIBLETIME = 200053
    NOTIFICATION = 200054
    POLLING_INFO = 200055
    POP_ROLLBACK = 200056
    BATCH_ACK_MESSAGE = 200151
    # Lockstep extensions, sent only to a peer that agreed (docs/architecture.md).
    LIST_LOCKS = 30001
    LIST_CONSUMER_GROUPS = 30002
    LOCKS_RELEASED = 30003  # from a broker with fenced locks, one-way
    RESET_OWN_OFFSET = 30004
    LIST_LOCK_CHANGES = 30005
    SEND_TOGETHER = 30006
    COMMIT_TOGETHER = 30007
    FIND_SENT = 30008
    GET_RECOVERED_OFFSET = 30009
    LIST_DELIVERIES = 30010


class ResponseCode(IntEnum):
    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    TRANSACTION_FAILED = 4
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    VERSION_NOT_SUPPORTED = 15
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    TOPIC_EXIST_ALREADY = 18
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    FILTER_DATA_NOT_EXIST = 27
    FILTER_DATA_NOT_LATEST = 28
    INVALID_PARAMETER = 29
    NO_BUYER_ID = 204
    NOT_IN_CURRENT_UNIT = 205
    CONSUMER_NOT_ONLINE = 206
    CONSUME_MSG_TIMEOUT = 207
    NO_MESSAGE = 208
    UPDATE_AND_CREATE_ACL_CONFIG_FAILED = 209
    DELETE_ACL_CONFIG_FAILED = 210
    UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED = 211
    FLOW_CONTROL = 215
    ILLEGAL_OPERATION = 604  # RocketMQ 5
    # Lockstep extension: an earlier send of the same sequence was not stored, so this one is refused.
    SEND_OUT_OF_SEQUENCE = 30001
    # Lockstep extensions, only for a request with a lock epoch (docs/fencing.md).
    FENCED = 30011  # another client has the queue, or had it since
    NOT_HELD = 30012  # no client has the queue
    STALE = 30013  # the same client has a newer epoch of the queue


class PopResponseCode(IntEnum):
    """Codes of POP that ACL's changes have too."""

    POLLING_FULL = 209  # too many calls wait
    POLLING_TIMEOUT = 210  # no message came


_REQUEST_NAMES = {int(code): code.name for code in RequestCode}
_RESPONSE_NAMES = {int(code): code.name for code in ResponseCode}


def request_name(code: int) -> str:
    """The name of a request code for logs, for example "LOCK_BATCH_MQ (41)". An unknown code stays a number."""
    return f"{_REQUEST_NAMES[code]} ({code})" if code in _REQUEST_NAMES else f"request code {code}"


def response_name(code: int) -> str:
    return f"{_RESPONSE_NAMES[code]} ({code})" if code in _RESPONSE_NAMES else f"response code {code}"
