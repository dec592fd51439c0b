"""A broker's answer to a send becomes a SendResult or a SendError."""

from typing import Final

from lockstep.client.errors import SendError, SendOutcome
from lockstep.client.producer.outgoing import Outgoing
from lockstep.client.send_result import SendResult, SendStatus
from lockstep.protocol.codes import ResponseCode, SysFlag, response_name
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import HeaderError
from lockstep.protocol.headers.messaging import SendMessageResponseHeader, TimedSendResponseHeader
from lockstep.protocol.model import MessageQueue

__all__ = ["new_send_error", "read_send_reply"]

_FLUSH_DISK_TIMEOUT: Final = int(ResponseCode.FLUSH_DISK_TIMEOUT)
_TIMER: Final = "TIMER_"  # in the properties of each message for a time
_PREPARED: Final = int(SysFlag.TRANSACTION_PREPARED)


def new_send_error(code: int, remark: str | None, outgoing: Outgoing) -> SendError:
    """The error of a message that a broker refused, or that may not be on its disk."""
    outcome = SendOutcome.UNKNOWN if code == _FLUSH_DISK_TIMEOUT else SendOutcome.REFUSED
    name = response_name(code)
    reason = f"{name}: {remark}" if remark or code != _FLUSH_DISK_TIMEOUT else name
    return SendError(reason, outcome, msg_id=outgoing.msg_id, code=code)


def read_send_reply(reply: RemotingCommand | SendResult, queue: MessageQueue, outgoing: Outgoing) -> SendResult:
    """Return the result of a message that is stored.

    A message that may not be on the disk counts as not stored, because the broker's end could lose it. A half message
    is an exception: the producer rolls it back, as Java's client does.

    Args:
        reply: of a message that left with others, the result itself.

    Raises:
        SendError: the broker refused the message, or its outcome is unknown.
    """
    if type(reply) is SendResult:
        return reply
    assert isinstance(reply, RemotingCommand)
    status = SendStatus.get(reply.code)
    if status is None or (reply.code == _FLUSH_DISK_TIMEOUT and not outgoing.sys_flag & _PREPARED):
        raise new_send_error(reply.code, reply.remark, outgoing)
    try:
        if _TIMER in outgoing.properties:
            timed = reply.decode_header(TimedSendResponseHeader)
            header, handle = SendMessageResponseHeader(*timed[:-1]), timed.recall_handle
        else:
            header, handle = reply.decode_header(SendMessageResponseHeader), None
    except HeaderError as error:
        raise SendError(f"the broker's answer: {error}", SendOutcome.UNKNOWN, msg_id=outgoing.msg_id) from None
    if header.queue_id != queue.queue_id:
        queue = queue._replace(queue_id=header.queue_id)
    return SendResult(status, outgoing.msg_id, queue, header.queue_offset, header.msg_id, handle)
