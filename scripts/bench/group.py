"""What a large group costs its broker and one of its members, in processor time.

`python -m scripts.bench.group [--beside OTHER/.venv/bin/python]`; a minute. The broker and one consumer are processes.
The other members are connections of this process: as clients do, each asks for the list of members when it is told of
a change, one list at a time. Figures are in us: those of a storm for each member that joins, those of a change for each
change, the others for each call to the broker. Notices are counts. `--beside` measures an older tree in turns with this
one.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

import uvloop

from lockstep.protocol.bodies.codec import encode_body
from lockstep.protocol.bodies.heartbeat import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    SubscriptionData,
)
from lockstep.protocol.bodies.locks import LockBatchBody
from lockstep.protocol.codes import RequestCode, ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import GetConsumerListByGroupRequestHeader, UnregisterClientRequestHeader
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.connections.dialer import Dialer, DialerCallbacks, DialerSettings
from lockstep.remoting.connections.endpoint import Endpoint
from lockstep.remoting.host.runtime import AsyncioRuntime
from lockstep.remoting.logs import client_log
from lockstep.testing.process import BrokerProcess, ChildProcess
from scripts.bench.apache.servers import cpu_s
from scripts.bench.command import keep, parser_of

GROUP: Final = "BenchGroup"
TOPIC: Final = "BenchLarge"
QUEUES_OF_A_MEMBER: Final = 4
CHANGES: Final = 10
CALLS: Final = 5  # of each member, of a kind
QUIET_SECONDS: Final = 0.2  # a notice that is on its way comes within it
TIMEOUT_MS: Final = 60_000


class Crowd:
    """Members that own no queues, and the processes that are measured."""

    def __init__(self, broker: BrokerProcess, consumer: ChildProcess) -> None:
        self._address, self._pids = broker.address, {"broker": broker.pid, "member": consumer.pid}
        self.members: list[Member] = []
        self.notices = 0

    async def connected(self, count: int) -> None:
        """Connect more members, which do not join yet."""
        new = [Member(self, self._address, f"crowd@{len(self.members) + number}") for number in range(count)]
        await asyncio.gather(*[member.call(RequestCode.GET_BROKER_CONFIG) for member in new])
        self.members += new

    async def cost(self, work: Callable[[], Awaitable[object]]) -> dict[str, float]:
        """Processor time in us, and how many notices came."""
        await self.quiet()
        before, notices = self._spent(), self.notices
        await work()
        await self.quiet()
        spent = {name: after - before[name] for name, after in self._spent().items()}
        return {**spent, "notices": self.notices - notices}

    def _spent(self) -> dict[str, float]:
        return {name: cpu_s(pid) * 1e6 for name, pid in self._pids.items()}

    async def quiet(self) -> None:
        """Until nobody is told anything or asks any more."""
        seen = -1
        while seen != self.notices or any(member.asking for member in self.members):
            seen = self.notices
            await asyncio.sleep(QUIET_SECONDS)


class Member:
    """A connection, and what a client asks on it."""

    def __init__(self, crowd: Crowd, address: str, client_id: str) -> None:
        self._crowd, self._address, self.client_id = crowd, address, client_id
        callbacks = DialerCallbacks(self._on_request)
        self._dialer = Dialer(AsyncioRuntime(), callbacks, client_log(None), DialerSettings(SerializeType.MSGPACK))
        self.asking: asyncio.Task[None] | None = None
        self._again = False

    async def call(self, code: RequestCode, header: Any = None, body: Any = None) -> None:
        endpoint = await self._dialer.endpoint(self._address)
        data = encode_body(body, endpoint.serialize_type) if body is not None else b""
        reply = await endpoint.request(RemotingCommand(code, header, data), TIMEOUT_MS)
        assert reply.code == ResponseCode.SUCCESS, reply.remark

    async def heartbeat(self) -> None:
        topics = (SubscriptionData(TOPIC), SubscriptionData(f"%RETRY%{GROUP}"))
        where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        consumer = ConsumerData(GROUP, ConsumeType.CONSUME_PASSIVELY, MessageModel.CLUSTERING, where, topics)
        await self.call(RequestCode.HEART_BEAT, body=HeartbeatData(self.client_id, (), (consumer,)))

    async def leave(self) -> None:
        header = UnregisterClientRequestHeader(self.client_id, None, GROUP)
        await self.call(RequestCode.UNREGISTER_CLIENT, header)

    async def list(self) -> None:
        await self.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroupRequestHeader(GROUP))

    async def lock(self, first: int) -> None:
        queues = tuple(MessageQueue(TOPIC, "broker-a", first + number) for number in range(QUEUES_OF_A_MEMBER))
        await self.call(RequestCode.LOCK_BATCH_MQ, body=LockBatchBody(GROUP, self.client_id, queues))

    def _on_request(self, _endpoint: Endpoint, command: RemotingCommand) -> None:
        if command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            self._crowd.notices += 1
            self._again = True
            if self.asking is None:
                self.asking = asyncio.create_task(self._ask())

    async def _ask(self) -> None:
        while self._again:
            self._again = False
            await self.list()
        self.asking = None

    def close(self) -> None:
        self._dialer.close()


async def measured(python: Path, count: int) -> dict[str, float]:
    """The figures of a tree."""

    class Broker(BrokerProcess):
        starter = staticmethod(lambda command, **popen: subprocess.Popen([python, *command[1:]], **popen))

    queues = count * QUEUES_OF_A_MEMBER
    with (
        tempfile.TemporaryDirectory(prefix="lockstep-bench-") as folder,
        Broker("--log-level=error", f"--topic={TOPIC}:{queues}") as broker,
        ChildProcess("consumer", _consume(python, broker.name_server), Path(folder)) as consumer,
    ):
        crowd = Crowd(broker, consumer)
        await crowd.connected(count)
        guest = crowd.members[0]
        await guest.heartbeat()
        told = partial(consumer.wait_until, lambda: crowd.notices >= 2, "the notices of the guest and the consumer")
        try:
            await asyncio.to_thread(told)  # here it would keep the notices waiting
            return await _figures(crowd, guest)
        finally:
            for member in crowd.members:
                member.close()


def _consume(python: Path, name_server: str) -> list[str]:
    command = [str(python.with_name("lockstep")), "consume", TOPIC, "--group", GROUP, "--name-server", name_server]
    return [*command, "--property", "rebalance_interval_ms=600000"]  # no round but those of notices


async def _figures(crowd: Crowd, guest: Member) -> dict[str, float]:
    others = crowd.members[1:]

    async def change() -> None:
        for _ in range(CHANGES // 2):
            await guest.leave()
            await crowd.quiet()
            await guest.heartbeat()
            await crowd.quiet()

    async def each(what: Callable[[int, Member], Awaitable[None]]) -> None:
        for _ in range(CALLS):
            await asyncio.gather(*[what(number, member) for number, member in enumerate(crowd.members)])

    storm = await crowd.cost(lambda: asyncio.gather(*[member.heartbeat() for member in others]))
    changes = await crowd.cost(change)
    figures = {f"storm_{name}": figure / len(others) for name, figure in storm.items()}
    figures |= {f"change_{name}": figure / CHANGES for name, figure in changes.items()}
    calls = {
        "list": lambda _, member: member.list(),
        "heartbeat": lambda _, member: member.heartbeat(),
        "lock": lambda number, member: member.lock(number * QUEUES_OF_A_MEMBER),
    }
    for name, call in calls.items():
        spent = await crowd.cost(partial(each, call))
        figures[name] = spent["broker"] / CALLS / len(crowd.members)
    return figures


def main() -> None:
    parser = parser_of(__doc__, rounds=3)
    parser.add_argument("--members", type=int, default=300)
    parser.add_argument("--beside", type=Path, help="the Python of another tree")
    args = parser.parse_args()
    pythons = {"here": Path(sys.executable), **({"beside": args.beside} if args.beside else {})}
    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    for _ in range(args.rounds):
        for name, python in pythons.items():
            found[name].append(uvloop.run(measured(python, args.members)))
    figures = {
        name: {figure: round(median(one[figure] for one in rounds), 1) for figure in rounds[0]}
        for name, rounds in found.items()
    }
    if args.beside:
        figures["ratio"] = {name: round(figures["beside"][name] / here, 2) for name, here in figures["here"].items()}
    print(json.dumps(figures, indent=1))
    keep({"group": {"members": args.members, **figures}})


if __name__ == "__main__":
    main()
