"""The broker itself: its settings, its statistics, its clean-up: codes 25, 26, 306, 315, 316, 329 (wire.md 2.4)."""

from typing import Final

from lockstep.broker.connection import Connection
from lockstep.broker.processors.admin.settings_body import encode_settings, updated_settings
from lockstep.broker.processors.refusal import Refusal
from lockstep.broker.state.broker import Broker
from lockstep.protocol.bodies.codec import encode_body
from lockstep.protocol.codes import ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.admin import GetBrokerConfigResponseHeader, ViewBrokerStatsRequestHeader
from lockstep.remoting.settings import as_properties

__all__ = ["clean_up", "get_config", "update_config", "view_stats"]

# What is no setting here, under the names that mqadmin exportConfigs asks for. Messages leave for room, not for age.
_FACTS: Final = {
    "brokerRole": "ASYNC_MASTER",
    "fileReservedTime": "0",
    "filterServerNums": "0",
    "flushDiskType": "ASYNC_FLUSH",
    "slaveReadEnable": "false",
    "traceOn": "true",
    "useTLS": "false",
}


def get_config(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    """Every setting under RocketMQ's name where it has one; addresses and ports as they came to be."""
    settings = as_properties(broker.config) | {
        "brokerIP1": broker.config.advertised_host,
        **_FACTS,
        "listenPort": str(broker.store.store_port),
    }
    version = encode_body(broker.config_version, SerializeType.JSON).decode("utf-8")
    return command.reply(ResponseCode.SUCCESS, GetBrokerConfigResponseHeader(version), encode_settings(settings))


def update_config(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    """Settings that a running broker can take over; any other changes nothing and is logged."""
    config, ignored = updated_settings(broker.config, command.body)
    if ignored:
        broker.log.warning("settings_ignored", peer=connection.address, reasons=ignored)
    if config != broker.config:
        broker.log.info(
            "settings_changed", peer=connection.address, settings=command.body.decode("utf-8", "replace").split()
        )
        broker.change_config(config, now_ms)
    return command.reply(ResponseCode.SUCCESS)


def view_stats(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    name, key = command.decode_header(ViewBrokerStatsRequestHeader)
    data = broker.stats.view(name, key)
    if data is None:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")
    return command.reply(ResponseCode.SUCCESS, body=encode_body(data, command.serialize_type))


def clean_up(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    """There is never anything left to clean: memory is given back when messages or topics go."""
    return command.reply(ResponseCode.SUCCESS)
