"""Outgoing: a message that is ready to be sent. OneSend: one attempt to send it to a queue."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from lockstep.client.hooks import CommunicationMode
from lockstep.client.producer.sequencer import SequenceNumber
from lockstep.client.send_result import SendResult
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.messages.to_send import Message
from lockstep.protocol.model import MessageQueue

__all__ = ["OneSend", "Outgoing", "SentFuture"]

SentFuture = asyncio.Future[RemotingCommand | SendResult]
"""The end of one request, or of one message of a request."""


class Outgoing(NamedTuple):
    """A message that is ready to be sent. Repeated attempts carry the same UNIQ_KEY.

    Args:
        uncompressed: the body is large and must be compressed first, see `SendRequests.compressed`.
        source: the caller's message, or the messages of a batch, for hooks.
        special: it never leaves with others: half messages, delayed ones, replies, batches, retries.
    """

    code: int
    topic: str
    body: bytes
    flag: int
    properties: str
    msg_id: str
    sharding_key: str | None
    born_timestamp_ms: int
    reconsume_times: int = 0
    max_reconsume_times: int | None = None
    sys_flag: int = 0
    uncompressed: bool = False
    source: Message | Sequence[Message] = ()
    mode: CommunicationMode = CommunicationMode.SYNC
    special: bool = True

    @property
    def msg_ids(self) -> list[str]:
        """One UNIQ_KEY for each message."""
        return self.msg_id.split(",")


class OneSend(NamedTuple):
    """One attempt to send a message to a queue. `future` gets its end: the broker's reply, or the result itself.

    Args:
        number: for a broker that checks the order of sends.
    """

    queue: MessageQueue
    outgoing: Outgoing
    timeout_ms: int
    number: SequenceNumber | None
    future: SentFuture

    @classmethod
    def of(
        cls, queue: MessageQueue, outgoing: Outgoing, timeout_ms: int, number: SequenceNumber | None = None
    ) -> "OneSend":
        future: SentFuture = asyncio.get_running_loop().create_future()
        return cls(queue, outgoing, timeout_ms, number, future)
