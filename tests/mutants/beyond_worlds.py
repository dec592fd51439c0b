"""Protections that no random world can find missing, each with the reason. Their tests hold them."""

from typing import Final

__all__ = ["BEYOND_WORLDS"]

_DIRECT: Final = "no world has an administrator who sends one message to a consumer"
_UNREADABLE: Final = "no world has bodies that cannot be unpacked"
_HOUSE: Final = "no rule of order: what a user is shown, or a number that RocketMQ keeps"

BEYOND_WORLDS: Final = {
    "administrator-waits-for-queue": _DIRECT,
    "direct-call-while-asked-for": _DIRECT,
    "hook-success-of-commit": _HOUSE,
    "message-model-of-heartbeat": "no world has broadcasting consumers",
    "flag-of-retry": _HOUSE,
    "thread-count-reaches-service": _HOUSE,
    "accumulation-guard": _HOUSE,
    "consume-lock-1000-ms": "one millisecond more of waiting breaks no order; RocketMQ's number is kept",
    "group-of-strategy": "the strategies of the worlds do not look at the group",
    "offset-query-timeout": "the broker of a world answers at once, or not at all",
    "unreadable-handed-out": _UNREADABLE,
    "broken-record-asked-alone": _UNREADABLE,
    "bodies-of-a-pull-bounded": _UNREADABLE,
    "unpacked-on-a-thread": _UNREADABLE,
    "unreadable-look-up-told": _UNREADABLE,
    "unreadable-envelope-refused": "it is of the command `lockstep produce`, which no world runs",
}
