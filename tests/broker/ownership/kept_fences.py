"""A broker with fenced locks and files on a simulated disk, without sockets; it is killed and started again."""

import random
from collections.abc import Callable
from typing import Any, Final

from lockstep.broker.config import BrokerConfig
from lockstep.broker.core.broker import Broker
from lockstep.broker.fronts.remoting.answers import Answers
from lockstep.broker.fronts.remoting.notices import RemotingNotices
from lockstep.broker.ownership.fenced.locks import FencedLocks
from lockstep.broker.persistence.disk_writers import DiskWriters
from lockstep.protocol.bodies.broker import TopicConfig
from lockstep.protocol.bodies.codec import WireBody, decode_body, encode_body
from lockstep.protocol.bodies.locks import LockBatchBody, LockOkBody
from lockstep.protocol.codes import RequestCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import UpdateConsumerOffsetRequestHeader
from lockstep.simulation import SimRuntime, World
from tests.broker.helpers import FakeConnection, RecordingLog, over_the_wire, queues_of, send_header
from tests.broker.ownership.fences import fenced

__all__ = ["LEASE_MS", "QUEUES", "KeptFences"]

R = RequestCode
LEASE_MS: Final = 60_000
QUEUES: Final = queues_of("T", 3)
_SETTINGS: Final[dict[str, Any]] = {
    "lock_mode": "fenced", "data_dir": "store", "queue_file_bytes": 2000, "segment_bytes": 1 << 17,
    "max_message_bytes": 4096, "index_slot_count": 64, "index_item_count": 1000,
}  # fmt: skip


class KeptFences:
    """A broker by its `config`. `log` is what all its lives logged; connections end with each life."""

    def __init__(self, world: World, **settings: Any) -> None:
        self.world = world
        self.log = RecordingLog()
        self.config = BrokerConfig(**_SETTINGS | settings)
        self._connections: dict[str, FakeConnection] = {}

    @classmethod
    async def with_messages(cls, world: World, **settings: Any) -> "KeptFences":
        """Started, with ten messages in the first queue."""
        kept = cls(world, **settings)
        await kept.start()
        kept.broker.catalog.topics.put(TopicConfig("T", 4, 4), kept.now_ms)
        for _ in range(10):
            await kept.ask("p", R.SEND_MESSAGE_V2, send_header(), b"x")
        return kept

    async def start(self) -> None:
        self.runtime: SimRuntime = self.world.host("broker")
        await self.runtime.run(self._start())

    async def _start(self) -> None:
        runtime = self.runtime
        self.broker = Broker(self.config, random.Random(1), self.log, runtime.now_ms(), runtime.storage)
        self.broker.front = RemotingNotices()
        assert self.broker.durable is not None
        self._connections.clear()
        self._writers = DiskWriters(runtime, lambda: self.config, self.broker.durable, lambda: None)
        self.broker.ownership.persistence = self._writers.lock_persistence
        self._answers = Answers(self.broker, self._writers)
        await self._writers.start()

    async def stop(self) -> None:
        await self.runtime.run(self._writers.stop())

    async def die(self, *, power_cut: bool = True) -> None:
        """And start again."""
        (self.world.power_cut if power_cut else self.world.crash)("broker")
        await self.start()

    @property
    def now_ms(self) -> int:
        return self.runtime.now_ms()

    @property
    def locks(self) -> FencedLocks:
        return fenced(self.broker).table

    def events(self, *names: str) -> list[dict[str, Any]]:
        return [fields for _, event, fields in self.log.events if event in names]

    # Requests ------------------------------------------------------------------------------------------------

    def asked(
        self, name: str, code: int, header: Any, body: bytes | WireBody = b""
    ) -> Callable[[], RemotingCommand | None]:
        """Send a request. The function returns its reply, or None before it has come."""
        connection = self._connections.setdefault(name, FakeConnection(name, SerializeType.MSGPACK))
        data = body if isinstance(body, bytes) else encode_body(body, SerializeType.MSGPACK)
        command = over_the_wire(RemotingCommand(code, header, data, serialize_type=SerializeType.MSGPACK))
        before = len(connection.replies)
        connection.read_at_ms = self.now_ms
        at_once = self._answers.answer(connection, command)
        self._writers.flusher.check()
        return lambda: at_once or next(iter(connection.replies[before:]), None)

    async def ask(self, name: str, code: int, header: Any, body: bytes | WireBody = b"") -> RemotingCommand:
        async def answered() -> RemotingCommand:
            reply = self.asked(name, code, header, body)
            await self.world.until(lambda: reply() is not None)
            found = reply()
            assert found is not None
            return found

        return await self.runtime.run(answered())

    async def lock(self, name: str, *epochs: int) -> LockOkBody:
        """The reply for the first queues, as many as there are epochs; without epochs for the first, as Java asks."""
        body = LockBatchBody("G", name, QUEUES[: len(epochs) or 1], epochs or None)
        reply = await self.ask(name, R.LOCK_BATCH_MQ, None, body)
        assert reply.code == 0, reply.remark
        return decode_body(LockOkBody, reply.body, SerializeType.MSGPACK)

    async def claim(self, name: str) -> int:
        """The epoch of the first queue; 0 when it is refused."""
        grants = (await self.lock(name, 0)).grants
        return grants[0].epoch if grants else 0

    async def renews(self, name: str, epoch: int) -> bool:
        grants = (await self.lock(name, epoch)).grants
        assert not grants or grants[0].epoch == epoch
        return bool(grants)

    async def unlock(self, name: str, epoch: int) -> None:
        body = LockBatchBody("G", name, QUEUES[:1], (epoch,))
        assert (await self.ask(name, R.UNLOCK_BATCH_MQ, None, body)).code == 0

    async def commit(self, name: str, offset: int, epoch: int) -> int:
        header = UpdateConsumerOffsetRequestHeader("G", "T", 0, offset, epoch, name)
        return (await self.ask(name, R.UPDATE_CONSUMER_OFFSET, header)).code

    @property
    def committed(self) -> int:
        return self.broker.catalog.offsets.query("G", "T", 0)
