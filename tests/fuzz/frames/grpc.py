"""A broker under the attack of clients of gRPC: frames of HTTP/2, and messages of protobuf in them.

An honest client is beside them and must be served all the time. At the end nothing may be left of the others.
"""

import asyncio
import gzip
import random
import struct
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from hpack import Encoder

from lockstep.broker.config import BrokerConfig
from lockstep.broker.fronts.grpc.http2.connection import Http2Connection
from lockstep.broker.server import BrokerServer
from lockstep.protocol.bodies.attributes import MESSAGE_TYPE, MIXED
from lockstep.protocol.bodies.broker import TopicConfig
from lockstep.protocol.bodies.subscription_group import SubscriptionGroupConfig
from lockstep.protocol.grpc import messages as pb
from lockstep.protocol.grpc.wire import encode_message
from tests.broker.fronts.grpc.grpc_client import SERVICE, GrpcClient, topic_of
from tests.fuzz.frames.oracle import Fault
from tests.fuzz.frames.runtime import FakeTransport, FuzzRuntime, Turns
from tests.fuzz.frames.servers import LIMITS, FuzzLog, rng_of

__all__ = ["GrpcWorld"]

_PORT: Final = 8081
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _SETTINGS, _PING, _GOAWAY, _WINDOW, _CONTINUATION = 0, 1, 4, 6, 7, 8, 9
_ATTACKERS: Final = 6
_ASKED_EVERY: Final = 25  # frames between two calls of the honest client
_SETTLE_MS: Final = 400_000  # after it every client is too old, and no wait is longer
_SHORT_MS: Final = 2000


def _frame(kind: int, stream_id: int = 0, body: bytes = b"", flags: int = 0) -> bytes:
    return struct.pack(">I", len(body))[1:] + struct.pack(">BBI", kind, flags, stream_id & 0xFFFFFFFF) + body


def _valid(rng: random.Random) -> tuple[str, Any]:
    """A call that could be right, of any of the 13."""
    topic, group = pb.Resource(name=rng.choice(("T", "T", "O", "none"))), pb.Resource(name=rng.choice(("G", "free")))
    number = rng.randrange(1000)
    settings = pb.Settings(client_type=rng.choice((pb.PRODUCER, pb.PUSH_CONSUMER, pb.SIMPLE_CONSUMER)))
    if rng.randrange(2):
        settings.publishing.topics.add(name="T")
    else:
        settings.subscription.group.name = group.name
        entry = settings.subscription.subscriptions.add(topic=topic)
        entry.expression.expression = rng.choice(("*", "a||b", ""))
    send = pb.SendMessageRequest()
    for _ in range(rng.choice((1, 1, 1, 3))):
        body = rng.choice((b"x", bytes(5000), gzip.compress(b"x" * number)))
        one = send.messages.add(topic=topic, body=body)
        one.user_properties["a"] = "b"
        one.system_properties.MergeFrom(pb.SystemProperties(message_id=f"id{number}", keys=["k"], tag="a"))
        one.system_properties.body_encoding = rng.choice((pb.IDENTITY, pb.GZIP))
        if rng.randrange(2):
            one.system_properties.message_group = f"g{number % 5}"
        elif not rng.randrange(3):
            one.system_properties.message_type = pb.TRANSACTION
        elif not rng.randrange(3):
            one.system_properties.delivery_timestamp.seconds = rng.choice((0, 1_700_000_100, 2**62, -(2**63)))
    handle = f"0 1700000000000 60000 999 0 broker-a {number % 4} {number} 1"
    entries = [pb.AckMessageEntry(message_id="i", receipt_handle=handle)] * (number % 4)
    receive = pb.ReceiveMessageRequest(group=group, batch_size=rng.choice((1, 32, -1)), auto_renew=rng.random() < 0.3)
    receive.message_queue.topic.CopyFrom(topic)
    receive.invisible_duration.seconds = rng.choice((10, 60, -1, 2**62))
    receive.long_polling_timeout.seconds = rng.choice((0, 5, 2**62))
    dead = pb.ForwardMessageToDeadLetterQueueRequest(group=group, topic=topic, receipt_handle=handle)
    calls: tuple[tuple[str, Any], ...] = (
        ("QueryRoute", pb.QueryRouteRequest(topic=topic)),
        ("Heartbeat", pb.HeartbeatRequest(group=group, client_type=settings.client_type)),
        ("SendMessage", send),
        ("SendMessage", send),
        ("QueryAssignment", pb.QueryAssignmentRequest(topic=topic, group=group)),
        ("ReceiveMessage", receive),
        ("ReceiveMessage", receive),
        ("AckMessage", pb.AckMessageRequest(group=group, topic=topic, entries=entries)),
        ("ForwardMessageToDeadLetterQueue", dead),
        ("EndTransaction", pb.EndTransactionRequest(topic=topic, transaction_id=f"id{number}", resolution=pb.COMMIT)),
        ("RecallMessage", pb.RecallMessageRequest(topic=topic, recall_handle=handle)),
        ("SyncLiteSubscription", pb.SyncLiteSubscriptionRequest(topic=topic, group=group)),
        ("Telemetry", pb.TelemetryCommand(settings=settings)),
        ("Telemetry", pb.TelemetryCommand(settings=settings)),
        ("NotifyClientTermination", pb.NotifyClientTerminationRequest(group=group)),
        ("ChangeInvisibleDuration", pb.ChangeInvisibleDurationRequest(group=group, topic=topic, receipt_handle=handle)),
    )  # fmt: skip
    return rng.choice(calls)


