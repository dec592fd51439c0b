"""Messages at a rate, sent as by a careful producer, and what became of the sends that failed."""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from typing import Final, NamedTuple

from lockstep.client import ClientError, Message, NoRouteError, Producer, SendError, SendOutcome
from lockstep.remoting.errors import RemotingError
from lockstep.simulation.lab.hosts import Hosts
from lockstep.simulation.machine.host import Host

__all__ = ["FailedSend", "RatedSends"]

_AGAIN_MS: Final = 1000
_POLL_MS: Final = 100
_HEALED_MS: Final = 60_000  # a send that fails for so long after everything is healed is given up
_PASSING: Final = (SendError, NoRouteError, RemotingError)  # the same message may be stored later


class FailedSend(NamedTuple):
    """The first send that failed."""

    at_ms: int
    error: Exception


class RatedSends:
    """Sends messages at a rate.

    A send that fails is made again after a second, until the message is stored. Later messages of its key wait, because
    they must not overtake it. So an outage of a broker loses no message; but one whose answer was lost is stored twice.

    Args:
        retries: False: each message is sent once, and does not wait for others.
        sent: gets the text of each message that is stored.

    Attributes:
        failed: why a message was given up, by its number. It may be stored all the same.
        again: how many sends were made again.
        unanswered: how many sends failed without an answer, so that their message may be stored.
    """

    def __init__(self, hosts: Hosts, sent: list[str], *, retries: bool) -> None:
        self.failed: dict[int, Exception] = {}
        self.first: FailedSend | None = None
        self.again = self.unanswered = 0
        self._hosts = hosts
        self._sent = sent
        self._retries = retries
        self._under_way: dict[int, Host] = {}
        self._turns: defaultdict[tuple[Producer, str], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._give_up_ms: int | None = None
        self._next = 0  # number of a message

    async def run(self, rate: float, until_ms: int, make: Callable[[int], Message], name: str) -> None:
        """Begin to send message after message, numbered on.

        Args:
            rate: messages a second.
            name: the host of the producer. What is due while it is down is never sent.
        """
        world = self._hosts.world
        began_ms, count = world.elapsed_ms, 0
        while (due_ms := began_ms + int(count * 1000 / rate)) < until_ms:
            await world.sleep_ms(max(due_ms - world.elapsed_ms, 0))
            self._forget_dead()
            self.begin(make, name)
            count += 1

    def begin(self, make: Callable[[int], Message], name: str) -> None:
        """Begin to send the message of the next number."""
        number, self._next = self._next, self._next + 1
        if self._hosts.is_up(name):
            runtime = self._hosts.world.host(name)
            self._under_way[number] = runtime.host
            runtime.create_task(self._send(number, make(number), name), name=f"send {number}")
        else:
            self._give_up(number, ClientError("the producer was down"))

    async def ended(self) -> None:
        """Wait until no send is under way. To be awaited when everything is healed."""
        world = self._hosts.world
        self._give_up_ms = world.elapsed_ms + _HEALED_MS
        self._forget_dead()
        while self._under_way:
            await world.sleep_ms(_POLL_MS)
            self._forget_dead()

    def _forget_dead(self) -> None:
        """Give up what a producer had under way when its process ended."""
        for number, host in list(self._under_way.items()):
            if not host.alive:
                del self._under_way[number]
                self.unanswered += 1
                self._give_up(number, ClientError("the producer ended before an answer came"))

    async def _send(self, number: int, message: Message, name: str) -> None:
        producer, key = self._hosts.client(name), message.sharding_key
        assert isinstance(producer, Producer)
        async with self._turns[producer, key] if self._retries and key is not None else nullcontext():
            while (error := await self._attempt(producer, message)) is not None:
                if not self._may_repeat(error) or not self._hosts.is_up(name):
                    self._give_up(number, error)
                    break
                self.again += 1
                self._hosts.findings.saw("sends made again")
                await asyncio.sleep(_AGAIN_MS / 1000)
        self._under_way.pop(number, None)

    async def _attempt(self, producer: Producer, message: Message) -> Exception | None:
        try:
            await producer.send(message)
        except (ClientError, RemotingError) as error:
            self.unanswered += isinstance(error, SendError) and error.outcome is SendOutcome.UNKNOWN
            self._note(error)
            return error
        self._sent.append(message.body.decode(errors="replace"))
        return None

    def _may_repeat(self, error: Exception) -> bool:
        is_late = self._give_up_ms is not None and self._hosts.world.elapsed_ms > self._give_up_ms
        return self._retries and isinstance(error, _PASSING) and not is_late

    def _give_up(self, number: int, error: Exception) -> None:
        self.failed[number] = error
        self._note(error)
        self._hosts.findings.saw("sends failed")

    def _note(self, error: Exception) -> None:
        if self.first is None:
            self.first = FailedSend(self._hosts.world.elapsed_ms, error)
