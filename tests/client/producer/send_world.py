"""An ordered sender between fakes: a test decides every step of its connections, and a broker checks the numbers."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, cast

from lockstep.broker.connection import Connection
from lockstep.broker.messages.send_sequences import SendSequences
from lockstep.client.config import ProducerConfig
from lockstep.client.errors import SendError
from lockstep.client.instance.client import MQClientInstance
from lockstep.client.producer.ordered import OrderedSender
from lockstep.client.producer.request import SendRequests
from lockstep.client.send_result import SendResult
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import SendMessageRequestHeaderV2, SendMessageResponseHeader
from lockstep.protocol.headers.together import SendTogetherRequestHeader, SendTogetherResponseHeader
from lockstep.protocol.messages.batch import decode_batch
from lockstep.protocol.messages.ids import UniqueKeyMaker
from lockstep.protocol.messages.to_send import Message
from lockstep.protocol.messages.together import decode_sends, encode_rows
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.connections.endpoint import Waiter
from lockstep.remoting.errors import ConnectFailed, ConnectionLost, RequestTimeout
from lockstep.simulation import SimRuntime

__all__ = ["QUEUE", "Link", "SendWorld", "Sent", "settle"]

QUEUE = MessageQueue("T", "broker-a", 0)
_KEY = ("producer", "T", 0)
Reply = RemotingCommand


async def settle(rounds: int = 10) -> None:
    for _ in range(rounds):
        await asyncio.sleep(0)


class Link:
    """A connection: requests on their way, replies on their way, and who waits for which."""

    def __init__(self, world: "SendWorld", agreed: bool, together: bool) -> None:
        self.world = world
        self.agreed = agreed
        self.together = together
        self.write_paused = False
        self.is_open = True
        self.address = "10.0.0.1:10911"
        self.requests: deque[RemotingCommand] = deque()
        self.replies: deque[tuple[int, RemotingCommand]] = deque()
        self.waiters: dict[int, Waiter] = {}
        self.given_up: set[int] = set()  # timed out
        self._opaque = 0
        self._resumed = asyncio.Event()

    def request_for(self, waiter: Waiter, command: RemotingCommand, timeout_ms: int) -> None:
        if not self.is_open:
            raise ConnectionLost(self.address, "it is closed")
        command.opaque = self._opaque = self._opaque + 1
        self.requests.append(command)
        self.world.on_departed(self, command)
        self.waiters[command.opaque] = waiter

    def send_one_way(self, command: RemotingCommand) -> None:
        command.flag |= 2
        if self.is_open:
            self.requests.append(command)

    async def writable(self) -> None:
        while self.write_paused and self.is_open:
            self._resumed.clear()
            await self._resumed.wait()

    def pause(self, paused: bool) -> None:
        self.write_paused = paused
        if not paused:
            self._resumed.set()

    def deliver(self, refuse_with: int | None = None) -> None:
        """The next request arrives at the broker, over a lost connection too if it was sent before."""
        if self.requests:
            command = self.requests.popleft()
            reply = self.world.broker_takes(self, command, refuse_with)
            if not command.is_one_way:
                self.replies.append((command.opaque, reply))

    def answer(self) -> None:
        """The next reply arrives here."""
        if self.replies and self.is_open:
            opaque, reply = self.replies.popleft()
            waiter = self.waiters.pop(opaque, None)
            if waiter is not None and not waiter.done():
                waiter.set_result(reply)

    def time_out(self) -> None:
        """The oldest request that waits has waited too long."""
        for opaque, waiter in self.waiters.items():
            if not waiter.done():
                del self.waiters[opaque]
                self.given_up.add(opaque)
                waiter.set_exception(RequestTimeout(self.address, "SEND", 3000))
                return

    def lose(self) -> None:
        self.is_open = False
        self._resumed.set()
        if not self.agreed:
            self.requests.clear()  # to such a broker nothing protects from what arrives late
        waiters, self.waiters = self.waiters, {}
        for waiter in waiters.values():
            if not waiter.done():
                waiter.set_exception(ConnectionLost(self.address, "cut"))

    def under_way(self) -> int:
        """Requests that have left, have not been answered, and may still be waited for."""
        opaques = [command.opaque for command in self.requests if not command.is_one_way]
        opaques += [opaque for opaque, _ in self.replies]
        return sum(opaque not in self.given_up for opaque in opaques)


class Sent:
    """One call of `send`: what came of it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.departed_at = -1
        self.ended_at = -1
        self.outcome: SendResult | SendError | asyncio.CancelledError | None = None
        self.task: asyncio.Task[None]


