"""Outgoing: a message that is ready to be sent."""

from collections.abc import Sequence
from typing import NamedTuple

from lockstep.client.hooks import CommunicationMode
from lockstep.protocol.model import Message

__all__ = ["Outgoing"]


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
