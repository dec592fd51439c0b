"""The client's end of a connection, with answers and requests of a hostile server."""

import asyncio
import copy
from collections import Counter
from collections.abc import Callable
from typing import Final

from lockstep.protocol.bodies.broker import ClusterInfo, ConsumerIdList, TopicRouteData
from lockstep.protocol.bodies.codec import decode_body
from lockstep.protocol.bodies.locks import LockOkBody
from lockstep.protocol.codes import RequestCode, SerializeType
from lockstep.protocol.command import RemotingCommand, decode_command
from lockstep.protocol.errors import ProtocolError
from lockstep.protocol.frame import FrameDecoder
from lockstep.protocol.headers.messaging import RESPONSE_HEADERS, NotifyConsumerIdsChangedRequestHeader
from lockstep.protocol.messages.message import decode_messages
from lockstep.protocol.signature import Credentials
from lockstep.remoting.connections.endpoint import Endpoint, EndpointCallbacks, EndpointSettings
from lockstep.remoting.errors import RemotingError
from tests.fuzz.frames.corpus import requests_of
from tests.fuzz.frames.loose import to_bytes
from tests.fuzz.frames.mutations import mutate_bytes, mutate_parts
from tests.fuzz.frames.oracle import Fault
from tests.fuzz.frames.runtime import FakeTransport, FuzzRuntime, Turns
from tests.fuzz.frames.servers import FuzzLog, rng_of
from tests.fuzz.frames.structured import BROKER_CODES, reply, request
from tests.fuzz.frames.words import Words

__all__ = ["ClientWorld"]

_R = RequestCode
_OUTSTANDING_MAX: Final = 8
_TIMEOUT_MS: Final = 3000
_BODIES: Final[dict[int, Callable[[RemotingCommand], object]]] = {
    _R.PULL_MESSAGE: lambda answer: decode_messages(answer.body),
    _R.LOCK_BATCH_MQ: lambda answer: decode_body(LockOkBody, answer.body, answer.serialize_type),
    _R.GET_ROUTEINFO_BY_TOPIC: lambda answer: decode_body(TopicRouteData, answer.body, answer.serialize_type),
    _R.GET_CONSUMER_LIST_BY_GROUP: lambda answer: decode_body(ConsumerIdList, answer.body, answer.serialize_type),
    _R.GET_BROKER_CLUSTER_INFO: lambda answer: decode_body(ClusterInfo, answer.body, answer.serialize_type),
}
# The server may choose binary headers, which have 16 bits for the code: those of POP do not fit.
_CODE_MAX: Final = 0x7FFF
_CODES: Final = (
    *_BODIES, *_BODIES, *(code for code in RESPONSE_HEADERS if code in BROKER_CODES and code <= _CODE_MAX)
)  # fmt: skip


