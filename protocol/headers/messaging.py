"""The typed headers of commands. MSGPACK sends the fields in the declared order, so new fields go to the end.

`REQUEST_HEADERS` and `RESPONSE_HEADERS` map request codes to header classes. A code without an entry has no header.
The headers of administration requests are in headers/admin.py.
Source: wire.md 2, 4.1, 6.1, 6.3.
"""

from typing import Any, Final, NamedTuple

from lockstep.protocol.codes import RequestCode
from lockstep.protocol.headers.acl import ACL_REQUEST_HEADERS, ACL_RESPONSE_HEADERS
from lockstep.protocol.headers.admin import ADMIN_REQUEST_HEADERS, ADMIN_RESPONSE_HEADERS
from lockstep.protocol.headers.pop import POP_REQUEST_HEADERS, POP_RESPONSE_HEADERS
from lockstep.protocol.headers.spec import Int32, rename_on_wire, stand_in
from lockstep.protocol.headers.together import TOGETHER_REQUEST_HEADERS, TOGETHER_RESPONSE_HEADERS

__all__ = [
    "REQUEST_HEADERS",
    "RESPONSE_HEADERS",
    "CheckTransactionStateRequestHeader",
    "CreateTopicRequestHeader",
    "EndTransactionRequestHeader",
    "FindSentRequestHeader",
    "GetConsumerListByGroupRequestHeader",
    "GetRouteInfoRequestHeader",
    "ListLockChangesRequestHeader",
    "ListLocksRequestHeader",
    "ListOwnersRequestHeader",
    "LitePullMessageResponseHeader",
    "NotifyConsumerIdsChangedRequestHeader",
    "OffsetResponseHeader",
    "PullMessageRequestHeader",
    "PullMessageResponseHeader",
    "PushReplyMessageRequestHeader",
    "QueryConsumerOffsetRequestHeader",
    "QueryDataVersionResponseHeader",
    "QueueRequestHeader",
    "RecallMessageRequestHeader",
    "RecallMessageResponseHeader",
    "RegisterBrokerRequestHeader",
    "RegisterBrokerResponseHeader",
    "ResetOwnOffsetRequestHeader",
    "ResetOwnOffsetResponseHeader",
    "SearchOffsetRequestHeader",
    "SendMessageRequestHeader",
    "SendMessageRequestHeaderV2",
    "SendMessageResponseHeader",
    "TimedSendResponseHeader",
    "TimestampResponseHeader",
    "UnregisterBrokerRequestHeader",
    "UnregisterClientRequestHeader",
    "UpdateConsumerOffsetRequestHeader",
]


class SendMessageRequestHeader(NamedTuple):
    """SEND_MESSAGE (10), with long field names.

    `send_generation`, `send_sequence` and `sender_id` are a Lockstep extension, sent only to a peer that agreed.
    `sender_id` names a producer; the other two number its sends to one queue. With them the broker refuses a send that
    would overtake a failed one.

    The `lock_` fields are one too, of dead letters that an ordered consumer sends: the epoch under which it has the
    message, its client id, and the queue of the message (docs/fencing.md).
    """

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: int
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None
    max_reconsume_times: Int32 | None = None
    batch: bool | None = None
    broker_name: str | None = None
    send_generation: int | None = None
    send_sequence: int | None = None
    sender_id: str | None = None
    lock_epoch: int | None = None
    lock_client_id: str | None = None
    lock_topic: str | None = None
    lock_queue_id: Int32 | None = None


class SendMessageRequestHeaderV2(SendMessageRequestHeader):
    """SEND_MESSAGE_V2 (310) and SEND_BATCH_MESSAGE (320): the same fields, with letters as names."""

    __slots__ = ()


class SendMessageResponseHeader(NamedTuple):
    msg_id: str
    queue_id: Int32
    queue_offset: int
    transaction_id: str | None = None
    msg_region: str | None = None
    trace_on: str | None = None


class TimedSendResponseHeader(NamedTuple):
    """Of a message that waits for its time: the same, and a handle to recall it (docs/wire.md 18.7)."""

    msg_id: str
    queue_id: Int32
    queue_offset: int
    transaction_id: str | None = None
    msg_region: str | None = None
    trace_on: str | None = None
    recall_handle: str | None = None


