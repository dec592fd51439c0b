"""One of the two brokers with its name server, as a test sees it: connections by name, and what it alone knows.

Plain sockets. Frames come apart with protocol/, and their headers with a reader of the tests' own, so that an error
in our codecs cannot hide itself.
"""

import json
import selectors
import socket
import struct
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from lockstep.protocol.frame import FrameDecoder
from tests.differential.case import BROKER, Case

__all__ = ["ANSWER_TIMEOUT_S", "SILENCE_S", "Answer", "Connection", "Received", "Side", "address", "encode_request"]

ANSWER_TIMEOUT_S: Final = 60.0  # a parked pull's longest wait included
SILENCE_S: Final = 0.25  # how long no push is silence
LATE_SILENCE_S: Final = 2.0  # how long no reply is silence, where one of the two may answer, or end the connection
ONE_WAY_S: Final = 0.15
PUSHES_S: Final = 10.0  # how long pushes may take to come after the reply
_LENGTHS = struct.Struct(">II")
_BINARY = struct.Struct(">hBhii")
_ENTRY_KEY = struct.Struct(">h")
_LENGTH = struct.Struct(">i")
_LANGUAGES = ("JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS")


class Received(NamedTuple):
    """A frame that came: a reply, or a request of the broker."""

    encoding: int
    code: int
    flag: int
    opaque: int
    remark: str | None
    fields: dict[str, Any] | None
    body: bytes


class Answer(NamedTuple):
    """`reply` None: the broker was silent, or closed the connection where `closed`."""

    reply: Received | None
    closed: bool
    pushes: tuple[tuple[str, Received], ...]  # of the watched connections


def address(text: str) -> tuple[str, int]:
    """Host and port of `host:port`."""
    host, _, port = text.rpartition(":")
    return host, int(port)


def encode_request(case: Case, opaque: int, fields: dict[str, Any] | None, body: bytes) -> bytes:
    if case.encoding == 1:
        header = _binary_header(case, opaque, fields or {})
    else:
        members = {"code": case.code, "flag": case.flag, "language": case.language, "opaque": opaque}
        members |= {"version": case.version, "serializeTypeCurrentRPC": "JSON"}
        if fields is not None:
            members["extFields"] = fields
        header = json.dumps(members | dict(case.header)).encode()
    return _LENGTHS.pack(4 + len(header) + len(body), case.encoding << 24 | len(header)) + header + body


def _binary_header(case: Case, opaque: int, fields: dict[str, Any]) -> bytes:
    entries = b""
    for name, value in fields.items():
        key, text = name.encode(), str(value).encode()
        entries += _ENTRY_KEY.pack(len(key)) + key + _LENGTH.pack(len(text)) + text
    fixed = _BINARY.pack(case.code, _LANGUAGES.index(case.language), case.version, opaque, case.flag)
    return fixed + _LENGTH.pack(0) + _LENGTH.pack(len(entries)) + entries


def _decode_binary(header: bytes) -> dict[str, Any]:
    code, _, version, opaque, flag = _BINARY.unpack_from(header)
    (length,) = _LENGTH.unpack_from(header, 13)
    remark = header[17 : 17 + length].decode() or None
    at = 17 + length
    (length,) = _LENGTH.unpack_from(header, at)
    at, end = at + 4, at + 4 + length
    fields = {}
    while at < end:
        (key_length,) = _ENTRY_KEY.unpack_from(header, at)
        key = header[at + 2 : at + 2 + key_length].decode()
        at += 2 + key_length
        (value_length,) = _LENGTH.unpack_from(header, at)
        fields[key] = header[at + 4 : at + 4 + value_length].decode()
        at += 4 + value_length
    found = fields or None  # none and no entries are the same on this wire
    return {"code": code, "version": version, "opaque": opaque, "flag": flag, "remark": remark, "extFields": found}