class ClientWorld:
    """A connection of ours to such a server, again and again. The steps depend on seed and number alone.

    Attributes:
        server: What is looked at for tables that grow: the connection that is open now.
        answers: How requests ended: answered, an error of the connection, an answer that cannot be read.
    """

    def __init__(self, seed: int, number: int, turns: Turns) -> None:
        self.turns = turns
        self.log = FuzzLog()
        self.requests = 0
        self.answers: Counter[str] = Counter()
        self._runtime = FuzzRuntime(rng_of("client", seed, number), turns)
        self._words = Words(rng_of("server", seed, number))
        credentials = Credentials("an-account", "a-secret") if number % 2 else None
        self._settings = EndpointSettings(server=False, offer=SerializeType.MSGPACK, credentials=credentials)
        self._waiting: dict[asyncio.Future[RemotingCommand], int] = {}
        self._asked: list[tuple[int, int]] = []  # opaque and code of requests that the server has
        self._last = b""
        self._connect()

    def _connect(self) -> None:
        self._transport = FakeTransport(self._runtime, ("10.0.0.1", 10911))
        callbacks = EndpointCallbacks(self._on_request)
        self.server = Endpoint(self._runtime, self._settings, callbacks, self.log)
        self._transport.protocol = self.server
        self.server.connection_made(self._transport)
        self._decoder = FrameDecoder()
        self._asked.clear()

    def _on_request(self, _endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand:
        command.decode_header(NotifyConsumerIdsChangedRequestHeader)
        return command.reply(0)

    def step(self) -> None:
        """Ask, and get one frame of the server."""
        if not self.server.is_open:
            self._runtime.advance(0)
            self._connect()
        while len(self._asked) < _OUTSTANDING_MAX:
            self._ask()
        data = self._frame()
        self.turns.what = repr(data[:400])
        cut = self._words.small(len(data) + 1) if self._words.small(5) == 0 else 0
        self._transport.feed(data[:cut])
        self._transport.feed(data[cut:])
        if self._words.small(150) == 0:  # else a long length would swallow all that comes
            self._transport.end(reset=self._words.small(2) == 0)
        self._runtime.advance(self._words.small(2) if self._words.small(200) else 4000)

    def _ask(self) -> None:
        code = _CODES[self._words.small(len(_CODES))]
        command = RemotingCommand(code, ext_fields={"topic": "t"})
        future = self.server.request_nowait(command, _TIMEOUT_MS)
        self._waiting[future] = code
        self._decoder.feed(self._transport.take())
        for frame in self._decoder.frames():
            sent = decode_command(frame)
            if not sent.is_reply:
                self._asked.append((sent.opaque, sent.code))

    def _frame(self) -> bytes:
        words = self._words
        if words.small(8) == 0:
            loose = request(BROKER_CODES[words.small(len(BROKER_CODES))], words)
        else:
            index = words.small(len(self._asked))
            opaque, code = self._asked.pop(index) if words.small(4) else self._asked[index]
            recorded = requests_of("", "<")
            like = recorded[words.small(len(recorded))]
            if words.small(3) == 0:
                loose = copy.copy(like)
                loose.fields, loose.opaque = dict(like.fields), opaque
            else:
                loose = reply(code, opaque, like.body if words.small(3) else b"", words)
        if words.small(2):
            mutate_parts(loose, words)
        data = to_bytes(loose)
        if words.small(8) == 0:
            data = mutate_bytes(data, words.rng, self._last, keep_lengths=words.small(5) > 0)
        self._last = data
        return data

    def take_ends(self, *, all_of_them: bool = False) -> None:
        """Read what requests ended with, as callers do. Raises Fault for an error that is none of theirs."""
        for future, code in list(self._waiting.items()):
            if not future.done():
                if all_of_them:
                    raise Fault(f"a request {code} does not end")
                continue
            del self._waiting[future]
            self.requests += 1
            error = future.exception()
            if isinstance(error, RemotingError):
                self.answers["code connection"] += 1
            elif error is not None:
                raise Fault(f"request {code}: {error!r}") from error
            else:
                self.turns.run(self._read, code, future.result())

    def _read(self, code: int, answer: RemotingCommand) -> None:
        try:
            header_class = RESPONSE_HEADERS.get(code)
            if header_class is not None:
                answer.decode_header(header_class)
            if code in _BODIES and answer.body:
                _BODIES[code](answer)
        except ProtocolError:
            self.answers["code unreadable"] += 1
        else:
            self.answers["success"] += 1

    async def play(self, frames: int) -> None:
        """Raises Fault."""
        for number in range(frames):
            self.step()
            if number % 16 == 0:
                await asyncio.sleep(0)
                self.take_ends()
            if self.log.faults:
                event, fields = self.log.faults[0]
                raise Fault(f"{event}: {fields}")
        for _ in range(4):
            self._runtime.advance(_TIMEOUT_MS)
            await asyncio.sleep(0)
        self.server.abort("the end")
        self._runtime.advance(0)
        await asyncio.sleep(0)
        self.take_ends(all_of_them=True)
