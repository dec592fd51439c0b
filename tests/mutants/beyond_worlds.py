"""Protections that random worlds do not find missing, each with the reason. Their tests hold them.

`BEYOND_WORLDS` cannot be found there, so the worlds are not searched. `RARE` are searched, and may be found yet.
"""

from typing import Final

__all__ = ["BEYOND_WORLDS", "RARE"]

_DIRECT: Final = "no world has an administrator who sends one message to a consumer"
_UNREADABLE: Final = "no world has bodies that cannot be unpacked"
_THREADS: Final = "a listener of a world has more threads than there are queues: no call waits for one"
_LATE: Final = "being late breaks no order, and a world waits longer than that for its end"
_TWICE: Final = "a second protection holds the same rule there"
_MOMENT: Final = "the fault must come while one request is under way; the window is as wide as its latency"
_MORE: Final = "only violations that RocketMQ's locks allow anyway become more frequent"
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
    "client-lock-behind-unlock": "no broker of a world handles two requests of one connection in another order",
    "client-late-grant-undone": f"the lock ends by itself: {_LATE}",
    "missing-member-keeps": f"queues are dropped and taken again: {_LATE}",
    "delayed-on-waking": _LATE,
    "due-on-waking": _LATE,
    "clock-counts-sleep": "it is of the runtime of real machines; worlds have their own clock",
    "lock-on-thread": _THREADS,
    "ownership-on-thread": _THREADS,
    "stop-on-thread": _THREADS,
    "error-is-no-offset": "no broker of a world answers the query of an offset with an error",
    "offset-of-earlier-period": f"the end of a period forgets the offset too: {_TWICE}",
    "pulled-for-dropped-queue": f"no call begins for a dropped queue: {_TWICE}",
    "unreadable-handed-out": _UNREADABLE,
    "broken-record-asked-alone": _UNREADABLE,
    "bodies-of-a-pull-bounded": _UNREADABLE,
    "unpacked-on-a-thread": _UNREADABLE,
    "unreadable-look-up-told": _UNREADABLE,
    "unreadable-envelope-refused": "it is of the command `lockstep produce`, which no world runs",
}


RARE: Final = {
    "broker-unlock-owner": "its owner must have lost the lock, and unlock late",
    "client-lock-lost": f"the own view of the lock runs out soon after: {_MORE}",
    "client-lock-from-request": _MOMENT,
    "client-new-lock-from-request": _MOMENT,
    "client-reacquired-begins-anew": _MORE,
    "client-locks-after-reconnect": _MORE,
    "client-unlock-not-reused": "a queue must go and come back within 20 s, with messages in its cache",
    "client-reset-waits": "an administrator's reset must meet a running call",
    "client-reset-not-overtaken": "a rebalance must meet an administrator's reset",
    "fence-dead-letter-epoch": "a stopped owner must wake up in the last attempt of a message",
    "fence-lease-from-request": _MOMENT,
    "one-generation-at-a-time": "a queue must come back while a call of its last period runs",
    "dropped-commits-nothing": _MORE,
    "handled-before-offset": "a commit must be due in the same instant",
    "no-commit-after-expiry": _MORE,
    "no-commit-of-lost-queue": _MORE,
    "listener-before-unlock": _MORE,
    "given-back-comes-again": _MOMENT,
    "given-back-comes-again-by-key": _MOMENT,
    "mutex-between-generations-by-key": "a queue must come back while a call of its last period runs",
    "sends-not-overtaken": _MOMENT,
    "old-generation-refused": _MOMENT,
    "companions-settled-first": _MOMENT,
    "fence-commit-epoch": "a late commit must be higher than what the next owner has committed",
    "fence-kept-grant": "the power must fail between a grant and its flush",
    "fence-last-commit": "what was handled must not be committed with a pull before",
}