class RecallMessageRequestHeader(NamedTuple):
    """RECALL_MESSAGE (370)."""

    topic: str
    recall_handle: str
    producer_group: str | None = None


class RecallMessageResponseHeader(NamedTuple):
    msg_id: str
    msg_region: str | None = None


class PullMessageRequestHeader(NamedTuple):
    """PULL_MESSAGE (11).

    The `lock_` fields are a Lockstep extension, sent only to a peer that agreed: the epoch under which a consumer owns
    the queue, and its client id (docs/fencing.md).
    """

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: int
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: int
    suspend_timeout_millis: int
    sub_version: int
    subscription: str | None = None
    expression_type: str | None = None
    lock_epoch: int | None = None
    lock_client_id: str | None = None


class PullMessageResponseHeader(NamedTuple):
    suggest_which_broker_id: int
    next_begin_offset: int
    min_offset: int
    max_offset: int


class LitePullMessageResponseHeader(NamedTuple):
    """The flags are of namespaces and units. Source: wire.md 18.1"""

    suggest_which_broker_id: int
    next_begin_offset: int
    min_offset: int
    max_offset: int
    topic_sys_flag: int
    group_sys_flag: int


class QueryConsumerOffsetRequestHeader(NamedTuple):
    consumer_group: str
    topic: str
    queue_id: Int32


class UpdateConsumerOffsetRequestHeader(NamedTuple):
    """UPDATE_CONSUMER_OFFSET (15). The `lock_` fields are a Lockstep extension, as in a pull.

    `reset` is one too: an administrator sets the offset, also of a queue with an owner.
    """

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: int
    lock_epoch: int | None = None
    lock_client_id: str | None = None
    reset: bool | None = None


class QueueRequestHeader(NamedTuple):
    """GET_MAX_OFFSET (30), GET_MIN_OFFSET (31), GET_EARLIEST_MSG_STORETIME (32), GET_RECOVERED_OFFSET (30009)."""

    topic: str
    queue_id: Int32


class SearchOffsetRequestHeader(NamedTuple):
    topic: str
    queue_id: Int32
    timestamp: int


class OffsetResponseHeader(NamedTuple):
    offset: int


class TimestampResponseHeader(NamedTuple):
    timestamp: int


class UnregisterClientRequestHeader(NamedTuple):
    client_id: str
    producer_group: str | None = None
    consumer_group: str | None = None


class GetConsumerListByGroupRequestHeader(NamedTuple):
    consumer_group: str


class ListOwnersRequestHeader(NamedTuple):
    """GET_CONSUMER_LIST_BY_GROUP (38) with a Lockstep extension: `owners` also asks for the owners of the queues."""

    consumer_group: str
    owners: bool | None = None


class NotifyConsumerIdsChangedRequestHeader(NamedTuple):
    consumer_group: str


class EndTransactionRequestHeader(NamedTuple):
    """END_TRANSACTION (37). `commit_or_rollback`: 8, 12, or 0 for unknown. The offsets are the half message's."""

    producer_group: str
    tran_state_table_offset: int
    commit_log_offset: int
    commit_or_rollback: Int32
    msg_id: str | None = None
    from_transaction_check: bool = False
    transaction_id: str | None = None


class CheckTransactionStateRequestHeader(NamedTuple):
    """CHECK_TRANSACTION_STATE (39), from the broker."""

    tran_state_table_offset: int
    commit_log_offset: int
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


class PushReplyMessageRequestHeader(NamedTuple):
    """PUSH_REPLY_MESSAGE_TO_CLIENT (326), from the broker. Hosts are texts."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: int
    flag: Int32
    born_host: str
    store_host: str
    store_timestamp: int
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None


class GetRouteInfoRequestHeader(NamedTuple):
    topic: str
    accept_standard_json_only: bool | None = None


class CreateTopicRequestHeader(NamedTuple):
    topic: str
    default_topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int32 = 0
    order: bool = False
    attributes: str | None = None


class RegisterBrokerRequestHeader(NamedTuple):
    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: int
    compressed: bool = False
    body_crc32: int = 0


class RegisterBrokerResponseHeader(NamedTuple):
    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnregisterBrokerRequestHeader(NamedTuple):
    """UNREGISTER_BROKER (104) and QUERY_DATA_VERSION (322), which has the same fields."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: int