def _mutated(data: bytes, rng: random.Random) -> bytes:
    """Bytes changed, cut, doubled or made long; of protobuf also fields that nobody knows, and nested ones."""
    changed = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(changed) + 1)
        kind = rng.randrange(8)
        if kind == 0 and changed:
            changed[at % len(changed)] = rng.randrange(256)
        elif kind == 1 and changed:
            changed[at % len(changed)] ^= 1 << rng.randrange(8)
        elif kind == 2:
            del changed[at : at + rng.randrange(1, 9)]
        elif kind == 3:
            changed[at:at] = changed[at : at + rng.randrange(40)]
        elif kind == 4:
            changed[at:at] = rng.choice((b"\xff" * 9 + b"\x01", b"\xff\xff\xff\xff\x0f", b"\xfa\x3e\x02hi", b"\x80"))
        elif kind == 5:
            changed[at:at] = b"\x0a\x7f" * rng.choice((3, 200))
        elif kind == 6:
            changed[at:at] = rng.choice((b"\xc3\x28", b"\xed\xa0\x80", b"\x00", b"\x0b" * 150, b"\x0b\x0c" * 50))
        else:
            changed += rng.choice((b"\x0a\x00", b"\x12\x00", b"\x0a\x02\x12\x00")) * rng.choice((1, 2000))
    return bytes(changed)


