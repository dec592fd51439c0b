"""Attacks that fill tables (locks, offsets, topics, filters, key-value pairs, held pulls) and names for the log."""

import json

from lockstep.protocol.codes import RequestCode
from lockstep.testing.peer import json_request
from scripts.hostile.run import Attack
from scripts.hostile.target import Target

__all__ = ["TABLE_ATTACKS"]

LOCK_QUEUES = 100_000
LOCK_GROUPS = 20_000
FENCED_QUEUES = 1000
OFFSETS = 100_000
TOPICS = 20_000
PAIRS = 20_000
SEQUENCES = 20_000


def lock_body(group: str, queues: range, client_id: str = "hostile@1") -> bytes:
    mq_set = [{"brokerName": "b", "queueId": number, "topic": "t"} for number in queues]
    body = {"clientId": client_id, "consumerGroup": group, "mqSet": mq_set}
    return json.dumps(body, separators=(",", ":")).encode()


async def lock_many_queues(target: Target) -> str:
    return await target.ask(json_request(RequestCode.LOCK_BATCH_MQ, {}, lock_body("g", range(LOCK_QUEUES))))


async def lock_many_queues_in_parts(target: Target) -> str:
    """As many queues in each request as are allowed."""
    peer = await target.connect()
    parts = [range(start, start + 4000) for start in range(0, LOCK_QUEUES, 4000)]
    requests = [json_request(RequestCode.LOCK_BATCH_MQ, {}, lock_body("g", part)) for part in parts]
    return str(await peer.ask_all(requests))


async def lock_fenced_queues_in_parts(target: Target) -> str:
    """Two clients in turn: claims that are granted, claims that wait, and unlocks that free the queues."""
    owner, other = await target.connect(), await target.connect()
    outcomes = []
    for start in range(0, 25_000, FENCED_QUEUES):
        part = range(start, start + FENCED_QUEUES)
        body, rival = (lock_body("g", part, client) for client in ("hostile@1", "hostile@2"))
        for peer, code, asked in (
            (owner, RequestCode.LOCK_BATCH_MQ, body),
            (other, RequestCode.LOCK_BATCH_MQ, rival),
            (owner, RequestCode.UNLOCK_BATCH_MQ, body),
        ):
            outcomes.append(await peer.outcome(json_request(code, {}, asked)))
    return f"{len(outcomes)} times {', '.join(sorted(set(outcomes)))}"


async def unlock_many_queues(target: Target) -> str:
    return await target.ask(json_request(RequestCode.UNLOCK_BATCH_MQ, {}, lock_body("g", range(LOCK_QUEUES))))


async def lock_many_groups(target: Target) -> str:
    peer = await target.connect()
    requests = (
        json_request(RequestCode.LOCK_BATCH_MQ, {}, lock_body(f"g{number}", range(1))) for number in range(LOCK_GROUPS)
    )
    return str(await peer.ask_all(requests))


def commits(topic: str, queue_id: str, offset: int) -> list[bytes]:
    fields = {"consumerGroup": "g", "commitOffset": offset}
    return [
        json_request(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            fields | {"topic": topic.format(number), "queueId": queue_id.format(number)},
        )
        for number in range(OFFSETS)
    ]


async def offsets_of_no_topic(target: Target) -> str:
    peer = await target.connect()
    return str(await peer.ask_all(commits("ghost-{}", "0", 5), 256))


async def offsets_of_no_queue(target: Target) -> str:
    peer = await target.connect()
    return str(await peer.ask_all(commits("TBW102", "{}", 5), 256))


async def offset_below_zero(target: Target) -> str:
    return await (await target.connect()).outcome(commits("TBW102", "0", -7)[0])


async def many_topics(target: Target) -> str:
    peer = await target.connect()
    fields = {
        "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0, "order": False,
    }  # fmt: skip
    requests = (
        json_request(RequestCode.UPDATE_AND_CREATE_TOPIC, fields | {"topic": f"topic-{number}"})
        for number in range(TOPICS)
    )
    return str(await peer.ask_all(requests))


async def topic_of_many_queues(target: Target) -> str:
    fields = {
        "topic": "wide", "defaultTopic": "TBW102", "readQueueNums": 2**31 - 1, "writeQueueNums": 2**31 - 1, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False,
    }  # fmt: skip
    peer = await target.connect()
    made = await peer.outcome(json_request(RequestCode.UPDATE_AND_CREATE_TOPIC, fields))
    stats = await peer.outcome(json_request(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "wide"}))
    return f"{made}, then its statistics: {stats}"


async def many_pairs(target: Target) -> str:
    peer = await target.connect(name_server=True)
    requests = (
        json_request(RequestCode.PUT_KV_CONFIG, {"namespace": f"n{number}", "key": "k", "value": "v" * 1000})
        for number in range(PAIRS)
    )
    return str(await peer.ask_all(requests))


async def control_characters(target: Target) -> str:
    name = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e"
    queue = {"brokerName": name, "queueId": 0, "topic": name + "\r\nforged line"}
    body = {"clientId": name, "consumerGroup": name, "mqSet": [queue]}
    answer = await target.ask(json_request(RequestCode.LOCK_BATCH_MQ, {}, json.dumps(body).encode()))
    await target.ask(json_request(RequestCode.LOCK_BATCH_MQ, {}, json.dumps({"clientId": [name]}).encode()))
    await target.ask(json_request(RequestCode.SEND_MESSAGE, {"topic": name, "queueId": name}))
    return answer


TABLE_ATTACKS = (
    Attack("lock-queues", 14, f"one lock request of {LOCK_QUEUES:,} queues", lock_many_queues),
    Attack("lock-queues-in-parts", 14, "25 lock requests of 4,000 queues each", lock_many_queues_in_parts),
    Attack("lock-queues-fenced", 14,
           f"25 times {FENCED_QUEUES:,} queues locked, asked for, unlocked; fenced, on a disk",
           lock_fenced_queues_in_parts, 60.0, ("--lock-mode", "fenced", "--data-dir", "{folder}/data")),
    Attack("unlock-queues", 14, f"one unlock request of {LOCK_QUEUES:,} queues", unlock_many_queues),
    Attack("lock-groups", 14, f"{LOCK_GROUPS:,} lock requests, a group each", lock_many_groups, 60.0),
    Attack("offsets-no-topic", 19, f"{OFFSETS:,} offsets of topics that are not there", offsets_of_no_topic, 90.0),
    Attack("offsets-no-queue", 19, f"{OFFSETS:,} offsets of queues that are not there", offsets_of_no_queue, 90.0),
    Attack("offset-below-zero", 19, "an offset of -7", offset_below_zero),
    Attack("topics", 19, f"{TOPICS:,} topics made by request 17", many_topics, 90.0),
    Attack("topic-wide", 19, "a topic of 2,147,483,647 queues, then its statistics", topic_of_many_queues, 40.0),
    Attack("kv-pairs", 19, f"{PAIRS:,} namespaces of the name server's key-value store", many_pairs, 60.0),
    Attack("control-characters", 21, "names with terminal escapes and line ends", control_characters),
)  # fmt: skip