class QueryDataVersionResponseHeader(NamedTuple):
    changed: bool


class ListLocksRequestHeader(NamedTuple):
    """LIST_LOCKS (30001), a Lockstep extension: the lock table of one group or of all groups."""

    consumer_group: str | None = None


class ListLockChangesRequestHeader(NamedTuple):
    """LIST_LOCK_CHANGES (30005), a Lockstep extension.

    `cursor`: from an earlier answer; 0: all that the broker keeps. `consumer_group`: None for all groups.
    """

    cursor: int
    consumer_group: str | None = None
    count_max: Int32 | None = None


class ResetOwnOffsetRequestHeader(NamedTuple):
    """RESET_OWN_OFFSET (30004), a Lockstep extension: the owner of a queue moves its offset and gets a new epoch."""

    consumer_group: str
    topic: str
    queue_id: Int32
    offset: int
    lock_epoch: int
    lock_client_id: str


class ResetOwnOffsetResponseHeader(NamedTuple):
    lock_epoch: int
    lease_ms: int


class FindSentRequestHeader(NamedTuple):
    """FIND_SENT (30008), a Lockstep extension: the place of a send that had no answer (docs/wire.md 17.3).

    `message_id` is the UNIQ_KEY of its first message, which is at `begin_offset` of the queue or behind it. The repeat
    would have the other three, as a send has them.
    """

    topic: str
    queue_id: Int32
    begin_offset: int
    message_id: str
    message_count: Int32
    send_generation: int
    send_sequence: int
    sender_id: str


rename_on_wire(
    SendMessageRequestHeaderV2,
    dict(
        zip(SendMessageRequestHeader._fields, "abcdefghijklmn", strict=False),
        send_generation="lg",
        send_sequence="ls",
        sender_id="li",
        lock_epoch="le",
        lock_client_id="lc",
        lock_topic="lt",
        lock_queue_id="lq",
    ),
)
rename_on_wire(SendMessageResponseHeader, {"msg_region": "MSG_REGION", "trace_on": "TRACE_ON"})
rename_on_wire(TimedSendResponseHeader, {"msg_region": "MSG_REGION", "trace_on": "TRACE_ON"})
rename_on_wire(RecallMessageResponseHeader, {"msg_region": "MSG_REGION"})
rename_on_wire(UnregisterClientRequestHeader, {"client_id": "clientID"})
# For a missing field Java has null: it ignores it, or writes "null" into a name. tests/differential compares this.
_NOBODY: Final = {"producer_group": "", "topic": "", "default_topic": "", "default_topic_queue_nums": 4}
stand_in(SendMessageRequestHeader, _NOBODY)
stand_in(SendMessageRequestHeaderV2, _NOBODY, exact=True)
stand_in(PullMessageRequestHeader, {"commit_offset": 0, "suspend_timeout_millis": 0, "sub_version": 0}, exact=True)
stand_in(RecallMessageRequestHeader, {"recall_handle": ""})
stand_in(QueryConsumerOffsetRequestHeader, {"consumer_group": "null"})
stand_in(UpdateConsumerOffsetRequestHeader, {"consumer_group": "null", "topic": "null"})
stand_in(UnregisterClientRequestHeader, {"client_id": ""})
stand_in(GetRouteInfoRequestHeader, {"topic": ""})
stand_in(CreateTopicRequestHeader, {"topic": "", "default_topic": ""})
stand_in(RegisterBrokerRequestHeader, {"ha_server_addr": ""})
stand_in(UnregisterBrokerRequestHeader, {"broker_name": "null", "broker_addr": "null", "cluster_name": "null"})

