"""Attacks that fill tables within their bounds, and then make the broker walk through them with one request."""

import json
from collections.abc import Iterable
from typing import Any

from lockstep.protocol.codes import RequestCode
from lockstep.testing.peer import Peer, json_request
from scripts.hostile.answers import TOPIC, send
from scripts.hostile.groups import consumer, heartbeat, subscription
from scripts.hostile.run import Attack
from scripts.hostile.target import Target

__all__ = ["LARGE_ATTACKS"]

_R = RequestCode
QUEUES = 16_384
TOPICS_OF_QUEUES = 4
GROUPS = 100_000
MEMBERS = 20
ENTRIES = 50_000
LOCKS = 20_000
LONG_NAMES, LONG_BYTES = 100, 900_000
MESSAGES = 260
SETTINGS = 28_000
MEMORY = ("--memory-limit", "64MiB")


def wide_topic(topic: str) -> bytes:
    fields = {
        "topic": topic, "defaultTopic": TOPIC, "readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
    }  # fmt: skip
    return json_request(_R.UPDATE_AND_CREATE_TOPIC, fields)


def commit(group: str, topic: str, queue_id: int) -> bytes:
    fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "commitOffset": 0}
    return json_request(_R.UPDATE_CONSUMER_OFFSET, fields)


def send_to(topic: str, queue_id: int, body: bytes = b"x", properties: str = "") -> bytes:
    fields = {
        "producerGroup": "p", "topic": topic, "defaultTopic": TOPIC, "defaultTopicQueueNums": 4, "queueId": queue_id,
        "sysFlag": 0, "bornTimestamp": 0, "flag": 0, "properties": properties,
    }  # fmt: skip
    return json_request(_R.SEND_MESSAGE, fields, body)


async def outcomes(peer: Peer, requests: Iterable[tuple[int, dict[str, Any]]]) -> str:
    found = [f"{int(code)}: {await peer.outcome(json_request(code, fields))}" for code, fields in requests]
    return ", ".join(found)


async def reset_wide_topic(target: Target) -> str:
    """The new offsets go to each member."""
    peer = await target.connect()
    await peer.outcome(wide_topic("wide"))
    await peer.ask_all((commit("g", "wide", queue_id) for queue_id in range(QUEUES)), 500)
    for _ in range(MEMBERS):
        await target.ask(heartbeat([consumer("g", [subscription("wide")])]))
    fields = {"topic": "wide", "group": "g", "timestamp": -1, "isForce": "true"}
    return await outcomes(peer, [(_R.INVOKE_BROKER_TO_RESET_OFFSET, fields)])


