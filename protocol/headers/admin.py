"""Typed headers of administration requests to brokers (wire.md 2.2 to 2.4) and name servers (2.7).

MSGPACK sends the fields in the declared order, so new fields go to the end.
"""

from typing import Any, Final, NamedTuple

from lockstep.protocol.codes import RequestCode
from lockstep.protocol.headers.spec import Int32, rename_on_wire, stand_in

__all__ = [
    "ADMIN_REQUEST_HEADERS",
    "ADMIN_RESPONSE_HEADERS",
    "BrokerNameRequestHeader",
    "CloneGroupOffsetRequestHeader",
    "ConsumeMessageDirectlyRequestHeader",
    "ConsumeStatsRequestHeader",
    "ConsumerGroupRequestHeader",
    "ConsumerStatusRequestHeader",
    "DeleteKvConfigRequestHeader",
    "DeleteSubscriptionGroupRequestHeader",
    "DeleteTopicInNameServerRequestHeader",
    "DeleteTopicRequestHeader",
    "GetBrokerConfigResponseHeader",
    "GetBrokerConsumeStatsRequestHeader",
    "GetConsumerRunningInfoRequestHeader",
    "GetKvConfigRequestHeader",
    "GetKvConfigResponseHeader",
    "GetKvListRequestHeader",
    "GetSubscriptionGroupConfigRequestHeader",
    "GetTopicsByClusterRequestHeader",
    "GetWritePermResponseHeader",
    "ProducerGroupRequestHeader",
    "PutKvConfigRequestHeader",
    "QueryConsumeQueueRequestHeader",
    "QueryConsumeTimeSpanRequestHeader",
    "QueryCorrectionOffsetRequestHeader",
    "QueryMessageRequestHeader",
    "QueryMessageResponseHeader",
    "ResetOffsetRequestHeader",
    "ResumeCheckHalfMessageRequestHeader",
    "SendMessageBackRequestHeader",
    "TopicRequestHeader",
    "ViewBrokerStatsRequestHeader",
    "ViewMessageRequestHeader",
]


# Messages: send-back and queries ----------------------------------------------------------------------------------


class SendMessageBackRequestHeader(NamedTuple):
    """CONSUMER_SEND_MSG_BACK (36). `offset` is a commit log offset. With `delay_level` 0 the broker chooses it.

    The `lock_` fields are a Lockstep extension, sent only to a peer that agreed: the epoch under which an ordered
    consumer has the message, its client id, and the queue of the message (docs/fencing.md).
    """

    offset: int
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool | None = None
    max_reconsume_times: Int32 | None = None
    lock_epoch: int | None = None
    lock_client_id: str | None = None
    lock_topic: str | None = None
    lock_queue_id: Int32 | None = None


class QueryMessageRequestHeader(NamedTuple):
    """QUERY_MESSAGE (12). Timestamps are in epoch ms. With the extField `_UNIQUE_KEY_QUERY` the key is a UNIQ_KEY."""

    topic: str
    key: str
    max_num: Int32
    begin_timestamp: int
    end_timestamp: int
    unique_key_query: bool | None = None


class QueryMessageResponseHeader(NamedTuple):
    index_last_update_timestamp: int
    index_last_update_phyoffset: int


class ViewMessageRequestHeader(NamedTuple):
    """VIEW_MESSAGE_BY_ID (33). The offset is the commit log offset in an offset message id."""

    offset: int


class ResumeCheckHalfMessageRequestHeader(NamedTuple):
    """RESUME_CHECK_HALF_MESSAGE (323). `msg_id` is an offset message id."""

    msg_id: str | None = None


class QueryConsumeQueueRequestHeader(NamedTuple):
    topic: str
    queue_id: Int32
    first_index: int
    entry_count: Int32
    consumer_group: str | None = None


# Topics, groups, connections --------------------------------------------------------------------------------------


class TopicRequestHeader(NamedTuple):
    """GET_TOPIC_STATS_INFO (202), QUERY_TOPIC_CONSUME_BY_WHO (300), GET_TOPIC_CONFIG (351)."""

    topic: str


class DeleteTopicRequestHeader(NamedTuple):
    topic: str


class DeleteSubscriptionGroupRequestHeader(NamedTuple):
    group_name: str
    remove_offset: bool = False


