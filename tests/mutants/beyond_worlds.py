"""Protections that random worlds do not find missing, each with the reason. Their tests hold them.

`BEYOND_WORLDS` cannot be found there, so the worlds are not searched. `RARE` are searched, and may be found yet.
"""

from typing import Final

__all__ = ["BEYOND_WORLDS", "RARE"]

_DIRECT: Final = "no world has an administrator who sends one message to a consumer"
_UNREADABLE: Final = "no world has bodies that cannot be unpacked"
_STOPPED: Final = "no call of a dropped queue begins, and a stop drops all queues soon after"
_LATE: Final = "being late breaks no order, and a world waits longer than that for its end"
_TWICE: Final = "a second protection holds the same rule there"
_ONE_A_CALL: Final = "a call gets one message in worlds with dead letters"
_ENDS: Final = f"the lock ends by itself: {_LATE}"
_FULL: Final = "no trace of a world fails to be written"
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
    "client-late-grant-undone": _ENDS,
    "missing-member-keeps": f"queues are dropped and taken again: {_LATE}",
    "delayed-on-waking": _LATE,
    "due-on-waking": _LATE,
    "clock-counts-sleep": "it is of the runtime of real machines; worlds have their own clock",
    "stop-on-thread": f"{_STOPPED}: {_TWICE}",
    "offset-of-earlier-period": f"the end of a period forgets the offset too: {_TWICE}",
    "one-generation-at-a-time": f"a queue leaves the table when no call of it runs: {_TWICE}",
    "mutex-between-generations-by-key": f"a queue leaves the table when no call of it runs: {_TWICE}",
    "dropped-commits-nothing": f"a new period forgets the offset, and only under the lock it is stored: {_TWICE}",
    "pulled-for-dropped-queue": f"no call begins for a dropped queue: {_TWICE}",
    "fence-trust-cut": "nobody else has the queue before the lock delay is over, and then the fence keeps effects out",
    "fence-lease-end-noticed": f"no call begins after the lease, and the broker refuses its next request: {_TWICE}",
    "fence-pull-lease": f"no call begins after the lease, so what is pulled is not handled: {_TWICE}",
    "fence-legacy-release": "an unmodified client loses its last commit, and its messages may be handled twice anyway",
    "fence-old-connection": f"the next renewal ends the lock delay: {_TWICE}",
    "fence-reclaim-in-grace": f"a client presents no epoch that has ended: {_TWICE}",
    "rebalance-stays-locked": f"no lock is asked for while an unlock is not answered: {_TWICE}",
    "rebalance-gives-away": "a queue that stays with its owner is handled in order",
    "dead-letters-of-all": _ONE_A_CALL,
    "key-dead-letters-of-all": _ONE_A_CALL,
    "dead-letter-lock": f"the broker refuses a dead letter of an old epoch: {_TWICE}",
    "pull-ends-with-period": f"what is pulled for a dropped queue is not handed out: {_TWICE}",
    "client-given-up-not-taken": f"the rounds that give a queue up and take it follow each other: {_TWICE}",
    "fence-late-refusal": "a period that ends without need breaks no order",
    "members-in-one-order": "the brokers of a world list the members alike, or another one is asked in the next round",
    "one-run-a-queue": f"no queue is resumed while it runs: {_TWICE}",
    "members-expire": f"the connection of a silent client ends by itself: {_TWICE}",
    "delayed-once": "no world sends delayed messages",
    "delayed-not-ahead": "no world sends delayed messages",
    "half-ended-once": "no world sends transactional messages",
    "routes-of-the-living": "the brokers of a world come back where they were",
    "unreadable-handed-out": _UNREADABLE,
    "broken-record-asked-alone": _UNREADABLE,
    "bodies-of-a-pull-bounded": _UNREADABLE,
    "unpacked-on-a-thread": _UNREADABLE,
    "unreadable-look-up-told": _UNREADABLE,
    "unreadable-behind-unhandled": _UNREADABLE,
    "unreadable-of-dropped": _UNREADABLE,
    "released-not-while-stopping": f"a member that stops handles nothing, and {_ENDS}",
    "change-during-round": _LATE,
    "released-in-table": _FULL,
    "released-own-share": "the next round gives the queue away again, in order",
    "last-commit-under-lock": "no member of a world takes fenced locks of some brokers only",
    "last-commit-answered": "the unlock follows over the same connection, so the broker stores the offset first",
    "period-released-on-error": _FULL,
    "joined-causes-ask": _LATE,
    "reset-gives-back": _ENDS,
    "failed-reset-gives-back": _ENDS,
    "shutdown-awaits-lock-call": _ENDS,
    "dropped-not-locked-again": _ENDS,
    "stop-awaits-round": _ENDS,
    "reacquired-begins-round": _LATE,
    "lock-of-ended-connection": _ENDS,
    "lock-asked-after-error": _FULL,
    "administrator-between-calls": _DIRECT,
    "refused-dead-letter-ends": f"the next renewal or commit is refused too: {_TWICE}",
    "fenced-commit-to-fenced": "no broker of a world loses its fenced locks",
    "fenced-last-commit-to-fenced": "no broker of a world loses its fenced locks",
    "sent-back-while-dropped": "no member of a world handles messages without order",
    "assigned-again-anew": "no member of a world pulls by itself",
    "read-keeps-commit": "no member of a world pulls by itself",
    "one-way-fails-those-behind": "no producer of a world sends one way",
    "beyond-the-span-started": "no queue of a world is as long as the span of its keys",
    "unreadable-envelope-refused": "it is of the command `lockstep produce`, which no world runs",
    "sequence-of-present-connection": "no producer of a world pauses for ten minutes, and then sends what is old",
    "numbered-sends-one-by-one": "no disk of a world has room for a short message only",
    "sends-before-a-batch": "no producer of a world sends a batch as a single send with a mark",
    "sends-before-a-look": f"the message is seen with the next request: {_LATE}",
    "kept-with-new-topic": "the topics of a world are there before the first send",
    "group-kept-before-answer": "no world has an administrator who makes a group",
    "hold-of-others": "one group of a world pulls a queue",
    "fence-release-within-lease": f"the queue rests a second longer: {_LATE}",
    "fence-delay-noticed": _LATE,
    "fence-told-of-each-end": f"who is not told asks again: {_LATE}",
    "fence-silent-in-its-group": "a client of a world has one group",
}


