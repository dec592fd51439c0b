"""INVOKE_BROKER_TO_RESET_OFFSET: consumers get new offsets; the broker's own offsets stay (wire.md 2.4).

With fenced locks the broker stores the new offsets too, if one of the queues has an owner or had one: a commit of any
client but the owner would be refused.
"""

from bisect import bisect_left
from collections.abc import Generator
from functools import partial
from typing import Final

from lockstep.broker.connection import Connection
from lockstep.broker.core.broker import Broker
from lockstep.broker.fronts.remoting.in_steps import AnswerSteps, answer_in_steps
from lockstep.broker.fronts.remoting.notices import connection_of
from lockstep.broker.fronts.remoting.refusal import Refusal
from lockstep.protocol.bodies.client import queues_with_offsets
from lockstep.protocol.bodies.queue_tables import queue_table
from lockstep.protocol.bodies.rows import ROWS_A_STEP, BodyRows, BodySteps
from lockstep.protocol.codes import LanguageCode, RequestCode, ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.admin import ResetOffsetRequestHeader
from lockstep.protocol.model import MessageQueue
from lockstep.store import MessageStore

__all__ = ["reset_offset"]

_END: Final = -1
_NO_OFFSET: Final = -1
_RESET_VERSION: Final = 28  # V3_0_7_SNAPSHOT, wire.md 1.4
_CPP: Final = int(LanguageCode.CPP)
_WRITTEN_A_STEP: Final = 256 * 1024  # bytes

_REMARK: Final = "consumers were told"  # RocketMQ sends a remark too


def reset_offset(
    broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand | None:
    """Send new offsets to all consumers of the group, which commit them.

    Without a consumer the answer is CONSUMER_NOT_ONLINE (206), and the caller must commit them itself; with fenced
    locks that is so only if the queues never had an owner. As in RocketMQ
    the language of the caller, not of the consumer, decides whether the push has the form for C++.
    """
    header = command.decode_header(ResetOffsetRequestHeader)
    return answer_in_steps(broker, connection, command, _reset(broker, connection, command, header, now_ms))


def _reset(
    broker: Broker, connection: Connection, command: RemotingCommand, header: ResetOffsetRequestHeader, now_ms: int
) -> AnswerSteps:
    # RocketMQ's tools get RocketMQ's answer; our own, which agreed on MSGPACK, plan with the exact one.
    table = yield from _new_offsets(broker, header, exact=command.serialize_type == SerializeType.MSGPACK)
    bodies = _Bodies(table)
    reply_body = yield from bodies.get(command.serialize_type)
    group = broker.members.consumers.groups.get(header.group)
    # Members that pop keep no offset that they could set; those of gRPC do nothing else.
    pops = broker.messages.pops.are_popped(header.topic, header.group) or (
        group is not None and any(channel.client_type for channel in group.channels.values())
    )
    is_guarded = pops or broker.ownership.are_guarded(header.group, header.topic, range(len(table)), now_ms)
    if group is None and not is_guarded:
        remark = (
            f"Consumer not online, so can not reset offset, Group: {header.group} Topic: {header.topic} "
            f"Timestamp: {header.timestamp}"
        )
        raise Refusal(ResponseCode.CONSUMER_NOT_ONLINE, remark)
    push_header = ResetOffsetRequestHeader(header.topic, header.group, header.timestamp)
    written_bytes = 0
    for peer, channel in list(group.channels.items()) if group is not None else ():
        if channel.version < _RESET_VERSION:
            remark = f"the client does not support this feature. version={channel.version}"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        client = connection_of(peer)
        data = yield from bodies.get(client.serialize_type, for_cpp=command.language == _CPP)
        client.send_one_way(RemotingCommand(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, push_header, data))
        written_bytes += len(data)
        if written_bytes > _WRITTEN_A_STEP:
            written_bytes = 0
            yield None
    if is_guarded:
        offsets = {queue.queue_id: offset for queue, offset in table.items()}
        for queue_id, offset in offsets.items():
            broker.catalog.offsets.commit(header.group, header.topic, queue_id, offset)
            broker.messages.pops.reset(header.topic, header.group, queue_id, now_ms)
        broker.ownership.reset(header.group, header.topic, offsets, now_ms)
    broker.log.info("offsets_reset", group=header.group, topic=header.topic, peer=connection.address)
    return command.reply(ResponseCode.SUCCESS, body=reply_body, remark=_REMARK)


class _Bodies:
    """The table as a body, in each form once."""

    def __init__(self, table: dict[MessageQueue, int]) -> None:
        self._table = table
        self._written: dict[tuple[bool, bool], bytes] = {}

    def get(self, serialize_type: int, *, for_cpp: bool = False) -> BodySteps:
        key = (serialize_type == SerializeType.MSGPACK, for_cpp)
        if key not in self._written:
            body, queues = BodyRows(serialize_type), list(self._table.items())
            for start in range(0, len(queues), ROWS_A_STEP):
                if start:
                    yield None
                rows = dict(queues[start : start + ROWS_A_STEP])
                body.add(queues_with_offsets(rows) if for_cpp else queue_table(rows))
            self._written[key] = yield from body.finish({}, "offsetTable", as_list=for_cpp)
        return self._written[key]


def _first_from(store: MessageStore, topic: str, queue_id: int, timestamp: int) -> int:
    """The first message that was stored at the time or later; without one the end of the queue."""
    offsets = range(store.min_offset(topic, queue_id), store.max_offset(topic, queue_id))
    stored = partial(store.store_timestamp, topic, queue_id)
    return offsets.start + bisect_left(offsets, timestamp, key=lambda offset: stored(offset) or 0)


def _new_offsets(
    broker: Broker, header: ResetOffsetRequestHeader, *, exact: bool
) -> Generator[None, None, dict[MessageQueue, int]]:
    """An offset for each write queue. Raises Refusal when the group has no offset of a queue yet.

    Args:
        exact: Not RocketMQ's search, which may find an older message than the time asks for (wire.md 8.2).
    """
    topic, group = header.topic, header.group
    config = broker.catalog.topics.get(topic)
    if config is None:
        remark = f"[reset-offset] reset offset failed, no topic in this broker. topic={topic}"
        raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
    table = {}
    for queue_id in range(config.write_queue_nums):
        committed = broker.catalog.offsets.query(group, topic, queue_id)
        if committed == _NO_OFFSET:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{group}> not exist")  # RocketMQ's words
        if header.timestamp == _END:
            wanted = broker.messages.store.max_offset(topic, queue_id)
        elif exact:
            wanted = _first_from(broker.messages.store, topic, queue_id, header.timestamp)
        else:
            wanted = max(0, broker.messages.store.offset_at(topic, queue_id, header.timestamp))
        queue = MessageQueue(topic, broker.config.broker_name, queue_id)
        table[queue] = wanted if header.is_force or wanted < committed else committed
        if len(table) % ROWS_A_STEP == 0:
            yield None
    return table