async def offsets_of_many_groups(target: Target) -> str:
    """Then the store drops messages that none of the groups has consumed."""
    peer = await target.connect()
    await peer.ask_all((commit(f"g{number}", TOPIC, 0) for number in range(GROUPS)), 500)
    compared = {"filterGroups": "", "compareGroup": "g1", "topic": TOPIC}
    about = await outcomes(
        peer, [(_R.QUERY_CORRECTION_OFFSET, compared), (_R.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": TOPIC})]
    )
    dropped = await peer.ask_all((send(bytes(1_000_000)) for _ in range(100)), 4)
    return f"{about}, sends: {dropped}"


async def entries_of_a_queue(target: Target) -> str:
    peer = await target.connect()
    await peer.ask_all((send(b"x") for _ in range(ENTRIES)), 500)
    fields = {"topic": TOPIC, "queueId": 0, "index": 0, "count": ENTRIES, "consumerGroup": "g"}
    return await outcomes(peer, [(_R.QUERY_CONSUME_QUEUE, fields)])


async def list_of_locks(target: Target) -> str:
    peer = await target.connect()
    for start in range(0, LOCKS, 4000):
        queues = [{"topic": f"t{n}", "brokerName": "b", "queueId": 0} for n in range(start, start + 4000)]
        body = {"consumerGroup": "g", "clientId": "c", "mqSet": queues}
        await peer.outcome(json_request(_R.LOCK_BATCH_MQ, {}, json.dumps(body).encode()))
    return await outcomes(peer, [(_R.LIST_LOCKS, {"consumerGroup": "g"})])


async def long_names(target: Target) -> str:
    """Of clients, producer groups and subscriptions; then the list of members."""
    name = "n" * LONG_BYTES
    for number in range(LONG_NAMES):
        peer = await target.connect()
        body = {"clientID": name, "consumerDataSet": [consumer("g", [])], "producerDataSet": []}
        await peer.outcome(json_request(_R.HEART_BEAT, {}, json.dumps(body).encode()))
        await peer.outcome(heartbeat(producers=[f"{number}{name}"]))
        await peer.outcome(heartbeat([consumer(f"g{number}", [{**subscription("t"), "subString": name}])]))
        queue = {"topic": "t", "brokerName": "b", "queueId": number}
        lock = {"consumerGroup": "g", "clientId": name, "mqSet": [queue]}
        await peer.outcome(json_request(_R.LOCK_BATCH_MQ, {}, json.dumps(lock).encode()))
    fields = {"consumerGroup": "g"}
    asked = [(_R.GET_CONSUMER_CONNECTION_LIST, fields), (_R.GET_CONSUMER_LIST_BY_GROUP, fields)]
    return await outcomes(await target.connect(), asked)


async def absent_key(target: Target) -> str:
    """A store in memory has no index of keys."""
    peer = await target.connect()
    await peer.ask_all((send_to(TOPIC, 0, bytes(3_900_000), "KEYS\x01a\x02") for _ in range(MESSAGES)), 4)
    times = {"beginTimestamp": 0, "endTimestamp": 2**62}
    return await outcomes(peer, [(_R.QUERY_MESSAGE, {"topic": TOPIC, "key": "absent", "maxNum": 64, **times})])


async def many_settings(target: Target) -> str:
    body = b"notifyConsumerIdsChangedEnable=true\n" * SETTINGS
    return await target.ask(json_request(_R.UPDATE_BROKER_CONFIG, {}, body))


async def messages_in_many_queues(target: Target) -> str:
    peer = await target.connect()
    for number in range(TOPICS_OF_QUEUES):
        await peer.outcome(wide_topic(f"wide{number}"))
        await peer.ask_all((send_to(f"wide{number}", queue_id) for queue_id in range(QUEUES)), 500)
    about = await outcomes(peer, [(_R.GET_BROKER_RUNTIME_INFO, {})])
    return f"{about}, a new connection: {await target.ask(send(b'x'))}"


async def delete_wide_topic(target: Target) -> str:
    peer = await target.connect()
    await peer.outcome(wide_topic("wide"))
    await peer.ask_all((send_to("wide", queue_id) for queue_id in range(QUEUES)), 500)
    return await outcomes(peer, [(_R.DELETE_TOPIC_IN_BROKER, {"topic": "wide"})])


LARGE_ATTACKS = (
    Attack("reset-wide-topic", 16, f"request 222 of a topic of {QUEUES:,} queues, for {MEMBERS} members",
           reset_wide_topic, 60.0),
    Attack("offsets-of-groups", 19, f"offsets of {GROUPS:,} groups, requests 308 and 300, then messages are dropped",
           offsets_of_many_groups, 120.0, MEMORY),
    Attack("queue-entries", 16, f"request 321 of {ENTRIES:,} entries", entries_of_a_queue, 60.0),
    Attack("list-of-locks", 14, f"the list of {LOCKS:,} locks", list_of_locks, 60.0),
    Attack("long-names", 17, f"{LONG_NAMES} times four names of {LONG_BYTES:,} bytes, then requests 203 and 38",
           long_names, 60.0),
    Attack("absent-key", 16, f"a query by key in {MESSAGES} messages of 3.9 MB", absent_key, 60.0),
    Attack("many-settings", 15, f"{SETTINGS:,} lines of settings", many_settings),
    Attack("many-queues", 16, f"a message in each of {TOPICS_OF_QUEUES * QUEUES:,} queues, then request 28",
           messages_in_many_queues, 90.0),
    Attack("many-queues-on-a-disk", 16, "the same, in files", messages_in_many_queues, 90.0,
           ("--data-dir", "{folder}/data", "-D", "checkpoint_interval_ms=1000")),
    Attack("delete-wide-topic", 16, f"a message in each of {QUEUES:,} queues, then their topic is deleted",
           delete_wide_topic, 60.0),
    Attack("delete-wide-topic-on-a-disk", 16, "the same, in files", delete_wide_topic, 60.0,
           ("--data-dir", "{folder}/data", "-D", "checkpoint_interval_ms=1000")),
)  # fmt: skip
