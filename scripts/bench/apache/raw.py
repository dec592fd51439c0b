"""A raw client: it writes frames that were built before, as Java's client writes them, and counts the answers.

It costs so little that the broker is measured rather than the client. Where it is the limit nevertheless, its share of
one core says so, and CPU time of the broker a request is compared.
"""

import json
import os
import socket
import time
from collections.abc import Sequence
from itertools import cycle, islice
from typing import Any, Final, NamedTuple

from lockstep.protocol.codes import RequestCode
from scripts.bench import cases
from scripts.bench.apache.figures import Sample, Stopwatch
from scripts.bench.apache.servers import Contender

__all__ = [
    "NAMES",
    "PULL_COUNT",
    "PULL_MESSAGES",
    "PULL_TOPIC",
    "SEND_TOPIC",
    "RawClient",
    "frame",
    "measure_raw",
    "pull_frames",
    "send_frames",
]

SEND_TOPIC, PULL_TOPIC, GROUP = cases.SEND_TOPIC, cases.PULL_TOPIC, "BenchRaw"
BODY: Final = b"x" * 128
SEND_QUEUES: Final = 4
LOCKED_QUEUES: Final = 8
SEND_FRAMES: Final = 1024  # each with its own opaque and UNIQ_KEY; more than are in flight
PULL_COUNT, PULL_MESSAGES = 32, 32_000
READ_BYTES: Final = 1 << 18
SUCCESS: Final = b'{"code":0,'
TIMEOUT_S: Final = 30.0


class Case(NamedTuple):
    in_flight: int
    per_call: int  # messages of one request, for the rate


CASES: Final = {
    "raw_send_1": Case(1, 1),
    "raw_send_64": Case(64, 1),
    "raw_pull_32": Case(1, PULL_COUNT),
    "raw_lock_8": Case(1, 1),
}
NAMES: Final = tuple(CASES)


def frame(code: int, opaque: int, fields: dict[str, Any] | None = None, body: bytes = b"") -> bytes:
    """A request with a JSON header in the order of Java's client. Source: wire.md 1.1, 1.2."""
    fields_part = {} if fields is None else {"extFields": {name: str(value) for name, value in fields.items()}}
    names = {"flag": 0, "language": "JAVA", "opaque": opaque, "serializeTypeCurrentRPC": "JSON", "version": 409}
    header = json.dumps({"code": code, **fields_part, **names}, separators=(",", ":")).encode()
    total = 4 + len(header) + len(body)
    return total.to_bytes(4, "big") + b"\0" + len(header).to_bytes(3, "big") + header + body


def send_frames(topic: str = SEND_TOPIC, queues: int = SEND_QUEUES) -> list[bytes]:
    """SEND_MESSAGE_V2 to the queues in turn. Source: wire.md 4.1."""
    born_ms = time.time_ns() // 1_000_000
    frames = []
    for number in range(SEND_FRAMES):
        properties = f"UNIQ_KEY\x01{number:032X}\x02WAIT\x01true"
        fields = {"a": GROUP, "b": topic, "c": "TBW102", "d": 4, "e": number % queues, "f": 0,
                  "g": born_ms, "h": 0, "i": properties, "j": 0, "k": "false", "m": "false",
                  "n": "broker-a"}  # fmt: skip
        frames.append(frame(RequestCode.SEND_MESSAGE_V2, number, fields, BODY))
    return frames