RARE: Final[dict[str, str]] = {
    "client-unlock-sent-again": "few connections of a world are open, and silent for longer than a lease",
    "fence-answer-of-ended-connection": "the end of a connection is seldom noticed before its last answer is",
    "fence-grant-of-ended-connection": "the end of a connection is seldom noticed before its last answer is",
    "released-one-round": "the notice of a release seldom comes during a round",
    "dropped-not-committed": "a reset seldom waits for a call while a commit is due",
    "unlock-of-ended-connection": "a broker seldom handles an unlock after its client knows that the connection ended",
    "late-end-of-connection": "a connection that is closed seldom has so much to send that the next one is there first",
    "dead-letter-under-epoch": "a message is seldom given up by a call that outlasts its lease",
    "commit-recorded-in-its-period": "a commit is seldom under way when its period ends",
    "failure-known-to-cancelled": "a caller seldom goes away in the instant in which an earlier send fails",
    "cancelled-fails-those-behind": "a caller seldom goes away between two attempts while another send waits",
    "reset-renews": "a call seldom outlasts a lease while a reset waits for it",
    "fence-ended-epoch": "a broker seldom loses its table while the unlock of a period waits to be repeated",
    "fence-older-end": "a period seldom ends while a reset takes it out of the table",
    "broker-lock-age-of-takeover": "a world seldom lasts ten lives of a lock behind a takeover",
    "kept-mark-of-a-start": "the power seldom goes before the folder is synced for another reason",
    "fence-offsets-before-their-epoch": "a power cut seldom comes between the writing of two small files",
}
