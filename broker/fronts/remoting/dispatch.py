"""The handler of each request code: one table for the broker, one for the name server.

Any other code is answered REQUEST_CODE_NOT_SUPPORTED (3). Apache's name server does not answer an unknown code, and
its client waits for the timeout; ours answers.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from lockstep.broker.connection import Connection
from lockstep.broker.core.broker import Broker
from lockstep.broker.fronts.remoting import (
    assignments,
    client,
    find_sent,
    lock,
    message,
    offset,
    pop,
    pull,
    recall,
    reply_message,
    send,
    send_back,
    send_together,
    transaction,
)
from lockstep.broker.fronts.remoting.admin import (
    acl,
    client_queries,
    consumers,
    groups,
    reset_offset,
    runtime_info,
    settings,
    topics,
)
from lockstep.broker.fronts.remoting.after import After, Answer
from lockstep.broker.fronts.remoting.in_steps import give_fields
from lockstep.broker.fronts.remoting.name_server import admin as name_server_admin
from lockstep.broker.fronts.remoting.name_server import route
from lockstep.broker.fronts.remoting.refusal import REFUSALS, code_of
from lockstep.broker.name_server.name_server import NameServer
from lockstep.broker.request_body import check_body_length
from lockstep.protocol.codes import RequestCode, ResponseCode, request_name
from lockstep.protocol.command import RemotingCommand

__all__ = ["BROKER_HANDLERS", "NAME_SERVER_HANDLERS", "dispatch"]

S = TypeVar("S", Broker, NameServer)
A = TypeVar("A", bound=Answer)
Handler = Callable[[S, Connection, RemotingCommand, int], A | None]

_R = RequestCode
BROKER_HANDLERS: Final[Mapping[int, Handler[Broker, Answer]]] = {
    _R.SEND_MESSAGE: send.send_message,
    _R.SEND_MESSAGE_V2: send.send_message,
    _R.SEND_BATCH_MESSAGE: send.send_message,
    _R.SEND_TOGETHER: send_together.send_together,
    _R.FIND_SENT: find_sent.find_sent,
    _R.SEND_REPLY_MESSAGE: reply_message.send_reply_message,
    _R.SEND_REPLY_MESSAGE_V2: reply_message.send_reply_message,
    _R.PULL_MESSAGE: pull.pull_message,
    _R.LITE_PULL_MESSAGE: pull.pull_message,
    _R.QUERY_ASSIGNMENT: assignments.query_assignment,
    _R.SET_MESSAGE_REQUEST_MODE: assignments.set_mode,
    _R.GET_ALL_MESSAGE_REQUEST_MODE: assignments.all_modes,
    _R.POP_MESSAGE: pop.pop_message,
    _R.ACK_MESSAGE: pop.ack_message,
    _R.BATCH_ACK_MESSAGE: pop.ack_batch,
    _R.CHANGE_MESSAGE_INVISIBLETIME: pop.change_invisible_time,
    _R.PEEK_MESSAGE: pop.peek_message,
    _R.NOTIFICATION: pop.notification,
    _R.POLLING_INFO: pop.polling_info,
    _R.POP_ROLLBACK: pop.pop_rollback,
    _R.LIST_DELIVERIES: pop.list_deliveries,
    _R.RECALL_MESSAGE: recall.recall_message,
    _R.CONSUMER_SEND_MSG_BACK: send_back.send_back,
    _R.END_TRANSACTION: transaction.end_transaction,
    _R.RESUME_CHECK_HALF_MESSAGE: transaction.resume_check,
    _R.QUERY_MESSAGE: message.query_message,
    _R.VIEW_MESSAGE_BY_ID: message.view_message,
    _R.QUERY_CONSUME_QUEUE: message.query_consume_queue,
    _R.LOCK_BATCH_MQ: lock.lock_batch,
    _R.UNLOCK_BATCH_MQ: lock.unlock_batch,
    _R.LIST_LOCKS: lock.list_locks,
    _R.LIST_LOCK_CHANGES: lock.list_lock_changes,
    _R.QUERY_CONSUMER_OFFSET: offset.query_offset,
    _R.UPDATE_CONSUMER_OFFSET: offset.update_offset,
    _R.COMMIT_TOGETHER: offset.commit_together,
    _R.RESET_OWN_OFFSET: offset.reset_own_offset,
    _R.GET_MAX_OFFSET: offset.max_offset,
    _R.GET_MIN_OFFSET: offset.min_offset,
    _R.GET_RECOVERED_OFFSET: offset.recovered_offset,
    _R.SEARCH_OFFSET_BY_TIMESTAMP: offset.search_offset,
    _R.GET_EARLIEST_MSG_STORETIME: offset.earliest_store_time,
    _R.HEART_BEAT: client.heartbeat,
    _R.UNREGISTER_CLIENT: client.unregister_client,
    _R.GET_CONSUMER_LIST_BY_GROUP: client.list_consumers,
    _R.CHECK_CLIENT_CONFIG: client.check_client_config,
    _R.LIST_CONSUMER_GROUPS: client.list_consumer_groups,
    _R.UPDATE_AND_CREATE_TOPIC: topics.create_topic,
    _R.DELETE_TOPIC_IN_BROKER: topics.delete_topic,
    _R.GET_ALL_TOPIC_CONFIG: topics.topic_configs,
    _R.GET_TOPIC_CONFIG: topics.topic_config,
    _R.GET_TOPIC_STATS_INFO: topics.topic_stats,
    _R.QUERY_TOPIC_CONSUME_BY_WHO: topics.groups_of_topic,
    _R.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: topics.system_topics,
    _R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: groups.put_group,
    _R.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: groups.group_configs,
    _R.GET_SUBSCRIPTIONGROUP_CONFIG: groups.group_config,
    _R.DELETE_SUBSCRIPTIONGROUP: groups.delete_group,
    _R.GET_CONSUMER_CONNECTION_LIST: groups.consumer_connections,
    _R.GET_PRODUCER_CONNECTION_LIST: groups.producer_connections,
    _R.GET_ALL_PRODUCER_INFO: groups.producers,
    _R.GET_ALL_CONSUMER_OFFSET: consumers.all_consumer_offsets,
    _R.GET_ALL_DELAY_OFFSET: consumers.all_delay_offsets,
    _R.GET_CONSUME_STATS: consumers.consume_stats,
    _R.GET_BROKER_CONSUME_STATS: consumers.all_consume_stats,
    _R.QUERY_CONSUME_TIME_SPAN: consumers.consume_time_span,
    _R.QUERY_CORRECTION_OFFSET: consumers.correction_offsets,
    _R.CLONE_GROUP_OFFSET: consumers.clone_offsets,
    _R.INVOKE_BROKER_TO_RESET_OFFSET: reset_offset.reset_offset,
    _R.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: client_queries.consumer_status,
    _R.GET_CONSUMER_RUNNING_INFO: client_queries.running_info,
    _R.CONSUME_MESSAGE_DIRECTLY: client_queries.consume_directly,
    _R.UPDATE_AND_CREATE_ACL_CONFIG: acl.put_access,
    _R.DELETE_ACL_CONFIG: acl.delete_access,
    _R.GET_BROKER_CLUSTER_ACL_INFO: acl.acl_version,
    _R.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: acl.put_white_addresses,
    _R.GET_BROKER_CLUSTER_ACL_CONFIG: acl.get_rules,
    _R.GET_BROKER_CONFIG: settings.get_config,
    _R.UPDATE_BROKER_CONFIG: settings.update_config,
    _R.VIEW_BROKER_STATS_DATA: settings.view_stats,
    _R.GET_BROKER_RUNTIME_INFO: runtime_info.runtime_info,
    _R.CLEAN_EXPIRED_CONSUMEQUEUE: settings.clean_up,
    _R.CLEAN_UNUSED_TOPIC: settings.clean_up,
    _R.DELETE_EXPIRED_COMMITLOG: settings.clean_up,
}
NAME_SERVER_HANDLERS: Final[Mapping[int, Handler[NameServer, RemotingCommand]]] = {
    _R.REGISTER_BROKER: route.register_broker,
    _R.UNREGISTER_BROKER: route.unregister_broker,
    _R.GET_ROUTEINFO_BY_TOPIC: route.get_route,
    _R.GET_BROKER_CLUSTER_INFO: route.cluster_info,
    _R.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: route.all_topics,
    _R.QUERY_DATA_VERSION: route.query_data_version,
    _R.GET_TOPICS_BY_CLUSTER: name_server_admin.topics_by_cluster,
    _R.GET_SYSTEM_TOPIC_LIST_FROM_NS: name_server_admin.system_topics,
    _R.GET_UNIT_TOPIC_LIST: name_server_admin.unit_topics,
    _R.GET_HAS_UNIT_SUB_TOPIC_LIST: name_server_admin.unit_subscribed_topics,
    _R.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: name_server_admin.unit_subscribed_ununit_topics,
    _R.DELETE_TOPIC_IN_NAMESRV: name_server_admin.delete_topic,
    _R.WIPE_WRITE_PERM_OF_BROKER: name_server_admin.wipe_write_perm,
    _R.ADD_WRITE_PERM_OF_BROKER: name_server_admin.add_write_perm,
    _R.PUT_KV_CONFIG: name_server_admin.put_kv,
    _R.GET_KV_CONFIG: name_server_admin.get_kv,
    _R.DELETE_KV_CONFIG: name_server_admin.delete_kv,
    _R.GET_KVLIST_BY_NAMESPACE: name_server_admin.list_kv,
    _R.GET_NAMESRV_CONFIG: name_server_admin.get_config,
    _R.UPDATE_NAMESRV_CONFIG: name_server_admin.update_config,
}


def dispatch(
    handlers: Mapping[int, Handler[S, A]], server: S, connection: Connection, command: RemotingCommand, now_ms: int
) -> A | RemotingCommand | None:
    """Handle one request. Raises RemoteProtocolError for an unreadable header or body."""
    handler = handlers.get(command.code)
    if handler is None:
        remark = f"{request_name(command.code)} is not supported here"
        return command.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
    check_body_length(command, server.config.structured_body_bytes_max)
    try:
        answer: A | RemotingCommand | None = handler(server, connection, command, now_ms)
    except REFUSALS as refusal:
        answer = command.reply(code_of(refusal), remark=str(refusal))
    # Where RocketMQ's reply has fields, an answer that waits has a header.
    return answer if answer is None or isinstance(answer, After) else give_fields(command, answer)
