"""Bodies of administration, member by member (wire.md 2.2 to 2.5, 8.4); recorded ones are in test_vectors."""

from typing import Any

import pytest

from lockstep.protocol.bodies.admin import (
    ConsumeQueueData,
    ConsumeStats,
    OffsetWrapper,
    QueryConsumeQueueResponseBody,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
)
from lockstep.protocol.bodies.broker import DataVersion, TopicConfig
from lockstep.protocol.bodies.client import (
    CMResult,
    Connection,
    ConsumeMessageDirectlyResult,
    ConsumerConnection,
    ConsumerRunningInfo,
    ConsumeStatus,
    GetConsumerStatusBody,
    ProcessQueueInfo,
    ProducerConnection,
    ProducerInfo,
    ProducerTable,
    ResetOffsetBody,
    ResetOffsetBodyForC,
)
from lockstep.protocol.bodies.codec import WireBody, decode_body, encode_body
from lockstep.protocol.bodies.config import (
    ConsumerOffsetTable,
    DelayOffsetTable,
    QueryCorrectionOffsetBody,
    SubscriptionGroupWrapper,
    TopicConfigWrapper,
)
from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.bodies.subscription_group import SubscriptionGroupConfig
from lockstep.protocol.codes import LanguageCode, SerializeType
from lockstep.protocol.errors import BodyError
from lockstep.protocol.model import MessageQueue
from tests.rows import by_row

QUEUE = MessageQueue("T", "b", 1)
KEY = '{"brokerName":"b","queueId":1,"topic":"T"}'
JAVA = LanguageCode.JAVA
VERSION = DataVersion(2, 1795208639549)
VERSION_TEXT = '"dataVersion":{"counter":2,"timestamp":1795208639549}'

WRITTEN: list[tuple[WireBody, str]] = [
    (ResetOffsetBody({QUEUE: 7}), f'{{"offsetTable":{{{KEY}:7}}}}'),
    (ResetOffsetBodyForC({QUEUE: 7}), '{"offsetTable":[{"brokerName":"b","offset":7,"queueId":1,"topic":"T"}]}'),
    (GetConsumerStatusBody({QUEUE: 7}, {}), f'{{"consumerTable":{{}},"messageQueueTable":{{{KEY}:7}}}}'),
    (
        GetConsumerStatusBody({}, {"c": {QUEUE: 7}}),
        f'{{"consumerTable":{{"c":{{{KEY}:7}}}},"messageQueueTable":{{}}}}',
    ),
    (
        ProducerConnection((Connection("c", "h:1", JAVA, 409),)),
        '{"connectionSet":[{"clientAddr":"h:1","clientId":"c","language":"JAVA","version":409}]}',
    ),
    (
        ConsumerConnection((), {"T": SubscriptionData("T")}),
        (
            '{"connectionSet":[],"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY",'
            '"messageModel":"CLUSTERING","subscriptionTable":{"T":{"classFilterMode":false,"codeSet":[],'
            '"expressionType":"TAG","subString":"*","subVersion":0,"tagsSet":[],"topic":"T"}}}'
        ),
    ),
    (
        ProducerTable({"P": (ProducerInfo("c", "h:1", JAVA, 409, 5),)}),
        '{"data":{"P":[{"clientId":"c","language":"JAVA","lastUpdateTimestamp":5,"remoteIP":"h:1","version":409}]}}',
    ),
    (
        ConsumeMessageDirectlyResult(True, True, CMResult.CR_SUCCESS, None, 3),
        '{"autoCommit":true,"consumeResult":"CR_SUCCESS","order":true,"spentTimeMills":3}',
    ),
    (
        ConsumerRunningInfo({"P": "v"}, (), {QUEUE: ProcessQueueInfo(commit_offset=4)}, {"T": ConsumeStatus()}),
        (
            f'{{"mqTable":{{{KEY}:{{"cachedMsgCount":0,"cachedMsgMaxOffset":0,"cachedMsgMinOffset":0,'
            '"cachedMsgSizeInMiB":0,"commitOffset":4,"droped":false,"lastConsumeTimestamp":0,"lastLockTimestamp":0,'
            '"lastPullTimestamp":0,"locked":false,"transactionMsgCount":0,"transactionMsgMaxOffset":0,'
            '"transactionMsgMinOffset":0,"tryUnlockTimes":0}},"properties":{"P":"v"},"statusTable":{"T":'
            '{"consumeFailedMsgs":0,"consumeFailedTPS":0.0,"consumeOKTPS":0.0,"consumeRT":0.0,"pullRT":0.0,'
            '"pullTPS":0.0}},"subscriptionSet":[]}'
        ),
    ),
    (
        TopicConfigWrapper(VERSION, (TopicConfig("T"),)),
        (
            f'{{{VERSION_TEXT},"topicConfigTable":{{"T":{{"order":false,"perm":6,"readQueueNums":4,'
            '"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":4}}}'
        ),
    ),
    (
        SubscriptionGroupWrapper(VERSION, (SubscriptionGroupConfig("G"),)),
        (
            f'{{{VERSION_TEXT},"subscriptionGroupTable":{{"G":{{"brokerId":0,"consumeBroadcastEnable":true,'
            '"consumeEnable":true,"consumeFromMinEnable":true,"groupName":"G","notifyConsumerIdsChangedEnable":true,'
            '"retryMaxTimes":16,"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}}}'
        ),
    ),
    (ConsumerOffsetTable({"T@G": {0: 5, 10: 6}}), '{"offsetTable":{"T@G":{"0":5,"10":6}}}'),
    (DelayOffsetTable({3: 2}), '{"offsetTable":{"3":2}}'),
    (QueryCorrectionOffsetBody({0: 9}), '{"correctionOffsets":{"0":9}}'),
    (
        QueryConsumeTimeSpanBody((QueueTimeSpan(QUEUE, 0, 1795208639549, 1, 2),)),
        (
            '{"consumeTimeSpanSet":[{"consumeTimeStamp":1,"consumeTimeStampStr":"1970-01-01#00:00:00:001",'
            '"delayTime":2,'
            '"maxTimeStamp":1795208639549,"maxTimeStampStr":"2026-11-20#21:03:59:549","messageQueue":'
            f'{KEY},"minTimeStamp":0,"minTimeStampStr":"1970-01-01#00:00:00:000"}}]}}'
        ),
    ),
    (
        QueryConsumeQueueResponseBody((ConsumeQueueData(1, 2, 3, eval=True),), 9, 0),
        '{"maxQueueIndex":9,"minQueueIndex":0,"queueData":[{"eval":true,"physicOffset":1,"physicSize":2,"tagsCode":3}]}',
    ),
]


