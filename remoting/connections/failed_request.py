"""The reply to a request whose handler raised an exception."""

from lockstep.protocol.codes import ResponseCode, SerializeType, request_name
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import RemoteProtocolError
from lockstep.remoting.logs import EventLog

__all__ = ["reply_to_failed"]


def reply_to_failed(peer: str, log: EventLog, command: RemotingCommand, error: Exception) -> RemotingCommand:
    """SYSTEM_ERROR with the reason. `log` gets it too: what the peer did wrong as information, the rest as an error."""
    name = request_name(command.code)
    if isinstance(error, RemoteProtocolError):
        remark = f"{name}: {error}"
        log.info("request_refused", peer=peer, reason=remark)
    else:
        remark = f"{name}: {type(error).__name__}: {error}"
        log.error("request_failed", peer=peer, reason=remark, exc_info=error)
    reply = command.reply(ResponseCode.SYSTEM_ERROR, remark=remark)
    if reply.serialize_type == SerializeType.ROCKETMQ:
        # RocketMQ reports failures as JSON (wire.md 1.3).
        reply.serialize_type = SerializeType.JSON
    return reply
