"""Why what is seen over gRPC may differ from RocketMQ 5.5's proxy: all of it, one by one."""

from typing import Final

from tests.differential.comparing import Outcome
from tests.differential.explanations import Explanation, explain
from tests.differential.grpc.played import Played

__all__ = ["BETTER", "DIFFERENCES", "is_answered_alike", "unexplained"]

_HANDLES: Final = "garbage|empty|short|text"
_NO_GROUP: Final = (
    "a group that nobody made is made, as autoCreateSubscriptionGroup says; RocketMQ's proxy refuses its clients"
)
_GIVEN: Final = r"20000 OK|m\d .*|timestamp"

# What RocketMQ answers badly, and we answer well: such a case counts as equal, and is listed.
BETTER: Final[tuple[Explanation, ...]] = (
    Explanation("a handle that cannot be read is an INVALID_RECEIPT_HANDLE, as for one that has ended; RocketMQ fails "
                "with a text of Java", case=rf"(ack|change)/(dlq-handle-)?({_HANDLES})", ours="INVALID_RECEIPT_HANDLE"),
    Explanation("a handle of another broker is refused, as RocketMQ's proxy does in cluster mode",
                case=r"(ack|change)/(dlq-handle-)?other-broker",
                ours="INVALID_RECEIPT_HANDLE|.*: cannot find broker zz|<absent>"),
    Explanation("a dead letter is answered OK; RocketMQ's text is the number 0", path=r"step\[\d\]\.status\.message",
                case=r"(ack/dlq-.*|order/wake-on-forward)", ours="OK"),
    Explanation("a delivery that has ended makes no dead letter; in RocketMQ it is one, and comes again",
                case=r"ack/dlq-(handle-expired|expired-by-clock)",
                ours="INVALID_RECEIPT_HANDLE|.*: receipt handle is expired"),
    Explanation("a message that is not there is no dead letter; RocketMQ says OK, and does nothing",
                case=r"ack/dlq-handle-wrong-(queue|offset)",
                ours="INTERNAL_SERVER_ERROR|forward failed: the message does not exist"),
    Explanation("a dead letter is found by its queue and offset; RocketMQ wants its place in the log, too",
                case=r"ack/dlq-handle-eight-fields", ours="OK"),
    Explanation("an unknown topic is a TOPIC_NOT_FOUND; RocketMQ fails with a text of Java",
                case=r"receive/unknown-topic", ours="(?s)40402 .*"),
    Explanation("a retry topic that nobody has made is empty; RocketMQ fails with a text of Java",
                case=r"receive/retry-topic-asked", ours="40401 no new message"),
    Explanation("a client without settings is told so where its messages are to be renewed; RocketMQ fails with a text "
                "of Java", case=r"receive/push-without-settings", ours="40015 .*"),
    Explanation("a client without settings is served where nothing of them is needed; RocketMQ fails with a text of "
                "Java", case=r"(receive|change)/without-settings", ours=rf"{_GIVEN}|OK|0 CHANGED 999 0 broker-a 0 0"),
    Explanation("a batch size below 0 is a BAD_REQUEST; RocketMQ fails with a text of Java", case=r"receive/batch--1",
                ours="40000 .*"),
    Explanation("a receive without a deadline waits for 20 s; RocketMQ fails with a text of Java",
                case=r"receive/no-deadline-no-polling", ours="40401 no new message"),
    Explanation("a batch answers the id of its first message; RocketMQ makes one up that no message has",
                path=r".*\.message_id", case=r".*/batch-.*", ours=r"m\d"),
    Explanation("a half message in a batch is refused; RocketMQ stores it for all to read",
                case=r"send/batch-of-a-transaction",
                ours="MESSAGE_PROPERTY_CONFLICT_WITH_TYPE|.* the expected type is NORMAL, but actual .*|<absent>"),
    Explanation("deliveries are counted also where a new message comes with old ones; RocketMQ's local mode begins at "
                "1 again", case=r"order/(attempts-with-new-message-in-batch|partial-ack-redelivers-all)",
                ours=r".* x2 .*", but=r" x\d"),
    Explanation(_NO_GROUP, case=r"telemetry/settings-(unknown-group-(17|push)|group-120)"),
    Explanation(_NO_GROUP, case=r"receive/unknown-group-created|session/heartbeat-other-group", ours=rf"{_GIVEN}|OK"),
)  # fmt: skip

DIFFERENCES: Final[tuple[Explanation, ...]] = (
    Explanation("a handle's first number is the first message that was given; in RocketMQ the first that it looked at",
                case=r"receive/(tag-one|sql-ok|sql-tags|type-unspecified)", but=r"\[\d"),
    Explanation("a filter of blanks is none, so it takes all; RocketMQ takes none", case=r"receive/tag-blank-is-all",
                ours=_GIVEN),
    Explanation("clients older than 5.0.3 are told ILLEGAL_POLLING_TIME, too",
                case=r"receive/deadline-short-old-client", ours="40018 .*", but=r"^\d+"),
    Explanation("a change of a delivery that is over is answered with a handle of order, as before",
                case=r"change/after-ack", but="999|R"),
    Explanation("one text for each method that is not served", case=r"not-served/Nothing-unimplemented",
                ours="gRPC 12 .*"),
)  # fmt: skip


def unexplained(played: Played) -> list[str]:
    """What differs without a reason."""
    found = explain(played.outcome, BETTER + DIFFERENCES)
    return [str(difference) for difference, reason in found if reason is None]


def is_answered_alike(outcome: Outcome) -> bool:
    """Whether all that differs is answered well by us, and badly by RocketMQ."""
    return all(reason is not None for _, reason in explain(outcome, BETTER))
