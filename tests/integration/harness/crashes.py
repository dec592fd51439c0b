"""A broker process under load is killed again and again; checks after each kill and at the end."""

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lockstep.client import ClientError, Message, MessageQueue, Producer
from lockstep.order import OrderReport, check_files
from lockstep.protocol.bodies.config import ConsumerOffsetTable
from lockstep.protocol.messages.message import decode_messages
from lockstep.protocol.names import SCHEDULE_TOPIC, TIMER_TOPIC
from lockstep.remoting.errors import RemotingError
from lockstep.remoting.host.clocks import boot_ns
from lockstep.remoting.host.os_storage import OsStorage
from lockstep.store.check.files import Damage, read_config, scan_log
from lockstep.store.check.store import StoreCheck
from lockstep.store.format.files import FileRun
from tests.integration.harness.processes import Broker, ConsumerProcess, Processes, until
from tests.integration.harness.workload import SHORT_BROKER_LOCKS, SHORT_LOCKS, drained, records

__all__ = ["Crashes"]

TOPIC, LATER, GROUP = "Orders", "Reminders", "shipping"
QUEUES, KEYS, SENDERS = 4, 16, 4
SLACK_MS: Final = 1500  # the broker looks every 500 ms, and its disk takes a moment; a busy machine has patience
SMALL_FILES = (
    "mappedFileSizeCommitLog=300000", "mappedFileSizeConsumeQueue=20000", "maxHashSlotNum=5000", "maxIndexNum=20000",
    "maxMessageSize=65536",
)  # fmt: skip