class _Attacker:
    """A connection, and what frames on it need."""

    def __init__(
        self, runtime: FuzzRuntime, new: Callable[[], Http2Connection], number: int, rng: random.Random
    ) -> None:
        self.rng = rng
        self.transport = FakeTransport(
            runtime, (f"10.0.0.{number % 200 + 2}", 1000 + number), stuck=not rng.randrange(9)
        )
        self.protocol = new()
        self.transport.protocol = self.protocol
        self.protocol.connection_made(self.transport)
        self._encoder = Encoder()
        self._next = 1
        self._open = [1]
        self._pending: list[bytes] = []
        first = b"" if not rng.randrange(40) else _PREFACE
        self.transport.feed(first + _frame(_SETTINGS, 0, self._settings()))

    def _settings(self) -> bytes:
        rng, values = self.rng, (0, 1, 100, 16_384, 65_535, 2**31 - 1, 2**31, 2**32 - 1)
        if rng.randrange(6):
            return b""
        return b"".join(struct.pack(">HI", rng.randrange(9), rng.choice(values)) for _ in range(rng.randrange(1, 3)))

    def _headers(self, method: str) -> bytes:
        rng, odd = self.rng, not self.rng.randrange(6)
        fields: list[tuple[str | bytes, str | bytes]] = [
            (":method", "POST"), (":scheme", "http"), (":path", SERVICE + method), (":authority", "broker"),
            ("te", "trailers"), ("content-type", "application/grpc"), ("x-mq-client-id", f"c{rng.randrange(12)}"),
            ("grpc-timeout", rng.choice(("5000m", "2998568u", "20S", "0n", "99999999H"))),
        ]  # fmt: skip
        if odd:
            one = rng.randrange(len(fields))
            name = fields[one][0]
            fields[one] = (name, rng.choice((b"", b"\xff\xfe", b"/", b"\x00\r\n", b"x" * 5000, b"-1S")))
            if rng.randrange(2):
                del fields[rng.randrange(len(fields))]
            rng.shuffle(fields)
        block = self._encoder.encode(fields)
        return _mutated(block, rng) if not rng.randrange(40) else block

    def _call(self) -> list[bytes]:
        rng, (method, request) = self.rng, _valid(self.rng)
        stream_id, self._next = self._next, self._next + 2
        self._open = [*self._open[-30:], stream_id]
        data = request.SerializeToString()
        if rng.randrange(2):
            data = _mutated(data, rng)
        body = encode_message(data)
        kind = rng.randrange(24)
        if kind == 0:
            body = struct.pack(">BI", rng.randrange(256), rng.choice((0, len(data) + 1, 2**32 - 1, 5_000_000))) + data
        elif kind == 1:
            body = struct.pack(">BI", 1, len(data)) + gzip.compress(data)
        elif kind == 2:
            body *= 2
        ends = 0 if method == "Telemetry" and rng.randrange(4) else int(rng.randrange(12) > 0)
        cut = rng.randrange(len(body) + 1) if not rng.randrange(5) else len(body)
        frames = [_frame(_HEADERS, stream_id, self._headers(method), 4 | (not rng.randrange(30)))]
        parts = [part for part in (body[:cut], body[cut:]) if part]
        parts = [part[at : at + 16_384] for part in parts for at in range(0, len(part), 16_384)]
        frames += [_frame(_DATA, stream_id, part, ends * (part is parts[-1])) for part in parts]
        if not rng.randrange(25):
            frames.append(_frame(_HEADERS, stream_id, self._encoder.encode([("x", "y" * rng.randrange(3000))]), 5))
        return frames

    def _any(self) -> bytes:
        """A frame of any kind on any stream."""
        rng = self.rng
        stream_id = rng.choice((0, self._next, self._next + 100, 2, 2**31 - 1, *self._open))
        kind = rng.choice((_DATA, 2, 3, 3, _SETTINGS, 5, _PING, _GOAWAY, _WINDOW, _WINDOW, _CONTINUATION, 10, 99))
        if kind in (_SETTINGS, _PING):
            stream_id = 0 if rng.randrange(8) else stream_id
        bodies = {2: bytes(5), 3: bytes(4), _SETTINGS: self._settings(), _PING: bytes(8), _GOAWAY: bytes(8)}
        body = bodies.get(kind, struct.pack(">I", rng.choice((0, 1, 65_535, 2**31 - 1))))
        if not rng.randrange(12):
            body = rng.randbytes(rng.randrange(30))
        return _frame(kind, stream_id, body, rng.choice((0, 0, 0, 1, 4, 8, 0x20, 0xFF)))

    def step(self) -> bytes:
        """The next frame."""
        rng = self.rng
        if not self._pending:
            self._pending = self._call() if rng.randrange(10) else [self._any()]
        at = rng.randrange(len(self._pending)) if not rng.randrange(100) else 0
        data = self._pending.pop(at)
        if not rng.randrange(40):
            data = _mutated(data, rng)
        return data[: rng.randrange(len(data) + 1)] if not rng.randrange(150) else data


class _Honest:
    """Asks for a route again and again, and gets it."""

    def __init__(self, runtime: FuzzRuntime, new: Callable[[], Http2Connection]) -> None:
        self._runtime = runtime
        self.transport = FakeTransport(runtime, ("10.0.0.1", 999))
        protocol = new()
        self.transport.protocol = protocol
        protocol.connection_made(self.transport)
        self._client = GrpcClient("honest")
        self._client.h2.initiate_connection()

    def ask(self) -> None:
        """Raises Fault."""
        call = self._client.start("QueryRoute", pb.QueryRouteRequest(topic=topic_of("T")), None)
        self.transport.feed(self._client.h2.data_to_send())
        for _ in range(20):
            self._client.data_received(self.transport.take())
            if call.ended.done():
                call.forget()
                if [len(answer.message_queues) for answer in call.messages] != [4]:
                    raise Fault("the honest client got no route, or another one")
                return
            self._runtime.advance(1)
        raise Fault("the honest client has no answer")


