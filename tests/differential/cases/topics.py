"""Topics and subscription groups as administrators make, list and delete them."""

from typing import Any, Final

from lockstep.protocol.codes import RequestCode as R
from tests.differential.case import LAST, Ask, Case, Table, ask, not_numbers, plain, step, without
from tests.differential.cases.world import GROUP, TOPIC, object_body, pull, send, topic_fields

__all__ = ["CASES", "LAST_CASES"]

NO_FIELDS: Final = Ask({}, {"fields": None})


CREATE: Final = Table(
    R.UPDATE_AND_CREATE_TOPIC,
    topic_fields("DiffAdmin"),
    valid={
        "new": ask(),
        "again": ask(),
        "more-queues": ask({"readQueueNums": "6", "writeQueueNums": "6"}),
        "fewer-queues": ask({"readQueueNums": "2", "writeQueueNums": "2"}),
        "more-read-than-write": ask({"topic": "DiffAdmin2", "readQueueNums": "5", "writeQueueNums": "3"}),
        "read-only": ask({"topic": "DiffAdmin3", "perm": "4"}),
        "no-permission": ask({"topic": "DiffAdmin4", "perm": "0"}),
        "inherit": ask({"topic": "DiffAdmin5", "perm": "7"}),
        "ordered": ask({"topic": "DiffAdmin6", "order": "true"}),
        "multi-tag": ask({"topic": "DiffAdmin7", "topicFilterType": "MULTI_TAG"}, late=LAST),
        "sys-flag": ask({"topic": "DiffAdmin8", "topicSysFlag": "1"}),
        "no-sys-flag": without("topicSysFlag"),
        "no-order": without("order"),
        "no-default-topic": without("defaultTopic"),
        "longest-name": ask({"topic": "A" * 127}),
        "retry-topic": ask({"topic": "%RETRY%DiffAdmin"}),
        "raw-numbers": ask({"topic": "DiffAdmin9", "readQueueNums": 3, "writeQueueNums": 3, "perm": 6, "order": True}),
        "binary-header": ask({"topic": "DiffAdmin10"}, encoding=1),
        "one-way": ask({"topic": "DiffAdmin11"}, flag=2),
        "zero-queues": ask({"topic": "DiffAdmin12", "readQueueNums": "0", "writeQueueNums": "0"}),
        "perm-unknown-bits": ask({"topic": "DiffAdmin13", "perm": "30"}, late=LAST),
    },
    invalid={
        "missing-topic": without("topic"),
        **not_numbers("readQueueNums"),
        **not_numbers("writeQueueNums"),
        **not_numbers("perm"),
        "no-fields": NO_FIELDS,
        "filter-type-missing": ask({"topic": "DiffBad1", "topicFilterType": None}, late=LAST),
        "filter-type-unknown": ask({"topic": "DiffBad2", "topicFilterType": "NO_TAG"}),
        "sys-flag-text": ask({"topic": "DiffBad3", "topicSysFlag": "x"}),
        "empty-name": ask({"topic": ""}),
        "name-too-long": ask({"topic": "T" * 128}),
        "name-illegal": ask({"topic": "no spaces"}),
        "name-unicode": ask({"topic": "日本"}),
        "reserved-schedule": ask({"topic": "SCHEDULE_TOPIC_XXXX"}),
        "reserved-template": ask({"topic": "TBW102"}),
        "reserved-cluster": ask({"topic": "DefaultCluster"}),
        "reserved-broker": ask({"topic": "broker-a"}),
        "reserved-benchmark": ask({"topic": "BenchmarkTest"}),
        "reserved-self-test": ask({"topic": "SELF_TEST_TOPIC"}),
        "reserved-half": ask({"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}),
        "reserved-reply": ask({"topic": "DefaultCluster_REPLY_TOPIC"}),
        "negative-queues": ask({"topic": "DiffBad4", "readQueueNums": "-1", "writeQueueNums": "-1"}, late=LAST),
        "binary-header-no-topic": without("topic", encoding=1),
    },
)


def _group(name: Any = "DiffMadeGroup", **change: Any) -> bytes:
    body = {"groupName": name, "consumeEnable": True, "consumeFromMinEnable": False, "consumeBroadcastEnable": False,
            "retryQueueNums": 2, "retryMaxTimes": 5, "brokerId": 0, "whichBrokerWhenConsumeSlowly": 1,
            "notifyConsumerIdsChangedEnable": True}  # fmt: skip
    return object_body({key: value for key, value in (body | change).items() if value is not ...})


UPDATE_GROUP: Final = Table(
    R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    None,
    valid={
        "new": ask(),
        "again": ask(),
        "changed": ask(body=_group(retryMaxTimes=7)),
        "only-a-name": ask(body=object_body({"groupName": "DiffBareGroup"})),
        "disabled": ask(body=_group("DiffOffGroup", consumeEnable=False)),
        "unknown-members": ask(body=_group("DiffMoreGroup", consumeMessageOrderly=False, attributes={}, another=1)),
        "numbers-as-text": ask(body=_group("DiffTextGroup", retryMaxTimes="9")),
        "single-quotes": ask(body=_group("DiffQuoteGroup").replace(b'"', b"'")),
        "booleans-as-text": ask(body=_group("DiffBoolGroup", consumeEnable="true", consumeFromMinEnable="false")),
        "binary-header": ask(body=_group("DiffBinaryGroup"), encoding=1),
        "one-way": ask(body=_group("DiffOneWayGroup"), flag=2),
        "negative-retries": ask(body=_group("DiffMinusGroup", retryMaxTimes=-1)),
        "built-in": ask(body=_group("TOOLS_CONSUMER", consumeFromMinEnable=True, consumeBroadcastEnable=True,
                                    retryQueueNums=1, retryMaxTimes=16)),
    },
    invalid={
        "empty-body": ask(body=b""),
        "not-json": ask(body=b"{"),
        "a-list": ask(body=b"[]"),
        "null": ask(body=b"null"),
        "text": ask(body=b'"group"'),
        "retries-are-text": ask(body=_group("DiffBadGroup1", retryMaxTimes="often")),
        "enable-is-text": ask(body=_group("DiffBadGroup2", consumeEnable="perhaps")),
        "retries-are-a-list": ask(body=_group("DiffBadGroup3", retryMaxTimes=[1])),
        "name-illegal": ask(body=_group("a b"), late=LAST),
        "name-too-long": ask(body=_group("G" * 300), late=LAST),
        "name-empty": ask(body=_group(""), late=LAST),
    },
    defaults={"body": _group()},
)  # fmt: skip
DELETE_GROUP: Final = Table(
    R.DELETE_SUBSCRIPTIONGROUP,
    {"groupName": "DiffOffGroup"},
    valid={
        "known": ask(),
        "again": ask(),
        "with-offsets": ask({"groupName": "DiffForgotten", "removeOffset": "true"}),
        "without-offsets": ask({"groupName": "DiffTextGroup", "removeOffset": "false"}),
        "never-known": ask({"groupName": "DiffNobody"}),
        "binary-header": ask({"groupName": "DiffBinaryGroup"}, encoding=1),
        "one-way": ask({"groupName": "DiffOneWayGroup"}, flag=2),
    },
    invalid={
        "missing-name": without("groupName"),
        "no-fields": NO_FIELDS,
        "empty-name": ask({"groupName": ""}),
        "illegal-name": ask({"groupName": "a b"}),
        "remove-offset-nonsense": ask({"groupName": "DiffMoreGroup", "removeOffset": "1"}),
        "binary-header-no-name": without("groupName", encoding=1),
        "other-spelling": ask({"groupName": None, "consumerGroup": "DiffQuoteGroup"}),
    },
)
DELETE_TOPIC: Final = Table(
    R.DELETE_TOPIC_IN_BROKER,
    {"topic": "DiffDoomed"},
    valid={
        "known": ask(),
        "again": ask(),
        "never-known": ask({"topic": "DiffNowhere"}),
        "illegal-name": ask({"topic": "a b"}),
        "retry-topic": ask({"topic": "%RETRY%DiffAdmin"}),
        "binary-header": ask({"topic": "DiffAdmin10"}, encoding=1),
        "one-way": ask({"topic": "DiffAdmin11"}, flag=2),
        "too-long-name": ask({"topic": "T" * 128}),
    },
    invalid={
        "missing-topic": without("topic"),
        "no-fields": NO_FIELDS,
        "empty-name": ask({"topic": ""}),
        "blank-name": ask({"topic": "  "}),
        "reserved-schedule": ask({"topic": "SCHEDULE_TOPIC_XXXX"}),
        "reserved-template": ask({"topic": "TBW102"}),
        "reserved-broker": ask({"topic": "broker-a"}),
        "reserved-cluster": ask({"topic": "DefaultCluster"}),
        "binary-header-no-topic": without("topic", encoding=1),
    },
)


def _offset_of_forgotten(name: str) -> Case:
    fields = {"consumerGroup": "DiffForgotten", "topic": TOPIC, "queueId": "0"}
    return Case(R.QUERY_CONSUMER_OFFSET, name, "valid", fields)


CASES: Final[tuple[Case, ...]] = (
    *CREATE.cases(),
    *UPDATE_GROUP.cases(),
    *plain(R.GET_ALL_TOPIC_CONFIG),
    Case(R.GET_ALL_TOPIC_CONFIG, "with-all-that-was-asked-for", "valid", late=LAST),
    *plain(R.GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
    *plain(R.GET_SYSTEM_TOPIC_LIST_FROM_BROKER),
)
LAST_CASES: Final[tuple[Case, ...]] = (
    step(R.UPDATE_CONSUMER_OFFSET,
         {"consumerGroup": "DiffForgotten", "topic": TOPIC, "queueId": "0", "commitOffset": "5"}),
    step(R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, "forgotten", body=_group("DiffForgotten")),
    _offset_of_forgotten("before-its-group-goes"),
    *DELETE_GROUP.cases(),
    _offset_of_forgotten("after-its-group-went"),
    Case(R.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "after-deletions", "valid"),
    step(R.UPDATE_AND_CREATE_TOPIC, topic_fields("DiffDoomed"), "doomed"),
    step(R.SEND_MESSAGE, send("DiffDoomed"), body=b"doomed"),
    *DELETE_TOPIC.cases(),
    Case(R.PULL_MESSAGE, "deleted-topic", "invalid", pull("DiffDoomed", consumerGroup=GROUP)),
    Case(R.GET_MAX_OFFSET, "deleted-topic", "valid", {"topic": "DiffDoomed", "queueId": "0"}),
    Case(R.GET_ALL_TOPIC_CONFIG, "after-deletions", "valid"),
)  # fmt: skip
