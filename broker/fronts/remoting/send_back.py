"""CONSUMER_SEND_MSG_BACK (wire.md 10.1)."""

from lockstep.broker.connection import Connection
from lockstep.broker.core import send_back as core
from lockstep.broker.core.broker import Broker
from lockstep.broker.fronts.remoting.after import After, What
from lockstep.broker.fronts.remoting.send import limit_of_retries
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.admin import SendMessageBackRequestHeader

__all__ = ["send_back"]


def send_back(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> After:
    header = command.decode_header(SendMessageBackRequestHeader)
    retries_max = limit_of_retries(command, header.max_reconsume_times)
    core.send_back(broker, connection, header, now_ms, retries_max)
    return After(command.reply(ResponseCode.SUCCESS), What.LOG)
