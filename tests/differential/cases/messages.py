"""Finding messages (12, 33, 321) and giving them back (36)."""

from typing import Final

from lockstep.protocol.codes import RequestCode as R
from tests.differential.case import LAST, Ask, Case, Table, ask, not_numbers, step, without
from tests.differential.cases.world import EMPTY, GROUP, NO_READ, OTHER, TOPIC, message_id, physical, pull

__all__ = ["CASES"]

NO_FIELDS: Final = Ask({}, {"fields": None})
FOREVER: Final = str(2**62)
QUERY: Final = Table(
    R.QUERY_MESSAGE,
    {"topic": TOPIC, "key": "shared", "maxNum": "32", "beginTimestamp": "0", "endTimestamp": FOREVER},
    valid={
        "shared-key": ask(),
        "own-key": ask({"key": "key3"}),
        "key-of-a-batch": ask({"key": "batch1"}),
        "key-of-a-compressed": ask({"key": "zipped"}),
        "unique-key": ask({"key": f"{0xD1FF02:032X}", "_UNIQUE_KEY_QUERY": "true"}),
        "unique-key-as-key": ask({"key": f"{0xD1FF02:032X}"}),
        "unique-key-false": ask({"_UNIQUE_KEY_QUERY": "false"}),
        "at-most-two": ask({"maxNum": "2"}),
        "at-most-none": ask({"maxNum": "0"}),
        "very-many": ask({"maxNum": "1000000"}),
        "other-topic": ask({"topic": OTHER, "key": "other"}),
        "binary-header": ask(encoding=1),
        "no-unique-flag": ask(),
        "one-way": ask(flag=2, silent=True),
    },
    invalid={
        "nothing-found": ask({"key": "nothing"}),
        "two-keys-at-once": ask({"key": "key0 shared"}),
        "key-of-another-topic": ask({"key": "other"}),
        "unknown-topic": ask({"topic": "DiffNowhere"}),
        "before-all": ask({"endTimestamp": "5"}),
        "after-all": ask({"beginTimestamp": str(2**61)}),
        "turned-around": ask({"beginTimestamp": FOREVER, "endTimestamp": "0"}),
        "missing-topic": without("topic"),
        "missing-key": without("key"),
        "empty-key": ask({"key": ""}),
        **not_numbers("maxNum"),
        **not_numbers("beginTimestamp", bits=64),
        **not_numbers("endTimestamp", bits=64),
        "negative-many": ask({"maxNum": "-1"}),
        "no-fields": NO_FIELDS,
        "binary-header-no-key": without("key", encoding=1),
    },
)
VIEW: Final = Table(
    R.VIEW_MESSAGE_BY_ID,
    {"offset": physical("m0")},
    valid={
        "first": ask(),
        "last": ask({"offset": physical("m5")}),
        "of-a-batch": ask({"offset": physical("batch")}),
        "compressed": ask({"offset": physical("zipped")}),
        "with-topic": ask({"topic": TOPIC}),
        "binary-header": ask(encoding=1),
        "one-way": ask(flag=2, silent=True),
    },
    invalid={
        **not_numbers("offset", bits=64),
        "no-fields": NO_FIELDS,
        "negative": ask({"offset": "-1"}),
        "far-away": ask({"offset": "999999999999"}),
        "largest": ask({"offset": str(2**63 - 1)}),
        "not-at-a-message": ask({"offset": physical("m1", 5)}),
        "binary-header-no-offset": without("offset", encoding=1),
    },
)
INDEX: Final = Table(
    R.QUERY_CONSUME_QUEUE,
    {"topic": TOPIC, "queueId": "0", "index": "0", "count": "10", "consumerGroup": GROUP},
    valid={
        "usual": ask(),
        "from-the-middle": ask({"index": "3", "count": "2"}),
        "no-group": without("consumerGroup"),
        "empty-group": ask({"consumerGroup": ""}),
        "offline-group": ask({"consumerGroup": "DiffNobody"}),
        "sql-group": ask({"consumerGroup": "DiffSqlGroup"}),
        "tag-group": ask({"consumerGroup": "DiffTagGroup"}),
        "batch-queue": ask({"queueId": "1"}),
        "no-count": ask({"count": "0"}),
        "index-at-the-end": ask({"index": "6"}),
        "binary-header": ask(encoding=1),
        "one-way": ask(flag=2),
    },
    invalid={
        "missing-topic": without("topic"),
        **not_numbers("queueId"),
        **not_numbers("index", bits=64),
        **not_numbers("count"),
        "no-fields": NO_FIELDS,
        "unknown-topic": ask({"topic": "DiffNowhere"}),
        "queue-above": ask({"queueId": "99"}),
        "queue-negative": ask({"queueId": "-1"}),
        "empty-queue": ask({"topic": EMPTY}),
        "negative-index": ask({"index": "-1"}),
        "negative-count": ask({"count": "-1"}),
        "far-index": ask({"index": "100000"}),
    },
)
BACK: Final = Table(
    R.CONSUMER_SEND_MSG_BACK,
    {
        "offset": physical("m0"),
        "group": GROUP,
        "delayLevel": "3",
        "originMsgId": message_id("m0"),
        "originTopic": TOPIC,
        "unitMode": "false",
        "maxReconsumeTimes": "16",
    },
    valid={
        "later": ask(),
        "broker-decides": ask({"delayLevel": "0"}),
        "at-once-to-dead-letters": ask({"delayLevel": "-1"}),
        "too-often": ask({"maxReconsumeTimes": "0"}),
        "group-allows-two": ask({"group": "DiffTwice", "maxReconsumeTimes": None}),
        "old-version": ask({"maxReconsumeTimes": "0"}, version=63),
        "only-what-is-needed": without("originMsgId", "originTopic", "unitMode", "maxReconsumeTimes"),
        "other-group": ask({"group": "DiffTagGroup"}),
        "group-without-retry-queues": ask({"group": "DiffNoRetry"}),
        "level-above": ask({"delayLevel": "40"}),
        "batch-message": ask({"offset": physical("batch"), "delayLevel": "-1"}),
        "compressed-message": ask({"offset": physical("zipped"), "delayLevel": "-1"}),
        "unit-mode": ask({"unitMode": "true"}),
        "with-broker-name": ask({"bname": "broker-a"}),
        "binary-header": ask(encoding=1),
        "one-way": ask(flag=2),
    },
    invalid={
        "missing-group": without("group"),
        **not_numbers("offset", bits=64),
        **not_numbers("delayLevel"),
        "max-text": ask({"maxReconsumeTimes": "x"}),
        "no-fields": NO_FIELDS,
        "no-such-message": ask({"offset": "999999999999"}),
        "negative-offset": ask({"offset": "-1"}),
        "not-at-a-message": ask({"offset": physical("m1", 5)}),
        "empty-group": ask({"group": ""}, late=LAST),
        "unknown-group": ask({"group": "DiffBackNew", "delayLevel": "-1"}),
        "illegal-group": ask({"group": "a b", "delayLevel": "-1"}, late=LAST),
        "binary-header-no-group": without("group", encoding=1),
    },
)


def _read(name: str, topic: str, **fields: str) -> Case:
    return Case(R.PULL_MESSAGE, name, "valid", pull(topic, consumerGroup="DiffReader", **fields))


CASES: Final[tuple[Case, ...]] = (
    *QUERY.cases(),
    *VIEW.cases(),
    *INDEX.cases(),
    *BACK.cases(),
    step(R.CONSUMER_SEND_MSG_BACK,
         {"offset": physical("m1"), "group": "DiffTwice", "delayLevel": "-1", "maxReconsumeTimes": "0"}),
    _read("dead-letters", "%DLQ%DiffTwice"),
    _read("dead-letters-of-the-group", f"%DLQ%{GROUP}"),
    _read("retries-not-due", f"%RETRY%{GROUP}"),
    Case(R.GET_MAX_OFFSET, "scheduled", "valid", {"topic": "SCHEDULE_TOPIC_XXXX", "queueId": "17"}),
    Case(R.GET_MAX_OFFSET, "still-unread", "valid", {"topic": NO_READ, "queueId": "0"}),
)  # fmt: skip
