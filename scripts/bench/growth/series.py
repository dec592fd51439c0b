"""What grows, and what is measured at each size: CPU time of the broker a request.

A raw client sends JSON frames one at a time, so that requests do not share a read, and each size has a broker process
of its own, with files.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, Final, NamedTuple

from lockstep.protocol.codes import RequestCode
from lockstep.testing.process import BrokerProcess
from scripts.bench.apache.raw import RawClient, frame
from scripts.bench.apache.servers import cpu_s

__all__ = ["SERIES", "Point", "Series", "filled"]

TOPIC: Final = "Growth"
QUEUES_A_TOPIC: Final = 1000
BODY: Final = b"x" * 128
LARGE_BODY: Final = b"x" * (256 * 1024)
LOCKED_QUEUES: Final = 4


class Point(NamedTuple):
    """One size of a series: a broker that is filled, and the frames of each request that is measured.

    Attributes:
        clients: The connections that send in turn.
        frames: By name of the request.
    """

    size: int
    broker: BrokerProcess
    clients: Sequence[RawClient]
    frames: Mapping[str, Sequence[bytes]]
    members: RawClient | None = None  # holds the heartbeats of consumers

    def measure(self, name: str, seconds: float) -> float:
        """Microseconds of the broker's CPU time a request. Raises RuntimeError when an answer is no success."""
        frames, clients = cycle(self.frames[name]), cycle(self.clients)
        began_s, count, end = cpu_s(self.broker.pid), 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            next(clients).run((next(frames),), 1, 0)
            count += 1
        return (cpu_s(self.broker.pid) - began_s) / count * 1e6


class Series(NamedTuple):
    """One thing that grows.

    Attributes:
        unit: Of `sizes`, for the axis.
        fill: Makes a Point from its size, and a started broker.
    """

    name: str
    title: str
    unit: str
    sizes: tuple[int, ...]
    topics: Callable[[int], Sequence[tuple[str, int]]]
    fill: Callable[[int, BrokerProcess], Point]


def filled(series: Series, size: int, folder: Path) -> Iterator[Point]:
    """Start a broker in `folder`, fill it, and end it when the caller is done."""
    topics = [f"--topic={topic}:{queues}" for topic, queues in series.topics(size)]
    options = ("--log-level", "warning", "--data-dir", str(folder / "data"), "--flush", "async")
    with BrokerProcess(*options, *topics, folder=folder) as broker:
        point = series.fill(size, broker)
        try:
            yield point
        finally:
            for client in [*point.clients, *([point.members] if point.members else [])]:
                client.close()


# Requests ----------------------------------------------------------------------------------------------------------


def send(topic: str, queue_id: int, body: bytes = BODY) -> bytes:
    """SEND_MESSAGE_V2. Source: wire.md 4.1."""
    properties = f"UNIQ_KEY\x01{queue_id:032X}\x02WAIT\x01true"
    fields = {"a": "GrowthProducer", "b": topic, "c": "TBW102", "d": 4, "e": queue_id, "f": 0,
              "g": time.time_ns() // 1_000_000, "h": 0, "i": properties, "j": 0, "k": "false", "m": "false",
              "n": "broker-a"}  # fmt: skip
    return frame(RequestCode.SEND_MESSAGE_V2, 1, fields, body)


def pull(topic: str, queue_id: int, offset: int = 0, group: str = "Growth") -> bytes:
    """PULL_MESSAGE of one message, not held when there is none. Source: wire.md 6.1."""
    fields = {"queueId": queue_id, "maxMsgNums": 1, "sysFlag": 4, "suspendTimeoutMillis": 0, "commitOffset": 0,
              "bname": "broker-a", "topic": topic, "expressionType": "TAG", "subscription": "*", "subVersion": 0,
              "consumerGroup": group, "queueOffset": offset}  # fmt: skip
    return frame(RequestCode.PULL_MESSAGE, 1, fields)


def lock(group: str, topic: str) -> bytes:
    """LOCK_BATCH_MQ of a few queues. Source: wire.md 7.1."""
    queues = [{"brokerName": "broker-a", "queueId": number, "topic": topic} for number in range(LOCKED_QUEUES)]
    return _with_body(RequestCode.LOCK_BATCH_MQ, {"clientId": f"{group}@1", "consumerGroup": group, "mqSet": queues})


def commit(group: str, topic: str, queue_id: int) -> bytes:
    """UPDATE_CONSUMER_OFFSET. Source: wire.md 8.1."""
    fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "commitOffset": 1}
    return frame(RequestCode.UPDATE_CONSUMER_OFFSET, 1, fields)


