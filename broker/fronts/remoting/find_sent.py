"""FIND_SENT (30008): whether a send that had no answer is stored, asked before it is repeated (docs/wire.md 17.3)."""

from collections.abc import Generator
from typing import Final

from lockstep.broker.connection import Connection
from lockstep.broker.core.broker import Broker
from lockstep.broker.fronts.remoting.in_steps import AnswerSteps, answer_in_steps
from lockstep.broker.fronts.remoting.refusal import Refusal
from lockstep.broker.fronts.remoting.send import batch_response
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import HeaderError
from lockstep.protocol.headers.messaging import FindSentRequestHeader
from lockstep.protocol.messages import properties as names
from lockstep.protocol.messages.message import decode_messages
from lockstep.store.base import KEY_QUERY_MESSAGE_COST, KEY_QUERY_STEP_BYTES, AppendResult

__all__ = ["find_sent"]

# Messages that one question looks at (wire.md 17.3). Those behind the last answered send of a producer are few.
_SEARCHED_MAX: Final = 100_000
_ENTRIES: Final = 128  # read together
# Bytes as which one counts besides its own, so that a step takes a millisecond.
_MESSAGE_COST: Final = 1024


def find_sent(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand | None:
    """Where the messages of a send are in its queue, as the lost answer told, or QUERY_NOT_FOUND.

    The producer's sequence is at the generation of the request from now on. So an attempt of an older generation that
    has not arrived yet is refused, and what is not found now is never stored.
    """
    header = command.decode_header(FindSentRequestHeader)
    if not 0 < header.message_count <= broker.config.batch_messages_max:
        allowed = f"must be 1 to {broker.config.batch_messages_max}"
        raise HeaderError(f"the field messageCount {allowed}, but is {header.message_count}")
    key = (header.sender_id, header.topic, header.queue_id)
    why = broker.messages.send_sequences.refusal(key, header.send_generation, header.send_sequence, connection, now_ms)
    if why is not None:
        raise Refusal(ResponseCode.SEND_OUT_OF_SEQUENCE, why)
    return answer_in_steps(broker, connection, command, _answer(broker, command, header), apart=True)


def _answer(broker: Broker, command: RemotingCommand, header: FindSentRequestHeader) -> AnswerSteps:
    kept = broker.durable
    if kept is not None and kept.log_synced is not None:
        store, log_end = kept.store, kept.store.log.max_offset
        if store.log.synced_offset < log_end:
            # What is not on the disk is not in its queue.
            yield kept.log_synced
        if store.log.synced_offset < log_end:
            raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, store.refusal)
    queue_offset = yield from _search(broker, header)
    if queue_offset is not None:
        entries = broker.messages.store.entries(header.topic, header.queue_id, queue_offset, header.message_count)
        if len(entries) == header.message_count:
            stored = [AppendResult(entry.commit_log_offset, queue_offset + i) for i, entry in enumerate(entries)]
            return command.reply(ResponseCode.SUCCESS, batch_response(broker, header.queue_id, stored))
    remark = f"message {header.message_id} is not in queue {header.queue_id} of topic {header.topic!r}"
    return command.reply(ResponseCode.QUERY_NOT_FOUND, remark=remark)


def _search(broker: Broker, header: FindSentRequestHeader) -> Generator[None, None, int | None]:
    """The queue offset of the message with the id, newest first; None when it is not there."""
    store, topic, queue_id = broker.messages.store, header.topic, header.queue_id
    wanted = f"{names.UNIQ_KEY}{names.NAME_END}{header.message_id}".encode("utf-8", "replace")
    end, looked_at = store.max_offset(topic, queue_id), 0
    last = max(header.begin_offset, store.min_offset(topic, queue_id), end - _SEARCHED_MAX)
    while end > last:
        start = max(last, end - _ENTRIES)
        for entry in reversed(store.entries(topic, queue_id, start, end - start)):
            message = store.message_at(entry.commit_log_offset) or b""
            if wanted in message:
                looked_at += KEY_QUERY_MESSAGE_COST
                found = decode_messages(message, unzip=False)[0]
                if found.properties.get(names.UNIQ_KEY) == header.message_id:
                    return found.queue_offset
            looked_at += _MESSAGE_COST + len(message)
            if looked_at >= KEY_QUERY_STEP_BYTES:
                looked_at = 0
                yield None
        end = start
    return None