class GetSubscriptionGroupConfigRequestHeader(NamedTuple):
    group: str


class ConsumerGroupRequestHeader(NamedTuple):
    """GET_CONSUMER_CONNECTION_LIST (203)."""

    consumer_group: str


class ProducerGroupRequestHeader(NamedTuple):
    """GET_PRODUCER_CONNECTION_LIST (204)."""

    producer_group: str


class ConsumeStatsRequestHeader(NamedTuple):
    """GET_CONSUME_STATS (208). Without a topic: all topics in which the group has offsets."""

    consumer_group: str
    topic: str | None = None


class ResetOffsetRequestHeader(NamedTuple):
    """INVOKE_BROKER_TO_RESET_OFFSET (222) and RESET_CONSUMER_CLIENT_OFFSET (220). A timestamp of -1 is the end."""

    topic: str
    group: str
    timestamp: int
    is_force: bool = False


class ConsumerStatusRequestHeader(NamedTuple):
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223) and GET_CONSUMER_STATUS_FROM_CLIENT (221)."""

    topic: str
    group: str
    client_addr: str | None = None


class GetConsumerRunningInfoRequestHeader(NamedTuple):
    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectlyRequestHeader(NamedTuple):
    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None


class QueryConsumeTimeSpanRequestHeader(NamedTuple):
    topic: str
    group: str


class QueryCorrectionOffsetRequestHeader(NamedTuple):
    compare_group: str
    topic: str
    filter_groups: str | None = None


class CloneGroupOffsetRequestHeader(NamedTuple):
    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


class ViewBrokerStatsRequestHeader(NamedTuple):
    stats_name: str
    stats_key: str


class GetBrokerConsumeStatsRequestHeader(NamedTuple):
    is_order: bool = False


class GetBrokerConfigResponseHeader(NamedTuple):
    """Reply to GET_BROKER_CONFIG (26). `version` is a DataVersion as JSON text."""

    version: str


# Name server ------------------------------------------------------------------------------------------------------


class PutKvConfigRequestHeader(NamedTuple):
    namespace: str
    key: str
    value: str


class GetKvConfigRequestHeader(NamedTuple):
    namespace: str
    key: str


class GetKvConfigResponseHeader(NamedTuple):
    value: str | None = None


class DeleteKvConfigRequestHeader(NamedTuple):
    namespace: str
    key: str


class GetKvListRequestHeader(NamedTuple):
    namespace: str


class DeleteTopicInNameServerRequestHeader(NamedTuple):
    topic: str
    cluster_name: str | None = None


class GetTopicsByClusterRequestHeader(NamedTuple):
    cluster: str


class BrokerNameRequestHeader(NamedTuple):
    """WIPE_WRITE_PERM_OF_BROKER (205), ADD_WRITE_PERM_OF_BROKER (327)."""

    broker_name: str


class GetWritePermResponseHeader(NamedTuple):
    """The number of changed topics: code 205 sets `wipe_topic_count`, 327 sets `add_topic_count`."""

    wipe_topic_count: Int32 | None = None
    add_topic_count: Int32 | None = None


rename_on_wire(QueryConsumeQueueRequestHeader, {"first_index": "index", "entry_count": "count"})
rename_on_wire(QueryMessageRequestHeader, {"unique_key_query": "_UNIQUE_KEY_QUERY"})
# Like in messaging.py. No name is "null", so such a request finds and deletes nothing.
stand_in(QueryConsumeQueueRequestHeader, {"queue_id": 0, "first_index": 0, "entry_count": 0})
stand_in(QueryMessageRequestHeader, {"topic": "null", "key": "null"})
stand_in(QueryConsumeTimeSpanRequestHeader, {"group": "null"})
stand_in(CloneGroupOffsetRequestHeader, {"dest_group": "null"})
stand_in(GetKvConfigRequestHeader, {"namespace": "null", "key": "null"})
stand_in(DeleteKvConfigRequestHeader, {"namespace": "null", "key": "null"})
stand_in(GetKvListRequestHeader, {"namespace": "null"})
stand_in(DeleteTopicInNameServerRequestHeader, {"topic": "null"})
stand_in(GetTopicsByClusterRequestHeader, {"cluster": "null"})
stand_in(DeleteTopicRequestHeader, {"topic": ""})
stand_in(ViewBrokerStatsRequestHeader, {"stats_name": "null"})
stand_in(GetConsumerRunningInfoRequestHeader, {"client_id": "null"})
stand_in(QueryCorrectionOffsetRequestHeader, {"compare_group": "null"})
stand_in(ResetOffsetRequestHeader, {"timestamp": 0})
stand_in(BrokerNameRequestHeader, {"broker_name": "null"})

_R = RequestCode
ADMIN_REQUEST_HEADERS: Final[dict[int, type[tuple[Any, ...]]]] = {
    _R.CONSUMER_SEND_MSG_BACK: SendMessageBackRequestHeader,
    _R.QUERY_MESSAGE: QueryMessageRequestHeader,
    _R.VIEW_MESSAGE_BY_ID: ViewMessageRequestHeader,
    _R.QUERY_CONSUME_QUEUE: QueryConsumeQueueRequestHeader,
    _R.RESUME_CHECK_HALF_MESSAGE: ResumeCheckHalfMessageRequestHeader,
    _R.GET_TOPIC_STATS_INFO: TopicRequestHeader,
    _R.QUERY_TOPIC_CONSUME_BY_WHO: TopicRequestHeader,
    _R.GET_TOPIC_CONFIG: TopicRequestHeader,
    _R.GET_SUBSCRIPTIONGROUP_CONFIG: GetSubscriptionGroupConfigRequestHeader,
    _R.DELETE_TOPIC_IN_BROKER: DeleteTopicRequestHeader,
    _R.DELETE_SUBSCRIPTIONGROUP: DeleteSubscriptionGroupRequestHeader,
    _R.GET_CONSUMER_CONNECTION_LIST: ConsumerGroupRequestHeader,
    _R.GET_PRODUCER_CONNECTION_LIST: ProducerGroupRequestHeader,
    _R.GET_CONSUME_STATS: ConsumeStatsRequestHeader,
    _R.INVOKE_BROKER_TO_RESET_OFFSET: ResetOffsetRequestHeader,
    _R.RESET_CONSUMER_CLIENT_OFFSET: ResetOffsetRequestHeader,
    _R.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: ConsumerStatusRequestHeader,
    _R.GET_CONSUMER_STATUS_FROM_CLIENT: ConsumerStatusRequestHeader,
    _R.GET_CONSUMER_RUNNING_INFO: GetConsumerRunningInfoRequestHeader,
    _R.CONSUME_MESSAGE_DIRECTLY: ConsumeMessageDirectlyRequestHeader,
    _R.QUERY_CONSUME_TIME_SPAN: QueryConsumeTimeSpanRequestHeader,
    _R.QUERY_CORRECTION_OFFSET: QueryCorrectionOffsetRequestHeader,
    _R.CLONE_GROUP_OFFSET: CloneGroupOffsetRequestHeader,
    _R.VIEW_BROKER_STATS_DATA: ViewBrokerStatsRequestHeader,
    _R.GET_BROKER_CONSUME_STATS: GetBrokerConsumeStatsRequestHeader,
    _R.PUT_KV_CONFIG: PutKvConfigRequestHeader,
    _R.GET_KV_CONFIG: GetKvConfigRequestHeader,
    _R.DELETE_KV_CONFIG: DeleteKvConfigRequestHeader,
    _R.GET_KVLIST_BY_NAMESPACE: GetKvListRequestHeader,
    _R.DELETE_TOPIC_IN_NAMESRV: DeleteTopicInNameServerRequestHeader,
    _R.GET_TOPICS_BY_CLUSTER: GetTopicsByClusterRequestHeader,
    _R.WIPE_WRITE_PERM_OF_BROKER: BrokerNameRequestHeader,
    _R.ADD_WRITE_PERM_OF_BROKER: BrokerNameRequestHeader,
}
ADMIN_RESPONSE_HEADERS: Final[dict[int, type[tuple[Any, ...]]]] = {
    _R.QUERY_MESSAGE: QueryMessageResponseHeader,
    _R.GET_BROKER_CONFIG: GetBrokerConfigResponseHeader,
    _R.GET_KV_CONFIG: GetKvConfigResponseHeader,
    _R.WIPE_WRITE_PERM_OF_BROKER: GetWritePermResponseHeader,
    _R.ADD_WRITE_PERM_OF_BROKER: GetWritePermResponseHeader,
}
