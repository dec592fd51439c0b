"""Sends that wait for one queue of a RocketMQ broker leave as one SEND_BATCH_MESSAGE (wire.md 4.4, docs/order.md 2).

This needs the setting `auto_batch`. A broker that takes many sends in one frame, as ours do, gets such frames instead.
"""

import struct
from collections.abc import Callable, Iterator
from typing import Final

from lockstep.client.config import ProducerConfig
from lockstep.client.errors import SendError, SendOutcome
from lockstep.client.producer.answers import new_send_error
from lockstep.client.producer.outgoing import OneSend, Outgoing, SentFuture
from lockstep.client.producer.sequencer import SequenceNumber
from lockstep.client.send_result import SendResult, SendStatus
from lockstep.protocol.codes import BATCHED_PROPERTIES_BYTES_MAX, RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import HeaderError, LocalProtocolError
from lockstep.protocol.headers.messaging import SendMessageResponseHeader
from lockstep.protocol.messages.batch import encode_batch_record
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.connections.endpoint import Endpoint
from lockstep.remoting.errors import RemotingError

__all__ = ["Batch", "BatchRefusedError"]

_SEND_BATCH: Final = int(RequestCode.SEND_BATCH_MESSAGE)
_FLUSH_DISK_TIMEOUT: Final = int(ResponseCode.FLUSH_DISK_TIMEOUT)
# Nothing of a batch is stored after these answers, and each of its messages may be stored by itself.
_NO_BATCH: Final = frozenset({ResponseCode.MESSAGE_ILLEGAL, ResponseCode.REQUEST_CODE_NOT_SUPPORTED})
# RocketMQ's texts for a batch whose body is within the limit and whose stored messages, or properties, are not.
_TOO_LARGE: Final = "size exceeded", "Properties size of messageExtBatch exceeded"


class BatchRefusedError(SendError):
    """The broker does not take the batch. Its messages may be sent by themselves."""


class Batch:
    """The messages of one request. All have the same topic, queue and timeout.

    Args:
        first: The send that leaves now, and that others may join.
    """

    __slots__ = ("_bytes_left", "_count_left", "_first", "_records")

    def __init__(self, config: ProducerConfig, first: OneSend) -> None:
        self._first = first
        self._records: list[tuple[OneSend, bytes]] = []
        self._count_left = config.send_together_max
        # RocketMQ's limit for the body of a message counts for the whole batch (wire.md 4.4).
        self._bytes_left = min(config.send_together_bytes_max, config.body_bytes_max)

    def __iter__(self) -> Iterator[OneSend]:
        return (send for send, _ in self._records)

    def __len__(self) -> int:
        return len(self._records)

    def join(self, send: OneSend) -> bool:
        """Take the send into the batch. Returns False when it does not fit."""
        if not self._records and not self._take(self._first):
            return False
        return send.timeout_ms == self._first.timeout_ms and self._take(send)

    def _take(self, send: OneSend) -> bool:
        outgoing = send.outgoing
        properties = outgoing.properties.encode("utf-8", "replace")
        if len(properties) > BATCHED_PROPERTIES_BYTES_MAX:
            return False
        try:
            record = encode_batch_record(outgoing.flag, outgoing.body, properties)
        except struct.error:  # its flag fits no record
            return False
        if not self._count_left or len(record) > self._bytes_left:
            return False
        self._count_left -= 1
        self._bytes_left -= len(record)
        self._records.append((send, record))
        return True

    def leave_out(self, future: SentFuture) -> None:
        self._records = [one for one in self._records if one[0].future is not future]

    def leave(
        self,
        endpoint: Endpoint,
        command: Callable[[MessageQueue, Outgoing, SequenceNumber | None], RemotingCommand],
        ended: Callable[[], object],
    ) -> None:
        """Send the request. Each future gets its own end.

        Args:
            command: Makes the request of a message or a batch.
            ended: Called when all futures have their ends.
        """
        queue, first, timeout_ms, _, _ = self._first
        body = b"".join([record for _, record in self._records])
        batch = Outgoing(_SEND_BATCH, first.topic, body, 0, "", "", None, first.born_timestamp_ms)
        answer = _Answer(queue, list(self), ended)
        try:
            endpoint.request_for(answer, command(queue, batch, None), timeout_ms)
        except (RemotingError, LocalProtocolError) as error:
            answer.fail(str(error), SendOutcome.NOT_SENT)


class _Answer:
    """The waiter of a batch: it gives each send its own end."""

    __slots__ = ("_ended", "_queue", "_sends")

    def __init__(self, queue: MessageQueue, sends: list[OneSend], ended: Callable[[], object]) -> None:
        self._queue = queue
        self._sends = sends
        self._ended = ended

    def done(self) -> bool:
        """False: also when no caller waits any more, the batch has to end."""
        return False

    def set_exception(self, error: RemotingError) -> None:
        self.fail(str(error), SendOutcome.UNKNOWN)

    def fail(self, reason: str, outcome: SendOutcome) -> None:
        for _, outgoing, _, _, future in self._sends:
            if not future.done():
                future.set_exception(SendError(reason, outcome, msg_id=outgoing.msg_id))
        self._ended()

    def set_result(self, reply: RemotingCommand) -> None:
        status = SendStatus.get(reply.code)
        if status is None or reply.code == _FLUSH_DISK_TIMEOUT:
            for _, outgoing, _, _, future in self._sends:
                if not future.done():
                    future.set_exception(_refusal(reply, outgoing))
            self._ended()
            return
        try:
            header = reply.decode_header(SendMessageResponseHeader)
        except HeaderError as error:
            self.fail(f"the broker's answer: {error}", SendOutcome.UNKNOWN)
            return
        queue, ids = self._queue._replace(queue_id=header.queue_id), header.msg_id.split(",")
        if len(ids) != len(self._sends):
            # It stored them as one record.
            ids = [header.msg_id] * len(self._sends)
        for place, ((_, outgoing, _, _, future), offset_msg_id) in enumerate(zip(self._sends, ids, strict=True)):
            if not future.done():
                offset = header.queue_offset + place
                future.set_result(SendResult(status, outgoing.msg_id, queue, offset, offset_msg_id))
        self._ended()


def _refusal(reply: RemotingCommand, outgoing: Outgoing) -> SendError:
    error = new_send_error(reply.code, reply.remark, outgoing)
    too_large = reply.code == ResponseCode.SYSTEM_ERROR and any(text in error.reason for text in _TOO_LARGE)
    if not too_large and reply.code not in _NO_BATCH:
        return error
    return BatchRefusedError(error.reason, error.outcome, msg_id=error.msg_id, code=error.code)
