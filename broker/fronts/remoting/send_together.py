"""SEND_TOGETHER (30006): many sends in one frame, each checked, stored and answered as by itself (docs/wire.md 17)."""

from typing import Final

from lockstep.broker.connection import Connection
from lockstep.broker.core.append_together import SentTogether, append_plain, append_together
from lockstep.broker.core.broker import Broker
from lockstep.broker.core.refused import Refused
from lockstep.broker.fronts.remoting.after import After, Answer, What
from lockstep.broker.fronts.remoting.refusal import Refusal, code_of
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import BatchTooLong
from lockstep.protocol.headers.together import SendTogetherRequestHeader, SendTogetherResponseHeader
from lockstep.protocol.messages.together import NO_NUMBERS, decode_queues, decode_rows, decode_sends, encode_rows
from lockstep.store import StoreFull

__all__ = ["as_unsafe", "send_together"]

_SUCCESS: Final = int(ResponseCode.SUCCESS)


def send_together(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> Answer:
    """Each message is stored or refused by itself; the answer has a row for each. All are stored with one append."""
    header = command.decode_header(SendTogetherRequestHeader)
    try:
        queues, heads_begin = decode_queues(command.body, header.message_count)
    except BatchTooLong as error:
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, str(error)) from None
    answer = SendTogetherResponseHeader(broker.messages.message_id_prefix)
    frame = header.sender_id or "", queues, command.body, heads_begin, header.message_count
    plain_rows = append_plain(broker, connection, *frame, now_ms)
    if plain_rows is not None:
        return After(command.reply(_SUCCESS, answer, plain_rows), What.LOG)
    _, heads, texts = decode_sends(command.body, header.message_count)
    creation = (header.default_topic, header.default_topic_queue_nums)
    sent = SentTogether(header.sender_id or "", creation, queues, heads, command.body, texts)
    rows, remarks = list[tuple[int, int, int]](), list[str]()
    for result, head in zip(append_together(broker, connection, sent, now_ms), heads, strict=True):
        if isinstance(result, Refused | StoreFull):
            code = code_of(result) if isinstance(result, Refused) else ResponseCode.SERVICE_NOT_AVAILABLE
            topic, reason = queues[head[0]].topic, str(result)
            broker.log.info("send_refused", topic=topic, code=code.name, reason=reason, peer=connection.address)
            rows.append((int(code), -1, -1))
            remarks.append(reason)
        else:
            rows.append((_SUCCESS, result[1], result[0]))
    reply = command.reply(_SUCCESS, answer, encode_rows(rows, remarks))
    return After(reply, What.LOG) if len(remarks) < len(rows) else reply


def as_unsafe(broker: Broker, command: RemotingCommand, reply: RemotingCommand, reason: str) -> RemotingCommand:
    """The messages of a frame may not be on the disk: change the reply so, and end their send sequences."""
    header = command.decode_header(SendTogetherRequestHeader)
    queues, _, _ = decode_sends(command.body, header.message_count)
    for topic, queue_id, generation in queues:
        if generation != NO_NUMBERS:
            broker.messages.send_sequences.failed((header.sender_id or "", topic, queue_id), generation)
    rows, remarks = decode_rows(reply.body, header.message_count)
    left = iter(remarks)
    unsafe = int(ResponseCode.FLUSH_DISK_TIMEOUT)
    told = [(row, next(left)) if row.code else (row._replace(code=unsafe), reason) for row in rows]
    reply.body = encode_rows([row for row, _ in told], [remark for _, remark in told])
    return reply