class Connection:
    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=ANSWER_TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._decoder = FrameDecoder()
        self.received: list[Received] = []
        self.closed = False

    def send(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except OSError:
            pass  # the end shows when it is read

    def read(self) -> None:
        """Takes what is there; call it when the socket is readable."""
        try:
            data = self.socket.recv(1 << 18)
        except OSError:
            data = b""
        if not data:
            self.closed = True
            return
        self._decoder.feed(data)
        for frame in self._decoder.frames():
            binary = frame.serialize_type == 1
            members = _decode_binary(frame.header) if binary else json.loads(frame.header)
            one = Received(
                frame.serialize_type,
                members["code"],
                members["flag"],
                members["opaque"],
                members.get("remark"),
                members.get("extFields"),
                frame.body,
            )
            self.received.append(one)


def _pushes(watched: dict[str, Connection]) -> tuple[tuple[str, Received], ...]:
    return tuple((name, one) for name, each in watched.items() for one in each.received if not one.flag & 1)


class Side:
    """`answers` are the replies of its clients to what the broker asks them, by request code."""

    def __init__(self, broker: tuple[str, int], name_server: tuple[str, int]) -> None:
        self._addresses = {BROKER: broker, "name-server": name_server}
        self._connections: dict[str, Connection] = {}
        self._selector = selectors.DefaultSelector()
        self._opaque = 0
        self.client_answers: dict[int, Callable[[Received], tuple[int, bytes]]] = {}
        self.known: dict[str, Any] = {}  # what cases keep for later ones
        self.broker_address = "{}:{}".format(*broker)
        self.name_server_address = "{}:{}".format(*name_server)

    def connection(self, name: str, server: str = BROKER) -> Connection:
        key = f"{server}/{name}"
        found = self._connections.get(key)
        if found is None or found.closed:
            self.drop(name, server)
            found = self._connections[key] = Connection(self._addresses[server])
            self._selector.register(found.socket, selectors.EVENT_READ, (name, found))
        return found

    def drop(self, name: str, server: str = BROKER) -> None:
        found = self._connections.pop(f"{server}/{name}", None)
        if found is not None:
            if not found.closed:
                self._selector.unregister(found.socket)
            found.socket.close()

    def close(self) -> None:
        for key in list(self._connections):
            server, _, name = key.partition("/")
            self.drop(name, server)
        self._selector.close()

    def ask(self, case: Case) -> Answer:
        """Sends, does what is to be done meanwhile, and waits for the reply: shortly where none is expected."""
        connection = self.connection(case.connection, case.server)
        watched = {name: self.connection(name) for name in case.watch}
        self.pump(lambda: not case.wait_ms, case.wait_ms / 1000)
        for each in watched.values():
            each.received.clear()
        opaque = self._next_opaque()
        body = case.body(self) if callable(case.body) else case.body
        connection.send(encode_request(case, opaque, self._fields(case), body))
        if case.meanwhile:
            self.pump(lambda: False, SILENCE_S)  # until the broker has put it aside
        for other in case.meanwhile:
            self.ask(other)
        one_way = case.flag & 2
        timeout_s = LATE_SILENCE_S if case.silent else ONE_WAY_S if one_way else ANSWER_TIMEOUT_S
        reply = self._reply(connection, opaque, timeout_s)
        if case.watch:
            self.pump(lambda: 0 < case.pushes <= len(_pushes(watched)), PUSHES_S if case.pushes else SILENCE_S)
        return Answer(reply, connection.closed, _pushes(watched))

    def send_raw(self, data: bytes) -> Answer:
        """Bytes on a connection of their own: the first frame that comes back, silence, or the end."""
        connection = self.connection("raw")
        connection.send(data)
        self.pump(lambda: connection.closed or bool(connection.received), LATE_SILENCE_S)
        reply = connection.received[0] if connection.received else None
        closed = connection.closed
        self.drop("raw")
        return Answer(reply, closed, ())

    def pump(self, done: Callable[[], bool], timeout_s: float = 0.0) -> None:
        """Reads every connection until `done`, at least once, and answers for the clients on them."""
        deadline = time.monotonic() + timeout_s
        left = 0.0
        while True:
            for key, _ in self._selector.select(left):
                _, connection = key.data
                before = len(connection.received)
                connection.read()
                if connection.closed:
                    self._selector.unregister(connection.socket)
                for one in connection.received[before:]:
                    self._answer(connection, one)
            left = deadline - time.monotonic()
            if done() or left <= 0:
                return

    def _reply(self, connection: Connection, opaque: int, timeout_s: float) -> Received | None:
        def found() -> Received | None:
            return next((one for one in connection.received if one.flag & 1 and one.opaque == opaque), None)

        self.pump(lambda: connection.closed or found() is not None, timeout_s)
        reply = found()
        if reply is not None:
            connection.received.remove(reply)
        return reply

    def _answer(self, connection: Connection, one: Received) -> None:
        answer = self.client_answers.get(one.code)
        if one.flag & 3 or answer is None:
            return
        code, body = answer(one)
        header = json.dumps({"code": code, "flag": 1, "language": "JAVA", "opaque": one.opaque, "version": 409})
        connection.send(_LENGTHS.pack(4 + len(header) + len(body), len(header)) + header.encode() + body)

    def _fields(self, case: Case) -> dict[str, Any] | None:
        if case.fields is None:
            return None
        return {name: value(self) if callable(value) else value for name, value in case.fields.items()}

    @staticmethod
    def now_ms() -> int:
        return time.time_ns() // 1_000_000

    def _next_opaque(self) -> int:
        self._opaque += 1
        return self._opaque