def pull_frames() -> list[bytes]:
    """PULL_MESSAGE with the subscription in the request, around a queue with messages. Source: wire.md 6.1."""
    fields = {"queueId": 0, "maxMsgNums": PULL_COUNT, "sysFlag": 4, "suspendTimeoutMillis": 15000, "commitOffset": 0,
              "bname": "broker-a", "topic": PULL_TOPIC, "expressionType": "TAG", "subscription": "*",
              "subVersion": 0, "consumerGroup": GROUP}  # fmt: skip
    return [
        frame(RequestCode.PULL_MESSAGE, number, fields | {"queueOffset": number * PULL_COUNT})
        for number in range(PULL_MESSAGES // PULL_COUNT)
    ]


def lock_frames() -> list[bytes]:
    """LOCK_BATCH_MQ of queues that the client owns already. Source: wire.md 7.1."""
    queues = [{"brokerName": "broker-a", "queueId": number, "topic": SEND_TOPIC} for number in range(LOCKED_QUEUES)]
    body = {"clientId": "127.0.0.1@1#1", "consumerGroup": GROUP, "mqSet": queues}
    data = json.dumps(body, separators=(",", ":")).encode()
    return [frame(RequestCode.LOCK_BATCH_MQ, number, None, data) for number in range(64)]


FRAMES: Final = {
    "raw_send_1": send_frames,
    "raw_send_64": send_frames,
    "raw_pull_32": pull_frames,
    "raw_lock_8": lock_frames,
}


class RawClient:
    """A connection to a broker that keeps so many requests in flight. Each answer must say success."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def run(self, frames: Sequence[bytes], in_flight: int, seconds: float) -> int:
        """Send `frames` in turn for `seconds`, then wait for the last answers. Returns how many answers came.

        Raises:
            RuntimeError: An answer is not a success, or the broker closed the connection.
        """
        wanted, receive, send = cycle(frames), self.socket.recv, self.socket.sendall
        end = time.perf_counter() + seconds
        send(b"".join(islice(wanted, in_flight)))
        sent, answered, rest = in_flight, 0, b""
        while answered < sent:
            data = receive(READ_BYTES)
            if not data:
                raise RuntimeError("the broker closed the connection")
            data = rest + data
            place, fresh = 0, 0
            while place + 4 <= len(data):
                after = place + 4 + int.from_bytes(data[place : place + 4], "big")
                if after > len(data):
                    break
                if not data.startswith(SUCCESS, place + 8):
                    raise RuntimeError(f"no success: {data[place : place + 300]!r}")
                fresh, place = fresh + 1, after
            rest, answered = data[place:], answered + fresh
            if fresh and time.perf_counter() < end:
                send(next(wanted) if fresh == 1 else b"".join(islice(wanted, fresh)))
                sent += fresh
        return answered

    def ask(self, frames: Sequence[bytes], or_code: int = 0) -> list[dict[str, Any]]:
        """Send `frames` together, and return the headers of their answers, in the order in which they come.

        Raises:
            RuntimeError: An answer has neither the code of success nor `or_code`, or the broker closed the connection.
        """
        self.socket.sendall(b"".join(frames))
        headers, data = list[dict[str, Any]](), b""
        while len(headers) < len(frames):
            fresh = self.socket.recv(READ_BYTES)
            if not fresh:
                raise RuntimeError("the broker closed the connection")
            data, place = data + fresh, 0
            while place + 4 <= len(data):
                after = place + 4 + int.from_bytes(data[place : place + 4], "big")
                if after > len(data):
                    break
                header_end = place + 8 + int.from_bytes(data[place + 5 : place + 8], "big")
                headers.append(json.loads(data[place + 8 : header_end]))
                if headers[-1]["code"] not in (0, or_code):
                    raise RuntimeError(f"no success: {headers[-1]}")
                place = after
            data = data[place:]
        return headers

    def close(self) -> None:
        self.socket.close()


def measure_raw(contender: Contender, name: str, seconds: float) -> Sample:
    """One round of one case. Raises RuntimeError, OSError."""
    case, frames = CASES[name], FRAMES[name]()
    client = RawClient(contender.server.broker)
    try:
        client.run(frames, case.in_flight, min(0.1, seconds))
        watch = Stopwatch(contender.server.pids[0], os.getpid())
        return watch.sample(client.run(frames, case.in_flight, seconds) * case.per_call)
    finally:
        client.close()
