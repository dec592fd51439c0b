"""One table a port: request code -> handler. What is in no table is answered REQUEST_CODE_NOT_SUPPORTED (3).

Apache's name server never answers a code that it does not know; ours does, so that nobody waits for a timeout.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from lockstep.broker.connection import Connection
from lockstep.broker.core import Broker
from lockstep.broker.name_server import NameServer
from lockstep.broker.processors import admin, client, lock, offset, pull, route, send
from lockstep.protocol.codes import RequestCode, ResponseCode, request_name
from lockstep.protocol.command import RemotingCommand

__all__ = ["BROKER_HANDLERS", "NAME_SERVER_HANDLERS", "dispatch"]

S = TypeVar("S")
Handler = Callable[[S, Connection, RemotingCommand, int], RemotingCommand | None]

_R = RequestCode
BROKER_HANDLERS: Final[Mapping[int, Handler[Broker]]] = {
    _R.SEND_MESSAGE: send.send_message,
    _R.SEND_MESSAGE_V2: send.send_message,
    _R.SEND_BATCH_MESSAGE: send.send_message,
    _R.PULL_MESSAGE: pull.pull_message,
    _R.LOCK_BATCH_MQ: lock.lock_batch,
    _R.UNLOCK_BATCH_MQ: lock.unlock_batch,
    _R.LIST_LOCKS: lock.list_locks,
    _R.QUERY_CONSUMER_OFFSET: offset.query_offset,
    _R.UPDATE_CONSUMER_OFFSET: offset.update_offset,
    _R.GET_MAX_OFFSET: offset.max_offset,
    _R.GET_MIN_OFFSET: offset.min_offset,
    _R.SEARCH_OFFSET_BY_TIMESTAMP: offset.search_offset,
    _R.GET_EARLIEST_MSG_STORETIME: offset.earliest_store_time,
    _R.HEART_BEAT: client.heartbeat,
    _R.UNREGISTER_CLIENT: client.unregister_client,
    _R.GET_CONSUMER_LIST_BY_GROUP: client.list_consumers,
    _R.CHECK_CLIENT_CONFIG: client.check_client_config,
    _R.LIST_CONSUMER_GROUPS: client.list_consumer_groups,
    _R.UPDATE_AND_CREATE_TOPIC: admin.create_topic,
}
NAME_SERVER_HANDLERS: Final[Mapping[int, Handler[NameServer]]] = {
    _R.REGISTER_BROKER: route.register_broker,
    _R.UNREGISTER_BROKER: route.unregister_broker,
    _R.GET_ROUTEINFO_BY_TOPIC: route.get_route,
    _R.GET_BROKER_CLUSTER_INFO: route.cluster_info,
    _R.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: route.all_topics,
    _R.QUERY_DATA_VERSION: route.query_data_version,
}


def dispatch(
    handlers: Mapping[int, Handler[S]], server: S, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand | None:
    handler = handlers.get(command.code)
    if handler is None:
        remark = f"{request_name(command.code)} is not supported here"
        return command.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
    return handler(server, connection, command, now_ms)
