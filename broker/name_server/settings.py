"""Key-value configs and the settings of a name server: codes 100, 101, 102, 219, 318, 319 (wire.md 2.7)."""

from lockstep.broker.connection import Connection
from lockstep.broker.name_server.name_server import NameServer, NameServerFull
from lockstep.broker.processors.admin.settings_body import encode_settings, updated_settings
from lockstep.broker.processors.refusal import Refusal
from lockstep.protocol.bodies.codec import encode_body
from lockstep.protocol.bodies.name_server import KvTable
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.admin import (
    DeleteKvConfigRequestHeader,
    GetKvConfigRequestHeader,
    GetKvConfigResponseHeader,
    GetKvListRequestHeader,
    PutKvConfigRequestHeader,
)
from lockstep.remoting.settings import as_properties

__all__ = ["delete_kv", "get_config", "get_kv", "list_kv", "put_kv", "update_config"]


def put_kv(server: NameServer, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    try:
        server.put_kv(*command.decode_header(PutKvConfigRequestHeader), connection, now_ms)
    except NameServerFull as error:
        raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from None
    return command.reply(ResponseCode.SUCCESS)


def get_kv(server: NameServer, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    namespace, key = command.decode_header(GetKvConfigRequestHeader)
    value = server.kv_configs.get(namespace, key)
    if value is None:
        raise Refusal(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace} Key: {key}")
    return command.reply(ResponseCode.SUCCESS, GetKvConfigResponseHeader(value))


def delete_kv(server: NameServer, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    server.kv_configs.delete(*command.decode_header(DeleteKvConfigRequestHeader))
    return command.reply(ResponseCode.SUCCESS)


def list_kv(server: NameServer, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    (namespace,) = command.decode_header(GetKvListRequestHeader)
    table = server.kv_configs.namespace(namespace)
    if table is None:
        raise Refusal(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}")
    return command.reply(ResponseCode.SUCCESS, body=encode_body(KvTable(dict(table)), command.serialize_type))


def get_config(server: NameServer, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    return command.reply(ResponseCode.SUCCESS, body=encode_settings(as_properties(server.config)))


def update_config(server: NameServer, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    """Settings that a running name server can take over; any other changes nothing."""
    server.config, _ = updated_settings(server.config, command.body)
    return command.reply(ResponseCode.SUCCESS)
