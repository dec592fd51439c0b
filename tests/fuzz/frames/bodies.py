"""Bodies of requests, by code: as a client makes them, with names and numbers of `Words`."""

import struct
import zlib
from collections.abc import Callable
from typing import Any, Final

from lockstep.protocol.codes import RequestCode
from tests.fuzz.frames.words import Words

__all__ = ["BODIES", "body_of"]

_R = RequestCode
_SETTINGS: Final = (
    "maxMessageSize=4096", "longPollingEnable=false", "enablePropertyFilter=true", "brokerPermission=6",
    "offset_entries_max=700", "heartbeat_groups_max=20", "transactionCheckMax=2", "notifyConsumerIdsChangedEnable=true",
    "fileReservedTime=1", "deleteWhen=04;05", "deleteWhen=99", "fence_legacy=warn", "rejectTransactionMessage=true",
    "brokerPermission=9", "aclEnable=false", "acl_enable=false", "listenPort=1", "=", "a", "\x00=\x00",
    "maxMessageSize=-1",
    "orderMessageEnable=true", "memberships_max=800", "acl_checks=rocketmq", "tls.server.mode=disabled", "x" * 2000,
)  # fmt: skip


def _queue(words: Words) -> dict[str, Any]:
    return {"topic": words.topic(), "brokerName": "broker-a", "queueId": words.small(5)}


def _locks(words: Words) -> Any:
    queues = [_queue(words) for _ in range(words.small(4) if words.small(50) else 300)]
    body: dict[str, Any] = {"consumerGroup": words.group(), "clientId": words.client(), "mqSet": queues}
    if words.small(3) == 0:
        body["epochs"] = [words.number() for _ in queues]
    return body


def _subscription(words: Words) -> dict[str, Any]:
    topic = words.topic()
    return {
        "topic": topic, "subString": words.text(), "tagsSet": [words.text() for _ in range(words.small(3))],
        "codeSet": [words.number(32)], "subVersion": words.number(),
        "expressionType": ("TAG", "TAG", "SQL92", "")[words.small(4)], "classFilterMode": False,
    }  # fmt: skip


def _heartbeat(words: Words) -> Any:
    many = words.small(60) == 0
    consumers = [
        {
            "groupName": words.group() if not many else f"g-{words.small(3000)}",
            "consumeType": ("CONSUME_PASSIVELY", "CONSUME_ACTIVELY", 1)[words.small(3)],
            "messageModel": ("CLUSTERING", "BROADCASTING", 0)[words.small(3)],
            "consumeFromWhere": ("CONSUME_FROM_LAST_OFFSET", "CONSUME_FROM_FIRST_OFFSET", 5)[words.small(3)],
            "subscriptionDataSet": [_subscription(words) for _ in range(words.small(3))],
            "unitMode": False,
        }
        for _ in range(100 if many else words.small(3))
    ]
    producers = [{"groupName": words.group()} for _ in range(words.small(3))]
    return {"clientID": words.client(), "consumerDataSet": consumers, "producerDataSet": producers}


def _client_config(words: Words) -> Any:
    return {"clientId": words.client(), "group": words.group(), "subscriptionData": _subscription(words)}


def _group_config(words: Words) -> Any:
    flags = ("consumeEnable", "consumeFromMinEnable", "consumeBroadcastEnable", "notifyConsumerIdsChangedEnable")
    return {
        "groupName": words.group(), "retryQueueNums": words.number(32), "retryMaxTimes": words.number(32),
        "brokerId": words.number(), "whichBrokerWhenConsumeSlowly": 1, **{flag: words.small(4) > 0 for flag in flags},
    }  # fmt: skip


def _settings(words: Words) -> Any:
    return "\n".join(_SETTINGS[words.small(len(_SETTINGS))] for _ in range(1 + words.small(3))).encode(
        "utf-8", "replace"
    )


def _batch(words: Words) -> Any:
    parts = []
    for _ in range(1 + words.small(5)):
        body, properties = bytes(words.small(50)), words.text().encode("utf-8", "replace")[:30000]
        head = struct.pack(">iiiii", 22 + len(body) + len(properties), 0, 0, 0, len(body))
        parts += [head, body, struct.pack(">h", len(properties)), properties]
    return b"".join(parts)


def _message(words: Words) -> Any:
    kind = words.small(12)
    if kind == 0:
        return b""
    if kind == 1:
        return zlib.compress(bytes(2000))
    return words.rng.randbytes(10 + words.small(150)) if kind < 11 else bytes(5000)


def _topics(words: Words) -> dict[str, Any]:
    names = [words.topic() for _ in range(words.small(4))]
    return {
        name: {
            "topicName": name, "readQueueNums": words.number(32), "writeQueueNums": words.number(32),
            "perm": words.small(8), "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False,
        }
        for name in names
    }  # fmt: skip


def _registration(words: Words) -> Any:
    version = {"counter": words.number(), "timestamp": words.number()}
    if words.small(4) == 0:
        lines = [
            f"{words.topic()} {words.small(9)} {words.small(9)} 6 SINGLE_TAG".encode("utf-8", "replace")
            for _ in range(3)
        ]
        head = b'{"counter":1,"timestamp":2}'
        parts = [struct.pack(">i", len(head)), head, struct.pack(">i", len(lines))]
        parts += [struct.pack(">i", len(line)) + line for line in lines]
        return zlib.compress(b"".join(parts) + struct.pack(">i", 2) + b"[]")
    wrapper = {"topicConfigTable": _topics(words), "dataVersion": version}
    return {"topicConfigSerializeWrapper": wrapper, "filterServerList": []}


def _version(words: Words) -> Any:
    return {"counter": words.number(), "timestamp": words.number()}


BODIES: Final[dict[int, Callable[[Words], Any]]] = {
    _R.SEND_MESSAGE: _message,
    _R.SEND_MESSAGE_V2: _message,
    _R.SEND_REPLY_MESSAGE: _message,
    _R.SEND_REPLY_MESSAGE_V2: _message,
    _R.SEND_BATCH_MESSAGE: _batch,
    _R.LOCK_BATCH_MQ: _locks,
    _R.UNLOCK_BATCH_MQ: _locks,
    _R.HEART_BEAT: _heartbeat,
    _R.CHECK_CLIENT_CONFIG: _client_config,
    _R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _group_config,
    _R.UPDATE_BROKER_CONFIG: _settings,
    _R.UPDATE_NAMESRV_CONFIG: _settings,
    _R.REGISTER_BROKER: _registration,
    _R.QUERY_DATA_VERSION: _version,
}


def body_of(code: int, words: Words) -> Any:
    """A body for a request of this code: bytes, or a value to encode. Few codes have one."""
    make = BODIES.get(code)
    if make is not None:
        return make(words)
    return b"" if words.small(30) else (b"{}", b"\x00", b"x" * 100, {"a": [1, 2]}, [])[words.small(5)]