@dataclass
class Crashes:
    """`acknowledged`: (queue id, queue offset) -> text, of TOPIC; `later`: texts sent with a delay."""

    processes: Processes
    rng: random.Random
    offsets_interval_ms: int = 5000
    acknowledged: dict[tuple[int, int], str] = field(default_factory=dict)
    later: list[str] = field(default_factory=list)
    unknown: int = 0
    _count: int = 0
    _stopped: bool = False
    _recovered: dict[int, int] = field(default_factory=dict)  # committed offsets as the last restart found them
    _served_ns: int = 0  # commits before were perhaps to the broker before

    @property
    def folder(self) -> Path:
        return self.processes.folder / "store"

    async def run(self, kills: int) -> OrderReport:
        """So many kills; then quiet, and the judgement."""
        broker = await self._broker()
        consumer = await self._consumer(broker, 1)
        consumers = [consumer]
        trace = self.processes.folder / "producer.trace"
        async with (
            Producer("shop", name_server=broker.name_server, trace=str(trace)) as producer,
            Producer("clock", name_server=broker.name_server) as clock,
        ):
            senders = [asyncio.create_task(self._send(producer, clock)) for _ in range(SENDERS)]
            for _ in range(kills):
                broker = await self._live_and_die(broker, consumer)
                if self.rng.randrange(8) == 0:
                    consumer.kill()
                    consumer = await self._consumer(broker, len(consumers) + 1)
                    consumers.append(consumer)
            self._stopped = True
            await asyncio.gather(*senders)
        async with broker.admin() as admin:
            await until(lambda: drained(admin, GROUP, TOPIC), "all is handled", timeout_s=60)
            await until(self._all_came_later, "delayed messages are delivered", timeout_s=30)
        await consumer.stop()
        await broker.stop()
        self._check_store()
        return check_files([trace, self._witness, *[one.trace for one in consumers]])

    @property
    def _witness(self) -> Path:
        """What each start leaves of offsets that went back with the end before it."""
        return self.processes.folder / "broker.trace"

    async def _broker(self, like: Broker | None = None) -> Broker:
        settings = [*SMALL_FILES, f"flushConsumerOffsetInterval={self.offsets_interval_ms}"]
        options = [word for setting in settings for word in ("-D", setting)]
        topics = [] if like else ["--topic", f"{TOPIC}:{QUEUES}", "--topic", f"{LATER}:1"]
        kept = ("--data-dir", str(self.folder), "--flush", "sync", "--trace", str(self._witness))
        broker = await self.processes.broker(*kept, *SHORT_BROKER_LOCKS, *options, *topics, like=like)
        self._served_ns = boot_ns()
        return broker

    async def _consumer(self, broker: Broker, number: int) -> ConsumerProcess:
        config = {**SHORT_LOCKS, "persist_consumer_offset_interval_ms": 200}
        return await self.processes.consumer(broker, TOPIC, group=GROUP, config=config)

    async def _live_and_die(self, broker: Broker, consumer: ConsumerProcess) -> Broker:
        """A life of a random length; the next one begins with what this one left."""
        rng, long_s = self.rng, self.offsets_interval_ms / 1000 + 2
        await asyncio.sleep(rng.choice((rng.uniform(0, 0.2), rng.uniform(0, 1.5), rng.uniform(0.5, long_s))))
        kept = await self._offsets_are_written(consumer) if rng.randrange(3) == 0 else {}
        broker.kill()
        self._look_at_offsets(kept)
        before = list(self.acknowledged)
        broker = await self._broker(like=broker)
        async with broker.admin() as admin:
            for queue_id in range(QUEUES):
                end = await admin.max_offset(MessageQueue(TOPIC, "broker-a", queue_id))
                missing = [place for place in before if place[0] == queue_id and place[1] >= end]
                assert not missing, f"acknowledged, and not there: {missing}; queue {queue_id} ends at {end}"
        return broker

    async def _offsets_are_written(self, consumer: ConsumerProcess) -> dict[int, int]:
        """What was committed to this broker so far, once it is on the disk; a busy machine gets more time."""
        committed: dict[int, int] = {}
        for record in records(consumer.trace, "committed"):
            if record["topic"] == TOPIC and record["mono_ns"] > self._served_ns:
                committed[record["queue_id"]] = record["offset"]

        def written() -> bool:
            found = self._committed_on_disk()
            return all(found.get(queue_id, -1) >= offset for queue_id, offset in committed.items())

        within_s = (self.offsets_interval_ms + SLACK_MS) / 1000
        await until(written, f"the offsets {committed} are on the disk", within_s)
        return committed

    def _look_at_offsets(self, kept: dict[int, int]) -> None:
        """That no offset which was on the disk is lower, while nobody has it open."""
        found = self._committed_on_disk()
        for queue_id, offset in [*self._recovered.items(), *kept.items()]:
            assert found.get(queue_id, -1) >= offset, f"queue {queue_id} went back from {offset} to {found}"
        self._recovered = found

    def _committed_on_disk(self) -> dict[int, int]:
        try:
            table = read_config(OsStorage(), str(self.folder), "consumerOffset.json")
        except FileNotFoundError:
            return {}
        assert isinstance(table, ConsumerOffsetTable)
        return dict(table.offset_table.get(f"{TOPIC}@{GROUP}", {}))

    # Sending -------------------------------------------------------------------------------------------------

    async def _send(self, producer: Producer, clock: Producer) -> None:
        while not self._stopped:
            self._count += 1
            text, delayed = f"m{self._count}", self._count % 50 == 0
            body = text.encode().ljust(self.rng.randrange(2000))
            message = Message(TOPIC, body, keys=text)
            if delayed:
                delay_ms = 0 if self._count % 100 else self.rng.randrange(1, 3000)
                message = Message(LATER, body, delay_level=0 if delay_ms else 1, delay_ms=delay_ms)
            try:
                key = None if delayed else f"key{self._count % KEYS}"
                result = await (clock if delayed else producer).send(message, sharding_key=key)
            except (ClientError, RemotingError):
                self.unknown += 1
                await asyncio.sleep(0.02)
                continue
            if delayed:
                self.later.append(text)
            else:
                self.acknowledged[result.queue.queue_id, result.queue_offset] = text
            await asyncio.sleep(self.rng.choice((0, 0.002, 0.01)))

    # The end -------------------------------------------------------------------------------------------------

    async def _all_came_later(self) -> bool:
        """By the log itself, beside the broker: a number would count what was delivered twice over a kill."""
        return {*self.later} <= {text for topic, text, _ in self._log() if topic == LATER}

    def _log(self) -> Iterator[tuple[str, str, tuple[int, int]]]:
        """(topic, text, (queue id, queue offset)) of what is in it; a broker that runs may be writing at its end."""
        log = FileRun.found(OsStorage(), str(self.folder), "commitlog")
        for found in scan_log(log):
            if not isinstance(found, Damage):
                (message,) = decode_messages(log.read(found.offset, found.size_bytes))
                place = (message.queue_id, message.queue_offset)
                yield message.topic, message.body.decode().rstrip(), place

    def _check_store(self) -> None:
        """Read the folder with nobody there: no damage, every acknowledged message, every delayed one."""
        storage, folder = OsStorage(), str(self.folder)
        damage = list(StoreCheck(storage, folder).run())
        assert not damage, damage[:10]
        stored = {place: text for topic, text, place in self._log() if topic == TOPIC}
        delivered = {text for topic, text, _ in self._log() if topic == LATER}
        wrong = [place for place, text in self.acknowledged.items() if stored.get(place) != text]
        assert not wrong, f"acknowledged, and not there: {wrong[:10]}"
        missing = [text for text in self.later if text not in delivered]
        assert not missing, f"acknowledged with a delay, and never delivered: {missing[:10]}"
        waited = Counter(text for topic, text, _ in self._log() if topic in (SCHEDULE_TOPIC, TIMER_TOPIC))
        came = Counter(text for topic, text, _ in self._log() if topic == LATER)
        assert came == waited, f"delivered again over a kill: {(came - waited).most_common(10)}"
