"""The control port and the metrics port of a broker under attack: lines, heads of HTTP, and frames between them."""

import asyncio
import gc
import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from lockstep.broker.config import BrokerConfig
from lockstep.broker.metrics.server import CONNECTION_LIFE_MS, CONNECTIONS_MAX, MetricsServer
from lockstep.protocol.command import decode_command
from lockstep.protocol.frame import FrameDecoder
from lockstep.remoting.host.manual_clock import ManualClockRuntime
from lockstep.testing.control_port.calls import CALLS
from lockstep.testing.control_port.server import make_controlled
from tests.fuzz.frames.census import largest_table
from tests.fuzz.frames.loose import to_bytes
from tests.fuzz.frames.mutations import mutate_bytes, mutate_parts
from tests.fuzz.frames.oracle import Fault
from tests.fuzz.frames.runtime import FakeTransport, FuzzRuntime, Turns
from tests.fuzz.frames.servers import BROKER_PORT, LIMITS, FuzzLog, end_server, rng_of
from tests.fuzz.frames.structured import BROKER_CODES, request
from tests.fuzz.frames.words import Words

__all__ = ["PortsWorld"]

_CONTROL, _METRICS = 9000, 9100
_PEERS_MAX: Final = 12  # of each port
_TABLE_MAX: Final = 15_000  # of the control port's: it keeps 10,000 requests
_LOOK_EVERY: Final = 400
_ADVANCE_S_MAX: Final = 20
# It opens sockets of the machine.
_NAMES: Final = tuple(name for name in CALLS if name not in ("down", "up"))
_FIELDS: Final = tuple(sorted({field for _, known in CALLS.values() for field in known}))
_STATUSES: Final = (b"200", b"405")
_HEAD_END: Final = re.compile(b"\n\r?\n")  # a line may end without a carriage return (RFC 9112, 2.2)
_LINES: Final = (
    b"",
    b"null",
    b"[1]",
    b"{}",
    b'{"call": 1}',
    b'{"seconds": 1}',
    b"GET / HTTP/1.1",
    b"[" * 100_000,
    b"\xff",
    b"1e999",
    b"9" * 5000,
)
_HEADS: Final = (
    b"GET /metrics HTTP/1.1", b"GET /metrics HTTP/1.1", b"GET / HTTP/1.0", b"GET /metrics?name[]=x&name[]=y HTTP/1.1",
    b"GET /favicon.ico HTTP/1.1", b"GET /%00%ff HTTP/9.9", b"GET  HTTP/1.1",
    b"GET /metrics?" + b"&" * 9000 + b" HTTP/1.1",
    b"POST /metrics HTTP/1.1", b"OPTIONS * HTTP/1.1", b"HEAD /metrics HTTP/1.1", b"CONNECT a:1 HTTP/1.1", b"", b"GET",
    b"PRI * HTTP/2.0", b"\x16\x03\x01\x00", b"get /metrics http/1.1", b"GET /metrics HTTP/1.1 more", b"\xff \xff \xff",
)  # fmt: skip
_HEADERS: Final = (
    b"Host: here", b"Accept: application/openmetrics-text; version=1.0.0", b"Accept-Encoding: gzip", b"Accept: ;;;,,,=",
    b"Accept: application/openmetrics-text; version=9e9;q=x; escaping=?", b"Content-Length: 999999999", b": ", b"x",
    b"Transfer-Encoding: chunked", b"Accept-Encoding: " + b"gzip," * 500, b"\xff\x00: \x00", b"Accept: \xff",
)  # fmt: skip


@dataclass(eq=False)
class _Client:
    """A peer of one port. `verdicts` are of the lines that were sent: must be answered with ok or not; None: either."""

    transport: FakeTransport
    opened_ms: int
    verdicts: list[bool | None] = field(default_factory=list)
    is_ended: bool = False  # by a line that must end it: what comes after is not read
    is_broken: bool = False
    got: bytes = b""
    head: bytes = b""
    unfinished: bytes = b""  # a line
    decoder: FrameDecoder = field(default_factory=FrameDecoder)


