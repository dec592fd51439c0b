"""Attacks that make the broker send many replies at once, or keep replies that the peer does not read."""

import asyncio
import contextlib
import json

from lockstep.protocol.codes import RemotingFlag, RequestCode
from lockstep.testing.peer import Peer, json_request
from scripts.hostile.run import Attack
from scripts.hostile.target import Target

__all__ = ["ANSWER_ATTACKS"]

PULLERS = 7
PULLS = 4000
QUESTIONS = 300
UNREAD_BYTES_MAX = 100_000_000
ANSWER_BYTES = 1_000_000
TOPIC = "TBW102"


def pull(opaque: int, offset: int, sys_flag: int) -> bytes:
    fields = {
        "consumerGroup": "g", "topic": TOPIC, "queueId": 0, "queueOffset": offset, "maxMsgNums": 32,
        "sysFlag": sys_flag, "commitOffset": 0, "suspendTimeoutMillis": 30_000, "subVersion": 0, "subscription": "*",
    }  # fmt: skip
    return json_request(RequestCode.PULL_MESSAGE, fields, opaque=opaque)


def send(body: bytes) -> bytes:
    fields = {
        "producerGroup": "p", "topic": TOPIC, "defaultTopic": TOPIC, "defaultTopicQueueNums": 4, "queueId": 0,
        "sysFlag": 0, "bornTimestamp": 0, "flag": 0,
    }  # fmt: skip
    return json_request(RequestCode.SEND_MESSAGE, fields, body)


async def waiting_pulls(target: Target) -> str:
    """One message ends all waiting pulls."""

    async def read(peer: Peer) -> int:
        answered = 0
        with contextlib.suppress(ConnectionError):
            for _ in range(PULLS):
                await peer.read()
                answered += 1
        return answered

    peers = [await target.connect() for _ in range(PULLERS)]
    for peer in peers:
        await peer.send(b"".join(pull(number, 0, 6) for number in range(PULLS)))
    await asyncio.sleep(2.0)
    sent = await target.ask(send(b"x"))
    counts = await asyncio.gather(*(read(peer) for peer in peers))
    return f"{sent}, {sum(counts)} pulls are answered"


async def unread_answers(target: Target) -> str:
    """A consumer sends long replies to a peer's questions; the peer reads none of them."""
    consumer, asker = await target.connect(), await target.connect()
    data = {"groupName": "g", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": [], "unitMode": False}  # fmt: skip
    beat = {"clientID": "c", "producerDataSet": [], "consumerDataSet": [data]}
    answer = await consumer.outcome(json_request(RequestCode.HEART_BEAT, {}, json.dumps(beat).encode()))
    fields = {"consumerGroup": "g", "clientId": "c", "jstackEnable": "false"}
    for number in range(QUESTIONS):
        await asker.send(json_request(RequestCode.GET_CONSUMER_RUNNING_INFO, fields, opaque=number))
    answered = 0  # within the ten seconds that the broker waits
    with contextlib.suppress(ConnectionError):
        while answered < QUESTIONS:
            command = await consumer.read()
            if command.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
                answered += 1
                long_answer = json_request(0, None, b"x" * ANSWER_BYTES, opaque=command.opaque, flag=RemotingFlag.REPLY)
                await consumer.send(long_answer)
    await asyncio.sleep(1.0)
    return f"{answer}, {answered} answers of {ANSWER_BYTES:,} bytes"


ANSWER_ATTACKS = (
    Attack("waiting-pulls", 14, f"a message for {PULLERS * PULLS:,} pulls that wait", waiting_pulls, 60.0),
    Attack("unread-answers", 13, f"{QUESTIONS:,} answers of {ANSWER_BYTES:,} bytes of a consumer, not read",
           unread_answers, 60.0, ("-D", f"outbound_bytes_max={UNREAD_BYTES_MAX}")),
)  # fmt: skip
