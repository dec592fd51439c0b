"""What tools ask a broker about topics, groups and members."""

from dataclasses import replace
from typing import Final

from lockstep.protocol.codes import RequestCode as R
from tests.differential.case import AFTER_READS, LAST, Ask, Case, Fields, Table, ask, plain, without
from tests.differential.cases.world import EMPTY, GROUP, OTHER, TAG_GROUP, TOPIC

__all__ = ["CASES"]

NO_FIELDS: Final = Ask({}, {"fields": None})


def _bad(required: str, *others: str) -> dict[str, Ask]:
    """What every request with one required text may get wrong."""
    return {
        f"missing-{required}": without(required),
        "no-fields": NO_FIELDS,
        f"empty-{required}": ask({required: ""}),
        f"unknown-{required}": ask({required: "DiffNowhere"}),
        f"illegal-{required}": ask({required: "a b?"}),
        f"long-{required}": ask({required: "X" * 500}),
        f"binary-header-no-{required}": without(required, encoding=1),
        **{f"missing-{other}": without(other) for other in others},
        **{f"empty-{other}": ask({other: ""}) for other in others},
        **{f"unknown-{other}": ask({other: "DiffNowhere"}) for other in others},
    }


def _usual(**rows: Ask) -> dict[str, Ask]:
    return {
        "usual": ask(),
        "again": ask(),
        "binary-header": ask(encoding=1),
        "unknown-fields": ask({"surprise": "yes"}),
        "one-way": ask(flag=2),
        **{name.replace("_", "-"): row for name, row in rows.items()},
    }


def _table(code: int, usual: Fields, required: tuple[str, ...], **rows: Ask) -> list[Case]:
    return Table(code, usual, _usual(**rows), _bad(*required)).cases()


