"""Consumer offsets (14, 15) and the offsets of queues (29 to 32)."""

from typing import Any, Final

from lockstep.protocol.codes import RequestCode as R
from tests.differential.case import LAST, Ask, Case, Table, ask, not_numbers, without
from tests.differential.cases.world import EMPTY, GROUP, NO_READ, TAG_GROUP, TOPIC, stored_at

__all__ = ["CASES"]

QUEUE: Final = {"topic": TOPIC, "queueId": "0"}
NO_FIELDS: Final = Ask({}, {"fields": None})


def _queues() -> dict[str, Ask]:
    return {
        "busy-queue": ask(),
        "batch-queue": ask({"queueId": "1"}),
        "one-message": ask({"queueId": "2"}),
        "empty-queue": ask({"queueId": "3"}),
        "empty-topic": ask({"topic": EMPTY}),
        "unreadable-topic": ask({"topic": NO_READ}),
        "raw-number": ask({"queueId": 0}),
        "binary-header": ask(encoding=1),
        "with-broker-name": ask({"bname": "broker-a"}),
        "one-way": ask(flag=2),
    }


def _bad_queues() -> dict[str, Ask]:
    return {
        "missing-topic": without("topic"),
        **not_numbers("queueId"),
        "no-fields": NO_FIELDS,
        "unknown-topic": ask({"topic": "DiffNowhere"}),
        "empty-topic-name": ask({"topic": ""}),
        "negative-queue": ask({"queueId": "-1"}),
        "queue-above": ask({"queueId": "1000"}),
        "queue-hexadecimal": ask({"queueId": "0x1"}),
        "queue-blank": ask({"queueId": " 1"}),
        "binary-header-no-queue": without("queueId", encoding=1),
    }


def _search(fields: dict[str, Any] | None = None) -> Table:
    return Table(
        R.SEARCH_OFFSET_BY_TIMESTAMP,
        QUEUE | {"timestamp": "0"},
        valid={
            **_queues(),
            "before-all": ask({"timestamp": stored_at("m0", -5000)}),
            "at-the-first": ask({"timestamp": stored_at("m0")}),
            "at-the-third": ask({"timestamp": stored_at("m2")}),
            "at-the-last": ask({"timestamp": stored_at("m5")}),
            "after-all": ask({"timestamp": stored_at("m5", 5000)}),
            "far-future": ask({"timestamp": str(2**62)}),
            "negative-time": ask({"timestamp": "-1"}),
        },
        invalid={**_bad_queues(), **not_numbers("timestamp", bits=64)},
    )


COMMITTED: Final = {"consumerGroup": GROUP} | QUEUE
QUERY: Final = Table(
    R.QUERY_CONSUMER_OFFSET,
    COMMITTED,
    valid={
        "stored": ask(),
        "stored-zero": ask({"queueId": "2"}),
        "other-group": ask({"consumerGroup": TAG_GROUP}),
        "stored-minus-one": ask({"consumerGroup": "DiffMinus"}),
        "none-on-a-young-queue": ask({"consumerGroup": "DiffNeverSeen"}),
        "none-on-an-empty-queue": ask({"consumerGroup": "DiffNeverSeen", "queueId": "3"}),
        "none-on-an-unknown-topic": ask({"topic": "DiffNowhere"}),
        "raw-number": ask({"queueId": 0}),
        "binary-header": ask(encoding=1),
        "with-broker-name": ask({"bname": "broker-a"}),
        "cpp": ask(language="CPP", version=63),
        "one-way": ask(flag=2),
    },
    invalid={
        "missing-group": without("consumerGroup"),
        "missing-topic": without("topic"),
        **not_numbers("queueId"),
        "no-fields": NO_FIELDS,
        "negative-queue": ask({"queueId": "-1"}),
        "queue-above": ask({"queueId": "1000"}),
        "empty-group": ask({"consumerGroup": ""}),
        "empty-topic-name": ask({"topic": ""}),
        "binary-header-no-queue": without("queueId", encoding=1),
    },
)
FREE: Final = {"consumerGroup": "DiffUpdates", "topic": "BenchmarkTest", "queueId": "0"}  # a topic of 1024 queues
UPDATE: Final = Table(
    R.UPDATE_CONSUMER_OFFSET,
    FREE | {"commitOffset": "7"},
    valid={
        "first": ask(),
        "lower": ask({"commitOffset": "3"}),
        "minus-one": ask({"commitOffset": "-1", "queueId": "1"}),
        "beyond-the-queue": ask({"commitOffset": "123456789012", "queueId": "2"}),
        "far-queue": ask({"queueId": "99"}),
        "unknown-topic": ask({"topic": "DiffNowhere"}, late=LAST),
        "unknown-group": ask({"consumerGroup": "DiffNobodyAtAll"}),
        "raw-numbers": ask({"queueId": 3, "commitOffset": 9}),
        "one-way": ask({"queueId": "4", "commitOffset": "11"}, flag=2),
        "binary-header": ask({"queueId": "5", "commitOffset": "12"}, encoding=1),
        "with-broker-name": ask({"queueId": "6", "bname": "broker-a"}),
    },
    invalid={
        "missing-group": without("consumerGroup"),
        "missing-topic": without("topic", late=LAST),
        **not_numbers("queueId"),
        **not_numbers("commitOffset", bits=64),
        "no-fields": NO_FIELDS,
        "negative-queue": ask({"queueId": "-1"}, late=LAST),
        "empty-group": ask({"consumerGroup": "", "queueId": "7"}, late=LAST),
        "empty-topic-name": ask({"topic": "", "queueId": "7"}, late=LAST),
        "one-way-bad": ask({"queueId": "x"}, flag=2),
        "binary-header-no-offset": without("commitOffset", encoding=1),
    },
)


def _after(name: str, **fields: str) -> Case:
    return Case(R.QUERY_CONSUMER_OFFSET, f"after-{name}", "valid", FREE | fields)


CASES: Final[tuple[Case, ...]] = (
    *QUERY.cases(),
    *UPDATE.cases(),
    _after("lower"),
    _after("minus-one", queueId="1"),
    _after("beyond-the-queue", queueId="2"),
    _after("far-queue", queueId="99"),
    _after("raw-numbers", queueId="3"),
    _after("one-way", queueId="4"),
    _after("binary-header", queueId="5"),
    *Table(R.GET_MAX_OFFSET, QUEUE, _queues(), _bad_queues()).cases(),
    *Table(R.GET_MIN_OFFSET, QUEUE, _queues(), _bad_queues()).cases(),
    *Table(R.GET_EARLIEST_MSG_STORETIME, QUEUE, _queues(), _bad_queues()).cases(),
    *_search().cases(),
)