def producer_heartbeat(client_id: str) -> bytes:
    """HEART_BEAT of one producer. Source: wire.md 9."""
    body = {"clientID": client_id, "producerDataSet": [{"groupName": "Growth"}], "consumerDataSet": []}
    return _with_body(RequestCode.HEART_BEAT, body)


def consumer_heartbeat(group: str, topic: str) -> bytes:
    """HEART_BEAT of the only consumer of a group. Source: wire.md 9."""
    subscription = {"topic": topic, "subString": "*", "tagsSet": [], "codeSet": [], "subVersion": 0,
                    "expressionType": "TAG", "classFilterMode": False}  # fmt: skip
    consumer = {"groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": [subscription],
                "unitMode": False}  # fmt: skip
    body = {"clientID": f"{group}@1", "producerDataSet": [], "consumerDataSet": [consumer]}
    return _with_body(RequestCode.HEART_BEAT, body)


def _with_body(code: RequestCode, body: dict[str, Any]) -> bytes:
    return frame(code, 1, None, json.dumps(body, separators=(",", ":")).encode())


# Series ------------------------------------------------------------------------------------------------------------


def _one_topic(size: int) -> Sequence[tuple[str, int]]:
    return [(TOPIC, LOCKED_QUEUES)]


def _many_queues(size: int) -> Sequence[tuple[str, int]]:
    whole, rest = divmod(size, QUEUES_A_TOPIC)
    counts = [QUEUES_A_TOPIC] * whole + ([rest] if rest else [])
    return [(f"{TOPIC}{number}", count) for number, count in enumerate(counts)]


def _fill_queues(size: int, broker: BrokerProcess) -> Point:
    client = RawClient(broker.address)
    queues = [(topic, number) for topic, count in _many_queues(size) for number in range(count)]
    sends = [send(*queue) for queue in queues]
    for one in sends:
        client.run((one,), 1, 0)
    return Point(size, broker, [client], {"send": sends, "pull": [pull(*queue) for queue in queues]})


def _fill_connections(size: int, broker: BrokerProcess) -> Point:
    clients = [RawClient(broker.address) for _ in range(size)]
    for number, client in enumerate(clients):
        client.run((producer_heartbeat(f"client-{number}"),), 1, 0)
    sends = [send(TOPIC, number) for number in range(LOCKED_QUEUES)]
    clients[0].run(sends, 1, 0)
    return Point(size, broker, clients, {"send": sends, "pull": [pull(TOPIC, 0)]})


def _fill_groups(size: int, broker: BrokerProcess) -> Point:
    client, members = RawClient(broker.address), RawClient(broker.address)
    client.run((send(TOPIC, 0),), 1, 0)
    groups = [f"Growth{number}" for number in range(size)]
    for group in groups:
        members.socket.sendall(consumer_heartbeat(group, TOPIC))  # its answers and notices are not read
        client.run((lock(group, TOPIC),), 1, 0)
    frames = {
        "pull": [pull(TOPIC, 0, group=group) for group in groups],
        "commit": [commit(group, TOPIC, 0) for group in groups],
        "lock": [lock(group, TOPIC) for group in groups],
    }
    return Point(size, broker, [client], frames, members)


def _fill_log(size: int, broker: BrokerProcess) -> Point:
    client = RawClient(broker.address)
    client.run((send(TOPIC, 0),), 1, 0)
    large = send(TOPIC, 1, LARGE_BODY)
    for _ in range(size // len(LARGE_BODY)):
        client.run((large,), 1, 0)
    for _ in range(size % len(LARGE_BODY) // len(BODY)):
        client.run((send(TOPIC, 2),), 1, 0)
    frames = {"send": [send(TOPIC, 0)], "pull of the oldest": [pull(TOPIC, 0)]}
    return Point(size, broker, [client], frames)


KB, MB, GB = 1000, 1000**2, 1000**3
SERIES: Final = (
    Series("queues", "Queues of the broker", "queues", (1, 10, 100, 1000, 10_000), _many_queues, _fill_queues),
    Series("connections", "Open connections", "connections", (1, 10, 100, 1000, 2000), _one_topic, _fill_connections),
    Series("groups", "Consumer groups", "groups", (1, 10, 100, 1000), _one_topic, _fill_groups),
    Series("log", "Bytes in the log", "bytes", (10 * KB, MB, 100 * MB, GB, 10 * GB), _one_topic, _fill_log),
)