class PortsWorld:
    """A broker with both ports. The steps depend on seed and number alone.

    Attributes:
        server: All that is looked at for tables that grow.
        answers: How calls and requests were answered.
    """

    def __init__(self, seed: int, number: int, turns: Turns) -> None:
        self.log = FuzzLog()
        self.requests = 0
        self.answers: Counter[str] = Counter()
        self.turns = turns
        self._runtime = FuzzRuntime(rng_of("server", "ports", seed, number), turns)
        self._words = Words(rng_of("ports", seed, number))
        config = BrokerConfig(**LIMITS, vip_channel=False)
        self._broker, self._control = make_controlled(config, self._runtime, self.log)
        assert self._broker.broker is not None
        movable = ManualClockRuntime(self._runtime)
        self._metrics = MetricsServer(self._broker.broker, movable, "127.0.0.1")
        self._clients: dict[int, list[_Client]] = {_CONTROL: [], _METRICS: [], BROKER_PORT: []}
        self._opened = 0
        self._last = b""
        self.server = (self._broker, self._control, self._metrics)

    async def play(self, frames: int) -> None:
        """Raises Fault."""
        await self._broker.start()
        await self._control.start(_CONTROL)
        await self._metrics.start(_METRICS)
        for number in range(frames):
            before = await self._step()
            self._runtime.advance(self._words.small(3) if self._words.small(60) else CONNECTION_LIFE_MS + 1000)
            for _ in range(3):
                await asyncio.sleep(0)
            self._check()
            if before is not None and before != self._state():
                raise Fault(f"refused calls changed {before} to {self._state()}: {self._last!r:.300}")
            if number % _LOOK_EVERY == 0:
                self._look()
        await self._end()

    async def _step(self) -> tuple[object, ...] | None:
        """Returns the state that must stay, if there is such."""
        kind = self._words.small(8)
        if kind > 5:
            self._scrape() if kind == 6 else self._frame()
        elif kind > 1:
            self._call()
        else:
            for _ in range(400):
                self._runtime.advance(0)
                await asyncio.sleep(0)
            self._check()
            before = self._state() if self._control.is_idle else None
            self._wrong_call(self._client(_CONTROL))
            return before
        return None

    def _client(self, port: int) -> _Client:
        clients = self._clients[port]
        while len(clients) > _PEERS_MAX and self._words.small(3) == 0:
            clients.pop(self._words.small(len(clients))).transport.end(reset=self._words.small(2) == 0)
        if clients and self._words.small(4):
            chosen = clients[self._words.small(len(clients))]
            if not chosen.transport.is_closing():
                return chosen
            clients.remove(chosen)
        return self._connect(port)

    def _connect(self, port: int) -> _Client:
        self._opened += 1
        transport = FakeTransport(self._runtime, ("10.0.0.1", self._opened), stuck=self._words.small(10) == 0)
        transport.protocol = self._runtime.ports[port]()
        self._runtime.turns.run(transport.protocol.connection_made, transport)
        self._clients[port].append(client := _Client(transport, self._runtime.now_ms()))
        return client

    def _send(self, client: _Client, data: bytes) -> None:
        self._last = data
        self.turns.what = repr(data[:400])
        cut = self._words.small(len(data) + 1) if self._words.small(5) == 0 else 0
        client.transport.feed(data[:cut])
        client.transport.feed(data[cut:])

    # The control port -----------------------------------------------------------------------------------------------

    def _call(self) -> None:
        words, client = self._words, self._client(_CONTROL)
        if words.small(8) == 0:
            self._broken_line(client)
            return
        times = 1 if words.small(40) else 1 + words.small(3000)
        line, verdict = self._one_call(wrong=False)
        self._send_lines(client, line, verdict, times)
        if words.small(20) == 0:
            client.transport.unstick()

    def _wrong_call(self, client: _Client) -> None:
        """Lines that may change nothing: no calls, or calls that must be refused."""
        words = self._words
        if words.small(3) == 0 and not client.is_broken:
            client.is_ended = True
            after = json.dumps({"call": "set_rtt", "ms": 1 + words.small(1000)}).encode()
            self._send(client, _LINES[words.small(len(_LINES))] + b"\n" + after + b"\n")
        else:
            self._send_lines(client, *self._one_call(wrong=True), 1 + words.small(3))

    def _send_lines(self, client: _Client, line: bytes, verdict: bool | None, times: int) -> None:
        if not client.is_ended and not client.is_broken:
            client.verdicts += [verdict] * times
            self.requests += times
        self._send(client, (line + b"\n") * times)

    def _broken_line(self, client: _Client) -> None:
        """Bytes that were changed: nothing is known of the answers of this connection any more."""
        line, _ = self._one_call(wrong=False)
        data = mutate_bytes(line + b"\n", self._words.rng, self._last[:2000], keep_lengths=False)
        client.is_broken = True
        client.verdicts.clear()
        client.transport.unstick()
        self._send(client, data if self._words.small(20) else data + b"x" * (1 << 20))

    def _one_call(self, *, wrong: bool) -> tuple[bytes, bool | None]:
        words = self._words
        name = _NAMES[words.small(len(_NAMES))]
        known = sorted(CALLS[name][1])
        given: dict[str, Any] = {one: self._value(one) for one in known if words.small(3)}
        verdict: bool | None = None
        if wrong:
            verdict = False
            if words.small(2):
                name = words.text() if words.text() not in CALLS else "none"
            else:
                given[next(one for one in (*_FIELDS, "x") if one not in CALLS[name][1])] = 1
        elif given and words.small(4) == 0:
            given[known[words.small(len(known))]] = words.wrong()
        if not wrong and name == "advance":
            seconds = given.get("seconds")
            if isinstance(seconds, int | float) and seconds > _ADVANCE_S_MAX:
                given["seconds"] = 1 << 40
        if name in CALLS and not wrong and not given and not CALLS[name][1]:
            verdict = True
        return json.dumps({"call": name, **given}).encode(), verdict

    def _value(self, name: str) -> Any:
        words = self._words
        if name == "codes":
            if words.small(2):
                return list(BROKER_CODES)
            return [
                BROKER_CODES[words.small(len(BROKER_CODES))] if words.small(5) else words.wrong()
                for _ in range(1 + words.small(4))
            ]
        if name in ("after", "times", "queues", "responseCode", "ms"):
            return words.number() if words.small(2) else words.small(20)
        if name == "seconds":
            return words.small(_ADVANCE_S_MAX)
        if name in ("heartbeats", "dropConnection", "executeFirst"):
            return words.small(2) == 1
        return words.topic() if name == "topic" else words.group() if name == "group" else words.text()

    def _state(self) -> tuple[object, ...]:
        """What calls alone change: a frame that is under way can use up an error, or make a topic."""
        return self._control.broker.runtime.advanced_ms, self._control.broker.faults.rtt_ms

    # The metrics port, and frames -----------------------------------------------------------------------------------

    def _scrape(self) -> None:
        words, client = self._words, self._client(_METRICS)
        for _ in range(2 * CONNECTIONS_MAX if words.small(40) == 0 else 0):  # they say nothing
            self._connect(_METRICS)
        head = _HEADS[words.small(len(_HEADS))]
        headers = [_HEADERS[words.small(len(_HEADERS))] for _ in range(words.small(6))]
        if words.small(30) == 0:
            headers = [b"a: b"] * words.small(6000)
        data = b"\r\n".join((head, *headers, b"", b""))
        if words.small(6) == 0:
            data = mutate_bytes(data, words.rng, self._last[:2000], keep_lengths=False)
        if words.small(4) == 0:
            data = data[: words.small(len(data) + 1)]
        client.head += data
        self.requests += 1
        self._send(client, data)

    def _frame(self) -> None:
        words, client = self._words, self._client(BROKER_PORT)
        loose = request(BROKER_CODES[words.small(len(BROKER_CODES))], words)
        if words.small(4) == 0:
            mutate_parts(loose, words)
        self._send(client, to_bytes(loose))

    # What must hold -------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self.log.faults:
            event, fields = self.log.faults[0]
            raise Fault(f"{event}: {fields}")
        for client in self._clients[_CONTROL]:
            self._check_control(client)
        for client in self._clients[_METRICS]:
            self._check_metrics(client)
        for client in self._clients[BROKER_PORT]:
            client.decoder.feed(client.transport.take())
            for frame in client.decoder.frames():
                decode_command(frame)
        if (count := len(self._metrics.connections)) > CONNECTIONS_MAX:
            raise Fault(f"the metrics port has {count} connections")

    def _check_control(self, client: _Client) -> None:
        *lines, client.unfinished = (client.unfinished + client.transport.take()).split(b"\n")
        for line in lines:
            answer = json.loads(line)
            self.answers["success" if answer["ok"] else "refused"] += 1
            if client.is_broken:
                continue
            if not client.verdicts:
                raise Fault(f"an answer to no call: {line!r:.200}")
            verdict = client.verdicts.pop(0)
            if verdict is not None and answer["ok"] is not verdict:
                raise Fault(f"a call was {'served' if answer['ok'] else 'refused'}: {line!r:.300}")

    def _check_metrics(self, client: _Client) -> None:
        client.got += client.transport.take()
        if client.got and not client.is_ended:
            client.is_ended = True
            method, _, rest = client.head.partition(b" ")
            status = client.got[9:12]
            self.answers["success" if status == b"200" else "code HTTP"] += 1
            if not client.got.startswith(b"HTTP/1.1 ") or status not in _STATUSES:
                raise Fault(f"an answer of HTTP: {client.got!r:.200}")
            if status == b"200" and (method not in (b"GET", b"OPTIONS") or not _HEAD_END.search(rest)):
                raise Fault(f"a scrape was served that is none: {client.head!r:.200}")
        alive_ms = self._runtime.now_ms() - client.opened_ms
        if not client.transport.is_lost and alive_ms > CONNECTION_LIFE_MS + 500:
            raise Fault(f"a connection of the metrics port lives for {alive_ms} ms")

    def _look(self) -> None:
        entries, where = largest_table(self.server)
        if entries > _TABLE_MAX:
            raise Fault(f"{where} has {entries} entries")

    async def _end(self) -> None:
        """All calls of open connections are answered, and the ports close."""
        for clients in self._clients.values():
            for client in clients:
                client.transport.unstick()
        for _ in range(100):
            self._runtime.advance(200)
            for _ in range(100):
                await asyncio.sleep(0)
            self._check()
        for client in self._clients[_CONTROL]:
            if client.verdicts and not client.is_ended and not client.transport.is_closing():
                raise Fault(f"{len(client.verdicts)} calls have no answer")
        self._look()
        self._metrics.close()
        self._control.close()
        await end_server(self._broker, self._runtime)
        gc.collect()  # a task that failed says so when it goes
        await asyncio.sleep(0)
        self._check()
