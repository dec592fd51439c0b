"""Settings of a server, statistics and clean-up of a broker: codes 25, 26, 306, 315, 316, 329 (wire.md 2.4, 2.7).

Tools read and write settings as lines of name=value, with RocketMQ's names.
"""

from collections.abc import Mapping
from typing import Final, TypeVar

from lockstep.broker.connection import Connection
from lockstep.broker.core.broker import Broker
from lockstep.broker.fronts.remoting.in_steps import AnswerSteps, answer_in_steps
from lockstep.broker.fronts.remoting.refusal import Refusal
from lockstep.protocol.bodies.codec import encode_body
from lockstep.protocol.codes import ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.admin import GetBrokerConfigResponseHeader, ViewBrokerStatsRequestHeader
from lockstep.remoting.settings import SettingError, as_properties, live_properties, parse_properties, with_properties

__all__ = ["clean_up", "encode_settings", "get_config", "update_config", "updated_settings", "view_stats"]

C = TypeVar("C")

# Each may change a setting, and is then checked with all others.
_LINES_MAX: Final = 1000
_BODY_BYTES_MAX: Final = 64 * 1024
_REASONS_MAX: Final = 20  # in the log

# Names that mqadmin exportConfigs asks for, and that are no settings here.
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
    """Every setting, under RocketMQ's name if it has one; the address and the port as they are in use."""
    settings = as_properties(broker.config) | {
        "brokerIP1": broker.config.advertised_host,
        **_FACTS,
        "listenPort": str(broker.messages.store.store_port),
    }
    version = encode_body(broker.config_version, SerializeType.JSON).decode("utf-8")
    return command.reply(ResponseCode.SUCCESS, GetBrokerConfigResponseHeader(version), encode_settings(settings))


def update_config(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    """Change settings that may change at run time. The others are logged and ignored."""
    config, ignored = updated_settings(broker.config, command.body)
    if ignored:
        broker.log.warning("settings_ignored", peer=connection.address, reasons=ignored[:_REASONS_MAX])
    if config != broker.config:
        broker.log.info(
            "settings_changed", peer=connection.address, settings=command.body.decode("utf-8", "replace").split()
        )
        broker.change_config(config, now_ms)
    return command.reply(ResponseCode.SUCCESS)


def view_stats(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand | None:
    name, key = command.decode_header(ViewBrokerStatsRequestHeader)

    def steps() -> AnswerSteps:
        yield from broker.stats.count_in_steps()
        data = broker.stats.view(name, key)
        if data is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")
        return command.reply(ResponseCode.SUCCESS, body=encode_body(data, command.serialize_type))

    return answer_in_steps(broker, connection, command, steps())


def clean_up(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    """Nothing to do: memory and files are freed when messages or topics are deleted."""
    return command.reply(ResponseCode.SUCCESS)


def encode_settings(settings: Mapping[str, str]) -> bytes:
    return "".join(f"{name}={settings[name]}\n" for name in sorted(settings)).encode("utf-8")


def updated_settings(config: C, body: bytes) -> tuple[C, list[str]]:
    """Apply the lines of a request to `config`.

    RocketMQ accepts every line, also one that is unreadable, unknown or only read at its start. So no line is an error
    here either.

    Returns:
        The new config, and for each line without effect a reason for the log.

    Raises:
        Refusal: There are too many lines.
    """
    lines = body.decode("utf-8", "replace").splitlines() if len(body) <= _BODY_BYTES_MAX else None
    if lines is None or len(lines) > _LINES_MAX:
        remark = f"at most {_LINES_MAX} lines and {_BODY_BYTES_MAX} bytes of settings are allowed in one request"
        raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
    live = live_properties(config)
    ignored = []
    for line in lines:
        try:
            for name, value in parse_properties(line).items():
                if name in live:
                    config = with_properties(config, {name: value})
                else:
                    ignored.append(f"{name}: cannot change at run time; these can: {', '.join(sorted(live))}")
        except SettingError as error:
            ignored.append(str(error))
    return config, ignored
