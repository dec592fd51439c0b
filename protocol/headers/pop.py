"""Typed headers of POP (docs/wire.md 18.1): a client asks for messages, and acknowledges each of them."""

from typing import Any, Final, NamedTuple

from lockstep.protocol.codes import RequestCode
from lockstep.protocol.headers.spec import Int32

__all__ = [
    "POP_REQUEST_HEADERS",
    "POP_RESPONSE_HEADERS",
    "AckRequestHeader",
    "ChangeInvisibleRequestHeader",
    "ChangeInvisibleResponseHeader",
    "ListDeliveriesRequestHeader",
    "NotificationRequestHeader",
    "NotificationResponseHeader",
    "PeekRequestHeader",
    "PollingInfoRequestHeader",
    "PollingInfoResponseHeader",
    "PopRequestHeader",
    "PopResponseHeader",
]


class PopRequestHeader(NamedTuple):
    """POP_MESSAGE (200050).

    Args:
        queue_id: -1: any.
        invisible_time: ms that nobody else gets the messages.
        poll_time: ms that the broker may wait for messages; from `born_time`, epoch ms by the client's clock.
        init_mode: Where a new group begins: 0 at the first message, 1 at the end.
        order: The group reads in order.
        attempt_id: Names the call when it is repeated.
    """

    consumer_group: str
    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    invisible_time: int
    poll_time: int
    born_time: int
    init_mode: Int32
    exp_type: str | None = None
    exp: str | None = None
    order: bool | None = None
    attempt_id: str | None = None


class PopResponseHeader(NamedTuple):
    """`waited_ms`: with fenced locks, how long the call waited at the broker, at least; RocketMQ has no such field."""

    pop_time: int
    invisible_time: int
    revive_qid: Int32
    rest_num: int
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None
    waited_ms: int | None = None


class AckRequestHeader(NamedTuple):
    """ACK_MESSAGE (200051). `extra_info`: a receipt."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: int
    lite_topic: str | None = None


class ChangeInvisibleRequestHeader(NamedTuple):
    """CHANGE_MESSAGE_INVISIBLETIME (200053). `invisible_time`: ms from now."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: int
    invisible_time: int
    lite_topic: str | None = None
    suspend: bool | None = None


class ChangeInvisibleResponseHeader(NamedTuple):
    """`invisible_time`: ms from `pop_time` on."""

    pop_time: int
    invisible_time: int
    revive_qid: Int32


class PeekRequestHeader(NamedTuple):
    """PEEK_MESSAGE (200052)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    max_msg_nums: Int32


class NotificationRequestHeader(NamedTuple):
    """NOTIFICATION (200054): is there a message, or does one come?"""

    consumer_group: str
    topic: str
    queue_id: Int32
    poll_time: int
    born_time: int
    order: bool | None = None
    attempt_id: str | None = None
    exp_type: str | None = None
    exp: str | None = None


class NotificationResponseHeader(NamedTuple):
    has_msg: bool
    polling_full: bool = False


class PollingInfoRequestHeader(NamedTuple):
    """POLLING_INFO (200055): how many calls wait?"""

    consumer_group: str
    topic: str
    queue_id: Int32


class PollingInfoResponseHeader(NamedTuple):
    polling_num: Int32


class ListDeliveriesRequestHeader(NamedTuple):
    """LIST_DELIVERIES (30010), a Lockstep extension: what a group in order has and did not acknowledge."""

    consumer_group: str


_R = RequestCode
POP_REQUEST_HEADERS: Final[dict[int, type[tuple[Any, ...]]]] = {
    _R.POP_MESSAGE: PopRequestHeader,
    _R.ACK_MESSAGE: AckRequestHeader,
    _R.PEEK_MESSAGE: PeekRequestHeader,
    _R.CHANGE_MESSAGE_INVISIBLETIME: ChangeInvisibleRequestHeader,
    _R.NOTIFICATION: NotificationRequestHeader,
    _R.POLLING_INFO: PollingInfoRequestHeader,
    _R.LIST_DELIVERIES: ListDeliveriesRequestHeader,
}
POP_RESPONSE_HEADERS: Final[dict[int, type[tuple[Any, ...]]]] = {
    _R.POP_MESSAGE: PopResponseHeader,
    _R.PEEK_MESSAGE: PopResponseHeader,
    _R.CHANGE_MESSAGE_INVISIBLETIME: ChangeInvisibleResponseHeader,
    _R.NOTIFICATION: NotificationResponseHeader,
    _R.POLLING_INFO: PollingInfoResponseHeader,
}