@by_row("body, text", WRITTEN)
def test_members(body: WireBody, text: str) -> None:
    """The members are RocketMQ's, in its order and spelling, and are read again."""
    assert encode_body(body, SerializeType.JSON) == text.encode()
    for serialize_type in SerializeType:
        assert decode_body(type(body), encode_body(body, serialize_type), serialize_type) == body


def test_both_forms_of_a_reset() -> None:
    """A client takes the table with queues as names, and the list that C++ gets."""
    for body in (ResetOffsetBody({QUEUE: 7}), ResetOffsetBodyForC({QUEUE: 7})):
        assert decode_body(ResetOffsetBody, encode_body(body, 0), 0) == ResetOffsetBody({QUEUE: 7})


def test_files_of_a_broker() -> None:
    """consumerOffset.json and delayOffset.json name queues and levels without quotes, over many lines."""
    text = b'{\n\t"offsetTable":{\n\t\t"T@G":{0:5,1:6\n\t\t}\n\t}\n}'
    assert decode_body(ConsumerOffsetTable, text, 0) == ConsumerOffsetTable({"T@G": {0: 5, 1: 6}})
    assert decode_body(DelayOffsetTable, b'{"offsetTable":{3:2}}', 0) == DelayOffsetTable({3: 2})


def test_the_distance_of_a_group() -> None:
    """What a group has still to consume is the sum over its queues."""
    other = MessageQueue("T", "b", 2)
    assert ConsumeStats({QUEUE: OffsetWrapper(9, 4), other: OffsetWrapper(3, 3)}).total_diff == 5


@by_row("body_class, wire", [
        (ResetOffsetBody, {"offsetTable": {"T": 1}}),
        (ResetOffsetBody, {"offsetTable": {KEY: None}}),
        (ResetOffsetBody, {"offsetTable": [{"topic": "T"}]}),
        (ResetOffsetBodyForC, {"offsetTable": {}}),
        (GetConsumerStatusBody, {"consumerTable": {"c": []}}),
        (ConsumerOffsetTable, {"offsetTable": {"T@G": {"x": 1}}}),
        (ConsumerConnection, {"connectionSet": [5]}),
        (ProducerTable, {"data": {"P": {}}}),
        (ConsumerRunningInfo, {"properties": {"a": []}}),
        (ConsumeMessageDirectlyResult, {}),
        (ConsumeMessageDirectlyResult, {"consumeResult": "CR_NONE"}),
        (SubscriptionGroupWrapper, {"subscriptionGroupTable": {"G": {"groupName": "H"}},
                                    "dataVersion": {"counter": 0, "timestamp": 0}}),
        (TopicConfigWrapper, {"topicConfigTable": {}}),
        (QueryConsumeTimeSpanBody, {"consumeTimeSpanSet": [{}]}),
    ])  # fmt: skip
def test_what_is_wrong_is_a_body_error(body_class: type[WireBody], wire: Any) -> None:
    """A member that is missing, of another kind or out of range is refused."""
    with pytest.raises(BodyError):
        body_class.from_wire(wire)