class GrpcWorld:
    """One broker, its attackers and an honest client."""

    def __init__(self, seed: int, number: int, turns: Turns) -> None:
        self.turns = turns
        self.log = FuzzLog()
        self.requests = 0
        self.answers: Counter[str] = Counter()
        self._rng = rng_of("grpc", seed, number)
        self._runtime = FuzzRuntime(rng_of("server", "grpc", seed, number), turns)
        settings: dict[str, Any] = dict(LIMITS, vip_channel=False, grpc_port=_PORT)
        if number % 2:
            settings |= {"lock_mode": "fenced", "lock_grace_ms": 0}
        self.server = BrokerServer(BrokerConfig(**settings), self._runtime, self.log)
        self._attackers: list[_Attacker] = []
        self._opened = 0
        self._connections: list[Http2Connection] = []

    def _new(self) -> Http2Connection:
        """A connection behind TLS, or without it."""
        assert self.server._grpc is not None
        made = self.server._grpc.new_connection()
        assert isinstance(made, Http2Connection)
        return made

    async def play(self, frames: int) -> None:
        """Raises Fault."""
        await self.server.start()
        broker, now_ms = self.server.broker, self._runtime.now_ms()
        assert broker is not None
        for topic in ("T", "O"):
            broker.catalog.topics.put(TopicConfig(topic, 4, 4, attributes=((MESSAGE_TYPE, MIXED),)), now_ms)
        broker.catalog.groups.put(SubscriptionGroupConfig("G", consume_message_orderly=True), now_ms)
        honest = _Honest(self._runtime, self._new)
        for number in range(frames):
            self._step()
            if number % _ASKED_EVERY == 0:
                self.turns.what = "the honest client"
                honest.ask()
                await asyncio.sleep(0)
            self._check()
        await self._end(honest)

    def _step(self) -> None:
        rng = self._rng
        for one in [one for one in self._attackers if one.transport.is_closing()]:
            self._attackers.remove(one)
            self._count(one)
        while len(self._attackers) < _ATTACKERS:
            self._opened += 1
            self._attackers.append(_Attacker(self._runtime, self._new, self._opened, rng))
            self._connections = [*self._connections[-50:], self._attackers[-1].protocol]
        one = rng.choice(self._attackers)
        data = one.step()
        self.turns.what = repr(data[:400])
        self.requests += len(data) > 3 and data[3] == _HEADERS
        one.transport.feed(data)
        if not rng.randrange(300):
            one.transport.end(reset=rng.random() < 0.5)
        if not rng.randrange(50):
            one.transport.unstick()
        self._count(one)
        self._runtime.advance(rng.randrange(3) if rng.randrange(60) else _SHORT_MS)

    def _count(self, one: _Attacker) -> None:
        """The kinds of frames that the server sent; it is none of this oracle what is in them."""
        sent, at = one.transport.take(), 0
        while at + 9 <= len(sent):
            kind = sent[at + 3]
            self.answers["success" if kind == _DATA else f"frame {kind}"] += 1
            at += 9 + int.from_bytes(sent[at : at + 3], "big")

    def _check(self) -> None:
        if self.log.faults:
            event, fields = self.log.faults[0]
            raise Fault(f"{event}: {fields}")

    async def _end(self, honest: _Honest) -> None:
        """All connections end, and nothing is left of them."""
        honest.ask()
        assert self.server._grpc is not None
        front = self.server._grpc._front
        assert front is not None
        for one in self._attackers:
            one.transport.end(reset=True)
        honest.transport.end(reset=False)
        for _ in range(100):
            self._runtime.advance(_SETTLE_MS // 100)
            await asyncio.sleep(0)
        self._check()
        left = {
            "streams": sum(len(one._streams) + len(one._events) for one in self._connections),
            "bytes": sum(one._blocked.bytes + one._unended.bytes for one in self._connections),
            "sessions": len(front.parts.sessions),
            "renewals": len(front.parts.renewals),
        }
        if any(left.values()):
            raise Fault(f"left of connections that are closed: {left}")
        await self.server.shutdown()
