"""What a broker passes on to clients: resets (222), their offsets (223), running info (307), direct consuming (309).

The connection `steered` is a consumer that answers what the broker asks it; its answers stand in `CLIENT_ANSWERS`.
"""

import json
from collections.abc import Callable
from typing import Final

from lockstep.protocol.codes import RequestCode as R
from tests.differential.case import Ask, Case, Table, ask, not_numbers, step, without
from tests.differential.cases.world import (
    EMPTY,
    TOPIC,
    consumer,
    heartbeat,
    message_id,
    send,
    stored_at,
    subscription,
    topic_fields,
)
from tests.differential.side import Received

__all__ = ["CASES", "CLIENT_ANSWERS"]

NO_FIELDS: Final = Ask({}, {"fields": None})
STEERED: Final = "DiffSteered"
STEERED_TOPIC: Final = "DiffSteeredTopic"
RUNNING: Final = {"properties": {"PROP_CLIENT_VERSION": "V4_9_8"}, "subscriptionSet": [], "mqTable": {}}
CONSUMED: Final = {"order": False, "autoCommit": True, "consumeResult": "CR_SUCCESS", "spentTimeMills": 3}


def _offsets_of_client(one: Received) -> tuple[int, bytes]:
    queue = json.dumps({"brokerName": "broker-a", "queueId": 0, "topic": STEERED_TOPIC})
    return 0, b'{"messageQueueTable":{%b:5}}' % queue.encode()


CLIENT_ANSWERS: Final[dict[int, Callable[[Received], tuple[int, bytes]]]] = {
    int(R.GET_CONSUMER_STATUS_FROM_CLIENT): _offsets_of_client,
    int(R.GET_CONSUMER_RUNNING_INFO): lambda one: (0, json.dumps(RUNNING).encode()),
    int(R.PUSH_REPLY_MESSAGE_TO_CLIENT): lambda one: (0, b""),
    int(R.CONSUME_MESSAGE_DIRECTLY): lambda one: (0, json.dumps(CONSUMED).encode()),
}


def _commit(queue: int, offset: int) -> Case:
    fields = {"consumerGroup": STEERED, "topic": STEERED_TOPIC, "queueId": str(queue), "commitOffset": str(offset)}
    return step(R.UPDATE_CONSUMER_OFFSET, fields, f"commit-{queue}")


