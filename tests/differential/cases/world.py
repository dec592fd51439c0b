"""What stands on both brokers before the cases: topics, messages, groups, members, offsets, locks."""

import json
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from lockstep.protocol.codes import RequestCode as R
from lockstep.protocol.messages.batch import BatchRecord, encode_batch
from tests.differential.case import Case, step
from tests.differential.side import Side

__all__ = [
    "BORN",
    "BROKER_NAME",
    "CLUSTER",
    "EMPTY",
    "GROUP",
    "MQ",
    "NO_READ",
    "NO_WRITE",
    "OTHER",
    "TAG_GROUP",
    "TOPIC",
    "WORLD",
    "consumer",
    "heartbeat",
    "message_id",
    "object_body",
    "physical",
    "pull",
    "queue_offset",
    "send",
    "stored_at",
    "subscription",
    "text",
    "topic_fields",
]

BROKER_NAME: Final = "broker-a"
CLUSTER: Final = "DefaultCluster"
TOPIC: Final = "DiffTopic"
OTHER: Final = "DiffOther"
EMPTY: Final = "DiffEmpty"
NO_READ: Final = "DiffNoRead"
NO_WRITE: Final = "DiffNoWrite"
GROUP: Final = "DiffGroup"
TAG_GROUP: Final = "DiffTagGroup"
BORN: Final = 1_700_000_000_000


def text(properties: Mapping[str, str]) -> str:
    return "\x02".join(f"{name}\x01{value}" for name, value in properties.items())


def send(topic: str = TOPIC, queue_id: Any = 0, **properties: str) -> dict[str, Any]:
    """Fields of SEND_MESSAGE (10)."""
    return {
        "producerGroup": "DiffProducers",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": str(queue_id),
        "sysFlag": "0",
        "bornTimestamp": str(BORN),
        "flag": "0",
        "properties": text(properties),
        "reconsumeTimes": "0",
        "unitMode": "false",
        "batch": "false",
    }


