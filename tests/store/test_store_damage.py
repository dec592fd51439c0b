"""Damage anywhere in a store's folder: it opens or names the bad file, and serves only intact messages."""

import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lockstep.broker.config import BrokerConfig
from lockstep.broker.core.broker import Broker
from lockstep.client import SerializeType
from lockstep.protocol.messages.message import MessageExt, decode_messages
from lockstep.simulation import World, simulate
from lockstep.simulation.machine.disk import Disk
from lockstep.simulation.machine.host import Host
from lockstep.simulation.machine.storage import SimStorage
from lockstep.store import MessageStore
from lockstep.store.check.store import StoreCheck
from lockstep.store.errors import StoreUnusable
from tests.broker.helpers import NOW_MS, RecordingLog
from tests.scenarios.cluster import BROKER, PRODUCER, TOPIC, Cluster

pytestmark = pytest.mark.long

FOLDER, QUEUES, MESSAGES = "store", 3, 150
FILES: dict[str, Any] = {
    "data_dir": FOLDER,
    "segment_bytes": 40_000,
    "queue_file_bytes": 20 * 16,
    "index_slot_count": 16,
    "index_item_count": 64,
    "max_message_bytes": 4096,
}
Place = tuple[int, int]  # queue id, queue offset


class Whole(NamedTuple):
    """A store as it was left: path -> content, and what stood where; `spans`: file, first byte, end of each message."""

    files: dict[str, bytes]
    messages: dict[Place, bytes]
    spans: dict[Place, tuple[str, int, int]]

    def write_to(self, folder: Path) -> None:
        for path, content in self.files.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)


class Damage(NamedTuple):
    path: str
    start: int
    end: int
    kind: str

    def apply(self, content: bytes) -> bytes:
        if self.kind == "cut":
            return content[: self.start]
        piece = content[self.start : self.end]
        changed = bytes(len(piece)) if self.kind == "zero" else bytes(byte ^ 0x41 for byte in piece)
        return content[: self.start] + changed + content[self.end :]

    def touches(self, span: tuple[str, int, int]) -> bool:
        return span[0] == self.path and span[1] < (1 << 40 if self.kind == "cut" else self.end) and self.start < span[2]


@cache
def whole(*, cleanly: bool) -> Whole:
    """What a broker leaves behind after a clean stop or a SIGKILL."""

    async def story(world: World) -> Whole:
        cluster = Cluster(world, SerializeType.MSGPACK)
        await cluster.broker(queues=QUEUES, **FILES)
        await cluster.producer()
        await cluster.consumer("c1")
        for _ in range(MESSAGES):
            padded = cluster.send_one(queue_id=world.rng.randrange(QUEUES), padding_bytes=world.rng.randrange(900))
            await world.host(PRODUCER).run(padded)
        await world.sleep_ms(12_000)
        store = cluster.store()
        found = [(message, span(message, store)) for queue_id in range(QUEUES) for message in cluster.stored(queue_id)]
        if cleanly:
            await cluster.stop_broker()
        else:
            cluster.crash(BROKER)
        disk = world.disk(BROKER)
        files = {path: disk.read(path) for path in disk.paths() if path.startswith(FOLDER)}
        world.power_off()
        places = {(message.queue_id, message.queue_offset): (message.body, where) for message, where in found}
        return Whole(
            files, {at: body for at, (body, _) in places.items()}, {at: one for at, (_, one) in places.items()}
        )

    return simulate(story, seed=5).value


def span(message: MessageExt, store: MessageStore) -> tuple[str, int, int]:
    (entry,) = store.entries(TOPIC, message.queue_id, message.queue_offset, 1)
    start = entry.commit_log_offset % FILES["segment_bytes"]
    return f"{FOLDER}/commitlog/{entry.commit_log_offset - start:020d}", start, start + entry.size_bytes


def disk_of(files: dict[str, bytes]) -> SimStorage:
    disk = Disk()
    for path, content in files.items():
        disk.write(path, 0, content)
    return SimStorage(Host("broker", "10.0.0.1", 1, 1, 0), disk)


def opened(storage: SimStorage, log: RecordingLog) -> Broker:
    config = BrokerConfig(host="127.0.0.1", **FILES)
    return Broker(config, random.Random(1), log, NOW_MS, storage, lambda line: None)


def served(broker: Broker) -> Iterator[tuple[Place, bytes]]:
    """All that a consumer of the topic gets, from the beginning on; an offset that answers nothing is passed over."""
    for queue_id in range(QUEUES):
        offset, end = (
            broker.messages.store.min_offset(TOPIC, queue_id),
            broker.messages.store.max_offset(TOPIC, queue_id),
        )
        while offset < end:
            result = broker.messages.store.get(TOPIC, queue_id, offset, 32, None)
            for message in decode_messages(result.body, unzip=False):
                yield (message.queue_id, message.queue_offset), message.body
            offset = max(offset + 1, result.next_begin_offset)


def damages(*, cleanly: bool) -> st.SearchStrategy[Damage]:
    paths = sorted(path for path, content in whole(cleanly=cleanly).files.items() if content)

    @st.composite
    def draw(draw: st.DrawFn) -> Damage:
        path = draw(st.sampled_from(paths))
        start = draw(st.integers(0, len(whole(cleanly=cleanly).files[path]) - 1))
        length = draw(st.sampled_from((1, 2, 4, 20, 100, 700, 5000)))
        return Damage(path, start, start + length, draw(st.sampled_from(("flip", "cut", "zero"))))

    return draw()


def check(damage: Damage, *, cleanly: bool) -> None:
    before, log = whole(cleanly=cleanly), RecordingLog()
    storage = disk_of({**before.files, damage.path: damage.apply(before.files[damage.path])})
    list(StoreCheck(storage, FOLDER).run())  # a reader does not fail either
    try:
        broker = opened(storage, log)
    except StoreUnusable as error:
        refusal = str(error)
    else:
        refusal = ""
    if refusal:
        assert damage.path in refusal or FOLDER in refusal
        return
    found = dict(served(broker))
    bodies = set(before.messages.values())
    made_up = [place for place, body in found.items() if body not in bodies]
    assert not made_up, made_up
    if cleanly:
        lost = {place for place in before.messages if found.get(place) != before.messages[place]}
        saved = {place for place in lost if not damage.touches(before.spans[place])}
        assert not saved, f"whole, and not served: {sorted(saved)[:10]}; said: {log.events}"
        assert not lost or damage.path in str(log.events), log.events


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(damage=st.deferred(lambda: damages(cleanly=True)))
def test_damage_after_a_clean_stop(damage: Damage) -> None:
    """One damaged place anywhere: the store opens or names the bad file. Every undamaged message is served under its
    offset and no other, and the log names the file of lost ones."""
    check(damage, cleanly=True)


@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(damage=st.deferred(lambda: damages(cleanly=False)))
def test_damage_after_a_crash(damage: Damage) -> None:
    """The same after SIGKILL, where data after a torn end of the log is not trusted: no message is invented."""
    check(damage, cleanly=False)


@pytest.mark.parametrize("cleanly", [True, False])
def test_a_missing_file(cleanly: bool) -> None:
    """Any one file may be missing: messages of the others are served."""
    before = whole(cleanly=cleanly)
    for path in before.files:
        log = RecordingLog()
        storage = disk_of({name: content for name, content in before.files.items() if name != path})
        found = dict(served(opened(storage, log)))
        lost = {place for place in before.messages if found.get(place) != before.messages[place]}
        assert {before.spans[place][0] for place in lost} <= {path}, (path, sorted(lost)[:10], log.events)
