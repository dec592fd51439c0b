"""Holds replies until the data that they acknowledge is durable."""

from functools import partial
from typing import Final

from lockstep.broker.connection import Connection
from lockstep.broker.core.broker import Broker
from lockstep.broker.fronts.remoting.dispatch import BROKER_HANDLERS, dispatch
from lockstep.broker.fronts.remoting.send_together import as_unsafe
from lockstep.broker.persistence.disk_writers import DiskWriters
from lockstep.broker.persistence.durable_store import DurableStore
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import SendMessageRequestHeader, SendMessageRequestHeaderV2
from lockstep.remoting.connections.endpoint import Endpoint

__all__ = ["DurableReplies"]

_SENDS: Final[dict[int, type[SendMessageRequestHeader]]] = {
    RequestCode.SEND_MESSAGE: SendMessageRequestHeader,
    RequestCode.SEND_MESSAGE_V2: SendMessageRequestHeaderV2,
    RequestCode.SEND_BATCH_MESSAGE: SendMessageRequestHeaderV2,
}
# What replaces SUCCESS when a request has stored a message and the sync failed; other requests: SYSTEM_ERROR. The
# message may be read later, so a send is not refused. An answer to a message is stored beside its delivery.
_UNSAFE: Final[dict[int, ResponseCode]] = {
    **dict.fromkeys(_SENDS, ResponseCode.FLUSH_DISK_TIMEOUT),
    RequestCode.END_TRANSACTION: ResponseCode.FLUSH_DISK_TIMEOUT,
    RequestCode.SEND_REPLY_MESSAGE: ResponseCode.SUCCESS,
    RequestCode.SEND_REPLY_MESSAGE_V2: ResponseCode.SUCCESS,
}
_CHANGES: Final = frozenset(  # requests for a change of a table; others change tables as a side effect
    {
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
    }
)


class DurableReplies:
    """The answers of a broker with files."""

    def __init__(self, broker: Broker, kept: DurableStore, writers: DiskWriters) -> None:
        self._broker = broker
        self._flush_sync = broker.config.flush_sync
        self._log = kept.store.log
        self._topics = kept.tables.topics
        self._groups = kept.tables.groups
        self._topic_writer = writers.topics
        self._group_writer = writers.groups
        self._flusher = writers.flusher

    def answer(self, endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand | None:
        return self.answer_when_safe(endpoint, command, endpoint.read_at_ms)

    def answer_when_safe(self, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand | None:
        """As `dispatch`, but replies wait for the disk.

        A change of topics or groups is answered when it is on the disk. So is a send while topics are being written:
        without its topic a message is not found after a restart. With --flush sync a send also waits for its own sync.
        Groups that heartbeats and pulls create do not wait: the next heartbeat creates them again.
        """
        broker, log, topics = self._broker, self._log, self._topics
        log_end, changes = log.max_offset, topics.change_count + self._groups.change_count
        reply = dispatch(BROKER_HANDLERS, broker, connection, command, now_ms)
        if reply is None:
            return None
        stored = log.max_offset != log_end
        changed = topics.change_count + self._groups.change_count != changes
        if (changed and command.code in _CHANGES) or (stored and topics.written_count != topics.change_count):
            self._after_tables(connection, command, reply, stored=stored)
            return None
        if self._flush_sync and (stored or self._is_repeated(command)):
            self._after_log(connection, command, reply)
            return None
        return reply

    def _is_repeated(self, command: RemotingCommand) -> bool:
        """Its answer may depend on a message of another request that is not synced yet."""
        return command.code == RequestCode.END_TRANSACTION and self._log.synced_offset < self._log.max_offset

    def _after_tables(
        self, connection: Connection, command: RemotingCommand, reply: RemotingCommand, *, stored: bool
    ) -> None:
        def groups_written(reason: str) -> None:
            if reason and command.code in _CHANGES:
                _send(connection, command, command.reply(ResponseCode.SYSTEM_ERROR, remark=reason))
            else:
                self._topic_writer.when_written(topics_written)

        def topics_written(reason: str) -> None:
            if reason and stored:
                _answer(self._broker, connection, command, reply, reason)
            elif reason and command.code in _CHANGES:
                _send(connection, command, command.reply(ResponseCode.SYSTEM_ERROR, remark=reason))
            elif self._flush_sync and stored and self._log.synced_offset < self._log.max_offset:
                self._after_log(connection, command, reply)
                self._flusher.check()
            elif (
                self._broker.catalog.topics_registered is not None
                and command.code == RequestCode.UPDATE_AND_CREATE_TOPIC
            ):
                self._broker.catalog.topics_registered(partial(_send, connection, command, reply))
            else:
                _send(connection, command, reply)

        self._group_writer.when_written(groups_written)

    def _after_log(self, connection: Connection, command: RemotingCommand, reply: RemotingCommand) -> None:
        self._flusher.when_safe(partial(_answer, self._broker, connection, command, reply))


def _send(connection: Connection, command: RemotingCommand, reply: RemotingCommand) -> None:
    if not command.is_one_way:
        connection.reply(reply)


def _answer(
    broker: Broker, connection: Connection, command: RemotingCommand, reply: RemotingCommand, reason: str
) -> None:
    if reason and command.code == RequestCode.SEND_TOGETHER:
        as_unsafe(broker, command, reply, reason)
    elif reason:
        code = _UNSAFE.get(command.code, ResponseCode.SYSTEM_ERROR)
        if reply.code == ResponseCode.SUCCESS and code != ResponseCode.SUCCESS:
            reply.code, reply.remark = code, reason
        _break_sequence(broker, command)
    _send(connection, command, reply)


def _break_sequence(broker: Broker, command: RemotingCommand) -> None:
    """An unsafe message counts as not stored, so later messages of its send sequence are refused."""
    header_class = _SENDS.get(command.code)
    if header_class is not None:
        header = command.decode_header(header_class)
        if header.send_sequence is not None:
            key = (header.sender_id or "", header.topic, header.queue_id)
            broker.messages.send_sequences.failed(key, header.send_generation or 0)