def pull(topic: str = TOPIC, queue_id: Any = 0, offset: Any = 0, **more: Any) -> dict[str, Any]:
    """Fields of PULL_MESSAGE (11) as a pull consumer sends them, with the subscription's text."""
    fields = {
        "consumerGroup": GROUP,
        "topic": topic,
        "queueId": str(queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "20000",
        "subVersion": "0",
        "subscription": "*",
        "expressionType": "TAG",
    }
    return fields | more


def topic_fields(topic: str, read: Any = 4, write: Any = 4, perm: Any = 6) -> dict[str, Any]:
    """Fields of UPDATE_AND_CREATE_TOPIC (17)."""
    return {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": str(read),
        "writeQueueNums": str(write),
        "perm": str(perm),
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }


def object_body(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def MQ(topic: str = TOPIC, queue_id: int = 0, broker: str = BROKER_NAME) -> dict[str, Any]:  # noqa: N802
    return {"brokerName": broker, "queueId": queue_id, "topic": topic}


def subscription(topic: str, expression: str = "*", version: int = 1, kind: str = "TAG") -> dict[str, Any]:
    tags = [] if expression == "*" or kind != "TAG" else expression.split(" || ")
    return {
        "classFilterMode": False,
        "codeSet": [_java_hash(tag) for tag in tags],
        "expressionType": kind,
        "subString": expression,
        "subVersion": version,
        "tagsSet": tags,
        "topic": topic,
    }


def _java_hash(tag: str) -> int:
    value = 0
    for character in tag:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def consumer(group: str, *subscriptions: dict[str, Any], model: Any = "CLUSTERING") -> dict[str, Any]:
    return {
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "consumeType": "CONSUME_PASSIVELY",
        "groupName": group,
        "messageModel": model,
        "subscriptionDataSet": list(subscriptions),
        "unitMode": False,
    }


def heartbeat(client_id: str, *consumers: dict[str, Any], producers: tuple[str, ...] = ()) -> bytes:
    data = {
        "clientID": client_id,
        "consumerDataSet": list(consumers),
        "producerDataSet": [{"groupName": each} for each in producers],
    }
    return object_body(data)


def physical(label: str, beside: int = 0) -> Callable[[Side], str]:
    """The commit log offset of a message that was sent under this label."""
    return lambda side: str(side.known.get(label, {}).get("physical", 0) + beside)


def message_id(label: str) -> Callable[[Side], str]:
    return lambda side: str(side.known.get(label, {}).get("id", "7F000001000000000000000000000000"))


def queue_offset(label: str) -> Callable[[Side], str]:
    """The queue offset that the reply to the send under this label told."""
    return lambda side: str(side.known.get(label, {}).get("queue_offset", 0))


def stored_at(label: str, beside: int = 0) -> Callable[[Side], str]:
    """When the message that was sent under this label was stored, in epoch ms, and so many ms after it."""
    return lambda side: str(side.known.get(label, {}).get("at_ms", 0) + beside)


def _topics() -> list[Case]:
    shapes = (
        (TOPIC, 4, 4, 6), (OTHER, 2, 2, 6), (EMPTY, 2, 2, 6), (NO_READ, 1, 1, 2), (NO_WRITE, 1, 1, 4),
        ("DiffWide", 8, 2, 6), ("DiffNarrow", 2, 8, 6), ("DiffNothing", 1, 1, 0),
    )  # fmt: skip
    return [step(R.UPDATE_AND_CREATE_TOPIC, topic_fields(*shape), shape[0]) for shape in shapes]


def _messages() -> list[Case]:
    cases = []
    for index, tag in enumerate(("TagA", "TagB", "TagA", "", "TagB", "TagA")):
        properties = {"KEYS": f"key{index} shared", "UNIQ_KEY": f"{0xD1FF00 + index:032X}", "WAIT": "true"}
        properties |= {"TAGS": tag} if tag else {}
        properties |= {"color": "red" if index % 2 else "blue", "size": str(index)}
        cases.append(
            step(R.SEND_MESSAGE, send(**properties), f"message-{index}", body=b"body %d" % index, message=f"m{index}")
        )
    batch = encode_batch([BatchRecord(index, b"batch %d" % index, f"KEYS\x01batch{index}") for index in range(3)])
    letters = dict(zip("abcdefghijkm", send(queue_id=1).values(), strict=True)) | {"m": "true"}
    cases.append(step(R.SEND_BATCH_MESSAGE, letters, "batch", body=batch, message="batch"))
    zipped = send(queue_id=2, KEYS="zipped") | {"sysFlag": "769"}
    cases.append(step(R.SEND_MESSAGE, zipped, "zipped", body=zlib.compress(b"z" * 5000), message="zipped"))
    cases.append(step(R.SEND_MESSAGE, send(OTHER, 0, KEYS="other"), "other", body=b"other", message="other"))
    return cases


def _groups() -> list[Case]:
    usual = {"consumeEnable": True, "consumeFromMinEnable": True, "consumeBroadcastEnable": True, "retryQueueNums": 1,
             "retryMaxTimes": 16, "brokerId": 0, "whichBrokerWhenConsumeSlowly": 1,
             "notifyConsumerIdsChangedEnable": True}  # fmt: skip
    special = (
        ("DiffClosedGroup", {"consumeEnable": False}),
        ("DiffNoRetry", {"retryQueueNums": 0}),
        ("DiffNoBroadcast", {"consumeBroadcastEnable": False}),
        ("DiffTwice", {"retryMaxTimes": 2}),
    )
    return [
        step(R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, name, body=object_body({"groupName": name} | usual | change))
        for name, change in special
    ]


def _members() -> list[Case]:
    heard = (
        ("consumer-1", heartbeat("diff-client-1",
                                 consumer(GROUP, subscription(TOPIC), subscription(f"%RETRY%{GROUP}")))),
        ("consumer-2", heartbeat("diff-client-2", consumer(TAG_GROUP, subscription(TOPIC, "TagA")))),
        ("consumer-3", heartbeat("diff-client-3", consumer("DiffAll", subscription(TOPIC), model="BROADCASTING"))),
        ("consumer-4", heartbeat("diff-client-4",
                                 consumer("DiffSqlGroup", subscription(TOPIC, "color = 'red'", kind="SQL92")))),
        ("consumer-5", heartbeat("diff-client-5",
                                 consumer("DiffNoBroadcast", subscription(TOPIC), model="BROADCASTING"))),
        ("producer-1", heartbeat("diff-client-6", producers=("DiffProducers",))),
    )  # fmt: skip
    return [step(R.HEART_BEAT, None, name, connection=name, body=body) for name, body in heard]


def _offsets() -> list[Case]:
    committed = ((GROUP, 0, 2), (GROUP, 1, 1), (GROUP, 2, 0), (GROUP, 3, 0), (TAG_GROUP, 0, 4), ("DiffMinus", 0, -1))
    return [
        step(
            R.UPDATE_CONSUMER_OFFSET,
            {"consumerGroup": group, "topic": TOPIC, "queueId": str(queue), "commitOffset": str(offset)},
            f"{group}-{queue}",
        )
        for group, queue, offset in committed
    ]


WORLD: Final = (*_topics(), *_messages(), *_groups(), *_members(), *_offsets())
