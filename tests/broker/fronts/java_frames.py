"""Requests as Java 4.9.8 sends them: JSON, all header fields texts, no epoch."""

import json

__all__ = ["commit_fields", "heartbeat_body", "lock_body", "pull_fields", "send_back_fields"]

_COMMIT, _SUSPEND, _TEXT = 1, 2, 4  # flags of a pull


def lock_body(client_id: str, group: str, topic: str, *, broker_name: str = "broker-a") -> bytes:
    """Of LOCK_BATCH_MQ and UNLOCK_BATCH_MQ, for queue 0."""
    queues = [{"brokerName": broker_name, "queueId": 0, "topic": topic}]
    return json.dumps({"clientId": client_id, "consumerGroup": group, "mqSet": queues}).encode()


def heartbeat_body(client_id: str, groups: tuple[str, ...], topic: str, model: str = "CLUSTERING") -> bytes:
    subscription = {
        "classFilterMode": False,
        "codeSet": [],
        "expressionType": "TAG",
        "subString": "*",
        "subVersion": 1,
        "tagsSet": [],
        "topic": topic,
    }
    consumers = [
        {
            "groupName": group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": model,
            "unitMode": False,
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [subscription],
        }
        for group in groups
    ]
    return json.dumps({"clientID": client_id, "producerDataSet": [], "consumerDataSet": consumers}).encode()


def commit_fields(group: str, topic: str, offset: int) -> dict[str, str]:
    return {"consumerGroup": group, "topic": topic, "queueId": "0", "commitOffset": str(offset)}


def pull_fields(group: str, topic: str, offset: int, commit: int | None = None, *, wait: bool = True) -> dict[str, str]:
    """`commit`: the offset that the pull carries. With the subscription, so that no heartbeat is needed."""
    sys_flag = _TEXT + _SUSPEND * wait + _COMMIT * (commit is not None)
    return {
        "consumerGroup": group,
        "topic": topic,
        "queueId": "0",
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": str(sys_flag),
        "commitOffset": str(commit or 0),
        "suspendTimeoutMillis": "15000",
        "subVersion": "0",
        "subscription": "*",
    }


def send_back_fields(group: str, topic: str, commit_log_offset: int) -> dict[str, str]:
    return {
        "offset": str(commit_log_offset),
        "group": group,
        "delayLevel": "0",
        "originMsgId": "x",
        "originTopic": topic,
        "unitMode": "false",
        "maxReconsumeTimes": "16",
    }