# RocketMQ takes the offsets of the groups that it is to leave out away for good.
_CORRECTIONS: Final = [
    replace(case, late=AFTER_READS)
    for case in _table(
        R.QUERY_CORRECTION_OFFSET,
        {"compareGroup": GROUP, "topic": TOPIC, "filterGroups": TAG_GROUP},
        ("topic", "compareGroup", "filterGroups"),
        two_filters=ask({"filterGroups": f"{TAG_GROUP},DiffMinus"}),
        itself=ask({"filterGroups": GROUP}),
        other_topic=ask({"topic": OTHER}),
    )
]
CASES: Final[tuple[Case, ...]] = (
    *_CORRECTIONS,
    *_table(
        R.GET_TOPIC_STATS_INFO,
        {"topic": TOPIC},
        ("topic",),
        empty_topic=ask({"topic": EMPTY}),
        wide=ask({"topic": "DiffWide"}),
        narrow=ask({"topic": "DiffNarrow"}),
        retry_topic=ask({"topic": f"%RETRY%{GROUP}"}),
        schedule=ask({"topic": "SCHEDULE_TOPIC_XXXX"}),
    ),
    *_table(
        R.GET_CONSUMER_CONNECTION_LIST,
        {"consumerGroup": GROUP},
        ("consumerGroup",),
        tags=ask({"consumerGroup": TAG_GROUP}),
        broadcasting=ask({"consumerGroup": "DiffAll"}),
        sql=ask({"consumerGroup": "DiffSqlGroup"}),
        two=ask({"consumerGroup": "DiffBeats"}),
        offline=ask({"consumerGroup": "DiffReader"}),
    ),
    *_table(
        R.GET_PRODUCER_CONNECTION_LIST,
        {"producerGroup": "DiffProducers"},
        ("producerGroup",),
        other=ask({"producerGroup": "DiffBeatProducers"}),
        inner=ask({"producerGroup": "CLIENT_INNER_PRODUCER"}),
        a_consumers_group=ask({"producerGroup": GROUP}),
    ),
    *_table(
        R.GET_CONSUME_STATS,
        {"consumerGroup": GROUP},
        ("consumerGroup",),
        one_topic=ask({"topic": TOPIC}),
        other_topic=ask({"topic": OTHER}),
        offline=ask({"consumerGroup": "DiffUpdates"}),
        offline_one_topic=ask({"consumerGroup": "DiffUpdates", "topic": OTHER}),
        minus_one=ask({"consumerGroup": "DiffMinus", "topic": TOPIC}),
        no_offsets=ask({"consumerGroup": "DiffReader"}),
        no_offsets_one_topic=ask({"consumerGroup": "DiffReader", "topic": TOPIC}),
        unknown_topic=ask({"topic": "DiffNowhere"}),
        empty_topic=ask({"topic": ""}),
    ),
    *_table(
        R.QUERY_TOPIC_CONSUME_BY_WHO,
        {"topic": TOPIC},
        ("topic",),
        other=ask({"topic": OTHER}),
        nobody=ask({"topic": EMPTY}),
        retry_topic=ask({"topic": f"%RETRY%{GROUP}"}),
    ),
    *_table(
        R.QUERY_CONSUME_TIME_SPAN,
        {"topic": TOPIC, "group": GROUP},
        ("topic", "group"),
        other_group=ask({"group": TAG_GROUP}),
        empty_topic=ask({"topic": EMPTY}),
        other_topic=ask({"topic": OTHER}),
    ),
    *_table(
        R.VIEW_BROKER_STATS_DATA,
        {"statsName": "TOPIC_PUT_NUMS", "statsKey": TOPIC},
        ("statsName", "statsKey"),
        sizes=ask({"statsName": "TOPIC_PUT_SIZE"}),
        broker=ask({"statsName": "BROKER_PUT_NUMS", "statsKey": "DefaultCluster"}),
        broker_get=ask({"statsName": "BROKER_GET_NUMS", "statsKey": "DefaultCluster"}),
        group_get=ask({"statsName": "GROUP_GET_NUMS", "statsKey": f"{TOPIC}@{GROUP}"}),
        group_get_size=ask({"statsName": "GROUP_GET_SIZE", "statsKey": f"{TOPIC}@{GROUP}"}),
        queue_put=ask({"statsName": "QUEUE_PUT_NUMS", "statsKey": f"{TOPIC}@0"}),
        queue_get=ask({"statsName": "QUEUE_GET_NUMS", "statsKey": f"{TOPIC}@0@{GROUP}"}),
        latency=ask({"statsName": "GROUP_GET_LATENCY", "statsKey": f"0@{TOPIC}@{GROUP}"}),
        send_back=ask({"statsName": "SNDBCK_PUT_NUMS", "statsKey": f"{TOPIC}@{GROUP}"}),
        empty_topic=ask({"statsKey": EMPTY}),
    ),
    *Table(
        R.GET_BROKER_CONSUME_STATS,
        {"isOrder": "false"},
        _usual(ordered=ask({"isOrder": "true"}), capitals=ask({"isOrder": "FALSE"}), raw=ask({"isOrder": False})),
        {
            "missing-order": without("isOrder"),
            "no-fields": NO_FIELDS,
            "order-is-a-number": ask({"isOrder": "1"}),
            "order-is-text": ask({"isOrder": "perhaps"}),
            "order-empty": ask({"isOrder": ""}),
            "binary-header-no-order": without("isOrder", encoding=1),
            "body-not-json": ask(body=b"{"),
        },
    ).cases(),
    *Table(
        R.CLONE_GROUP_OFFSET,
        {"srcGroup": GROUP, "destGroup": "DiffClone", "topic": TOPIC, "offline": "false"},
        _usual(
            offline=ask({"offline": "true"}),
            all_topics=ask({"topic": None, "destGroup": "DiffCloneAll"}, late=LAST),
            to_itself=ask({"destGroup": GROUP}),
            nothing_stored=ask({"srcGroup": "DiffReader", "destGroup": "DiffCloneNone"}),
        ),
        _bad("srcGroup", "destGroup", "topic")
        | {"missing-offline": without("offline"), "empty-destGroup": ask({"destGroup": ""}, late=LAST)},
    ).cases(),
    Case(R.QUERY_CONSUMER_OFFSET, "cloned", "valid", {"consumerGroup": "DiffClone", "topic": TOPIC, "queueId": "0"}),
    Case(R.QUERY_CONSUMER_OFFSET, "cloned-all", "valid", late=LAST, fields=
         {"consumerGroup": "DiffCloneAll", "topic": TOPIC, "queueId": "1"}),
    *plain(R.GET_ALL_CONSUMER_OFFSET),
    *plain(R.GET_ALL_DELAY_OFFSET),
    *plain(R.GET_BROKER_RUNTIME_INFO),
    *plain(R.GET_BROKER_CONFIG),
    *plain(R.GET_ALL_PRODUCER_INFO),
    *plain(R.CLEAN_EXPIRED_CONSUMEQUEUE),
    *plain(R.CLEAN_UNUSED_TOPIC),
    *plain(R.DELETE_EXPIRED_COMMITLOG),
    *plain(R.TRIGGER_DELETE_FILES),
)  # fmt: skip