class SendWorld:
    """Sends are numbered in call order; `stored` are those numbers as the broker stored them."""

    def __init__(self, runtime: SimRuntime, config: ProducerConfig, agreed: bool, *, together: bool = False) -> None:
        self.runtime = runtime
        self.agreed = agreed
        self.together = together
        self.frames = 0
        self.links: list[Link] = []
        self.connecting: deque[asyncio.Future[None]] = deque()
        self.stored: list[int] = []
        self.departed: list[tuple[int, int | None, int | None]] = []  # number, generation, sequence
        self.under_way_max = 0
        self.sends: list[Sent] = []
        self.one_ways: list[asyncio.Task[None]] = []
        self._one_way_numbers: set[int] = set()
        self._sequences = SendSequences(100)
        self._now = 0
        keys = UniqueKeyMaker(bytes(4), 1, 1)
        requests = SendRequests("g", config, "client", keys, runtime)
        self._requests = requests
        self.ordered = OrderedSender(cast("MQClientInstance", _Instance(self)), requests, config)

    # The sender's side ---------------------------------------------------------------------------------------

    def link(self) -> Link | None:
        """The open connection."""
        return self.links[-1] if self.links and self.links[-1].is_open else None

    async def connect(self) -> Link:
        if (link := self.link()) is not None:
            return link
        permit = asyncio.get_running_loop().create_future()
        self.connecting.append(permit)
        try:
            await permit
        finally:
            if permit in self.connecting:
                self.connecting.remove(permit)
        if self.link() is None:
            self.links.append(Link(self, self.agreed, self.together))
        return self.links[-1]

    def let_connect(self, *, succeed: bool) -> None:
        while self.connecting:
            permit = self.connecting.popleft()
            if not permit.done():
                if succeed:
                    permit.set_result(None)
                else:
                    permit.set_exception(ConnectFailed("10.0.0.1:10911", "refused"))

    def send(self) -> Sent:
        sent = Sent(len(self.sends) + len(self.one_ways))
        outgoing = self._requests.outgoing(Message("T", b"%d" % sent.number), "k")

        async def run() -> None:
            try:
                sent.outcome = await self.ordered.send(QUEUE, outgoing, 3000)
            except (SendError, asyncio.CancelledError) as error:
                sent.outcome = error
            sent.ended_at = self._tick()

        sent.task = self.runtime.create_task(run(), name=f"send {sent.number}")
        self.sends.append(sent)
        return sent

    def send_one_way(self) -> None:
        number = len(self.sends) + len(self.one_ways)
        self._one_way_numbers.add(number)
        outgoing = self._requests.outgoing(Message("T", b"%d" % number), "k")

        async def run() -> None:
            try:
                await self.ordered.send_one_way(QUEUE, outgoing)
            except (SendError, asyncio.CancelledError):
                pass

        self.one_ways.append(self.runtime.create_task(run(), name=f"one-way {number}"))

    def _tick(self) -> int:
        self._now += 1
        return self._now

    # The broker's side ---------------------------------------------------------------------------------------

    def on_departed(self, link: Link, command: RemotingCommand) -> None:
        for number, generation, sequence in self._numbers(command):
            self.departed.append((number, generation, sequence))
            next(sent for sent in self.sends if sent.number == number).departed_at = self._tick()
        self.frames += command.code in (RequestCode.SEND_TOGETHER, RequestCode.SEND_BATCH_MESSAGE)
        self.under_way_max = max(self.under_way_max, link.under_way())

    def _numbers(self, command: RemotingCommand) -> list[tuple[int, int | None, int | None]]:
        """(number, generation, sequence) of each message of a request."""
        if command.code == RequestCode.SEND_TOGETHER:
            count = cast("SendTogetherRequestHeader", command.header).message_count
            queues, heads, position = decode_sends(command.body, count)
            found = list[tuple[int, int | None, int | None]]()
            for queue, sequence, _, _, _, body_bytes, properties_bytes in heads:
                found.append((int(command.body[position : position + body_bytes]), queues[queue].generation, sequence))
                position += body_bytes + properties_bytes
            return found
        header = cast("SendMessageRequestHeaderV2", command.header)
        if command.code == RequestCode.SEND_BATCH_MESSAGE:
            return [(int(record.body), None, None) for record in decode_batch(command.body)]
        return [(int(command.body), header.send_generation, header.send_sequence)]

    def broker_takes(self, link: Link, command: RemotingCommand, refuse_with: int | None) -> RemotingCommand:
        """`refuse_with`: the first message of the request is refused; of a batch all are."""
        if command.code == RequestCode.SEND_BATCH_MESSAGE:
            return self._takes_batch(command, refuse_with)
        rows, remarks = list[tuple[int, int, int]](), list[str]()
        for number, generation, sequence in self._numbers(command):
            code, remark = self._takes(link, number, generation, sequence, refuse_with)
            refuse_with = None
            rows.append((code, len(self.stored) - 1 if code == ResponseCode.SUCCESS else -1, 0))
            remarks += [remark] if code else []
        if command.code == RequestCode.SEND_TOGETHER:
            return command.reply(ResponseCode.SUCCESS, SendTogetherResponseHeader("ID"), encode_rows(rows, remarks))
        if rows[0][0]:
            return command.reply(rows[0][0], remark=remarks[0])
        return command.reply(ResponseCode.SUCCESS, SendMessageResponseHeader("ID", 0, rows[0][1]))

    def _takes_batch(self, command: RemotingCommand, refuse_with: int | None) -> RemotingCommand:
        if refuse_with is not None:
            return command.reply(refuse_with, remark="the test says no")
        numbers, first = [number for number, _, _ in self._numbers(command)], len(self.stored)
        self.stored += numbers
        ids = ",".join(f"ID{first + place}" for place in range(len(numbers)))
        return command.reply(ResponseCode.SUCCESS, SendMessageResponseHeader(ids, 0, first))

    def _takes(
        self, link: Link, number: int, generation: int | None, sequence: int | None, refuse_with: int | None
    ) -> tuple[int, str]:
        assert generation is None or link.agreed
        if generation is not None and sequence is not None:
            why = self._sequences.refusal(_KEY, generation, sequence, cast("Connection", link), 0)
            if why is not None:
                return ResponseCode.SEND_OUT_OF_SEQUENCE, why
        if refuse_with is not None:
            return refuse_with, "the test says no"
        if generation is not None:
            self._sequences.stored(_KEY)
        self.stored.append(number)
        return ResponseCode.SUCCESS, ""

    async def drain(self) -> None:
        """Everything goes well from here on, until every call has ended."""
        for _ in range(2000):
            if all(task.done() for task in (*[sent.task for sent in self.sends], *self.one_ways)):
                return
            self.let_connect(succeed=True)
            for link in self.links:
                link.pause(False)
                while link.requests:
                    link.deliver()
                while link.replies and link.is_open:
                    link.answer()
            await asyncio.sleep(0.001)
        raise AssertionError(f"stuck: {[sent.number for sent in self.sends if not sent.task.done()]}")

    def restart_broker(self) -> None:
        """It comes back with its messages and without its send sequences."""
        for link in self.links:
            link.lose()
            link.requests.clear()
        self._sequences = SendSequences(100)

    @property
    def first_stored(self) -> list[int]:
        """Numbers of keyed sends in the order in which each was stored first."""
        return [number for number in dict.fromkeys(self.stored) if number not in self._one_way_numbers]


class _Instance:
    """The parts of an MQClientInstance that an ordered sender uses."""

    def __init__(self, world: SendWorld) -> None:
        self.runtime = world.runtime
        self._world = world

    def open_sender(self, _broker: str) -> Link | None:
        return self._world.link()

    @property
    def sender(self) -> Callable[[str], Awaitable[Any]]:
        return lambda _broker: self._world.connect()
