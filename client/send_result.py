"""SendResult: the result of a send."""

from typing import NamedTuple

from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.model import MessageQueue

__all__ = ["SEND_OK", "SendResult", "SendStatus"]

SEND_OK = "SEND_OK"

# The four answers that mean "stored" (wire.md 3), with the names of Java's SendStatus. FLUSH_DISK_TIMEOUT is a result
# only for half messages. For other messages it is a SendError, because the broker does not know that the disk has it.
SendStatus = {
    int(ResponseCode.SUCCESS): SEND_OK,
    int(ResponseCode.FLUSH_DISK_TIMEOUT): "FLUSH_DISK_TIMEOUT",
    int(ResponseCode.SLAVE_NOT_AVAILABLE): "SLAVE_NOT_AVAILABLE",
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): "FLUSH_SLAVE_TIMEOUT",
}


class SendResult(NamedTuple):
    """`msg_id` is the producer's UNIQ_KEY, `offset_msg_id` the broker's id. A batch has several, joined by commas.

    `recall_handle`: of a message that waits for its time, for `Producer.recall`.
    """

    status: str
    msg_id: str
    queue: MessageQueue
    queue_offset: int
    offset_msg_id: str
    recall_handle: str | None = None

    @property
    def queue_id(self) -> int:
        return self.queue.queue_id