_R = RequestCode
REQUEST_HEADERS: Final[dict[int, type[tuple[Any, ...]]]] = {
    _R.SEND_MESSAGE: SendMessageRequestHeader,
    _R.PULL_MESSAGE: PullMessageRequestHeader,
    _R.LITE_PULL_MESSAGE: PullMessageRequestHeader,
    _R.QUERY_CONSUMER_OFFSET: QueryConsumerOffsetRequestHeader,
    _R.UPDATE_CONSUMER_OFFSET: UpdateConsumerOffsetRequestHeader,
    _R.UPDATE_AND_CREATE_TOPIC: CreateTopicRequestHeader,
    _R.SEARCH_OFFSET_BY_TIMESTAMP: SearchOffsetRequestHeader,
    _R.GET_MAX_OFFSET: QueueRequestHeader,
    _R.GET_MIN_OFFSET: QueueRequestHeader,
    _R.GET_EARLIEST_MSG_STORETIME: QueueRequestHeader,
    _R.UNREGISTER_CLIENT: UnregisterClientRequestHeader,
    _R.GET_CONSUMER_LIST_BY_GROUP: ListOwnersRequestHeader,
    _R.NOTIFY_CONSUMER_IDS_CHANGED: NotifyConsumerIdsChangedRequestHeader,
    _R.REGISTER_BROKER: RegisterBrokerRequestHeader,
    _R.UNREGISTER_BROKER: UnregisterBrokerRequestHeader,
    _R.GET_ROUTEINFO_BY_TOPIC: GetRouteInfoRequestHeader,
    _R.SEND_REPLY_MESSAGE: SendMessageRequestHeader,
    _R.SEND_REPLY_MESSAGE_V2: SendMessageRequestHeaderV2,
    _R.PUSH_REPLY_MESSAGE_TO_CLIENT: PushReplyMessageRequestHeader,
    _R.END_TRANSACTION: EndTransactionRequestHeader,
    _R.CHECK_TRANSACTION_STATE: CheckTransactionStateRequestHeader,
    _R.SEND_MESSAGE_V2: SendMessageRequestHeaderV2,
    _R.SEND_BATCH_MESSAGE: SendMessageRequestHeaderV2,
    _R.RECALL_MESSAGE: RecallMessageRequestHeader,
    _R.QUERY_DATA_VERSION: UnregisterBrokerRequestHeader,
    _R.LIST_LOCKS: ListLocksRequestHeader,
    _R.LIST_LOCK_CHANGES: ListLockChangesRequestHeader,
    _R.RESET_OWN_OFFSET: ResetOwnOffsetRequestHeader,
    _R.FIND_SENT: FindSentRequestHeader,
    _R.GET_RECOVERED_OFFSET: QueueRequestHeader,
    **ADMIN_REQUEST_HEADERS,
    **ACL_REQUEST_HEADERS,
    **POP_REQUEST_HEADERS,
    **TOGETHER_REQUEST_HEADERS,
}
RESPONSE_HEADERS: Final[dict[int, type[tuple[Any, ...]]]] = {
    _R.SEND_MESSAGE: SendMessageResponseHeader,
    _R.PULL_MESSAGE: PullMessageResponseHeader,
    _R.LITE_PULL_MESSAGE: LitePullMessageResponseHeader,
    _R.QUERY_CONSUMER_OFFSET: OffsetResponseHeader,
    _R.SEARCH_OFFSET_BY_TIMESTAMP: OffsetResponseHeader,
    _R.GET_MAX_OFFSET: OffsetResponseHeader,
    _R.GET_MIN_OFFSET: OffsetResponseHeader,
    _R.GET_EARLIEST_MSG_STORETIME: TimestampResponseHeader,
    _R.REGISTER_BROKER: RegisterBrokerResponseHeader,
    _R.SEND_MESSAGE_V2: SendMessageResponseHeader,
    _R.SEND_BATCH_MESSAGE: SendMessageResponseHeader,
    _R.RECALL_MESSAGE: RecallMessageResponseHeader,
    _R.QUERY_DATA_VERSION: QueryDataVersionResponseHeader,
    _R.RESET_OWN_OFFSET: ResetOwnOffsetResponseHeader,
    _R.FIND_SENT: SendMessageResponseHeader,
    _R.GET_RECOVERED_OFFSET: OffsetResponseHeader,
    **ADMIN_RESPONSE_HEADERS,
    **ACL_RESPONSE_HEADERS,
    **POP_RESPONSE_HEADERS,
    **TOGETHER_RESPONSE_HEADERS,
}