PREPARED: Final = (
    step(R.UPDATE_AND_CREATE_TOPIC, topic_fields(STEERED_TOPIC, 2, 2), "steered"),
    *(step(R.SEND_MESSAGE, send(STEERED_TOPIC, 0, KEYS=f"s{n}"), body=b"steered", message=f"s{n}") for n in range(4)),
    step(R.SEND_MESSAGE, send(STEERED_TOPIC, 1), body=b"steered", message="t0"),
    step(R.HEART_BEAT, None, "steered", connection="steered", watch=("steered",), body=heartbeat(
        "steered-1", consumer(STEERED, subscription(STEERED_TOPIC), subscription(f"%RETRY%{STEERED}")))),
    _commit(0, 3),
    _commit(1, 1),
)  # fmt: skip
HEARD: Final = {"watch": ("steered",)}
RESET: Final = Table(
    R.INVOKE_BROKER_TO_RESET_OFFSET,
    {"topic": STEERED_TOPIC, "group": STEERED, "timestamp": stored_at("s1"), "isForce": "true"},
    valid={
        "to-a-message": ask(watch=("steered",)),
        "to-the-start": ask({"timestamp": "0"}, watch=("steered",)),
        "to-the-end": ask({"timestamp": "-1"}, watch=("steered",)),
        "not-forced-back": ask({"isForce": "false", "timestamp": "0"}, watch=("steered",)),
        "not-forced-ahead": ask({"isForce": "false", "timestamp": "-1"}, watch=("steered",)),
        "far-future": ask({"timestamp": str(2**62)}, watch=("steered",)),
        "cpp-form": ask(language="CPP", watch=("steered",)),
        "binary-header": ask(encoding=1, watch=("steered",)),
        "one-way": ask(flag=2, watch=("steered",)),
    },
    invalid={
        "missing-topic": without("topic"),
        "missing-group": without("group"),
        **{name: row._replace(changes=HEARD) for name, row in not_numbers("timestamp", bits=64).items()},
        "missing-force": without("isForce", watch=("steered",)),
        "no-fields": NO_FIELDS,
        "unknown-topic": ask({"topic": "DiffNowhere"}),
        "empty-topic-name": ask({"topic": ""}),
        "unknown-group": ask({"group": "DiffNowhere"}),
        "empty-group": ask({"group": ""}),
        "group-without-all-offsets": ask({"group": "DiffTagGroup", "topic": TOPIC}),
        "group-offline": ask({"group": "DiffClone", "topic": TOPIC}),
        "binary-header-no-topic": without("topic", encoding=1),
    },
)
STATUS: Final = Table(
    R.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
    {"topic": STEERED_TOPIC, "group": STEERED},
    valid={
        "all-clients": ask(watch=("steered",)),
        "one-client": ask({"clientAddr": "steered-1"}, watch=("steered",)),
        "empty-client": ask({"clientAddr": ""}, watch=("steered",)),
        "binary-header": ask(encoding=1),
        "one-way": ask(flag=2),
    },
    invalid={
        "missing-group": without("group"),
        "unknown-group": ask({"group": "DiffNowhere"}),
        "empty-group": ask({"group": ""}),
        "no-fields": NO_FIELDS,
        "binary-header-no-group": without("group", encoding=1),
        "group-with-spaces": ask({"group": "a b"}),
    },
)
INFO: Final = Table(
    R.GET_CONSUMER_RUNNING_INFO,
    {"consumerGroup": STEERED, "clientId": "steered-1", "jstackEnable": "false"},
    valid={
        "usual": ask(watch=("steered",)),
        "with-stacks": ask({"jstackEnable": "true"}, watch=("steered",)),
        "without-the-flag": without("jstackEnable", watch=("steered",)),
        "again": ask(),
        "binary-header": ask(encoding=1, watch=("steered",)),
        "one-way": ask(flag=2, watch=("steered",)),
    },
    invalid={
        "missing-group": without("consumerGroup"),
        "missing-client": without("clientId"),
        "no-fields": NO_FIELDS,
        "unknown-group": ask({"consumerGroup": "DiffNowhere"}),
        "unknown-client": ask({"clientId": "nobody"}),
        "empty-group": ask({"consumerGroup": ""}),
        "empty-client": ask({"clientId": ""}),
        "client-of-another-group": ask({"clientId": "diff-client-1"}),
        "binary-header-no-client": without("clientId", encoding=1),
    },
)
DIRECT: Final = Table(
    R.CONSUME_MESSAGE_DIRECTLY,
    {"consumerGroup": STEERED, "clientId": "steered-1", "msgId": message_id("s0"), "brokerName": "broker-a"},
    valid={
        "usual": ask(watch=("steered",)),
        "with-topic": ask({"topic": STEERED_TOPIC}, watch=("steered",)),
        "without-broker-name": without("brokerName", watch=("steered",)),
        "second-message": ask({"msgId": message_id("t0")}, watch=("steered",)),
        "binary-header": ask(encoding=1, watch=("steered",)),
        "one-way": ask(flag=2, watch=("steered",)),
    },
    invalid={
        "missing-group": without("consumerGroup"),
        "missing-client": without("clientId"),
        "missing-message": without("msgId"),
        "no-fields": NO_FIELDS,
        "unknown-group": ask({"consumerGroup": "DiffNowhere"}),
        "unknown-client": ask({"clientId": "nobody"}),
        "message-id-nonsense": ask({"msgId": "nonsense"}),
        "message-id-short": ask({"msgId": "7F00"}),
        "message-id-nowhere": ask({"msgId": "7F000001000000007FFFFFFFFFFFFFF0"}),
        "empty-group": ask({"consumerGroup": ""}),
    },
)

CASES: Final[tuple[Case, ...]] = (
    *PREPARED,
    *RESET.cases(),
    *STATUS.cases(),
    *INFO.cases(),
    *DIRECT.cases(),
    Case(R.GET_MAX_OFFSET, "empty-after-resets", "valid", {"topic": EMPTY, "queueId": "0"}),
    Case(R.QUERY_CONSUMER_OFFSET, "untouched-by-resets", "valid",
         {"consumerGroup": STEERED, "topic": STEERED_TOPIC, "queueId": "0"}),
)  # fmt: skip
