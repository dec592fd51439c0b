"""Typed headers of Lockstep's own requests with many sends or commits in one frame (docs/wire.md 17)."""

from typing import Any, Final, NamedTuple

from lockstep.protocol.codes import RequestCode
from lockstep.protocol.headers.spec import Int32

__all__ = [
    "TOGETHER_REQUEST_HEADERS",
    "TOGETHER_RESPONSE_HEADERS",
    "CommitTogetherRequestHeader",
    "SendTogetherRequestHeader",
    "SendTogetherResponseHeader",
]


class SendTogetherRequestHeader(NamedTuple):
    """SEND_TOGETHER (30006), a Lockstep extension: what the messages of a frame share (docs/wire.md 17)."""

    producer_group: str
    default_topic: str
    default_topic_queue_nums: Int32
    message_count: Int32
    broker_name: str | None = None
    unit_mode: bool | None = None
    sender_id: str | None = None


class SendTogetherResponseHeader(NamedTuple):
    """`id_prefix` and 16 hex digits of the commit log offset are the offset message id of a stored message."""

    id_prefix: str


class CommitTogetherRequestHeader(NamedTuple):
    """COMMIT_TOGETHER (30007), a Lockstep extension: offsets of one group. `lock_client_id` as in a single commit."""

    consumer_group: str
    commit_count: Int32
    lock_client_id: str | None = None


_R = RequestCode
TOGETHER_REQUEST_HEADERS: Final[dict[int, type[tuple[Any, ...]]]] = {
    _R.SEND_TOGETHER: SendTogetherRequestHeader,
    _R.COMMIT_TOGETHER: CommitTogetherRequestHeader,
}
TOGETHER_RESPONSE_HEADERS: Final[dict[int, type[tuple[Any, ...]]]] = {_R.SEND_TOGETHER: SendTogetherResponseHeader}
