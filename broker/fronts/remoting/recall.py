"""RECALL_MESSAGE (docs/wire.md 18.7)."""

from typing import Final

from lockstep.broker.connection import Connection
from lockstep.broker.core.broker import Broker
from lockstep.broker.core.recall import recall
from lockstep.broker.core.refused import Refused
from lockstep.broker.fronts.remoting.after import After, Answer, What
from lockstep.broker.fronts.remoting.refusal import code_of
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import RecallMessageRequestHeader, RecallMessageResponseHeader

__all__ = ["recall_message"]

_REGION: Final = "DefaultRegion"


def recall_message(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> Answer:
    header = command.decode_header(RecallMessageRequestHeader)
    try:
        message_id = recall(broker, header.topic, header.recall_handle, now_ms)
    except Refused as why:
        reply = command.reply(code_of(why), remark=str(why))
        # As in RocketMQ, like the reply to a send.
        reply.ext_fields = {"MSG_REGION": _REGION}
        return reply
    # RocketMQ's remark.
    answer = RecallMessageResponseHeader(message_id, _REGION)
    return After(command.reply(ResponseCode.SUCCESS, answer, remark="not set any response code"), What.LOG)
